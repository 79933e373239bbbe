"""Traces and logs of a session are copied with nothing but its directory."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from client_support import a_pilot

from rp_api import states
from rp_api.analytics.session import fetch_json, get_session_json
from rp_api.coordination.hub.store import Store
from rp_api.coordination.sessions import DATABASE
from rp_api.description.partitions import WHOLE
from rp_api.wire import codec
from rp_client import recorded
from rp_client.recorded import fetch_filetype, fetch_logfiles, fetch_profiles


@pytest.fixture
def session(tmp_path: Path) -> Path:
    """The directory of a session with a pilot that was launched and has a partition, and one that was not."""
    directory = tmp_path / 'session.0000'
    directory.mkdir()
    store = Store(directory / DATABASE)
    store.set_meta([('session', directory.name)])
    places = {uid: a_pilot(uid, tmp_path).directories for uid in ('pilot.0000', 'pilot.0001')}
    records = [(uid, codec.pack({'pmgr': 'pmgr.0000', 'description': {'cores': 4}, 'sandboxes': asdict(place)}))
               for uid, place in places.items()]
    store.insert_pilots('', [*records, ('pilot.0000.0000', codec.pack({WHOLE: 'pilot.0000'}))])
    store.update_pilots([('pilot.0000', states.PMGR_ACTIVE, None)], announce=False)
    store.commit()
    store.close()
    sandbox = Path(places['pilot.0000'].pilot)
    for name in ('agent_0.prof', 'agent_0.log', 'agent_0.err', 'task.000000/task.000000.prof',
                 'pilot.0000.0000/agent_0.log', 'other.cfg'):
        (sandbox / name).parent.mkdir(parents=True, exist_ok=True)
        (sandbox / name).write_text(name)
    (directory / 'tmgr.0000.prof').write_text('client')
    return directory


def relative(paths: list[str], target: Path) -> list[str]:
    assert all(Path(path).is_file() for path in paths)
    return sorted(os.path.relpath(path, target) for path in paths)


def test_files_of_agents(session: Path, tmp_path: Path) -> None:
    target = tmp_path / 'target'
    assert relative(fetch_profiles(session.name, src=str(tmp_path), tgt=str(target)), target) == [
        'session.0000/pilot.0000/agent_0.prof', 'session.0000/pilot.0000/task.000000/task.000000.prof']
    assert relative(fetch_logfiles(str(session), tgt=str(target)), target) == [
        'session.0000/pilot.0000/agent_0.err', 'session.0000/pilot.0000/agent_0.log',
        'session.0000/pilot.0000/pilot.0000.0000/agent_0.log']
    assert relative(fetch_filetype('.err', 'error', str(session), tgt=str(target)), target) == [
        'session.0000/pilot.0000/agent_0.err']


def test_files_are_copied_to_the_session_by_default(session: Path, tmp_path: Path,
                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = fetch_profiles('session.0000', fetch_client=True)
    assert relative(found, session) == ['pilot.0000/agent_0.prof', 'pilot.0000/task.000000/task.000000.prof',
                                        'tmgr.0000.prof']
    assert (session / 'tmgr.0000.prof').read_text() == 'client'


def test_files_of_the_client_are_copied_on_request(session: Path, tmp_path: Path) -> None:
    found = fetch_profiles(str(session), tgt=str(tmp_path / 'target'), fetch_client=True)
    assert (tmp_path / 'target/session.0000/tmgr.0000.prof').read_text() == 'client'
    assert len(found) == 3
    with pytest.raises(FileNotFoundError, match='there is no client logfile in'):
        fetch_logfiles(str(session), fetch_client=True)


@pytest.mark.parametrize('skip', [True, False])
def test_existing_files_can_be_kept(session: Path, skip: bool) -> None:
    copy = session / 'pilot.0000/agent_0.prof'
    copy.parent.mkdir()
    copy.write_text('earlier')
    found = fetch_profiles(str(session), skip_existing=skip)
    assert str(copy) in found
    assert copy.read_text() == ('earlier' if skip else 'agent_0.prof')


def test_pilots_are_reached_by_another_host(session: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def fetch(pilots: list[Any], *_: object, keep: bool) -> list[str]:
        asked.extend(pilots)
        return []

    monkeypatch.setattr(recorded, 'fetch', fetch)
    fetch_profiles(str(session), access='sftp://login/')
    assert [(pilot.directories.here, pilot.directories.endpoint) for pilot in asked] == [(False, 'sftp://login/')] * 2
    assert [pilot.launched for pilot in asked] == [True, False]


def test_loggers_and_reporters_are_told(session: Path) -> None:
    said: list[str] = []
    fetch_profiles(str(session), log=SimpleNamespace(info=said.append), rep=SimpleNamespace(info=said.append))
    assert said == [f'2 profiles of session.0000 in {session}'] * 2


def test_bad_arguments_are_refused(session: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"there is no session 'session\.0001' in .*: it has no hub\.db"):
        fetch_profiles('session.0001', src=str(tmp_path))
    with pytest.raises(ValueError, match=r"ext is '\.', it must be the extension of a file name"):
        fetch_filetype('.', 'file', str(session))


def test_a_session_as_json(session: Path, tmp_path: Path) -> None:
    found = get_session_json(str(session), cachedir=str(tmp_path / 'cache'))
    assert [each['uid'] for each in found['pilot']] == ['pilot.0000', 'pilot.0001']
    assert found['pmgr'] == [{'uid': 'pmgr.0000'}]
    assert found['pilot'][0]['description'] == {'cores': 4}
    (session / DATABASE).unlink()
    assert get_session_json(str(session), cachedir=str(tmp_path / 'cache')) == found


def test_a_session_as_a_file(session: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = fetch_json('session.0000')
    assert path == str(tmp_path / 'session.0000.json')
    Path(path).write_text('{}')
    assert fetch_json(str(session), skip_existing=True) == path
    assert Path(path).read_text() == '{}'
