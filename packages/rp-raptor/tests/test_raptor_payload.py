"""Payloads: what goes in comes out, whatever it is and however large."""

from __future__ import annotations

import os
import pickle
import reprlib
from collections.abc import Callable
from concurrent.futures import CancelledError
from enum import Enum
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rp_api import constants as c
from rp_api.errors import DeserializationError, SerializationError
from rp_api.system.shared_directory import place
from rp_api.values import from_plain, is_pickled, readable, to_plain
from rp_api.wire import codec
from rp_raptor.errors import CallLost, RemoteError
from rp_raptor.master.tasks import restored
from rp_raptor.rank.running import arguments
from rp_raptor.wire import payload
from rp_raptor.wire.described import read_alike, write_success
from rp_raptor.wire.result_files import ResultFiles

# few and small ones: what matters is their variety
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner), max_leaves=5)


def files_in(directory: Path) -> ResultFiles:
    """Files for the results of a caller with this directory."""
    return ResultFiles(f'{place()}\n{directory}', f'{directory}/values')


class Span(NamedTuple):
    first: int
    others: tuple[int, ...]


class Text(str):
    __slots__ = ()


class Shape(str, Enum):
    ROUND = 'round'


class Table(dict[str, int]):
    pass


class Picky(Exception):
    """Cannot be restored from its arguments."""

    def __init__(self, name: str, number: int) -> None:
        super().__init__(name)
        self.number = number


@given(args=st.lists(VALUES, max_size=3), kwargs=st.dictionaries(st.text(), VALUES, max_size=3))
def test_arguments_arrive(args: list[Any], kwargs: dict[str, Any]) -> None:
    """Arguments of calls and of chunks are restored as they were."""
    fid, _ = payload.define(len)
    call = payload.encode_call(fid, args, kwargs)
    assert payload.kind_of(call) == b'F'
    assert payload.fid_of(call) == fid
    assert arguments(call) == (args, kwargs)
    chunk = payload.encode_chunk(fid, [(args, kwargs), ((), None)])
    assert payload.decode_chunk(chunk) == [(args, kwargs), ((), {})]


@given(VALUES)
def test_values_arrive(value: Any) -> None:
    """Values of calls are restored as they were."""
    assert payload.decode_result(payload.encode_value(value)) == value


def test_what_cannot_be_imported_travels_by_value(tmp_path: Path) -> None:
    """Lambdas and local classes are arguments and values like others."""
    class Local:
        number = 3

    args, _ = arguments(payload.encode_call(bytes(16), (lambda: 4, Local)))
    assert args[0]() == 4
    assert args[1].number == 3
    assert payload.decode_result(payload.encode_value(Local(), files_in(tmp_path))).number == 3


def test_what_cannot_travel_is_refused_at_once() -> None:
    """A call with such an argument is never sent."""
    with pytest.raises(SerializationError, match='generator'):
        payload.encode_call(bytes(16), (n for n in range(3)))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match='only a callable'):
        payload.define(3)  # type: ignore[arg-type]


def test_large_arrays_are_views_of_a_file(tmp_path: Path) -> None:
    """An array is written once, mapped once, and can be written to; the file is gone when the result was read."""
    array = np.arange(400_000, dtype=float).reshape(2, -1)
    result = payload.encode_value({'array': array, 'small': array[0, :3]}, files_in(tmp_path))
    assert len(result) < 200
    assert len(list(tmp_path.iterdir())) == 1
    value = payload.decode_result(result)
    assert list(tmp_path.iterdir()) == []
    assert np.array_equal(value['array'], array)
    assert np.array_equal(value['small'], array[0, :3])
    assert not value['array'].flags.owndata
    value['array'][0, 0] = 7


@pytest.mark.parametrize('value', [b'x' * (2 << 20), 'y' * (2 << 20), list(range(600_000))])
def test_other_large_values_go_through_a_file(tmp_path: Path, value: Any) -> None:
    """What has no buffers of its own is in a file as well."""
    result = payload.encode_value(value, files_in(tmp_path))
    assert result[:1] == b'L'
    assert payload.decode_result(result) == value


def test_a_result_that_nobody_wants_leaves_nothing(tmp_path: Path) -> None:
    """Its file is removed, and a second time does no harm."""
    result = payload.encode_value(bytes(2 << 20), files_in(tmp_path))
    payload.discard(payload.join_parts([result, payload.encode_value(1)]))
    payload.discard(result)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(DeserializationError, match='No such file'):
        payload.decode_result(result)


@pytest.mark.parametrize('size', [0, 10, 3 << 20])
def test_a_damaged_file_is_an_error(tmp_path: Path, size: int) -> None:
    """A file that was cut off gives no half arrays."""
    result = payload.encode_value(np.zeros(1 << 20), files_in(tmp_path))
    os.truncate(next(tmp_path.iterdir()), size)
    with pytest.raises(DeserializationError, match='cannot read'):
        payload.decode_result(result)


def test_no_room_for_a_large_value(tmp_path: Path) -> None:
    """A directory that cannot be written to makes it an error of the call."""
    (tmp_path / 'file').touch()
    with pytest.raises(SerializationError, match='cannot write'):
        payload.encode_value(bytes(2 << 20), files_in(tmp_path / 'file'))


def test_exceptions_arrive_with_their_traceback() -> None:
    """The type is the original one, the cause shows where it was raised."""
    try:
        dict[str, int]()['x']
    except KeyError as error:
        result = payload.encode_error(error)
    assert payload.is_error(result)
    with pytest.raises(KeyError, match='x') as caught:
        payload.decode_result(result)
    assert 'Traceback' in str(caught.value.__cause__)
    assert __file__ in str(caught.value.__cause__)


@pytest.mark.parametrize('error', [Picky('name', 3), SystemExit(3), KeyboardInterrupt(), ValueError(open)])
def test_exceptions_that_cannot_be_raised_are_told(error: BaseException) -> None:
    """What cannot be restored, or would end the program, is a RemoteError that says what it was."""
    result = payload.encode_error(error)
    if isinstance(error, ValueError):
        with pytest.raises(ValueError, match='open'):
            payload.decode_result(result)
    else:
        with pytest.raises(RemoteError, match=type(error).__name__):
            payload.decode_result(result)


def test_long_tracebacks_are_cut() -> None:
    """A message is never large because of an error."""
    assert len(payload.encode_error(ValueError('x' * (2 << 20)), 'y' * (1 << 20))) < 3 << 20
    assert len(payload.encode_error(ValueError(), 'y' * (1 << 20))) < 80_000


def test_chunks_have_a_result_per_call(tmp_path: Path) -> None:
    """Each call has its own, also if the chunk has failed as a whole, or is large."""
    outcomes = [payload.encode_value(1), payload.encode_error(ValueError('no'))]
    assert payload.outcomes_of(payload.encode_outcomes(outcomes), 2) == outcomes
    failed = payload.encode_error(ValueError('all'))
    assert payload.outcomes_of(failed, 3) == [failed] * 3
    large = payload.encode_outcomes([payload.encode_value(str(n) * 500) for n in range(2000)], files_in(tmp_path))
    assert len(large) < 200
    assert len(payload.outcomes_of(large, 2000)) == 2000
    with pytest.raises(DeserializationError, match='has 2 results'):
        payload.outcomes_of(payload.encode_outcomes(outcomes), 3)
    with pytest.raises(DeserializationError, match='not the result of a chunk'):
        payload.outcomes_of(payload.encode_value(1), 1)
    with pytest.raises(DeserializationError, match='not the result of one call'):
        payload.decode_result(payload.encode_outcomes(outcomes))


def test_parts_of_ranks_are_joined() -> None:
    """Values are a list, those of described tasks as well, and an error of one rank is the result."""
    assert payload.decode_result(payload.join_parts([payload.encode_value(n) for n in range(3)])) == [0, 1, 2]
    described = [payload.encode_result({'exit_code': code, 'stdout': f'out {code}', 'exception': 'E' if code else None})
                 for code in (0, 2, 1)]
    joined = payload.as_result(payload.join_parts(described))
    assert joined == {'exit_code': 2, 'exception': 'E', 'stdout': ['out 0', 'out 2', 'out 1'],
                      'stderr': [None] * 3, 'return_value': [None] * 3}
    with pytest.raises(ValueError, match='no'):
        payload.decode_result(payload.join_parts([payload.encode_value(1), payload.encode_error(ValueError('no'))]))


@given(st.text(st.characters(codec='utf-8'), max_size=300), st.text('/\xfcx', max_size=300), st.binary(max_size=300))
def test_calls_of_described_tasks(uid: str, sandbox: str, rest: bytes) -> None:
    """Short ones are read without the codec."""
    call, = payload.encode_alike(b'f' * 16, [uid], [sandbox], [rest])
    assert payload.decode_alike(call) == (uid, sandbox, rest)
    read = read_alike(call)
    assert read == (None if max(len(uid.encode()), len(sandbox.encode()), len(rest)) > 255 else (uid, sandbox, rest))
    for end in range(0, len(call) - 1, 7):
        assert read_alike(call[:end]) is None
    assert read_alike(call + b'x') is None


def test_a_call_without_differences_has_no_copy_of_nothing() -> None:
    call, = payload.encode_alike(b'f' * 16, ['task.000000'], ['/tmp/x'], [codec.NOTHING])
    assert payload.decode_alike(call)[2] is codec.NOTHING


@given(st.booleans() | st.integers() | st.integers(-1 << 63, (1 << 63) - 1) | st.floats())
def test_numbers_are_packed_as_the_codec_does(value: float) -> None:
    packed = write_success(value)
    if type(value) is int and not -1 << 63 <= value < 1 << 63:
        assert packed is None
    else:
        assert packed == b'S' + codec.pack({'exit_code': 0, 'return_value': value})


@pytest.mark.parametrize('value', [1 << power for power in range(63)] + [-1 << power for power in range(64)])
def test_the_largest_numbers_of_each_size(value: int) -> None:
    for near in {value - 1, value, value + 1} - {-(1 << 63) - 1}:
        assert write_success(near) == b'S' + codec.pack({'exit_code': 0, 'return_value': near})


@pytest.mark.parametrize('value', ['text', b'bytes', [1], np.float64(1)])
def test_other_values_are_for_the_codec(value: Any) -> None:
    assert write_success(value) is None


def test_described_tasks_always_have_a_result() -> None:
    """What the worker could not say is made of the error."""
    task = {'uid': 'task.000000', 'description': {'mode': 'task.function'}, 'sandbox': '/tmp/x'}
    assert payload.decode_described(payload.encode_described(task)) == task
    assert payload.as_result(payload.encode_result({'exit_code': 0})) == {'exit_code': 0}
    success = payload.encode_success(3)
    expected = {'exit_code': 0, 'return_value': 3, 'target_state': 'DONE'}
    assert payload.as_result(success) == payload.decode_result(success) == expected
    assert codec.unpack(payload.packed_success(success) or b'') == {'exit_code': 0, 'return_value': 3}
    assert payload.packed_success(payload.encode_result({'exit_code': 0})) is None
    assert payload.decode_result(payload.encode_success(None)) == {'exit_code': 0, 'target_state': 'DONE'}
    assert not payload.has_failed(success)
    assert payload.as_result(payload.join_parts([success, payload.encode_result({'exit_code': 1})])) == {
        'exit_code': 1, 'stdout': [None, None], 'stderr': [None, None], 'return_value': [3, None]}
    failed = payload.as_result(payload.encode_error(ValueError('no'), 'text'))
    assert failed == {'exit_code': 1, 'exception': "ValueError('no')", 'exception_detail': 'text',
                      'error': {'kind': 'exception'}, 'target_state': 'FAILED'}
    lost = payload.as_result(payload.encode_error(CallLost('its worker died')))
    assert lost['error'] == {'kind': 'lost'}
    for error, kind in ((CancelledError(), 'canceled'), (TimeoutError('5 s'), 'timeout')):
        result = payload.as_result(payload.encode_error(error))
        assert (result['target_state'], result['error']) == ('CANCELED', {'kind': kind})
    with pytest.raises(DeserializationError, match='described task'):
        payload.as_result(payload.encode_value(1))


def arrived(value: Any) -> Any:
    """The return value of a described task, as its application gets it."""
    return from_plain(codec.unpack(codec.pack(to_plain(value, '/proc/nonexistent', 'x'))))


@given(VALUES)
def test_return_values_keep_their_types(value: Any) -> None:
    assert repr(arrived(value)) == repr(value)


def nested(part: Callable[[Any], Any], depth: int) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = part(value)
    return value


@pytest.mark.parametrize('value', [
    (1, 2), [[(1, 2)]], {'k': {'l': ()}}, {(1, 2): 3}, {1: 'a', '1': 'b'}, {None: 1, True: 2, 1.5: 3}, {b'k': 1},
    {1, 2}, frozenset([1]), bytearray(b'x'), [bytearray(b'x')], 1 << 64, [1 << 70, -1 << 63], Text('x'), [Table(a=1)],
    HTTPStatus.OK, [Shape.ROUND], Span(1, (2, 3)), np.float64(1.5), [np.int64(3)], np.bool_(True),
    {'__rp_file__': '/etc/passwd'}, [{'__rp_pickled__': 1}], 1j, 'lone \ud800', ['name \udce9'], float('inf'),
    Path('/a'), nested(lambda value: [value], 200)], ids=reprlib.repr)
def test_return_values_that_are_no_plain_data(value: Any) -> None:
    found = arrived(value)
    assert pickle.dumps(found) == pickle.dumps(value)


def test_return_values_that_contain_an_object_twice() -> None:
    part = [1]
    found = arrived({'a': part, 'b': [part]})
    assert found == {'a': [1], 'b': [[1]]}
    assert found['a'] is found['b'][0]
    endless: list[Any] = []
    endless.append(endless)
    assert (found := arrived(endless))[0] is found
    assert (found := arrived(nested(lambda value: [value, value], 60)))[0] is found[1]


@pytest.mark.parametrize('value', [
    3, 'text', 'name \udce9', b'bytes', [1, 2.5, None, True], {'a': [{'b': [[]]}, {}], 'c': {'d': 'e'}},
    [(1 << 64) - 1, -1 << 63]], ids=reprlib.repr)
def test_plain_data_needs_no_unpickling(value: Any) -> None:
    plain = to_plain(value, '/proc/nonexistent', 'x')
    assert not is_pickled(plain)
    assert plain is value


@pytest.mark.parametrize('value', [
    (1, [2]), {'a': ({1}, frozenset())}, {(1, 2): 3}, 1 << 70, [1, {'b': None}], 'text', {1: b'x'}], ids=reprlib.repr)
def test_built_in_values_are_readable_without_running_code(value: Any) -> None:
    plain = to_plain(value, '/proc/nonexistent', 'x')
    assert repr(readable(plain)) == (repr(value) if value != {(1, 2): 3} else repr(plain))
    assert repr(readable([plain, 5])[1]) == '5'


def test_what_may_run_code_or_never_end_is_not_readable(tmp_path: Path) -> None:
    for value in (Path('/a'), Span(1, ()), nested(lambda value: [value, (value,)], 60), np.arange(300_000)):
        plain = to_plain(value, str(tmp_path), 'x')
        assert readable(plain) is plain
    for data in (b'nonsense', None, pickle.dumps(os.system), b'cos\nsystem\n(S"false"\ntR.'):
        plain = {'__rp_pickled__': data}
        assert readable(plain) is plain


def test_large_return_values_stay_in_a_file(tmp_path: Path) -> None:
    """The file can be read more than once: it belongs to the sandbox."""
    array = np.arange(300_000)
    plain = to_plain(array, str(tmp_path), 'task.000000')
    (path,) = tmp_path.glob('task.000000.*.value')
    assert plain == {'__rp_file__': str(path)}
    for _ in range(2):
        assert np.array_equal(from_plain(plain), array)
    assert np.array_equal(from_plain([plain, 3])[0], array)
    with pytest.raises(DeserializationError, match='cannot read'):
        from_plain({'__rp_file__': str(tmp_path / 'other')})
    with pytest.raises(SerializationError, match='cannot write'):
        to_plain(array, str(path), 'task.000000')


def test_values_that_cannot_be_serialised_or_restored() -> None:
    with pytest.raises(SerializationError, match='generator'):
        to_plain((n for n in range(3)), '/proc/nonexistent', 'x')
    with pytest.raises(DeserializationError, match='cannot restore'):
        from_plain({'__rp_pickled__': b'nonsense'})


def test_hooks_see_values_as_they_were(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a hook does not change travels on as it came; what it puts in its place becomes plain data."""
    monkeypatch.setenv('RP_PILOT_SANDBOX', str(tmp_path))
    plain = [to_plain({1, 2}, str(tmp_path), 'a'), {'x': 1}, {'__rp_pickled__': b'?'}, None, 5]
    tasks = [{'uid': f'task.{n}', 'description': {'mode': c.TASK_FUNCTION}, 'return_value': value}
             for n, value in enumerate(plain)]
    with restored(tasks):
        assert [task['return_value'] for task in tasks] == [{1, 2}, *plain[1:]]
        tasks[4]['return_value'] = {3}
    assert [task['return_value'] for task in tasks[:4]] == plain[:4]
    assert from_plain(tasks[4]['return_value']) == {3}
