"""What `TaskProgress` shows: a line that changes in a terminal, and lines now and then elsewhere."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from terminal_support import Terminal, assert_ended, opened

from rp_api import states
from rp_client.progress import TaskProgress


class Tasks:
    """Takes the place of a task manager: the numbers of its tasks are what the test says."""

    def __init__(self, **numbers: int) -> None:
        self.numbers = numbers
        self._owner = SimpleNamespace(states=self._states)

    def _states(self) -> Counter[str]:
        return Counter({getattr(states, name): number for name, number in self.numbers.items()})


@pytest.fixture(autouse=True)
def reporting(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ('RADICAL_PILOT_REPORT', 'RADICAL_REPORT'):
        monkeypatch.delenv(name, raising=False)


def shown(tmgr: Any, total: int, **options: Any) -> TaskProgress:
    return TaskProgress(tmgr, total, **options)


def test_the_last_line_comes_in_any_case(capsys: pytest.CaptureFixture[str]) -> None:
    tmgr = Tasks()
    with shown(tmgr, 3):
        tmgr.numbers = {'DONE': 1, 'FAILED': 1, 'CANCELED': 1}
    assert capsys.readouterr() == ('', 'tasks: 3/3, 1 done, 1 failed, 1 cancelled\n')


def test_lines_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    tmgr = Tasks(AGENT_EXECUTING=2)
    with shown(tmgr, 3, every=0.0):
        seen = ''
        while seen.count('\n') < 2:
            seen += capsys.readouterr().err
        tmgr.numbers = {'DONE': 3}
    assert seen.splitlines()[0] == 'tasks: 0/3, 2 running'
    assert capsys.readouterr().err.splitlines()[-1].startswith('tasks: 3/3, 3 done')


@pytest.mark.parametrize('how', ['argument', 'variable'])
def test_quiet(how: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    if how == 'variable':
        monkeypatch.setenv('RADICAL_REPORT', 'FALSE')
    threads = set(threading.enumerate())
    with shown(Tasks(DONE=1), 1, quiet=how == 'argument'):
        assert set(threading.enumerate()) == threads
    assert capsys.readouterr() == ('', '')


def test_tasks_of_before_do_not_count(capsys: pytest.CaptureFixture[str]) -> None:
    """A manager may be used for several sets of tasks."""
    tmgr = Tasks(DONE=5, FAILED=1)
    with shown(tmgr, 2):
        tmgr.numbers = {'DONE': 6, 'FAILED': 2}
    assert capsys.readouterr().err == 'tasks: 2/2, 1 done, 1 failed\n'


def test_exception_inside(capsys: pytest.CaptureFixture[str]) -> None:
    threads = set(threading.enumerate())
    with pytest.raises(KeyboardInterrupt), shown(Tasks(AGENT_EXECUTING=1), 1):
        raise KeyboardInterrupt
    assert_ended(set(threading.enumerate()) - threads)
    assert capsys.readouterr().err == 'tasks: 0/1, 1 running\n'


# in a terminal

@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    with opened(monkeypatch) as made:
        yield made


def test_the_last_line_stays(terminal: Terminal) -> None:
    threads = set(threading.enumerate())
    tmgr = Tasks()
    with redirect_stderr(terminal.stream), shown(tmgr, 4):
        tmgr.numbers = {'DONE': 2, 'FAILED': 1, 'AGENT_EXECUTING': 1}
    assert_ended(set(threading.enumerate()) - threads)
    assert terminal.text().split('\r\n')[-2].strip('\r').endswith('3/4, 2 done, 1 failed, 1 running')


def test_a_terminal_has_room_for_one(terminal: Terminal) -> None:
    one, two = Tasks(), Tasks()
    with redirect_stderr(terminal.stream), shown(one, 17) as first:
        first._ticker._display.last(first._tally())   # type: ignore[union-attr]
        with shown(two, 23):
            two.numbers = {'DONE': 1}
    text = terminal.text()
    assert '0/17' in text
    assert '/23' not in text


def test_what_the_application_prints_stays_where_it_goes(terminal: Terminal, tmp_path: Path) -> None:
    with (open(tmp_path / 'out', 'w') as out, redirect_stdout(out), redirect_stderr(terminal.stream),
          shown(Tasks(), 1)):
        print('a result')
    assert (tmp_path / 'out').read_text() == 'a result\n'
    assert 'a result' not in terminal.text()


def test_a_stream_is_as_it_was_before(terminal: Terminal) -> None:
    with redirect_stderr(terminal.stream):
        with shown(Tasks(), 1) as progress:
            progress._ticker._display.last(progress._tally())   # type: ignore[union-attr]
            assert 'write' in vars(sys.stderr)
        assert 'write' not in vars(sys.stderr)
