"""Tasks that are bound late, with real agents: pilots of two sizes, one that never becomes active, one that ends."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from conftest import pilot_description, processes_with, wait_until
from leaver import COUNT
from reattaching import go, left

import radical.pilot as rp


def agent_of(pilot: rp.Pilot) -> int:
    """The process of a pilot's agent; 0 if it has not been started."""
    return next((pid for pid, command in processes_with(pilot.pilot_sandbox).items() if 'rp_agent.cli' in command), 0)


def test_tasks_go_where_they_can_run(session: rp.Session, base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('RADICAL_PILOT_BF_OVERSUBSCRIPTION', '100')
    pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session, cfg={'scheduler': rp.SCHEDULER_BACKFILLING})
    assert (tmgr.scheduler, rp.TaskManager(session, scheduler='backfilling').scheduler) == ('backfilling',) * 2
    never = pmgr.submit_pilots(pilot_description(base, cores=8, exit_on_error=False))
    os.kill(wait_until(lambda: agent_of(never)), signal.SIGSTOP)
    large, small = pmgr.submit_pilots([pilot_description(base, cores=cores) for cores in (3, 1)])
    tmgr.add_pilots([never, large, small])

    def submit(count: int, command: str, cores: int = 1) -> list[rp.Task]:
        return tmgr.submit_tasks([rp.TaskDescription({
            'executable': '/bin/sh', 'arguments': ['-c', command], 'cores_per_rank': cores}) for _ in range(count)])

    tasks = submit(60, 'sleep 0.1; echo $RP_PILOT_ID')
    tmgr.wait_tasks([task.uid for task in tasks], timeout=60)
    assert {task.state for task in tasks} == {rp.DONE}
    where = Counter(task.stdout.strip() for task in tasks)
    assert where.keys() == {large.uid, small.uid}
    assert where[large.uid] > where[small.uid]
    assert never.state != rp.PMGR_ACTIVE

    # as many run as there are cores, as many wait in the agents, and one waits for both of them
    tasks = submit(9, f'until [ -e {base}/go ]; do sleep 0.02; done; echo $RP_PILOT_ID')
    (huge,) = submit(1, 'true', cores=5)
    wait_until(lambda: Counter(task.state for task in tasks)[rp.AGENT_EXECUTING] == 4)
    assert Counter(task.pilot for task in tasks) == {large.uid: 6, small.uid: 2, None: 1}
    there = [task for task in tasks if task.pilot == large.uid]
    started = [task for task in there if task.state == rp.AGENT_EXECUTING]
    large.cancel()
    (base / 'go').touch()
    tmgr.wait_tasks([task.uid for task in tasks], timeout=60)
    assert {task.uid for task in tasks if task.state == rp.CANCELED} == {task.uid for task in started}
    others = [task for task in tasks if task not in started]
    assert ({task.state for task in others}, {task.stdout for task in others}) == ({rp.DONE}, {f'{small.uid}\n'})
    assert [task.attempts for task in there if task in others] == [1] * 3   # the pilot has not started them

    # it could have run on the pilot that is still to come
    assert huge.state == rp.TMGR_SCHEDULING
    os.kill(agent_of(never), signal.SIGKILL)
    assert huge.wait(timeout=60) == rp.FAILED
    assert 'can never run' in str(huge.exception)
    assert huge.pilot == small.uid


@pytest.mark.parametrize('scheduler', [rp.SCHEDULER_ROUND_ROBIN, rp.SCHEDULER_BACKFILLING])
@pytest.mark.parametrize('how', ['to the end', 'dies'])
def test_drain_of_a_pilot(session: rp.Session, base: Path, scheduler: str, how: str,
                          monkeypatch: pytest.MonkeyPatch) -> None:
    """Each task runs once, whether the pilot ends while it is drained or not."""
    monkeypatch.setenv('RADICAL_PILOT_BF_OVERSUBSCRIPTION', '400')
    pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session, scheduler=scheduler)
    drained, other = pmgr.submit_pilots([pilot_description(base, cores=2, exit_on_error=False) for _ in range(2)])
    tmgr.add_pilots(drained)
    drained.wait(rp.PMGR_ACTIVE, timeout=30)
    command = f'echo $RP_TASK_ID >> {base}/ran; until [ -e {base}/go ]; do sleep 0.02; done'
    tasks = tmgr.submit_tasks([rp.TaskDescription({
        'executable': '/bin/sh', 'arguments': ['-c', command], 'pilot': drained.uid if number == 7 else None})
        for number in range(8)])
    started = wait_until(lambda: (found := [task for task in tasks if task.state == rp.AGENT_EXECUTING])
                         and len(found) == 2 and found)
    agent = agent_of(drained)
    tmgr.add_pilots(other)
    thread = threading.Thread(target=tmgr.remove_pilots, args=(drained.uid,), kwargs={'drain': True})
    thread.start()
    moving = [task for task in tasks if task not in started and task is not tasks[7]]
    wait_until(lambda: {task.pilot for task in moving} <= {other.uid, None})
    assert thread.is_alive()
    if how == 'dies':
        os.kill(agent, signal.SIGKILL)
    (base / 'go').touch()
    thread.join(30)
    assert not thread.is_alive()
    tmgr.wait_tasks(timeout=30)
    ended = [*started, tasks[7]]
    assert {task.state for task in moving} == {rp.DONE}
    assert how == 'dies' or {task.state for task in ended} == {rp.DONE}
    assert {task.pilot for task in ended} == {drained.uid}
    ran = Counter((base / 'ran').read_text().split())
    assert max(ran.values()) == 1
    assert {task.uid for task in moving} <= ran.keys()
    assert tmgr.list_pilots() == [other.uid]
    assert how == 'dies' or drained.state == rp.PMGR_ACTIVE


def test_drain_of_a_pilot_with_a_master(session: rp.Session, base: Path) -> None:
    """Its tasks run there, and it goes on."""
    pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session)
    pilot = pmgr.submit_pilots(pilot_description(base, cores=2))
    tmgr.add_pilots(pilot)
    (master,) = tmgr.submit_raptors(rp.TaskDescription({'mode': rp.RAPTOR_MASTER}))
    master.submit_workers(rp.TaskDescription({'mode': rp.RAPTOR_WORKER, 'ranks': 1}))
    tasks = master.submit_tasks([rp.TaskDescription({
        'mode': rp.TASK_EVAL, 'code': f'__import__("time").sleep(0.1) or {number}'}) for number in range(5)])
    tmgr.remove_pilots(pilot.uid, drain=True)
    assert [(task.state, task.return_value) for task in tasks] == [(rp.DONE, number) for number in range(5)]
    assert master.state == rp.AGENT_EXECUTING


def test_tasks_that_were_returned_run_on_the_pilot_of_the_next_application(base: Path) -> None:
    left('returned')
    with rp.Session(uid='session') as session:
        (tmgr,) = session.get_task_managers()
        assert tmgr.list_pilots() == []
        new = rp.PilotManager(session).submit_pilots(pilot_description(base))
        tmgr.add_pilots(new)
        go(base)
        assert tmgr.wait_tasks(timeout=40) == [rp.DONE] * COUNT
        assert sorted((task.pilot, task.attempts) for task in tmgr.get_tasks()) == [
            ('pilot.0000', 1)] * 4 + [(new.uid, 1)] * (COUNT - 4)


@pytest.mark.parametrize('scheduler', [rp.SCHEDULER_ROUND_ROBIN, rp.SCHEDULER_BACKFILLING])
def test_without_a_pilot_tasks_are_not_waited_for(session: rp.Session, base: Path, scheduler: str) -> None:
    """The application learns it by all ways to wait, and may go on with another pilot."""
    pmgr = rp.PilotManager(session)
    tmgr = rp.TaskManager(session, scheduler=scheduler, no_pilot_timeout=0.5)
    pilot = pmgr.submit_pilots(pilot_description(base))
    tmgr.add_pilots(pilot)
    pilot.wait(rp.PMGR_ACTIVE, timeout=60)
    pilot.cancel()
    pilot.wait(timeout=60)
    sweep = tmgr.submit_sweep(rp.TaskDescription({'executable': 'true'}), [{'x': number} for number in range(3)])
    tasks = tmgr.submit_tasks([rp.TaskDescription({'executable': 'true'}) for _ in range(3)])
    reason = f'wait for a pilot: {tmgr.uid} has none any more, {pilot.uid} is CANCELED'
    for wait in (tmgr.wait_tasks, tasks[0].wait, tasks[1].future().result, sweep.wait,
                 lambda: list(tmgr.as_completed()), lambda: rp.wait(tasks)):
        with pytest.raises(RuntimeError, match=reason) as error:
            wait()
        assert isinstance(error.value, rp.NoPilot) or isinstance(error.value.__cause__, rp.NoPilot)
    assert str(tasks[0].reason).startswith('waits for a pilot: ')
    tmgr.add_pilots(pmgr.submit_pilots(pilot_description(base)))
    assert set(tmgr.wait_tasks(timeout=60)) == {rp.DONE}


@pytest.mark.parametrize(('value', 'error'), [('soon', TypeError), (-1, ValueError), (True, TypeError)])
def test_a_timeout_that_is_none(session: rp.Session, value: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=r'no_pilot_timeout is .*, it must '):
        rp.TaskManager(session, no_pilot_timeout=value)


@pytest.mark.parametrize('drain', [True, False])
def test_tasks_leave_a_pilot_that_waits(session: rp.Session, base: Path, drain: bool) -> None:
    """They run on another one as soon as theirs is removed, each once."""
    pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session)
    waits, other = pmgr.submit_pilots([pilot_description(base), pilot_description(base)])
    os.kill(wait_until(lambda: agent_of(waits)), signal.SIGSTOP)
    tmgr.add_pilots([waits, other])
    tasks = tmgr.submit_tasks([rp.TaskDescription({
        'executable': '/bin/sh', 'arguments': ['-c', f'echo $RP_TASK_ID >>{base}/ran']}) for _ in range(20)])
    tmgr.remove_pilots(waits.uid, drain=drain)
    assert set(tmgr.wait_tasks(timeout=60)) == {rp.DONE}
    assert {task.pilot for task in tasks} == {other.uid}
    assert Counter((base / 'ran').read_text().split()) == Counter(task.uid for task in tasks)
    os.kill(agent_of(waits), signal.SIGCONT)
