"""What an application shows about its tasks while it waits for them."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from client_support import a_task
from terminal_support import Terminal, assert_ended, opened

from rp_api import states
from rp_client import progress
from rp_client.handles.task import Task
from rp_client.progress import TaskProgress


class Tasks:
    """Takes the place of a task manager: tells callbacks what the test says."""

    def __init__(self, count: int = 0) -> None:
        self.tasks: list[Task] = [a_task(f'task.{number}').handle for number in range(count)]
        self.callbacks: list[Callable[..., None]] = []

    def register_callback(self, callback: Callable[..., None]) -> None:
        self.callbacks.append(callback)

    def unregister_callback(self, callback: Callable[..., None]) -> None:
        if callback not in self.callbacks:
            raise ValueError('not registered')
        self.callbacks.remove(callback)

    def get_tasks(self) -> list[Task]:
        return self.tasks

    def reach(self, state: str, *tasks: Task, silent: bool = False) -> None:
        for task in tasks:
            task._record.state = state
            for callback in [] if silent else self.callbacks:
                callback(task, state)


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[[], list[str]]:
    """What was written to standard error, which is no terminal here; there is no pause between two lines."""
    monkeypatch.setattr(progress, 'LINE_EVERY', 0.0)
    seen: list[str] = []

    def read() -> list[str]:
        seen.extend(capsys.readouterr().err.splitlines())
        return seen[:]
    return read


def shown(tmgr: Any, total: int, **options: bool) -> TaskProgress:
    return TaskProgress(tmgr, total, **options)


def test_plain_lines(lines: Callable[[], list[str]]) -> None:
    tmgr = Tasks(3)
    a, b, c = tmgr.tasks
    with shown(tmgr, 3):
        assert lines() == []
        tmgr.reach(states.AGENT_EXECUTING, a, b)
        tmgr.reach(states.AGENT_STAGING_OUTPUT_PENDING, a)
        tmgr.reach(states.DONE, a)
        tmgr.reach(states.FAILED, b)
        tmgr.reach(states.CANCELED, c)
    assert lines() == [
        'tasks: 0/3 ended, 1 running', 'tasks: 0/3 ended, 2 running', 'tasks: 0/3 ended, 1 running',
        'tasks: 1/3 ended, 1 running', 'tasks: 2/3 ended, 0 running, 1 FAILED',
        'tasks: 3/3 ended, 0 running, 1 CANCELED, 1 FAILED', 'tasks: 3/3 ended, 0 running, 1 CANCELED, 1 FAILED']
    assert tmgr.callbacks == []


def test_lines_are_rare(monkeypatch: pytest.MonkeyPatch, lines: Callable[[], list[str]]) -> None:
    """The first one comes at once, the last one in any case."""
    monkeypatch.setattr(progress, 'LINE_EVERY', 1e9)
    tmgr = Tasks(100)
    with shown(tmgr, 100):
        tmgr.reach(states.DONE, *tmgr.tasks)
    assert lines() == ['tasks: 1/100 ended, 0 running', 'tasks: 100/100 ended, 0 running']


def test_quiet(lines: Callable[[], list[str]]) -> None:
    tmgr = Tasks(2)
    with shown(tmgr, 2, quiet=True):
        assert tmgr.callbacks == []
        tmgr.reach(states.DONE, *tmgr.tasks)
    assert lines() == []


def test_tasks_of_before_do_not_count(lines: Callable[[], list[str]]) -> None:
    """A manager may be used for several sets of tasks."""
    tmgr = Tasks(3)
    old, pending, new = tmgr.tasks
    old._record.state = states.DONE
    with shown(tmgr, 2):
        tmgr.reach(states.DONE, old, pending)
        tmgr.reach(states.FAILED, new)
    assert lines()[-1] == 'tasks: 2/2 ended, 0 running, 1 FAILED'


def test_what_callbacks_have_not_told_yet(lines: Callable[[], list[str]]) -> None:
    tmgr = Tasks(3)
    a, b, c = tmgr.tasks
    with shown(tmgr, 3):
        tmgr.reach(states.AGENT_EXECUTING, a, b)
        tmgr.reach(states.DONE, a, silent=True)
        tmgr.reach(states.AGENT_EXECUTING, c, silent=True)
    assert lines()[-1] == 'tasks: 1/3 ended, 2 running'


def test_callbacks_that_come_too_late(lines: Callable[[], list[str]]) -> None:
    """The thread for callbacks may have some of them still."""
    tmgr = Tasks(2)
    with shown(tmgr, 2):
        tmgr.reach(states.DONE, *tmgr.tasks)
        (callback,) = tmgr.callbacks
    before = lines()
    callback(tmgr.tasks[0], states.DONE)
    assert lines() == before


def test_corrected_state(lines: Callable[[], list[str]]) -> None:
    """A task that was cancelled too late is done."""
    tmgr = Tasks(1)
    with shown(tmgr, 1):
        tmgr.reach(states.CANCELED, *tmgr.tasks)
        tmgr.reach(states.DONE, *tmgr.tasks)
    assert lines() == ['tasks: 1/1 ended, 0 running, 1 CANCELED', *['tasks: 1/1 ended, 0 running'] * 2]


def test_bulks(lines: Callable[[], list[str]]) -> None:
    """Callbacks for bulks show the present states, so that the last one may be told several times."""
    tmgr = Tasks(2)
    with shown(tmgr, 2):
        tmgr.reach(states.AGENT_EXECUTING, *tmgr.tasks, silent=True)
        tmgr.callbacks[0](tmgr.tasks)
        tmgr.reach(states.DONE, tmgr.tasks[0], silent=True)
        for _ in range(3):
            tmgr.callbacks[0](tmgr.tasks)
    assert lines() == ['tasks: 0/2 ended, 2 running', *['tasks: 1/2 ended, 1 running'] * 4]


def test_all_callbacks_were_unregistered(lines: Callable[[], list[str]]) -> None:
    tmgr = Tasks(1)
    with shown(tmgr, 1):
        tmgr.callbacks.clear()
        tmgr.reach(states.DONE, *tmgr.tasks)
    assert lines() == ['tasks: 1/1 ended, 0 running']


def test_exception_inside(lines: Callable[[], list[str]]) -> None:
    tmgr = Tasks(1)

    def interrupted() -> None:
        with shown(tmgr, 1):
            tmgr.reach(states.AGENT_EXECUTING, *tmgr.tasks)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert lines()[-1] == 'tasks: 0/1 ended, 1 running'
    assert tmgr.callbacks == []


# in a terminal

@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    with opened(monkeypatch) as made:
        yield made


def test_bar(terminal: Terminal) -> None:
    threads = set(threading.enumerate())
    tmgr = Tasks(4)
    with redirect_stderr(terminal.stream), shown(tmgr, 4):
        tmgr.reach(states.AGENT_EXECUTING, *tmgr.tasks)
        tmgr.reach(states.DONE, *tmgr.tasks[:2])
        tmgr.reach(states.FAILED, tmgr.tasks[2])
    assert_ended(set(threading.enumerate()) - threads)
    text = terminal.text()
    last = re.split(r'[\r\n]+', text.strip())[-1]
    assert 'tasks' in last
    assert '3/4' in last
    assert '1 running, 1 FAILED' in last
    assert 'ended' not in text


def test_bar_is_taken_down_by_an_exception(terminal: Terminal) -> None:
    threads = set(threading.enumerate())
    tmgr = Tasks(1)
    with pytest.raises(ZeroDivisionError), redirect_stderr(terminal.stream), shown(tmgr, 1):
        raise ZeroDivisionError
    assert_ended(set(threading.enumerate()) - threads)
    assert '0/1' in terminal.text()


def test_quiet_in_a_terminal(terminal: Terminal) -> None:
    tmgr = Tasks(1)
    with redirect_stderr(terminal.stream), shown(tmgr, 1, quiet=True):
        tmgr.reach(states.DONE, *tmgr.tasks)
    assert terminal.text() == ''


def test_a_second_bar_is_plain(terminal: Terminal) -> None:
    """A terminal has room for one."""
    one, two = Tasks(1), Tasks(1)
    with redirect_stderr(terminal.stream), shown(one, 1), shown(two, 1):
        two.reach(states.DONE, *two.tasks)
    assert 'tasks: 1/1 ended' in terminal.text()


def test_what_the_application_prints_stays_where_it_goes(terminal: Terminal, tmp_path: Path) -> None:
    with (open(tmp_path / 'out', 'w') as out, redirect_stdout(out), redirect_stderr(terminal.stream),
          shown(Tasks(1), 1)):
        print('a result')
    assert (tmp_path / 'out').read_text() == 'a result\n'
    assert 'a result' not in terminal.text()
