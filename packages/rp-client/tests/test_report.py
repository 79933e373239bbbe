"""What is shown in a terminal while an application waits, and that nothing is shown otherwise."""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import redirect_stderr
from types import SimpleNamespace
from typing import Any

import pytest
from terminal_support import Terminal, opened

from rp_api import states
from rp_client.engine import waiting
from rp_client.engine.waiting import Board
from rp_client.progress import TaskProgress
from rp_client.report import MOST_PILOTS, TERMINAL, Report

NAMES = ('RADICAL_PILOT_REPORT', 'RADICAL_REPORT')


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    """A terminal; waits are shown soon."""
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(waiting, 'WAIT_MAX_S', 0.01)
    monkeypatch.setattr(waiting, 'REFRESH', 0.01)
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
    with redirect_stderr(terminal.stream), report.waiting('tasks', ended) as show:
        return Board(states.TASK).wait(tasks, None, timeout, show)


def test_pilots_and_a_bar(terminal: Terminal) -> None:
    threads = set(threading.enumerate())
    pilots = [*entities(1, 'old', states.DONE), *entities(2, 'pilot', states.PMGR_ACTIVE)]
    assert not wait(terminal, Report(lambda: pilots))
    assert set(threading.enumerate()) == threads
    text = terminal.text()
    for words in ('pilot.0000  PMGR_ACTIVE  local.exact', 'pilot.0001  PMGR_ACTIVE', 'tasks', '1/3'):
        assert words in text
    assert text.index('pilot.0001') < text.index('old.0000  DONE')   # the ones that matter come first
    assert text.rstrip('\r\n ') != '', 'something was shown'


def test_tasks_that_have_ended_before_count(terminal: Terminal) -> None:
    wait(terminal, Report(list), ended=5)
    assert '6/8' in terminal.text()


def test_it_is_erased_in_the_end(terminal: Terminal) -> None:
    wait(terminal, Report(lambda: entities(1, 'pilot', states.PMGR_ACTIVE)))
    terminal.close()
    shown = terminal.raw()
    assert shown.endswith('\x1b[1A\x1b[2K')   # up, and erase: the lines of the pilot and of the bar
    assert shown.rfind('\x1b[?25h') > shown.rfind('\x1b[?25l')   # the cursor is there


def test_many_pilots(terminal: Terminal) -> None:
    wait(terminal, Report(lambda: entities(MOST_PILOTS + 3, 'pilot', states.PMGR_ACTIVE)))
    text = terminal.text()
    assert f'pilot.{MOST_PILOTS - 1:04d}' in text
    assert f'pilot.{MOST_PILOTS:04d}' not in text
    assert 'and 3 more pilots' in text


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


def test_nothing_without_a_terminal(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(waiting, 'WAIT_MAX_S', 0.01)
    with Report(list).waiting('tasks') as show:
        assert show is None
    monkeypatch.setattr(sys, 'stderr', None)
    with Report(list).waiting('tasks') as show:
        assert show is None
    assert capfd.readouterr() == ('', '')


def test_a_progress_bar_of_the_application_has_the_terminal(terminal: Terminal) -> None:
    tmgr: Any = SimpleNamespace(get_tasks=list, register_callback=lambda cb: None, unregister_callback=lambda cb: None)
    with redirect_stderr(terminal.stream), TaskProgress(tmgr, 7):
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
    assert terminal.raw().endswith('\x1b[2K')


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
