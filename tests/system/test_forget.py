"""Tasks that have ended: forgotten when the application says so, out of memory when it has no handle of them."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import Run, pilot_description, wait_until

import radical.pilot as rp

COUNT = 3000


def echo(word: str, **values: object) -> rp.TaskDescription:
    return rp.TaskDescription({'executable': '/bin/echo', 'arguments': [word], **values})


def handles() -> int:
    """How many tasks are in memory."""
    gc.collect()
    return sum(isinstance(found, rp.Task) for found in gc.get_objects())


def test_forgotten_tasks_are_not_known_any_more(run: Run) -> None:
    tmgr = run.tmgr
    tasks = tmgr.submit_tasks([echo(word) for word in 'abc'])
    uids = [task.uid for task in tasks]
    assert tmgr.wait_tasks(timeout=30) == [rp.DONE] * 3
    tmgr.forget_tasks(uids[:2])
    assert tmgr.list_tasks() == uids[2:]
    assert tmgr.get_tasks() == tasks[2:]
    assert tmgr.wait_tasks(timeout=30) == [rp.DONE]
    assert list(tmgr.as_dict()['tasks']) == uids[2:]
    for method in (tmgr.get_tasks, tmgr.wait_tasks, tmgr.cancel_tasks, tmgr.forget_tasks):
        with pytest.raises(ValueError, match=f'task {uids[0]} is not known to {tmgr.uid}'):
            method(uids[0])
    with pytest.raises(ValueError, match=f'task {uids[1]} is not known'):
        tmgr.register_callback(lambda task, state: None, uid=uids[1])
    tmgr.forget_tasks(uids[2])
    assert tmgr.list_tasks() == []


def test_handle_of_a_forgotten_task_stays_as_it_is(run: Run) -> None:
    task = run.one(executable='/bin/echo', arguments=['said'])
    run.tmgr.forget_tasks(task.uid)
    assert (task.wait(), task.stdout, task.exit_code, task.pilot) == (rp.DONE, 'said\n', 0, run.pilot.uid)
    assert task.as_dict()['description']['arguments'] == ['said']
    task.cancel()
    assert task.state == rp.DONE
    with pytest.raises(ValueError, match='not known'):
        task.register_callback(lambda task, state: None)


def test_only_final_tasks_are_forgotten(run: Run) -> None:
    """All or none."""
    ended = run.one(executable='/bin/true')
    going = run.tmgr.submit_tasks(rp.TaskDescription({'executable': 'sleep', 'arguments': [100]}))
    going.wait(rp.AGENT_EXECUTING, timeout=30)
    with pytest.raises(ValueError, match=f'task {going.uid} is AGENT_EXECUTING: only tasks that are final'):
        run.tmgr.forget_tasks([ended.uid, going.uid])
    with pytest.raises(ValueError, match='task nobody is not known'):
        run.tmgr.forget_tasks([ended.uid, 'nobody'])
    assert run.tmgr.get_tasks(ended.uid) is ended
    run.tmgr.forget_tasks([])
    run.tmgr.forget_tasks([ended.uid, ended.uid])
    going.cancel()
    assert going.wait(timeout=30) == rp.CANCELED


def test_uids_of_forgotten_tasks_stay_in_use(run: Run) -> None:
    """Agents would take a task of the same uid for the one that they had."""
    task = run.one(executable='/bin/true', uid='mine')
    first = run.one(executable='/bin/true')
    run.tmgr.forget_tasks([task.uid, first.uid])
    with pytest.raises(ValueError, match="task uid 'mine' is in use already"):
        run.tmgr.submit_tasks(echo('x', uid='mine'))
    with pytest.raises(ValueError, match=f"task uid '{first.uid}' is in use already"):
        run.tmgr.submit_tasks(echo('x', uid=first.uid))
    assert run.one(executable='/bin/echo').uid == 'task.000001'


def test_tasks_are_forgotten_in_a_callback(run: Run) -> None:
    """While the application waits for them."""
    told = []

    def forget(task: rp.Task, state: str) -> None:
        if state in rp.FINAL:
            told.append(task.stdout)
            run.tmgr.forget_tasks(task.uid)

    run.tmgr.register_callback(forget)
    for _ in range(3):
        tasks = run.tmgr.submit_tasks([echo(f'{number}') for number in range(20)])
        assert [task.wait(timeout=30) for task in tasks] == [rp.DONE] * 20   # some are forgotten by now
        del tasks
    wait_until(lambda: not run.tmgr.list_tasks())
    assert sorted(told) == sorted(f'{number}\n' for number in range(20) for _ in range(3))


@pytest.fixture
def simulated(base: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[rp.TaskManager]:
    """A task manager whose tasks run nothing."""
    configs = base / '.radical' / 'pilot' / 'configs'
    configs.mkdir(parents=True)
    (configs / 'resource_local.json').write_text(json.dumps({'exact': {'agent_spawner': 'SIMULATED'}}))
    monkeypatch.setenv('RADICAL_CONFIG_USER_DIR', str(base))
    with rp.Session(cfg={'base': str(base)}) as session:
        pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session)
        tmgr.add_pilots(pmgr.submit_pilots(pilot_description(base, cores=200)))
        yield tmgr


def test_final_tasks_without_handles_leave_the_memory(simulated: rp.TaskManager) -> None:
    """They are there all the same, also when the session is closed."""
    before = handles()
    kept = []
    for _ in range(COUNT // 500):
        tasks = simulated.submit_tasks([rp.TaskDescription({
            'executable': 'simulated', 'metadata': {'exit_code': number % 7}}) for number in range(500)])
        states = simulated.wait_tasks([task.uid for task in tasks], timeout=60)
        assert states == [rp.FAILED if number % 7 else rp.DONE for number in range(500)]
        kept.append(tasks[0])
        del tasks
    assert handles() - before < 1000
    assert [simulated.get_tasks(task.uid) for task in kept] == kept
    assert simulated.list_tasks() == [f'task.{number:06d}' for number in range(COUNT)]
    states = simulated.wait_tasks(timeout=60)
    simulated.session.close()
    for number in range(0, COUNT, 37):
        task = simulated.get_tasks(f'task.{number:06d}')
        assert (task.exit_code, task.state) == (number % 500 % 7, states[number])
    assert simulated.wait_tasks() == states
    assert [task.state for task in simulated.get_tasks()] == states


def test_forgotten_tasks_leave_the_memory(simulated: rp.TaskManager) -> None:
    before = handles()
    for _ in range(COUNT // 500):
        tasks = simulated.submit_tasks([rp.TaskDescription({'executable': 'simulated'}) for _ in range(500)])
        uids = [task.uid for task in tasks]
        del tasks
        simulated.wait_tasks(uids, timeout=60)
        simulated.forget_tasks(uids)
    assert handles() - before < 1000
    assert simulated.list_tasks() == []


def test_forgotten_sweeps_have_ended_for_the_next_application(base: Path) -> None:
    """However many of their tasks were forgotten, and whether an agent had the tasks or a chunk ended as a whole."""
    session = rp.Session(uid='session', cfg={'base': str(base)})
    pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session)
    chunks = tmgr.submit_sweep(echo('{}'), range(COUNT))   # without a pilot: no agent takes them
    chunks.cancel()
    assert chunks.wait(60) == {rp.CANCELED: COUNT}
    tmgr.forget_tasks([f'{chunks.uid}.{number:06d}' for number in range(1500)])
    tmgr.add_pilots(pmgr.submit_pilots(pilot_description(base)))
    fails = rp.TaskDescription({'executable': '/bin/sh', 'arguments': ['-c', 'exit {}']})
    whole, partly = (tmgr.submit_sweep(fails, [0, 0, 1]) for _ in range(2))
    expected = {rp.DONE: 2, rp.FAILED: 1}
    assert (whole.wait(60), partly.wait(60)) == (expected, expected)
    tmgr.forget_tasks(whole)
    tmgr.forget_tasks(partly[1:])
    session.close(terminate=False)
    with rp.Session(uid='session', cfg={'base': str(base)}) as session:
        tmgr, = session.get_task_managers()
        chunks, whole, partly = tmgr.get_sweeps()
        assert (chunks.unfinished, whole.unfinished, partly.unfinished) == (0, 0, 0)
        assert (chunks.wait(60), whole.wait(60), partly.wait(60)) == ({rp.CANCELED: COUNT}, expected, expected)
        assert len(tmgr.wait_tasks(timeout=60)) == COUNT - 1500 + 1 == len(tmgr.list_tasks())
        assert (tmgr.wait_tasks(whole, timeout=60), tmgr.wait_tasks(partly, timeout=60)) == ([], [rp.DONE])
        assert ([task.uid for task in partly.in_state(rp.DONE, rp.FAILED)], list(whole.failed())) == (
            [f'{partly.uid}.000000'], [])
        with pytest.raises(ValueError, match='not known'):
            partly[2]
        tmgr.forget_tasks(partly)
        assert tmgr.list_tasks() == [f'{chunks.uid}.{number:06d}' for number in range(1500, COUNT)]
        assert tmgr.submit_sweep(echo('{}'), [1]).uid == 'sweep.0003'
