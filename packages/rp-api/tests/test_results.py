"""Reading the results of a session from the file of its hub."""

from __future__ import annotations

import json
import shutil
import sqlite3
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from rp_api import states
from rp_api.coordination import results
from rp_api.coordination.hub.store import Store
from rp_api.coordination.results import read_results
from rp_api.wire import codec


def fill(directory: Path, *tasks: tuple[str, str | None, dict[str, Any] | None]) -> Store:
    """A committed store with tasks: uid, state (None: as inserted) and info."""
    directory.mkdir(parents=True, exist_ok=True)
    store = Store(directory / 'hub.db')
    store.insert_pilots('', [('pilot.0000', codec.pack({}))])
    store.tasks.insert('pilot.0000', 'tmgr.0000', codec.pack({}), [(uid, codec.pack({})) for uid, _, _ in tasks])
    store.tasks.update([(uid, state, codec.pack(info) if info else None) for uid, state, info in tasks if state])
    store.commit()
    return store


def shown(monkeypatch: pytest.MonkeyPatch, *arguments: str | Path) -> int:
    """The exit code of the program."""
    monkeypatch.setattr(sys, 'argv', ['results', *map(str, arguments)])
    return results.main()


def results_of(directory: Path) -> list[dict[str, Any]]:
    """The results without the times of submission, which are now."""
    found = list(read_results(directory))
    assert all(abs(result.pop('submitted') - time.time()) < 60 for result in found)
    return found


def test_tasks_in_the_order_of_their_submission(tmp_path: Path) -> None:
    fill(tmp_path, ('task.2', states.DONE, {'exit_code': 0, 'stdout': 'out\n'}),
         ('task.1', None, None), ('task.3', states.AGENT_EXECUTING, None)).close()
    assert results_of(tmp_path) == [
        {'uid': 'task.2', 'pilot': 'pilot.0000', 'state': states.DONE, 'exit_code': 0, 'stdout': 'out\n'},
        {'uid': 'task.1', 'pilot': 'pilot.0000', 'state': states.AGENT_STAGING_INPUT_PENDING},
        {'uid': 'task.3', 'pilot': 'pilot.0000', 'state': states.AGENT_EXECUTING}]


def test_what_the_application_has_not_seen_any_more(tmp_path: Path) -> None:
    """A task that has left its pilot is shown as what it is going to be."""
    left = states.TMGR_STAGING_OUTPUT_PENDING
    fill(tmp_path, ('a', left, {'target_state': states.FAILED, 'exit_code': 3}),
         ('b', left, {'target_state': states.DONE}),
         ('c', states.CANCELED, {'target_state': states.DONE}),
         ('d', states.FAILED, {'reached': states.AGENT_SCHEDULING, 'exception': 'why'})).close()
    assert [{key: value for key, value in result.items() if key != 'pilot'} for result in results_of(tmp_path)] == [
        {'uid': 'a', 'state': states.FAILED, 'exit_code': 3}, {'uid': 'b', 'state': states.DONE},
        {'uid': 'c', 'state': states.CANCELED}, {'uid': 'd', 'state': states.FAILED, 'exception': 'why'}]


def test_while_the_hub_writes(tmp_path: Path) -> None:
    """What is committed can be read, what is not cannot, and the writer is not disturbed."""
    store = fill(tmp_path, ('a', states.DONE, None))
    store.tasks.insert('pilot.0000', 'tmgr.0000', codec.pack({}), [('b', codec.pack({}))])
    assert [result['uid'] for result in read_results(tmp_path)] == ['a']
    store.commit()
    assert [result['uid'] for result in read_results(tmp_path)] == ['a', 'b']
    store.close()


def test_hub_that_was_killed(tmp_path: Path) -> None:
    """What it had committed is read from the log that it could not put into the database any more."""
    store = fill(tmp_path / 'session', ('a', states.DONE, {'exit_code': 0}))
    shutil.copytree(tmp_path / 'session', tmp_path / 'copy')
    store.close()
    assert (tmp_path / 'copy/hub.db-wal').stat().st_size
    assert [result['state'] for result in read_results(tmp_path / 'copy')] == [states.DONE]


@pytest.mark.parametrize('name', ['a#b', 'a?mode=rw', 'a%20b', 'a b', 'ä☃'])
def test_odd_names_of_directories(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path / name, ('a', states.DONE, None)).close()
    assert len(list(read_results(tmp_path / name))) == 1
    monkeypatch.chdir(tmp_path)
    assert len(list(read_results(name))) == 1


def test_no_session(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=f'{tmp_path} is not the directory of a session'):
        read_results(tmp_path)
    assert not list(tmp_path.iterdir())


def test_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    fill(tmp_path, ('a', states.DONE, {'stdout': 'ü\n'}), ('b', None, None)).close()
    assert shown(monkeypatch, tmp_path) == 0
    printed = capsys.readouterr()
    assert [json.loads(line) for line in printed.out.splitlines()] == list(read_results(tmp_path))
    assert printed.err == ''


def test_program_without_a_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                   capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(monkeypatch, tmp_path) == 1
    assert 'not the directory of a session' in capsys.readouterr().err


def test_program_with_a_broken_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                    capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / 'hub.db').write_bytes(b'no database at all, ' * 100)
    assert shown(monkeypatch, tmp_path) == 1
    assert 'not a database' in capsys.readouterr().err


def test_program_with_a_broken_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                   capsys: pytest.CaptureFixture[str]) -> None:
    fill(tmp_path, ('a', states.DONE, {'exit_code': 0})).close()
    database = sqlite3.connect(tmp_path / 'hub.db')
    database.execute("UPDATE tasks SET info = x'c1'")
    database.commit()
    database.close()
    assert shown(monkeypatch, tmp_path) == 0
    assert 'the agent has sent information that cannot be read' in capsys.readouterr().out


@pytest.mark.parametrize('arguments', [(), ('a', 'b')])
def test_program_with_other_arguments(arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch,
                                      capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(monkeypatch, *arguments) == 2
    assert capsys.readouterr().err.startswith('usage: ')
