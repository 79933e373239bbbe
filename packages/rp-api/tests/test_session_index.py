"""The index of a user's sessions: what is found, what is not trusted, and what goes."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from rp_api.coordination import session_index


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv('XDG_STATE_HOME', str(tmp_path / 'state'))
    return tmp_path / 'state/radical.pilot/sessions'


def session(tmp_path: Path, name: str) -> Path:
    made = tmp_path / name
    made.mkdir(mode=0o700)
    (made / 'hub.db').touch()
    session_index.note(str(made))
    return made


def test_sessions_are_found_until_they_are_removed(tmp_path: Path, state: Path) -> None:
    first, second = session(tmp_path, 'a'), session(tmp_path, 'b \udcff')
    session_index.note(str(first))   # again, as it is attached to
    assert set(session_index.directories()) == {first, second}
    assert state.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in state.iterdir()} == {0o600}
    (first / 'hub.db').unlink()
    assert session_index.directories() == [second]
    assert len(list(state.iterdir())) == 1


def test_sessions_without_a_hub_of_their_own_are_not_noted(tmp_path: Path, state: Path) -> None:
    session_index.note(str(tmp_path))
    assert not state.exists()
    assert session_index.directories() == []


def test_what_others_may_write_is_not_used(tmp_path: Path, state: Path) -> None:
    open_to_all, fine, entry = (session(tmp_path, name) for name in ('a', 'b', 'c'))
    open_to_all.chmod(0o777)
    found, = (path for path in state.iterdir() if json.loads(path.read_text())['directory'] == str(entry))
    found.chmod(0o622)
    (state / 'link').symlink_to(found)
    assert session_index.directories() == [fine]
    state.chmod(0o777)
    assert session_index.directories() == []


def test_entries_of_other_hosts_stay_for_a_while_and_rubbish_goes(tmp_path: Path, state: Path) -> None:
    session(tmp_path, 'a')
    (state / 'there').write_text(json.dumps({'directory': '/not/here', 'host': 'elsewhere'}))
    (state / 'there').chmod(0o600)
    (state / 'rubbish').write_text('[]')
    (state / 'rubbish').chmod(0o600)
    for _ in range(2):
        assert len(session_index.directories()) == 1
        assert len(list(state.iterdir())) == 3
    old = time.time() - 40 * 86400
    for name in ('there', 'rubbish'):
        os.utime(state / name, (old, old))
    session_index.directories()
    assert len(list(state.iterdir())) == 1


def test_number_of_entries_is_limited(tmp_path: Path, state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_index, 'MAX_ENTRIES', 3)
    made = [session(tmp_path, str(number)) for number in range(5)]
    assert len(list(state.iterdir())) == 3
    assert made[-1] in session_index.directories()


def test_state_directory_that_cannot_be_used_does_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / 'file').touch()
    monkeypatch.setenv('XDG_STATE_HOME', str(tmp_path / 'file'))
    session(tmp_path, 'a')
    assert session_index.directories() == []
