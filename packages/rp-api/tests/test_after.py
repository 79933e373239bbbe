"""The attribute `after`: its forms, and what is none."""

from __future__ import annotations

from typing import Any

import pytest

from rp_api.description.after import conditions
from rp_api.description.casts import GeneratedUid
from rp_api.description.task import TaskDescription
from rp_api.errors import DescriptionError


class Submitted:
    uid = GeneratedUid('task.000001')


def cast(value: Any) -> Any:
    description = TaskDescription({'executable': 'true', 'after': value})
    description.verify()
    return description.after


@pytest.mark.parametrize(('given', 'expected'), [
    (['a', 'b'], ['a', 'b']), ('a', ['a']), (('a',), ['a']), ([], []), (None, []), (Submitted(), ['task.000001']),
    ([Submitted(), 'a'], ['task.000001', 'a']), ({Submitted(): 'failed'}, {'task.000001': 'failed'}), ({}, {}),
    ({'a': 'done', 'b': 'ended'}, {'a': 'done', 'b': 'ended'}), (iter(['a', 'b']), ['a', 'b'])])
def test_forms(given: Any, expected: Any) -> None:
    found = cast(given)
    assert found == expected
    assert set(map(type, found)) <= {str}


@pytest.mark.parametrize('value', [[None], [['a']], {'a': 'finished'}, {'a': None}, {None: 'done'}, object()])
def test_what_is_refused(value: Any) -> None:
    with pytest.raises(DescriptionError, match=r"TaskDescription\.after must be a list of tasks or uids, or a dict of "
                                               r"these with one of 'done', 'ended', 'failed' for each"):
        cast(value)


def test_uids_are_not_empty() -> None:
    with pytest.raises(DescriptionError, match='not empty'):
        cast(['a', ''])


def test_a_list_is_shared_and_stands_for_done() -> None:
    given = ['a', 'b']
    assert cast(given) is given
    assert list(conditions(given)) == [('a', 'done'), ('b', 'done')]
    assert list(conditions({'a': 'ended'})) == [('a', 'ended')]


@pytest.mark.parametrize('name', ['depends_on', 'dependencies', 'wait_for'])
def test_other_names_lead_here(name: str) -> None:
    with pytest.raises(DescriptionError, match='use "after"'):
        TaskDescription({'executable': 'true', name: ['a']}).verify()
