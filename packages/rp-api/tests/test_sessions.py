"""What can be read from the directories of sessions, whoever is alive, and how they are removed."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Generator, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hub_support import Client, MakeSite, Site, sites, uids
from parties import TIMEOUT

from rp_api.coordination import session_files, sessions
from rp_api.coordination.hub.store import Store
from rp_api.coordination.presence import Where, note, own_note, read_note
from rp_api.errors import CoordinationError
from rp_api.system.host import host_id
from rp_api.system.processes import start_time
from rp_api.wire import codec


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    path = tmp_path / 'session'
    path.mkdir(mode=0o700)
    return path


@pytest.fixture
def make_site(directory: Path) -> Iterator[MakeSite]:
    with sites(directory) as make:
        yield make


@pytest.fixture
def site(make_site: MakeSite) -> Site:
    return make_site().start()


@pytest.fixture
def client(site: Site) -> Client:
    client = site.client()
    client.do(client.connection.insert_pilots, {'p0': {'cores': 4}})
    client.submit('p0', uids(5), environment={'A': 'b'})
    client.until_settled()
    agent = site.agent('p0')
    agent.until(lambda: len(agent.order) == 5)
    agent.report(uids(2), 'TMGR_STAGING_OUTPUT_PENDING', {'target_state': 'DONE', 'exit_code': 0})
    agent.report(uids(5)[2:3], 'FAILED', {'exception': 'it broke', 'exit_code': 3})
    agent.report_pilot('PMGR_ACTIVE')
    client.until(lambda: len(client.tasks) >= 3 and client.pilots)
    return client


def kill(site: Site) -> None:
    os.kill(site.hub.pid, signal.SIGKILL)
    site.until_ended()


def test_an_open_session(site: Site, client: Client, directory: Path) -> None:
    found = sessions.summary(directory)
    assert (found.uid, found.state, found.closed) == ('session', 'open', 0)
    assert found.pilots == {'PMGR_ACTIVE': 1}
    assert found.tasks == {'DONE': 2, 'FAILED': 1, 'AGENT_STAGING_INPUT_PENDING': 2}
    assert found.hub == Where(site.hub.pid, host_id(), os.uname().nodename, start_time(site.hub.pid))
    assert found.client == Where(os.getpid(), host_id(), os.uname().nodename, start_time(os.getpid()))
    assert found.size == sum(path.stat().st_size for path in directory.iterdir())
    assert sessions.find(directory.parent) == [directory]


def test_what_it_holds(client: Client, directory: Path) -> None:
    (pilot,) = sessions.pilots(directory)
    assert pilot == {'uid': 'p0', 'state': 'PMGR_ACTIVE', 'record': {'cores': 4}}
    tasks = list(sessions.tasks(directory))
    assert [task['uid'] for task in tasks] == uids(5)
    assert 0 < tasks[0].pop('submitted') <= time.time()
    assert tasks[0] == {
        'uid': 't.00000', 'tmgr': '', 'pilot': 'p0', 'attempts': 1, 'state': 'DONE', 'exit_code': 0,
        'description': {'executable': '/bin/t.00000', 'environment': {'A': 'b'}}}
    assert (tasks[2]['state'], tasks[2]['exception']) == ('FAILED', 'it broke')
    kinds = [record['type'] for record in sessions.records(directory).export()]
    assert kinds == ['pilot', *['task'] * 5]


def test_no_keys_are_exported(site: Site, client: Client, directory: Path) -> None:
    text = json.dumps(list(sessions.records(directory).export()))
    assert all(address.secret not in text for address in (site.hub.address, site.hub.agent_address))


def test_a_closed_session(site: Site, client: Client, directory: Path) -> None:
    client.close()
    site.until_ended()
    found = sessions.summary(directory)
    assert (found.state, found.hub, found.client) == ('closed', None, None)
    assert found.created <= found.closed
    before = sorted(directory.iterdir())
    assert len(list(sessions.tasks(directory))) == 5
    assert sorted(directory.iterdir()) == before   # no files for readers are made in an archive


def test_an_orphaned_session(client: Client, directory: Path) -> None:
    client.do(client.connection.detach)
    deadline = time.monotonic() + TIMEOUT
    while sessions.summary(directory).state != 'orphaned':
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_crashed_session(site: Site, client: Client, directory: Path) -> None:
    kill(site)
    assert sessions.summary(directory).state == 'crashed'
    assert sum(sessions.summary(directory).tasks.values()) == 5


def test_a_reader_does_not_disturb(site: Site, client: Client, directory: Path) -> None:
    tasks = sessions.tasks(directory)
    next(tasks)   # and it stays open while the session goes on
    client.submit('p0', uids(5, 'more'))
    client.until_settled()
    assert len(list(sessions.tasks(directory))) == 10
    assert isinstance(tasks, Generator)
    tasks.close()
    client.close()
    assert site.until_ended() == 0


def test_no_session(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match='is not the directory of a session'):
        sessions.summary(tmp_path)
    assert sessions.find(tmp_path) == []
    assert sessions.find(tmp_path / 'nothing') == []


def test_purge(site: Site, client: Client, directory: Path) -> None:
    with pytest.raises(CoordinationError, match='another session is active'):
        session_files.purge(directory)
    client.close()
    site.until_ended()
    (directory / 'session.prof').touch()
    for task in ('0', '1'):
        (directory / 'p0' / task).mkdir(parents=True)
        (directory / 'p0' / task / f'{task}.prof').touch()
    (directory / 'p0' / 'agent_0.log').touch()
    ours = [directory / 'notes.txt', directory / 'p0' / '1' / 'notes.txt']
    for path in ours:
        path.touch()
    assert session_files.purge(directory) == [str(path) for path in (ours[0], *reversed(ours[1].parents[:2]), ours[1])]


def test_purge_of_everything(site: Site, client: Client, directory: Path) -> None:
    client.close()
    site.until_ended()
    assert session_files.purge(directory) == []
    assert not directory.exists()


# which processes are there


def test_notes_about_processes() -> None:
    here = read_note(own_note())
    assert here == Where(os.getpid(), host_id(), os.uname().nodename, start_time(os.getpid()))
    assert (here.local, here.gone, here.runs) == (True, False, True)
    assert read_note('') is None
    assert read_note(None) is None


def test_a_process_that_has_ended() -> None:
    done = subprocess.Popen([sys.executable, '-c', ''])
    done.wait()
    assert not Where(done.pid, host_id(), 'x').runs


def test_a_process_that_has_the_number_of_one_that_has_ended() -> None:
    assert not Where(os.getpid(), host_id(), 'x', started=1).runs


def test_a_note_of_an_earlier_version_tells_no_start_time() -> None:
    before = read_note(json.dumps([os.getpid(), host_id(), os.uname().nodename]))
    assert before is not None
    assert before.runs


def test_processes_of_other_hosts() -> None:
    elsewhere = read_note(note(1, 'another boot', 'another host', 1))
    before = read_note(note(1, 'another boot', os.uname().nodename, 1))
    assert elsewhere is not None
    assert before is not None
    assert [(each.local, each.gone, each.runs) for each in (elsewhere, before)] == [
        (False, False, False), (False, True, False)]


def test_a_session_of_a_version_that_did_not_note_submissions(directory: Path) -> None:
    """It is read as before, and a hub of this version goes on with it."""
    with closing(Store(directory / sessions.DATABASE)) as store:
        store.tasks.insert('p0', '', codec.pack({'executable': 'a'}), [('t.0', codec.NOTHING)])
    with closing(sqlite3.connect(directory / sessions.DATABASE)) as db:
        db.execute('ALTER TABLE shared RENAME TO later')
        db.execute('CREATE TABLE shared (id INTEGER PRIMARY KEY, description BLOB NOT NULL)')
        db.execute('INSERT INTO shared SELECT id, description FROM later')
        db.execute('DROP TABLE later')
        db.commit()
    assert [(task['uid'], task['submitted']) for task in sessions.tasks(directory)] == [('t.0', None)]
    before = time.time()
    with closing(Store(directory / sessions.DATABASE)) as store:
        store.tasks.insert('p0', '', codec.pack({'executable': 'b'}), [('t.1', codec.NOTHING)])
    first, second = sessions.tasks(directory)
    assert (first['submitted'], second['description']) == (None, {'executable': 'b'})
    assert before <= second['submitted'] <= time.time()
