"""Conditions on tasks: what they can say, and that they can do nothing else."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rp_client.inspect.condition import Condition

NAMES = ('cpu', 'exit_code', 'name', 'memory')


def holds(text: str, **items: Any) -> bool:
    return Condition(text, NAMES)(items)


@pytest.mark.parametrize(('text', 'expected'), [
    ('cpu > 3 and exit_code == 1', True), ('cpu > 3 and not exit_code == 1', False), ('3 < cpu <= 4', True),
    ('memory >= 2 * GB', True), ('-memory < 0', True), ('memory / MB == 2000', True), ('name in ("fit", "x")', True),
    ('name not in ["fit"]', False), ('"fi" in name', True), ('exit_code != None', True), ('name is None', False),
    ('cpu - exit_code > 2.9 or nothing_else', None)])
def test_conditions(text: str, expected: bool | None) -> None:
    items = {'cpu': 4.0, 'exit_code': 1, 'name': 'fit', 'memory': 2e9}
    if expected is None:
        with pytest.raises(ValueError, match='nothing_else is unknown'):
            holds(text, **items)
    else:
        assert holds(text, **items) is expected


def test_orders_of_what_is_not_known_are_false() -> None:
    for text in ('cpu > 3', 'cpu <= 3', '-cpu < 3', 'cpu * 2 > 1', 'cpu in (1, 2)'):
        assert not holds(text, cpu=None)
    assert holds('cpu == None', cpu=None)


@pytest.mark.parametrize('text', [
    '__import__("os")', 'name.upper()', 'name[0]', '[x for x in name]', 'lambda: 1', 'cpu ** 99', 'f"{name}"',
    'cpu if name else 1', '(cpu := 1)', '{1: 2}', 'cpu << 2', '', 'cpu >', '1; 2', f'{"(" * 400}1{")" * 400}',
    ' + '.join(['1'] * 900), '~cpu', 'cpu and (yield)', '*name', 'print'])
def test_nothing_else_is_allowed(text: str) -> None:
    with pytest.raises(ValueError, match=r'condition|unknown'):
        Condition(text, NAMES)


def test_what_cannot_be_compared() -> None:
    for text in ('name > 3', 'cpu / 0 > 1', 'name * 3 == "x"', 'cpu in 3'):
        with pytest.raises(ValueError, match='cannot be evaluated'):
            holds(text, name='a', cpu=1)


@given(st.text(max_size=40))
def test_any_text_is_a_condition_or_refused(text: str) -> None:
    with suppress(ValueError):
        Condition(text, NAMES)({'cpu': 1, 'name': 'a'})
