"""Whatever a peer sends, it is either a message of the right form or refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rp_api.coordination import wire
from rp_api.coordination.contract import BULK, PackedInfo, packed_info
from rp_api.errors import CoordinationError
from rp_api.wire import codec

plain = st.recursive(
    st.none() | st.booleans() | st.integers(-2**63, 2**64 - 1) | st.floats() | st.text(max_size=5)
    | st.binary(max_size=5) | st.sampled_from(['hello', 'tasks', 'update_tasks', 'seen', 'hold']),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3), max_leaves=10)

HELLO: dict[str, Any] = {
    'role': 'client', 'uid': 'u', 'agent': '', 'host': 'h', 'host_name': 'n', 'pid': 1, 'instance': 'i', 'since': 0,
    'others': 0, 'settled': 0, 'hold': False, 'recover': False}

BOTH: list[list[Any]] = [
    [0, 'hello', HELLO], [0, 'ping', 1, 2, 3, True], [0, 'seen', 1, 2], [0, 'bye'], [1, 'update_pilots', []],
    [2, 'update_tasks', [['a', 'DONE', None], ['b', 'DONE', b'info']]]]

OF_AGENTS: list[list[Any]] = [[0, 'hold', True]]

OF_CLIENTS: list[list[Any]] = [
    [0, 'detach'], [0, 'listen', 'tcp://127.0.0.1:*'], [0, 'recover', 0],
    [1, 'pilots', 'o', [['p', b'']]], [2, 'pilots', '', []], [8, 'acknowledge', ['o', 'p'], 3, 4],
    [3, 'tasks', 'p', 'o', b'', [['a', b''], ['b', b'x']]], [4, 'command', 'p', b'c'], [5, 'bind', 'p', ['a']],
    [6, 'bind', 'p', []], [7, 'note', 'k', b'v'],
    [8, 'forget', ['a', 'b']]]

GOOD = [('client', message) for message in BOTH + OF_CLIENTS] + [('agent', message) for message in BOTH + OF_AGENTS]


@pytest.mark.parametrize(('role', 'message'), GOOD, ids=lambda value: value if isinstance(value, str) else value[1])
def test_good_messages_pass(role: str, message: list[Any]) -> None:
    number, operation, arguments = wire.parse(codec.pack(message))
    wire.check(role, operation, arguments)
    assert [number, operation, *arguments] == message


@pytest.mark.parametrize(('role', 'message'), [('agent', message) for message in OF_CLIENTS]
                         + [('client', message) for message in OF_AGENTS])
def test_what_only_the_other_side_may_say_is_refused(role: str, message: list[Any]) -> None:
    _, operation, *arguments = message
    with pytest.raises(CoordinationError, match=f"operation '{operation}' of a {role} is unknown"):
        wire.check(role, operation, arguments)


@pytest.mark.parametrize('name', HELLO)
def test_a_hello_must_be_complete(name: str) -> None:
    wire.check_hello(HELLO)
    with pytest.raises(CoordinationError, match=f'hello with {name}=None'):
        wire.check_hello({key: value for key, value in HELLO.items() if key != name})


@given(data=st.binary(max_size=40) | plain.map(codec.pack), role=st.sampled_from(['client', 'agent']))
def test_anything_else_is_refused_or_has_the_right_form(data: bytes, role: str) -> None:
    try:
        number, operation, arguments = wire.parse(data)
        wire.check(role, operation, arguments)
    except CoordinationError:
        return
    assert type(number) is int
    assert number >= 0
    assert [number, operation, *arguments] == codec.unpack(data)


@given(arguments=st.lists(plain, max_size=4), operation=st.sampled_from(sorted({good[1] for _, good in GOOD})))
def test_arguments_have_the_types_that_the_hub_relies_on(arguments: list[Any], operation: str) -> None:
    role = 'agent' if operation == 'hold' else 'client'
    try:
        wire.check(role, operation, arguments)
    except CoordinationError:
        return
    expected = {'hello': [dict], 'pilots': [str, list], 'acknowledge': [list, int, int],
                'tasks': [str, str, bytes, list], 'command': [str, bytes],
                'bind': [str, list], 'forget': [list], 'note': [str, bytes], 'recover': [int], 'hold': [bool],
                'seen': [int, int], 'ping': [int, int, int, bool],
                'update_pilots': [list], 'update_tasks': [list]}
    assert [type(value) for value in arguments] == expected.get(operation, [])


@given(rows=st.lists(st.lists(plain, max_size=4), max_size=4))
def test_rows_have_the_columns_that_the_hub_relies_on(rows: list[Any]) -> None:
    fits = all(len(row) == 3 and type(row[0]) is type(row[1]) is str and type(row[2]) in (bytes, type(None))
               for row in rows)
    try:
        wire.check('agent', 'update_tasks', [rows])
    except CoordinationError:
        assert not fits
    else:
        assert fits


@given(name=st.sampled_from(sorted(HELLO)), value=plain)
def test_a_hello_with_a_wrong_value_is_refused(name: str, value: Any) -> None:
    try:
        wire.check_hello(HELLO | {name: value})
    except CoordinationError:
        return
    assert type(value) is type(HELLO[name])


@pytest.mark.parametrize('info', [b'\xc1', b'\x05', b'\x91' * 2000, b'\xdd\xff\xff\xff\xff', b'\xa1\xff'])
def test_what_cannot_be_read_says_so(info: bytes) -> None:
    assert 'cannot be read' in (wire.unpack_info(info) or {})['exception']


def test_what_is_known_with_a_state_is_read() -> None:
    assert wire.unpack_info(codec.pack({'exit_code': 1})) == {'exit_code': 1}
    assert wire.unpack_info(None) is wire.unpack_info(b'') is None


def test_what_is_known_can_stay_packed() -> None:
    """It is a mapping like any other, also for those who pack it once more."""
    info = {'exit_code': 1, 'stdout': 'text', 'slots': [1]}
    packed = PackedInfo(codec.pack(info))
    assert packed == info == dict(packed)
    assert (packed['stdout'], packed.get('stderr'), len(packed), bool(packed)) == ('text', None, 3, True)
    packed['slots'].append(2)
    assert packed['slots'] == [1]
    assert packed_info(packed) is packed.packed
    assert packed_info(info) == codec.pack(packed) == packed.packed
    assert packed_info(None) is packed_info({}) is None
    assert 'cannot be read' in PackedInfo(b'\xc1')['exception']


@pytest.mark.parametrize('sizes', [[], [1], [1] * BULK, [1] * (2 * BULK + 1), [wire.MESSAGE_BYTES // 2 + 1] * 5,
                                   [1] * (BULK + 3) + [wire.MESSAGE_BYTES, 1, wire.MESSAGE_BYTES // 2]])
def test_rows_go_in_parts_that_fit(sizes: list[int]) -> None:
    rows = [(str(number), b'x' * size) for number, size in enumerate(sizes)]
    parts = list(wire.parts(rows))
    assert [row for part in parts for row in part] == rows
    for part in parts:
        assert 0 < len(part) <= BULK
        assert sum(len(body) for _, body in part[:-1]) < wire.MESSAGE_BYTES
