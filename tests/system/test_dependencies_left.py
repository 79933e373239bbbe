"""Tasks that run after others while no application is there, whatever coordinates the session."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import pilot_description, wait_until
from reattaching import backend, go, kill_process, server  # noqa: F401

import radical.pilot as rp

pytestmark = [pytest.mark.fault, pytest.mark.usefixtures('backend')]


def shell(base: Path, command: str, **values: object) -> rp.TaskDescription:
    return rp.TaskDescription({'executable': '/bin/sh', **values, 'arguments': [
        '-c', f'until [ -e {base}/go ]; do sleep 0.02; done; echo $RP_TASK_ID >> {base}/ran; {command}']})


def ran(base: Path) -> list[str]:
    path = base / 'ran'
    return path.read_text().split() if path.exists() else []


@pytest.mark.parametrize('hub_dies', [False, True])
def test_tasks_of_two_pilots_go_on_and_are_collected(base: Path, hub_dies: bool, server: str) -> None:  # noqa: F811
    if hub_dies and server != 'hub':
        pytest.skip('only the hub of a session is started again')
    session = rp.Session(uid='session')
    pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session)
    pilots = pmgr.submit_pilots([pilot_description(base, cores=2, exit_on_error=False) for _ in range(2)])
    tmgr.add_pilots(pilots)
    one, two = (pilot.uid for pilot in pilots)
    tmgr.submit_tasks([
        shell(base, 'true', uid='a', pilot=one),
        shell(base, 'exit 5', uid='b', pilot=two, after=['a']),
        shell(base, 'true', uid='c', pilot=one, after={'b': 'failed'}),
        shell(base, 'true', uid='d', pilot=two, after=['c']),
        shell(base, 'true', uid='e', pilot=one, after={'d': 'done', 'a': 'ended'}),
        shell(base, 'true', uid='f', pilot=one, after=['b'])])
    first, second = tmgr.get_tasks(['a', 'b'])
    wait_until(lambda: first.state == rp.AGENT_EXECUTING and second.state == rp.AGENT_STAGING_INPUT_PENDING)
    if hub_dies:
        kill_process('rp_api.coordination.hub.main', base)
    else:
        session.close(terminate=False)
    go(base)
    wait_until(lambda: len(ran(base)) == 5, 60)
    assert ran(base) == ['a', 'b', 'c', 'd', 'e']
    if not hub_dies:
        session = rp.Session(uid='session')
        tmgr = session.get_task_managers('tmgr.0000')
    assert tmgr.wait_tasks(list('abcdef'), timeout=40) == [rp.DONE, rp.FAILED, rp.DONE, rp.DONE, rp.DONE, rp.CANCELED]
    assert tmgr.get_tasks('f').exception == 'f was not run: it is after b, which is FAILED: exit code 5'
    late = tmgr.submit_tasks([shell(base, 'true', uid='g', pilot=two, after=['e']),
                              shell(base, 'true', uid='h', pilot=two, after=['f'])])
    assert tmgr.wait_tasks(['g', 'h'], timeout=40) == [rp.DONE, rp.CANCELED]
    assert str(late[1].exception).endswith('which was not run: it is after b, which is FAILED: exit code 5')
    session.close()


def test_tasks_that_wait_are_restored(base: Path) -> None:
    session = rp.Session(uid='session')
    pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session)
    tmgr.submit_tasks([shell(base, 'true', uid='a'), shell(base, 'true', uid='b', after=['a'])])
    pmgr.submit_pilots(pilot_description(base, cores=2)).wait(rp.PMGR_ACTIVE, timeout=30)
    session.close(terminate=False)   # before they have a pilot
    with rp.Session(uid='session') as session:
        pmgr, tmgr = session.get_pilot_managers('pmgr.0000'), session.get_task_managers('tmgr.0000')
        task = tmgr.get_tasks('b')
        assert task.description.after == ['a']
        assert str(task.reason) in ('waits for a (TMGR_SCHEDULING_PENDING)', 'waits for a (TMGR_SCHEDULING)')
        tmgr.add_pilots(pmgr.get_pilots())
        go(base)
        assert tmgr.wait_tasks(timeout=40) == [rp.DONE, rp.DONE]
        assert ran(base) == ['a', 'b']
