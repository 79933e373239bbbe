"""What functions print: it comes with the results of their calls, if the caller wants it, and goes where it went."""

from __future__ import annotations

import io
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from rank_support import Manager, a_manager

from rp_raptor.client import output as module
from rp_raptor.client.output import BURST_LINES, MAX_LINE_CHARS, Output
from rp_raptor.rank.capture import Spoken
from rp_raptor.wire import payload
from rp_raptor.wire.carried_results import CONTENT
from rp_raptor.wire.output import MAX_OUTPUT_CHARS, OUTPUT, split_output, with_output
from rp_raptor.wire.result_files import ResultFiles


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    """A manager with one rank of a DefaultWorker."""
    with a_manager(tmp_path) as manager:
        manager.start()
        yield manager


def said(manager: Manager, func: Callable[..., Any], *args: Any, wanted: bool = True) -> tuple[str, str]:
    """What a call prints, which may fail."""
    (id,) = manager.give([payload.encode_call(manager.define(func, output=wanted), args)])
    manager.wait(lambda: id in manager.results)
    _, out, err = split_output(manager.results[id])
    return out, err


# on the rank

def test_print_and_logging(manager: Manager) -> None:
    def report(name: str) -> None:
        print('hello', name)
        print('and', name, file=sys.stderr)
        logging.warning('beware')

    assert said(manager, report, 'you') == ('hello you\n', 'and you\nWARNING:root:beware\n')
    assert said(manager, len, 'nothing') == ('', '')


def test_a_call_that_fails(manager: Manager) -> None:
    def fail() -> None:
        print('before')
        raise ValueError('wrong')

    (id,) = manager.give([payload.encode_call(manager.define(fail, output=True))])
    manager.wait(lambda: id in manager.results)
    result = manager.results[id]
    assert split_output(result)[1] == 'before\n'
    assert payload.is_error(result)
    with pytest.raises(ValueError, match='wrong'):
        payload.decode_result(result)


def test_threads(manager: Manager) -> None:
    def work() -> None:
        for number in range(3):
            thread = threading.Thread(target=print, args=(number,))
            thread.start()
            thread.join()

    assert said(manager, work)[0] == '0\n1\n2\n'


def test_asynchronous_functions_at_the_same_time(manager: Manager) -> None:
    async def work(number: int) -> int:
        import asyncio

        for step in range(3):
            print(number, step)
            await asyncio.sleep(0.01)
        await asyncio.to_thread(print, number, 'thread')
        return number

    fid = manager.define(work, output=True)
    for number, id in enumerate(manager.give([payload.encode_call(fid, (number,)) for number in range(4)])):
        manager.wait(partial(manager.results.__contains__, id))
        assert payload.decode_result(manager.results[id]) == number
        assert split_output(manager.results[id])[1].splitlines() == [
            *(f'{number} {step}' for step in range(3)), f'{number} thread']


def test_it_is_no_other_calls(manager: Manager) -> None:
    """A thread that a call has left prints when no call runs."""
    def leave() -> None:
        def late() -> None:
            time.sleep(0.3)
            print('late')
        threading.Thread(target=late, daemon=True).start()

    assert said(manager, leave) == ('', '')
    time.sleep(0.6)
    assert said(manager, print, 'mine') == ('mine\n', '')


def test_the_caller_does_not_want_it(manager: Manager) -> None:
    assert said(manager, print, 'hello', wanted=False) == ('', '')
    assert said(manager, print, 'hello') == ('hello\n', '')


def test_the_end_of_much(manager: Manager) -> None:
    def much() -> None:
        for _ in range(10):
            print('x' * 1_000_000)
        print('the end')

    out, _ = said(manager, much)
    assert len(out) == MAX_OUTPUT_CHARS
    assert out.endswith('x\nthe end\n')


def test_chunks(manager: Manager) -> None:
    (id,) = manager.give([payload.encode_chunk(manager.define(print, output=True), [((n,), None) for n in range(3)])])
    manager.wait(lambda: id in manager.results)
    assert split_output(manager.results[id])[1] == '0\n1\n2\n'
    assert [payload.decode_result(each) for each in payload.outcomes_of(manager.results[id], 3)] == [None] * 3


def test_threads_of_described_calls(manager: Manager) -> None:
    code = 'import threading; t = threading.Thread(target=print, args=("thread",)); t.start(); t.join(); print("main")'
    description = {'uid': 'task.0', 'mode': 'task.exec', 'code': code, 'pre_exec': []}
    (id,) = manager.give([payload.encode_described({'uid': 'task.0', 'description': description, 'sandbox': ''})])
    manager.wait(lambda: id in manager.results)
    assert payload.as_result(manager.results[id])['stdout'] == 'thread\nmain\n'


# on the wire

def test_results_with_output() -> None:
    value = payload.encode_value([1])
    both = with_output(with_output(value, 'a', ''), 'b', 'c')
    assert both[0] == OUTPUT
    assert split_output(both) == (value, 'ab', 'c')
    assert payload.decode_result(both) == [1]
    assert split_output(value) == (value, '', '')
    assert split_output(with_output(value, 'a\ud800', ''))[1] == 'a?'


def test_ranks_that_run_a_call_together() -> None:
    parts = [with_output(payload.encode_value(0), 'zero\n', ''), payload.encode_value(1),
             with_output(payload.encode_value(2), 'two\n', 'oh')]
    joined = payload.join_parts(parts)
    assert split_output(joined)[1:] == ('zero\ntwo\n', 'oh')
    assert payload.decode_result(joined) == [0, 1, 2]
    failed = payload.join_parts([parts[0], with_output(payload.encode_error(KeyError()), 'three', '')])
    assert split_output(failed)[1:] == ('zero\nthree', '')
    assert payload.is_error(failed)


# in the application

class Screen(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Screen:
    monkeypatch.setattr(module, '_writer', module._Writer())
    return Screen()


def shown(screen: Screen, place: str, *said: tuple[str, str], stdout: Any = None) -> list[str]:
    output = Output(place)
    with redirect_stdout(stdout or screen), redirect_stderr(screen):
        for out, err in said:
            output.take('work', out, err)
        output.flush()
    assert 'rp.output' not in {thread.name for thread in threading.enumerate()}
    return screen.getvalue().splitlines()


def test_lines_have_the_name_of_the_function(screen: Screen) -> None:
    assert shown(screen, 'terminal', ('one\ntwo', ''), ('', 'three\n')) == ['work: one', 'work: two', 'work: three']


def test_the_terminal_gets_no_more_than_one_can_read(screen: Screen) -> None:
    text = ''.join(f'{number}\n' for number in range(10_000))
    lines = shown(screen, 'terminal', (text, ''), (text, ''))
    assert BURST_LINES <= len(lines) - 1 < 2 * BURST_LINES
    assert f'work: {9_999}' in lines[:BURST_LINES]
    assert lines[-1].startswith(f'{20_000 - len(lines) + 1:,} more lines of functions: see future.stdout')


def test_long_lines_are_cut(screen: Screen) -> None:
    assert shown(screen, 'terminal', ('x' * 10_000, '')) == ['work: ' + 'x' * MAX_LINE_CHARS]


@pytest.mark.parametrize('place', ['future', 'file'])
def test_other_places(screen: Screen, place: str) -> None:
    assert shown(screen, place, ('one\n', '')) == []
    assert Output(place).wanted is (place == 'future')


def test_a_file(screen: Screen, tmp_path: Path) -> None:
    path = tmp_path / 'out'
    assert shown(screen, str(path), ('one\n', 'two\n'), ('three\n', '')) == []
    assert path.read_text() == 'one\ntwo\nthree\n'


def test_a_file_that_cannot_be_written(screen: Screen, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert shown(screen, str(tmp_path / 'none' / 'out'), ('one\n', '')) == []
    assert 'the output of work is not written' in caplog.text


def test_nothing_where_nobody_reads(screen: Screen) -> None:
    """What a program writes to a file is its own."""
    file = io.StringIO()
    assert shown(screen, 'terminal', ('one\n', 'two\n'), stdout=file) == ['work: two']
    assert file.getvalue() == ''


@pytest.mark.parametrize('place', ['here', '', 3, None])
def test_no_place(place: Any) -> None:
    with pytest.raises(ValueError, match="must be 'terminal'"):
        Output(place)


def test_a_stopped_terminal_stops_no_results(screen: Screen, monkeypatch: pytest.MonkeyPatch) -> None:
    goes_on = threading.Event()
    monkeypatch.setattr(screen, 'write', lambda text: goes_on.wait(30))
    output = Output('terminal')
    with redirect_stdout(screen), redirect_stderr(screen):
        for _ in range(20_000):
            output.take('work', 'x\n', '')
        assert not goes_on.is_set()
        goes_on.set()
        output.flush()


def test_a_large_result_for_another_node_travels_with_the_output(tmp_path: Path) -> None:
    """Carriers take files beside results, but not of those within others."""
    value = bytes(1 << 20)
    files = ResultFiles('elsewhere\n/', '', str(tmp_path))
    spoken = Spoken()
    spoken.add(0, 'said\n')
    told = spoken.attached(payload.encode_value(value, files))
    assert list(tmp_path.iterdir()) == []
    inner, out, err = split_output(told)
    assert (inner[:1], out, err) == (CONTENT, 'said\n', '')
    assert payload.decode_result(told) == value
