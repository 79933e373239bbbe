"""The line that is shown while an application waits: in a terminal, and elsewhere."""

from __future__ import annotations

import errno
import io
import logging
import os
import re
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from types import SimpleNamespace
from typing import Any

import pytest
from terminal_support import Terminal, lines_on_screen, opened

from rp_api import states
from rp_client import report as module
from rp_client.engine import waiting
from rp_client.engine.waiting import Board
from rp_client.progress import TaskProgress
from rp_client.progress_line import TerminalLine, can_draw
from rp_client.report import TERMINAL, Display, Report, Tally, Ticker

ERASE = '\r\x1b[K'
NAMES = ('RADICAL_PILOT_REPORT', 'RADICAL_REPORT')


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    """A terminal; waits are shown soon."""
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(waiting, 'WAIT_MAX_S', 0.01)
    monkeypatch.setattr(waiting, 'REFRESH', 0.01)
    monkeypatch.setattr(module, 'FIRST_S', 0.0)
    monkeypatch.setattr(module, 'REFRESH_S', 0.0)
    with opened(monkeypatch) as made:
        yield made
    assert TERMINAL.acquire(blocking=False), 'the terminal is still taken'
    TERMINAL.release()


def entities(count: int, kind: str, state: str) -> list[Any]:
    description = SimpleNamespace(resource='local.exact')
    return [SimpleNamespace(uid=f'{kind}.{number:04d}', state=state, description=description)
            for number in range(count)]


def wait(terminal: Terminal, report: Report, timeout: float = 0.1, ended: int = 0) -> bool:
    """A wait for three tasks, of which one has ended, as have others that the application does not hold."""
    tasks = entities(3, 'task', states.NEW)
    tasks[0].state = states.DONE
    with (redirect_stderr(terminal.stream),
          report.waiting('tasks', lambda: Counter(task.state for task in tasks), ended) as show):
        return Board(states.TASK).wait(tasks, None, timeout, show)


def test_one_line(terminal: Terminal) -> None:
    threads = set(threading.enumerate())
    assert not wait(terminal, Report(lambda: entities(1, 'pilot', states.PMGR_ACTIVE)))
    assert set(threading.enumerate()) == threads
    text = terminal.text()
    assert '\n' not in text
    assert text.strip('\r').startswith('tasks ')
    assert text.strip('\r').endswith('1/3, 1 done')


@pytest.mark.parametrize(('pilots', 'words'), [
    (entities(1, 'pilot', states.PMGR_LAUNCHING), '1/3, 1 done, pilot.0000 is PMGR_LAUNCHING on local.exact'),
    (entities(2, 'pilot', states.PMGR_LAUNCHING), '1/3, 1 done, pilots: 2 PMGR_LAUNCHING')])
def test_what_tasks_wait_for(terminal: Terminal, pilots: list[Any], words: str) -> None:
    wait(terminal, Report(lambda: pilots))
    assert words in terminal.text()


def test_a_wait_for_pilots(terminal: Terminal) -> None:
    pilots = [*entities(1, 'pilot', states.PMGR_ACTIVE), *entities(2, 'pilot', states.PMGR_LAUNCHING)]
    with redirect_stderr(terminal.stream), Report(lambda: pilots).waiting('pilots') as show:
        assert show is not None
        show(1, 3)
    assert terminal.text().strip('\r').endswith('1/3, pilots: 1 PMGR_ACTIVE, 2 PMGR_LAUNCHING')


def test_tasks_that_have_ended_before_count(terminal: Terminal) -> None:
    wait(terminal, Report(list), ended=5)
    assert '6/8' in terminal.text()


def test_it_is_erased_in_the_end(terminal: Terminal) -> None:
    wait(terminal, Report(lambda: entities(1, 'pilot', states.PMGR_ACTIVE)))
    terminal.close()
    shown = terminal.raw()
    assert shown.endswith(ERASE)
    assert '\x1b[?25l' not in shown   # the cursor is always there


def test_the_rate_and_what_is_left(terminal: Terminal) -> None:
    with redirect_stderr(terminal.stream), Report(list).waiting('tasks') as show:
        assert show is not None
        show(0, 1000)
        for arrived in (1, 2, 3):
            time.sleep(0.1)
            show(arrived, 1000)
    assert re.search(r'3/1,000, [\d.]+/s, 1?\d?\d:\d\d left', terminal.text())


def test_nothing_in_the_first_second(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, 'FIRST_S', 30.0)
    wait(terminal, Report(list))
    assert terminal.text() == ''


def test_counting_takes_little_of_the_time(terminal: Terminal) -> None:
    """What takes long to count is counted rarely."""
    counted: list[float] = []

    def found() -> Counter[str]:
        counted.append(time.monotonic())
        time.sleep(0.05)
        return Counter()

    with redirect_stderr(terminal.stream), Report(list).waiting('tasks', found) as show:
        assert show is not None
        for _ in range(20):
            show(1, 2)
    assert len(counted) == 1


# what the program writes beside it

@contextmanager
def line_in(terminal: Terminal) -> Iterator[TerminalLine]:
    """A line in a terminal to which the program writes, too."""
    with redirect_stderr(terminal.stream), redirect_stdout(terminal.stream):
        yield TerminalLine(sys.stderr)


def test_the_program_writes_above(terminal: Terminal) -> None:
    with line_in(terminal) as line:
        handler = logging.StreamHandler(sys.stderr)   # which keeps the stream
        line.draw('tasks', 0.5, '1/2')
        print('a result')
        line.draw('tasks', 0.5, '1/2')
        handler.emit(logging.makeLogRecord({'msg': 'a warning'}))
        line.draw('tasks', 1.0, '2/2')
        line.close(keep=False)
        print('the end')
    terminal.close()
    assert lines_on_screen(terminal.raw()) == ['a result', 'a warning', 'the end']


def test_nothing_is_drawn_into_a_line_of_the_program(terminal: Terminal) -> None:
    with line_in(terminal) as line:
        print('how far', end='', flush=True)
        line.draw('tasks', 0.5, '1/2')
        print(' it is')
        line.draw('tasks', 0.5, '1/2')
    terminal.close()
    assert lines_on_screen(terminal.raw()) == ['how far it is', 'tasks ━━━━━━━━━━────────── 1/2']


def test_a_redirection_outlasts_the_line(terminal: Terminal) -> None:
    kept = io.StringIO()
    with line_in(terminal) as line:
        with redirect_stdout(kept):
            line.close(keep=False)
            print('kept')
        assert sys.stdout is terminal.stream
    assert kept.getvalue() == 'kept\n'


def test_a_long_line_is_cut(terminal: Terminal) -> None:
    with line_in(terminal) as line:
        line.draw('tasks', 0.5, 'x' * 1000)
    assert len(terminal.text().strip('\r')) == 99


def test_a_fork_prints_while_the_line_is_drawn(terminal: Terminal) -> None:
    """Another thread may have the lock in that moment."""
    with line_in(terminal) as line:
        locked, over = threading.Event(), threading.Event()

        def draw() -> None:
            with line._lock:
                locked.set()
                over.wait(30)

        thread = threading.Thread(target=draw)
        thread.start()
        locked.wait(30)
        child = os.fork()
        if not child:
            print('from the child', flush=True)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        over.set()
        thread.join(30)
    assert 'from the child' in terminal.text()


def test_a_stopped_terminal_does_not_stop_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, 'FIRST_S', 0.0)
    written = threading.Event()

    class Stopped(io.StringIO):
        def isatty(self) -> bool:
            return True

        def write(self, text: str) -> int:
            written.set()
            threading.Event().wait(3)
            return 0

    with redirect_stderr(Stopped()):
        ticker = Ticker(Display('tasks'), lambda: Tally(1, 2))
        assert written.wait(30)
        start = time.monotonic()
        ticker.close()
        assert ticker._thread.is_alive()
    assert time.monotonic() - start < 2.9
    ticker._thread.join(30)
    ticker._display.clear()


def test_a_short_wait(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, 'WAIT_MAX_S', 30.0)
    wait(terminal, Report(list))
    assert terminal.text() == ''


@pytest.mark.parametrize(('environment', 'on'), [
    ({}, True), ({'RADICAL_REPORT': 'TRUE'}, True), ({'RADICAL_REPORT': 'FALSE'}, False),
    ({'RADICAL_REPORT': 'off'}, False), ({'RADICAL_PILOT_REPORT': '0'}, False),
    ({'RADICAL_PILOT_REPORT': 'TRUE', 'RADICAL_REPORT': 'FALSE'}, True)])
def test_variables(terminal: Terminal, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], on: bool) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    report = Report(list)
    assert report._enabled is on
    wait(terminal, report)
    assert ('1/3' in terminal.text()) is on


def test_clients_switch_it_off(terminal: Terminal) -> None:
    report = Report(list)
    report._enabled = False
    wait(terminal, report)
    assert terminal.text() == ''


def test_lines_without_a_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    report = Report(lambda: entities(1, 'pilot', states.PMGR_ACTIVE), every=0.2)
    with report.waiting('tasks', lambda: Counter({states.DONE: 3, states.FAILED: 1})) as show:
        assert show is not None
        show(4, 9)
        assert capfd.readouterr() == ('', '')
        time.sleep(0.25)
        show(4, 9)
        show(4, 9)
    assert capfd.readouterr() == ('', 'tasks: 4/9, 3 done, 1 failed\n')


def test_without_standard_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, 'stderr', None)
    report = Report(list, every=0.0)
    with report.waiting('tasks') as show:
        assert show is not None
        show(0, 1)
    report.say('something')


def test_nothing_if_it_is_not_wanted(terminal: Terminal) -> None:
    report = Report(list, wanted=False)
    with redirect_stderr(terminal.stream):
        report.say('something')
        with report.waiting('tasks') as show:
            assert show is None
    assert terminal.text() == ''


def test_a_prompt_of_python_is_not_disturbed(monkeypatch: pytest.MonkeyPatch, terminal: Terminal) -> None:
    monkeypatch.setattr(sys, 'ps1', '>>> ', raising=False)
    assert not can_draw(terminal.stream)


def test_a_progress_bar_of_the_application_has_the_terminal(terminal: Terminal) -> None:
    tmgr: Any = SimpleNamespace(_owner=SimpleNamespace(states=Counter))
    with redirect_stderr(terminal.stream), TaskProgress(tmgr, 7) as progress:
        progress._ticker._display.last(progress._tally())   # type: ignore[union-attr]
        wait(terminal, Report(list))
    text = terminal.text()
    assert '0/7' in text
    assert '1/3' not in text


def test_ctrl_c(terminal: Terminal) -> None:
    """What was shown is erased before anything else is said."""
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        wait(terminal, Report(list), 30)
    terminal.close()
    assert terminal.raw().endswith(ERASE)


class Broken(io.StringIO):
    """A terminal to which nothing can be written any more."""

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        raise OSError(errno.EIO, 'the terminal is closed')


def test_a_terminal_that_is_closed_does_not_end_the_wait(terminal: Terminal) -> None:
    with redirect_stderr(Broken()), Report(list).waiting('tasks') as show:
        assert show is not None
        show(0, 1)
        show(1, 1)
