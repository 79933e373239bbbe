"""Whatever a peer sends, it is either a message of the right form or refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rp_api.coordination import wire
from rp_api.errors import CoordinationError
from rp_api.mesh import codec

plain = st.recursive(
    st.none() | st.booleans() | st.integers(-2**63, 2**64 - 1) | st.floats() | st.text(max_size=5)
    | st.binary(max_size=5) | st.sampled_from(['hello', 'tasks', 'update_tasks', 'seen']),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3), max_leaves=10)

HELLO: dict[str, Any] = {'role': 'client', 'uid': 'u', 'host': 'h', 'pid': 1, 'instance': 'i', 'since': 0, 'settled': 0}

GOOD: list[list[Any]] = [
    [0, 'hello', HELLO], [0, 'ping'], [0, 'seen'], [0, 'bye'], [1, 'pilots', [['p', b'']]], [2, 'pilots', []],
    [3, 'tasks', 'p', b'', [['a', b''], ['b', b'x']]], [4, 'command', 'p', b'c'], [5, 'update_pilots', []],
    [6, 'update_tasks', [['a', 'DONE', None], ['b', 'DONE', b'info']]]]


@pytest.mark.parametrize('message', GOOD, ids=lambda message: f'{message[0]} {message[1]}')
def test_good_messages_pass(message: list[Any]) -> None:
    number, operation, arguments = wire.parse(codec.pack(message))
    wire.check(operation, arguments)
    assert [number, operation, *arguments] == message


def test_a_good_hello_passes() -> None:
    wire.check_hello(HELLO)


@pytest.mark.parametrize('name', HELLO)
def test_a_hello_must_be_complete(name: str) -> None:
    with pytest.raises(CoordinationError, match=f'hello with {name}=None'):
        wire.check_hello({key: value for key, value in HELLO.items() if key != name})


@given(data=st.binary(max_size=40) | plain.map(codec.pack))
def test_anything_else_is_refused_or_has_the_right_form(data: bytes) -> None:
    try:
        number, operation, arguments = wire.parse(data)
        wire.check(operation, arguments)
    except CoordinationError:
        return
    assert type(number) is int
    assert number >= 0
    assert [number, operation, *arguments] == codec.unpack(data)


@given(arguments=st.lists(plain, max_size=4), operation=st.sampled_from(sorted({good[1] for good in GOOD})))
def test_arguments_have_the_types_that_the_hub_relies_on(arguments: list[Any], operation: str) -> None:
    try:
        wire.check(operation, arguments)
    except CoordinationError:
        return
    expected = {'hello': [dict], 'pilots': [list], 'tasks': [str, bytes, list], 'command': [str, bytes],
                'update_pilots': [list], 'update_tasks': [list]}
    assert [type(value) for value in arguments] == expected.get(operation, [])


@given(name=st.sampled_from(sorted(HELLO)), value=plain)
def test_a_hello_with_a_wrong_value_is_refused(name: str, value: Any) -> None:
    try:
        wire.check_hello(HELLO | {name: value})
    except CoordinationError:
        return
    assert type(value) is type(HELLO[name])
