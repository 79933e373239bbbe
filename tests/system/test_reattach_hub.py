"""What is left of a session with a hub of its own, and what the next application makes of it."""

from __future__ import annotations

import json
import os
import signal
import stat
from pathlib import Path

import pytest
from conftest import hub_pid, processes_with, wait_until
from leaver import COUNT
from ports import free_ports
from reattaching import UIDS, collect, go, kill_process, left

import radical.pilot as rp
from rp_api.coordination.contract import Update
from rp_api.coordination.spool_file import SpoolFile
from rp_api.errors import CoordinationError

pytestmark = pytest.mark.fault

HUB = 'rp_api.coordination.hub.main'


@pytest.mark.parametrize('how', ['tasks', 'running', 'unbound', 'files', 'left'])
def test_hub_is_started_again(base: Path, how: str) -> None:
    """With the keys and at the place that the agents know."""
    left(how)
    kill_process(HUB, base)
    with rp.Session(uid='session') as session:
        assert session.attached
        if how == 'unbound':
            session.get_task_managers('tmgr.0000').add_pilots(session.get_pilot_managers('pmgr.0000').get_pilots())
        go(base)
        collect(session)
    wait_until(lambda: not processes_with(str(base)))


def kill_hub(session: rp.Session) -> None:
    """Kill it, and wait until another one has taken its place."""
    pid = hub_pid(session)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: hub_pid(session) != pid, 30)


def test_hub_that_was_found_is_watched(base: Path) -> None:
    """Although it is not a child of this application."""
    left('running')
    with rp.Session(uid='session') as session:
        for _ in range(2):
            kill_hub(session)
        go(base)
        collect(session)


def test_agent_and_hub_die(base: Path) -> None:
    left('running')
    kill_process(HUB, base)
    kill_process('rp_agent', base)
    with rp.Session(uid='session') as session:
        assert session.get_pilot_managers('pmgr.0000').wait_pilots(timeout=30) == [rp.FAILED]
        assert set(session.get_task_managers('tmgr.0000').wait_tasks(timeout=30)) == {rp.FAILED}


def test_results_that_an_agent_could_not_deliver(base: Path) -> None:
    """They are taken from the file that it leaves; what has no result fails."""
    left('running')
    kill_process(HUB, base)
    kill_process('rp_agent', base)
    file = SpoolFile(base / 'radical.pilot.sandbox/session/pilot.0000/agent_0.updates')
    file.append([Update(uid, rp.TMGR_STAGING_OUTPUT_PENDING, {'target_state': rp.DONE, 'stdout': uid})
                 for uid in UIDS[:2]])
    file.close()
    for last in (False, True):   # they are as durable as any other result
        session = rp.Session(uid='session')
        tmgr = session.get_task_managers('tmgr.0000')
        assert tmgr.wait_tasks(timeout=30) == [rp.DONE] * 2 + [rp.FAILED] * (COUNT - 2)
        assert [task.stdout for task in tmgr.get_tasks(UIDS[:2])] == UIDS[:2]
        session.close(terminate=last)


def test_keys_are_kept_for_as_long_as_the_session_is_open(base: Path) -> None:
    left('running')
    file = base / 'session/hub.json'
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    with rp.Session(uid='session'):
        assert file.exists()
    assert not file.exists()
    with rp.Session(uid='session') as session:
        assert not session.attached
    assert (base / 'session/hub.db.1').exists()


def test_a_session_can_be_taken_over_from_the_first_moment(base: Path) -> None:
    with rp.Session(uid='session'):
        assert (base / 'session/hub.json').exists()


def test_session_of_another_version_is_refused(base: Path) -> None:
    """And is as it was."""
    left('left')
    file = base / 'session/hub.json'
    text = file.read_text()
    file.write_text(json.dumps(json.loads(text) | {'protocol': 1}))
    with pytest.raises(CoordinationError, match='protocol 1'):
        rp.Session(uid='session')
    file.write_text('{')
    with pytest.raises(CoordinationError, match='damaged'):
        rp.Session(uid='session')
    file.write_text(text)
    go(base)
    with rp.Session(uid='session') as session:
        collect(session)


@pytest.mark.parametrize('given', [False, True])
def test_hub_that_listens_at_a_network_interface(base: Path, given: bool) -> None:
    """Agents come that way, or to the address that they are told, and find a new hub at the same port."""
    (port,) = free_ports(1)
    hub = {'listen': f'tcp://127.0.0.1:{port}', 'address': f'tcp://localhost:{port}'} if given else {
        'listen': 'tcp://127.0.0.1'}
    with rp.Session(cfg={'hub': hub}) as session:
        access = dict(session._owner.engine.coordinator.agent_access)
        assert access['endpoint'].startswith(f'tcp://localhost:{port}' if given else 'tcp://127.0.0.1:')
        pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session)
        tmgr.add_pilots(pmgr.submit_pilots(rp.PilotDescription({
            'resource': 'local.exact', 'cores': 1, 'runtime': 10, 'sandbox': str(base)})))
        assert tmgr.submit_tasks(rp.TaskDescription({'executable': 'true'})).wait(timeout=30) == rp.DONE
        pid = hub_pid(session)
        os.kill(pid, signal.SIGKILL)
        assert tmgr.submit_tasks(rp.TaskDescription({'executable': 'true'})).wait(timeout=30) == rp.DONE
        assert session._owner.engine.coordinator.agent_access == access
        assert hub_pid(session) != pid
