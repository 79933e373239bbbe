"""Times and usage of tasks in whole sessions, by real processes."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from conftest import Run, pilot_description, wait_until

import radical.pilot as rp
from rp_agent.executor.usage import SAMPLE_AGE_S
from rp_api.coordination import sessions

NOTHING = rp.TaskUsage()


def burn(seconds: float) -> str:
    return f'import time\nwhile time.process_time() < {seconds}: pass\n'


def python(program: str, **values: Any) -> dict[str, Any]:
    return {'executable': sys.executable, 'arguments': ['-c', program], 'literal_arguments': True, **values}


def sh(program: str, **values: Any) -> dict[str, Any]:
    return {'executable': '/bin/sh', 'arguments': ['-c', program], 'literal_arguments': True, **values}


def times(task: rp.Task) -> Any:
    """The times of a task, of which the test knows which are there."""
    return task.times


def usage(task: rp.Task) -> Any:
    return task.usage


def in_order(task: rp.Task) -> bool:
    """Whether all times are known, and none is before the one before."""
    known = [when for when in task.times if when is not None]
    return len(known) == 4 and sorted(known) == known


def test_cpu_time_of_a_short_task(run: Run) -> None:
    before = time.time()
    task = run.one(**python(burn(0.5)))
    when, used = times(task), usage(task)
    assert in_order(task)
    assert before <= when.submitted <= when.ended <= time.time()
    assert (when.duration, when.waiting) == (when.ended - when.started, when.started - when.submitted)
    assert when.duration >= 0.5
    assert used.cpu >= 0.5
    assert used.cpu == pytest.approx(used.user + used.system, abs=1e-5)
    assert used.switches >= 1


def test_a_short_task_has_no_samples(run: Run) -> None:
    task = run.one(executable='true')
    assert usage(task).cpu is not None
    if times(task).duration < SAMPLE_AGE_S:   # the machine may be busy
        assert task.usage._replace(cpu=None, user=None, system=None, switches=None) == NOTHING


def test_memory_and_bytes_of_a_longer_task(run: Run) -> None:
    task = run.one(**python('''
import time
data = bytearray(b'1') * 200_000_000
with open('written', 'wb') as file:
    file.write(data[:50_000_000])
with open('written', 'rb') as file:
    file.read()
time.sleep(4)
'''))
    assert (task.state, task.output_files) == (rp.DONE, ['written'])
    assert 200_000_000 <= usage(task).memory < 500_000_000
    assert 50_000_000 <= usage(task).written < 60_000_000
    assert 50_000_000 <= usage(task).read < 80_000_000
    shown = task._repr_html_()
    assert all(name in shown for name in ('duration', 'CPU time', 'memory'))
    found = task.as_dict()
    assert found['times'] == {**task.times._asdict(), 'duration': times(task).duration, 'waiting': times(task).waiting}
    assert found['usage'] == task.usage._asdict()
    assert json.loads(json.dumps([found['times'], found['usage']])) == [found['times'], found['usage']]


@pytest.mark.parametrize('way', [{}, {'pre_exec': ['true']}, {'pre_launch': ['true']}],
                         ids=['direct', 'exec', 'launch'])
def test_cpu_time_of_children_that_are_waited_for(run: Run, way: Mapping[str, Any]) -> None:
    one = f"{sys.executable} -c '{burn(0.3)}'"
    task = run.one(**sh(f'{one} & {one} & wait', **way))
    assert (task.state, task.exit_code) == (rp.DONE, 0)
    assert usage(task).cpu >= 0.6


def test_children_that_are_not_waited_for_do_not_count(run: Run) -> None:
    """They are killed with their group, and no process knows what they have used."""
    task = run.one(**python(f'''
import subprocess, sys, time
child = subprocess.Popen([sys.executable, '-c', {burn(60)!r}])
def used():
    return sum(map(int, open(f'/proc/{{child.pid}}/stat').read().rpartition(')')[2].split()[11:13]))
while used() < 50:
    time.sleep(0.05)
'''))
    assert task.state == rp.DONE
    assert usage(task).cpu < 0.5


def test_ranks_are_summed(run: Run) -> None:
    task = run.one(**python(burn(0.3), ranks=3, use_mpi=False))
    assert (task.state, task.launch_method) == (rp.DONE, None)
    assert usage(task).cpu >= 0.9


@pytest.mark.parametrize('way', [{}, {'pre_exec': ['true']}], ids=['program', 'script'])
def test_ranks_of_a_launcher_note_their_usage(run: Run, way: Mapping[str, Any]) -> None:
    task = run.one(**python('''
import time
data = bytearray(b'1') * 50_000_000
open('written', 'ab').write(data[:1_000_000])
while time.process_time() < 0.3: pass
''', ranks=2, **way))
    assert (task.state, task.exit_code) == (rp.DONE, 0), task.exception_detail
    assert task.launch_method is not None
    assert in_order(task)
    assert usage(task).cpu >= 0.6
    assert 100_000_000 <= usage(task).memory < 300_000_000
    assert 2_000_000 <= usage(task).written < 3_000_000
    assert usage(task).read > 0
    assert usage(task).switches >= 2


def test_a_rank_that_cannot_note_its_usage_hides_that_of_the_others(run: Run) -> None:
    """A killed rank notes nothing, and a sum without it would be a guess."""
    task = run.one(**sh('test "$RP_RANK" = 0 && sleep 1 && kill -9 $PPID; exit 3', ranks=2))
    assert task.state == rp.FAILED
    assert task.usage == NOTHING
    assert in_order(task)


def test_a_task_that_is_tried_again(run: Run) -> None:
    """Times and usage are those of the last attempt; the history has those of the earlier one."""
    task = run.one(**sh(f"test -e ../again && exit 0; touch ../again; {sys.executable} -c '{burn(0.4)}'; exit 3",
                        retries=1, retry_delay=0.01))
    assert (task.state, task.attempts) == (rp.DONE, 2)
    first, = task.history
    assert first['placed'] <= first['started'] <= first['ended'] <= times(task).started
    assert first['ended'] - first['started'] >= 0.4
    assert first['usage']['cpu'] >= 0.4 > usage(task).cpu
    assert in_order(task)


def test_tasks_that_are_ended(run: Run) -> None:
    late, cancelled, never = run.tmgr.submit_tasks([
        rp.TaskDescription(sh('sleep 60', timeout=1)), rp.TaskDescription(sh('sleep 60')),
        rp.TaskDescription(sh('true', cores_per_rank=4, after=['task.000001']))])
    wait_until(lambda: cancelled.state == rp.AGENT_EXECUTING)
    cancelled.cancel()
    run.tmgr.wait_tasks(timeout=30)
    assert [task.state for task in (late, cancelled, never)] == [rp.CANCELED] * 3
    assert in_order(late)
    assert times(late).duration >= 1
    assert in_order(cancelled)
    assert usage(cancelled).cpu is not None
    assert (never.times[1:], never.usage) == ((None, None, None), NOTHING)
    assert times(never).submitted is not None


def test_a_task_that_never_runs(run: Run) -> None:
    task = run.one(executable='/no/such/program')
    assert task.state == rp.FAILED
    assert (times(task).started, times(task).ended, task.usage) == (None, None, NOTHING)


def test_a_running_task_tells_when_it_has_started(run: Run) -> None:
    task = run.tmgr.submit_tasks(rp.TaskDescription(sh('until [ -e go ]; do sleep 0.05; done')))
    wait_until(lambda: times(task).started is not None)
    assert (task.state, times(task).ended, times(task).duration) == (rp.AGENT_EXECUTING, None, None)
    assert times(task).placed <= times(task).started
    assert task.slots is not None
    found, = sessions.tasks(run.session.path)
    assert found['times'] == [*task.times[1:]]
    Path(str(task.sandbox), 'go').touch()
    assert task.wait(timeout=30) == rp.DONE
    assert in_order(task)


def test_a_cached_result_has_used_nothing(run: Run) -> None:
    first = run.one(**sh('echo 1', cache=True))
    again = run.one(**sh('echo 1', cache=True))
    assert (first.cached, again.cached) == (False, True)
    assert in_order(first)
    assert times(again).submitted > times(first).submitted
    assert (again.times[1:], again.usage) == ((None, None, None), NOTHING)


def test_tasks_of_partitions(session: rp.Session, base: Path) -> None:
    pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session)
    tmgr.add_pilots(pmgr.submit_pilots(pilot_description(base, partitions=2)))
    tasks = tmgr.submit_tasks([rp.TaskDescription(python(burn(0.2), partition=number)) for number in range(2)])
    tmgr.wait_tasks(timeout=40)
    assert [task.partition for task in tasks] == [0, 1]
    assert all(in_order(task) and usage(task).cpu >= 0.2 for task in tasks)


def test_tasks_of_a_sub_agent(session: rp.Session, base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = base / '.radical' / 'pilot' / 'configs'
    directory.mkdir(parents=True)
    (directory / 'resource_local.json').write_text(json.dumps({'exact': {'agent_config': {
        'components': {'agent_executing': {'count': 1, 'target': 'process'}}}}}))
    monkeypatch.setenv('RADICAL_CONFIG_USER_DIR', str(base))
    pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session)
    tmgr.add_pilots(pmgr.submit_pilots(pilot_description(base)))
    task = tmgr.submit_tasks(rp.TaskDescription(python(burn(0.2))))
    assert task.wait(timeout=40) == rp.DONE
    assert in_order(task)
    assert usage(task).cpu >= 0.2


def test_the_shell_does_not_tell_the_usage(session: rp.Session, base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = base / '.radical' / 'pilot' / 'configs'
    directory.mkdir(parents=True)
    (directory / 'resource_local.json').write_text(json.dumps({'exact': {'agent_spawner': 'SHELL'}}))
    monkeypatch.setenv('RADICAL_CONFIG_USER_DIR', str(base))
    pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session)
    tmgr.add_pilots(pmgr.submit_pilots(pilot_description(base)))
    task = tmgr.submit_tasks(rp.TaskDescription(python(burn(0.2))))
    assert task.wait(timeout=40) == rp.DONE
    assert in_order(task)
    assert task.usage == NOTHING


def test_an_application_that_attaches_sees_the_same(base: Path) -> None:
    """Also of tasks of a sweep, and so do the files of the session."""
    with rp.Session(uid='session', cfg={'base': str(base)}) as session:
        pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session)
        tmgr.add_pilots(pmgr.submit_pilots(pilot_description(base)))
        one = tmgr.submit_tasks(rp.TaskDescription(python(burn(0.2))))
        sweep = tmgr.submit_sweep(rp.TaskDescription({'executable': 'echo', 'arguments': ['{n}']}), {'n': range(3)})
        tmgr.wait_tasks(timeout=40)
        seen = {task.uid: (task.times, task.usage) for task in (one, *sweep)}
        path = session.path
        session.close(terminate=False)
    found = {task['uid']: task for task in sessions.tasks(path)}
    with rp.Session(uid='session', cfg={'base': str(base)}) as session:
        again, = session.get_task_managers()
        assert found.keys() == seen.keys()
        for uid, (when, used) in seen.items():
            task = again.get_tasks(uid)
            assert (task.times[1:], task.usage) == (when[1:], used)
            assert times(task).submitted == pytest.approx(when.submitted, abs=5)   # the hub's time, when it came
            assert (found[uid]['submitted'], found[uid]['times']) == (times(task).submitted, [*when[1:]])
            assert found[uid]['usage'] == {name: value for name, value in used._asdict().items() if value is not None}
