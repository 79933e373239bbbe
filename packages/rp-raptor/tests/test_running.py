"""What a rank does with a bulk of calls, without the process around it: `rp_raptor.rank.running`."""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import pytest

from rp_api import blobs
from rp_api.errors import DeserializationError
from rp_api.system.shared_directory import place
from rp_profiling.write.calls import DONE, FAILED, FUNCTION, INTERRUPTED, TASK
from rp_raptor.errors import CallCanceled
from rp_raptor.rank.recorder import CallRecorder
from rp_raptor.rank.running import NOTHING, Functions, Runner, arguments
from rp_raptor.wire import cursor
from rp_raptor.wire.batch import Payloads
from rp_raptor.wire.payload import decode_result, define, encode_call
from rp_raptor.wire.result_files import ResultFiles

Later = Coroutine[Any, Any, bytes]


class Site:
    """A runner, and what it has said."""

    def __init__(self, directory: Path) -> None:
        cursor.create(directory / 'cursors', 1)
        self.cursors = cursor.Cursors(directory / 'cursors')
        self.functions = Functions(str(directory), self.later)
        self.results_to = ''
        self.written: list[bytes] = []
        self.recorder = CallRecorder(self.written.append)
        self.runner = Runner(self.cursors, 0, self.functions, lambda call: b'R other', self.flush, self.park, 0.002,
                             self.recorder)
        self.results: dict[int, bytes] = {}
        self.flushes: list[int] = []
        self.parked: dict[int, Later] = {}

    async def later(self, call: Coroutine[Any, Any, Any], files: ResultFiles) -> bytes:
        await call
        return b''

    def flush(self) -> None:
        done = self.runner.taken()
        if done:
            ids, results, seconds = done
            assert seconds >= 0
            self.flushes.append(len(ids))
            self.results.update(zip(ids, results, strict=True))

    def park(self, id: int, call: Later) -> None:
        self.parked[id] = call

    def call(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> bytes:
        fid, blob = define(func, self.results_to)
        self.functions.define(fid, blob)
        return encode_call(fid, args, kwargs or None)

    def run(self, *calls: bytes) -> None:
        self.runner.bulk(self.cursors.position(0), array('Q', range(100, 100 + len(calls))), Payloads(calls))
        assert self.runner.running == NOTHING

    def value(self, id: int = 100) -> Any:
        return decode_result(self.results[id])


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def same(value: Any, more: Any = None) -> Any:
    return value if more is None else (value, more)


def fail(text: str) -> None:
    raise KeyError(text)


def test_each_call_has_its_result(site: Site) -> None:
    site.run(site.call(same, 1), site.call(fail, 'x'), site.call(same, 'a', more='b'), b'D anything else')
    assert sum(site.flushes) == 4
    assert site.value(100) == 1
    with pytest.raises(KeyError, match='x'):
        site.value(101)
    assert site.value(102) == ('a', 'b')
    assert site.results[103] == b'R other'


@pytest.mark.parametrize('value', [None, True, -1, 1 << 70, 0.5, 'text', b'bytes', b'', [1, {2}], bytes(20_000)])
def test_values_come_back(site: Site, value: object) -> None:
    site.run(site.call(same, value))
    assert site.value() == value


def test_large_values_go_to_files(site: Site, tmp_path: Path) -> None:
    site.results_to = f'{place()}\n{tmp_path}'
    site.run(site.call(same, bytes(blobs.LIMIT + 1)), site.call(same, ['x' * (blobs.LIMIT + 1)]))
    assert len(list(tmp_path.iterdir())) == 1 + 2
    assert site.value(100) == bytes(blobs.LIMIT + 1)
    assert site.value(101) == ['x' * (blobs.LIMIT + 1)]


def test_calls_that_were_taken_back_do_not_run(site: Site) -> None:
    calls = [site.call(same, number) for number in range(3)]
    first = site.cursors.position(0)

    def take_back() -> None:
        site.cursors.move(0, 1 << 32)
    site.runner.between = take_back   # after the first one
    site.runner.bulk(first, array('Q', [7, 8, 9]), Payloads(calls))
    assert list(site.results) == [7]


def test_it_stops_between_calls(site: Site) -> None:
    def stop() -> None:
        site.runner.stopped = True
    site.runner.between = stop
    site.run(site.call(same, 1), site.call(same, 2))
    assert list(site.results) == [100]


def test_results_do_not_wait_for_long_calls(site: Site) -> None:
    def spin() -> None:
        end = time.perf_counter() + 0.003
        while time.perf_counter() < end:
            pass
    site.run(site.call(same, 1), site.call(spin), site.call(same, 2))
    assert len(site.flushes) > 1


def test_an_interruption_is_the_result_whatever_became_of_it(site: Site) -> None:
    def interrupted(call: bytes) -> bytes:
        site.runner.raised = error = CallCanceled('enough')
        try:
            raise error
        except CallCanceled:
            raise ValueError('something in between has hidden it') from None
    result = site.runner.run(site.cursors.position(0), interrupted, b'x')
    with pytest.raises(CancelledError, match='enough'):
        decode_result(result)   # type: ignore[arg-type]
    assert site.runner.raised is None


def test_an_interruption_that_came_too_late_counts_no_more(site: Site) -> None:
    def interrupted(call: bytes) -> bytes:
        site.runner.raised = CallCanceled('enough')
        return b'R done'
    assert site.runner.run(site.cursors.position(0), interrupted, b'x') == b'R done'
    assert site.runner.raised is None


def test_asynchronous_calls_are_parked(site: Site) -> None:
    async def wait() -> None:
        """Nothing to wait for."""
    site.run(site.call(wait), site.call(same, 1))
    assert list(site.results) == [101]
    with pytest.raises(StopIteration):
        site.parked[100].send(None)


def test_functions_are_forgotten(site: Site) -> None:
    call = site.call(same, 1)
    site.functions.forget(call[1:17])
    site.run(call)
    with pytest.raises(DeserializationError, match='was never defined'):
        site.value()


def test_arguments_that_cannot_be_restored(site: Site) -> None:
    fid, _ = define(same)
    for body in (b'', b'nonsense', b'\x80\x05K\x01.'):
        with pytest.raises(DeserializationError, match='cannot restore the arguments'):
            arguments(b'F' + fid + body)


def records(site: Site) -> list[tuple[int, int, int]]:
    """Start, end and kind of each record."""
    site.recorder.flush()
    words = array('q', b''.join(site.written))
    return [(start, start + (rest >> 8), rest & 255) for start, rest in zip(words[::2], words[1::2], strict=True)]


def test_each_call_is_recorded(site: Site) -> None:
    before = site.recorder.now()
    site.run(site.call(same, 1), site.call(fail, 'x'), b'D anything else')
    found = records(site)
    assert [what for *_, what in found] == [FUNCTION | DONE, FUNCTION | FAILED, TASK | DONE]
    times = [before, *(time for start, stop, _ in found for time in (start, stop)), site.recorder.now()]
    assert times == sorted(times)


def test_records_are_written_in_blocks(site: Site) -> None:
    site.run(*[site.call(same, 1)] * 5000)
    assert [len(block) for block in site.written] == [4096 * 16]
    site.recorder.close()
    assert len(b''.join(site.written)) == 5001 * 16
    site.recorder.lap(DONE)
    site.recorder.flush()
    assert len(b''.join(site.written)) == 5001 * 16


def test_calls_that_record_themselves_are_recorded_once(site: Site) -> None:
    site.runner.run(site.cursors.position(0), lambda call: (site.recorder.lap(DONE), b'R')[1], b'F')
    assert [what for *_, what in records(site)] == [DONE]


def test_an_interrupted_call_is_recorded_as_such(site: Site) -> None:
    def interrupted(call: bytes) -> bytes:
        site.runner.raised = CallCanceled('it was canceled')
        raise site.runner.raised
    site.runner.run(site.cursors.position(0), interrupted, b'F')
    assert [what for *_, what in records(site)] == [INTERRUPTED]
