"""Pilots that are divided: each partition has an agent, tasks and an end of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from conftest import pilot_description, processes_with, wait_until
from mongo_servers import running

import radical.pilot as rp
from rp_profiling.read.profile import read_profile

WHERE = 'echo $RP_PILOT_ID $RP_PARTITION_ID $RP_PILOT_SANDBOX'


class Site:
    """A session with a divided pilot."""

    def __init__(self, session: rp.Session, base: Path) -> None:
        self.base = base
        self.pmgr, self.tmgr = rp.PilotManager(session), rp.TaskManager(session)
        self.states: list[tuple[str, str]] = []
        self.pmgr.register_callback(lambda pilot, state: self.states.append((pilot.uid, state)))

    def pilot(self, **values: Any) -> rp.Pilot:
        """An active pilot of four cores, which gets tasks."""
        description = pilot_description(self.base, **{'partitions': 2, 'exit_on_error': False} | values)
        pilot: rp.Pilot = self.pmgr.submit_pilots(description)
        self.tmgr.add_pilots(pilot)
        assert pilot.wait(rp.PMGR_ACTIVE, timeout=40) == rp.PMGR_ACTIVE, (pilot.exception, pilot.exception_detail)
        return pilot

    def submit(self, count: int = 1, script: str = WHERE, **values: Any) -> list[rp.Task]:
        """Tasks that run a script."""
        return self.tmgr.submit_tasks([rp.TaskDescription(
            {'executable': '/bin/sh', 'arguments': ['-c', script]} | values) for _ in range(count)])

    def standing(self, count: int = 1, **values: Any) -> list[rp.Task]:
        """Tasks that run until there is a file `go`."""
        tasks = self.submit(count, f'until [ -e {self.base}/go ]; do sleep 0.02; done', **values)
        self.tmgr.wait_tasks([task.uid for task in tasks], rp.AGENT_EXECUTING, timeout=40)
        assert {task.state for task in tasks} == {rp.AGENT_EXECUTING}, [task.exception for task in tasks]
        return tasks

    def outputs(self, tasks: list[rp.Task]) -> list[str]:
        """What tasks have printed, when they are done."""
        self.tmgr.wait_tasks([task.uid for task in tasks], timeout=40)
        assert {task.state for task in tasks} == {rp.DONE}, [task.exception for task in tasks]
        return [task.stdout.strip() for task in tasks]


@pytest.fixture
def site(session: rp.Session, base: Path) -> Site:
    return Site(session, base)


@pytest.fixture
def unruly(base: Path) -> Iterator[Site]:
    """One whose agents are killed: their traces are cut off."""
    with rp.Session(cfg={'base': str(base)}) as session:
        yield Site(session, base)


@pytest.fixture
def mongo_site(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with (running('nx-27017', tmp_path_factory.mktemp('mongodb')) as server,
          rp.Session(cfg={'base': str(base)}, dburl=server.url) as session):
        yield Site(session, base)


def kill_agent(partition: Any) -> None:
    """Kill the agent of a partition."""
    (pid,) = processes_with(f'{partition.agent_sandbox}/agent_0.cfg')
    os.kill(pid, signal.SIGKILL)


def test_tasks_are_shared_out(site: Site) -> None:
    pilot = site.pilot()
    assert [(each.uid, each.number, each.state, each.resources) for each in pilot.partitions] == [
        (f'pilot.0000.000{number}', number, rp.PMGR_ACTIVE, {'cpu': 2, 'gpu': 0}) for number in range(2)]
    assert pilot.resources == {'cpu': 4, 'gpu': 0}
    tasks = site.submit(20)
    lines = site.outputs(tasks)
    assert Counter(lines) == {f'pilot.0000 {number} {pilot.pilot_sandbox}': 10 for number in range(2)}
    assert [f'{task.pilot} {task.partition} {pilot.pilot_sandbox}' for task in tasks] == lines
    assert {Path(str(task.sandbox)).parent for task in tasks} == {Path(pilot.pilot_sandbox)}
    assert set(site.pmgr.list_pilots()) == {'pilot.0000'}
    asked = site.submit(6, partition=1) + site.submit(2, pilot='pilot.0000', partition=1)
    asked += site.submit(2, pilot='pilot.0000.0001')
    assert {line.split()[1] for line in site.outputs(asked)} == {'1'}
    (own,) = pilot.partitions[0].submit_tasks([rp.TaskDescription({'executable': 'true'})])
    site.outputs([own])
    assert own.partition == 0
    assert {uid for uid, _ in site.states} == {'pilot.0000'}
    site.pmgr.cancel_pilots()
    assert [each.state for each in (pilot, *pilot.partitions)] == [rp.CANCELED] * 3
    assert Path(pilot.agent_sandbox, 'agent_0.cfg').exists() is False
    assert not [each for each in pilot.partitions if Path(each.agent_sandbox, 'agent_0.cfg').exists()]


def test_tasks_that_come_before_the_pilot_is_active(site: Site) -> None:
    tasks = site.submit(8)
    site.pilot(partitions=[{'cores': 1}, {'cores': 3}])
    assert Counter(line.split()[1] for line in site.outputs(tasks)) == {'0': 2, '1': 6}


def test_shapes(site: Site) -> None:
    """Tasks go where they fit; GPUs have the numbers that they have on the node; files are those of the pilot."""
    pilot = site.pilot(cores=4, gpus=2, partitions=[{'cores': 1, 'gpus': 1}, {'cores': 3, 'gpus': 1, 'memory': 100}])
    Path(pilot.pilot_sandbox, 'shared').write_text('for all')
    seen = site.submit(1, 'echo $CUDA_VISIBLE_DEVICES; cat shared', partition=1, gpus_per_rank=1, gpu_type=rp.CUDA,
                       input_staging=[{'source': 'pilot:///shared', 'target': 'task:///shared', 'action': rp.COPY}])
    assert site.outputs(seen) == ['1\nfor all']
    assert {line.split()[1] for line in site.outputs(site.submit(4, cores_per_rank=3))} == {'1'}
    assert [partition.resource_details['mem_per_node'] == 100 for partition in pilot.partitions
            if partition.resource_details] == [False, True]
    assert {line.split()[1] for line in site.outputs(site.submit(4, mem_per_rank=101))} == {'0'}
    large = [*site.submit(cores_per_rank=4), *site.submit(mem_per_rank=101, partition=1)]
    for task, words in zip(large, ('4 cores', '101 MB mem'), strict=True):
        assert task.wait(timeout=30) == rp.FAILED
        assert words in str(task.exception)


def test_partitions_come_and_go(site: Site) -> None:
    pilot = site.pilot(partitions=[{'cores': 1}, {'cores': 2}])
    third = pilot.add_partition()
    assert third.wait([rp.PMGR_ACTIVE], timeout=30) == rp.PMGR_ACTIVE, third.exception
    assert third.resources == {'cpu': 1, 'gpu': 0}
    none_left = pilot.add_partition(cores=2, memory=64)
    assert none_left.wait(timeout=30) == rp.FAILED
    assert 'pilot.0000.0003: cannot be started: cores=2 and memory=64 of the partition' in str(none_left.exception)
    (task,) = site.standing(partition=1)
    pilot.remove_partition(1)
    assert (pilot.partitions[1].state, task.wait(timeout=30)) == (rp.CANCELED, rp.CANCELED)
    again = pilot.add_partition(cores=2, memory=64)   # of what the other one may not have left yet
    assert again.wait([rp.PMGR_ACTIVE], timeout=30) == rp.PMGR_ACTIVE, again.exception
    assert (again.resource_details or {})['mem_per_node'] == 64
    assert Counter(line.split()[1] for line in site.outputs(site.submit(8))) == {'0': 2, '2': 2, '4': 4}
    (lost,) = site.submit(partition=1)
    assert lost.wait(timeout=30) == rp.FAILED
    assert lost.exception == 'pilot.0000.0001, which the task requests, has ended'
    for partition in pilot.partitions:
        pilot.remove_partition(partition)
    assert pilot.state == rp.PMGR_ACTIVE
    waits = site.submit()
    assert pilot.add_partition(cores=4).number == 5
    assert site.outputs(waits)[0].split()[1] == '5'


def test_what_cannot_be(site: Site) -> None:
    plain = site.pilot(partitions=0)
    assert plain.partitions == []
    assert site.outputs(site.submit(partition=1)) == [f'pilot.0000 {plain.pilot_sandbox}']
    with pytest.raises(RuntimeError, match=r'pilot\.0000 has no partitions'):
        plain.add_partition()
    divided = site.pilot(partitions=1)
    with pytest.raises(ValueError, match='either nodes, or cores'):
        divided.add_partition(nodes=1, cores=1)
    with pytest.raises(ValueError, match='whole nodes have all their memory'):
        divided.add_partition(nodes=1, memory=100)
    with pytest.raises(ValueError, match=r'pilot\.0001\.0000 is a partition: add its pilot, pilot\.0001'):
        site.tmgr.add_pilots(divided.partitions[0])
    with pytest.raises(ValueError, match='has no partition 1, it has 1, from 0 on'):
        divided.remove_partition(1)
    divided.cancel()
    with pytest.raises(RuntimeError, match=r'pilot\.0001 is CANCELED'):
        divided.add_partition()


def test_more_than_there_is(site: Site) -> None:
    pilot = site.pmgr.submit_pilots(pilot_description(
        site.base, cores=0, nodes=1, partitions=[{'cores': 10_000}], exit_on_error=False))
    assert pilot.wait(timeout=30) == rp.FAILED
    assert 'cores=10000 of the partition is more than' in f'{pilot.exception} {pilot.exception_detail}'
    assert pilot.partitions[0].wait(timeout=30) == rp.FAILED


def survives(site: Site) -> None:
    """A partition that fails takes only its tasks along, and there can be another one in its place."""
    pilot = site.pilot(cores=6)
    stays, dies = site.standing(partition=0), site.standing(partition=1)
    again = site.standing(2, restartable=True)
    lost = [task for task in again if task.partition == 1]
    assert len(lost) == 1
    kill_agent(pilot.partitions[1])
    assert pilot.partitions[1].wait(timeout=30) == rp.FAILED
    assert dies[0].wait(timeout=30) == rp.FAILED
    assert 'pilot.0000.0001 ended before the task did: pilot.0000.0001: its agent was killed by signal 9' in str(
        dies[0].exception)
    wait_until(lambda: lost[0].partition == 0)
    assert pilot.state == rp.PMGR_ACTIVE
    wait_until(lambda: not processes_with('RP_PARTITION_ID=1'))
    assert pilot.add_partition().wait([rp.PMGR_ACTIVE], timeout=30) == rp.PMGR_ACTIVE
    (site.base / 'go').touch()
    site.outputs([*stays, *again])
    assert lost[0].attempts == 2
    kill_agent(pilot.partitions[0])
    assert pilot.partitions[0].wait(timeout=30) == rp.FAILED
    kill_agent(pilot.partitions[2])
    assert pilot.wait(timeout=30) == rp.FAILED
    assert 'pilot.0000 has no partition left: pilot.0000.0002: its agent was killed by signal 9' in str(pilot.exception)


@pytest.mark.fault
def test_a_partition_that_fails(unruly: Site) -> None:
    survives(unruly)


@pytest.mark.fault
def test_a_partition_that_fails_with_a_mongodb(mongo_site: Site) -> None:
    survives(mongo_site)


@pytest.mark.fault
def test_a_supervisor_that_is_killed(unruly: Site) -> None:
    """Nothing of the pilot is left, and it says why."""
    pilot = unruly.pilot()
    tasks = unruly.standing(4)
    (pid,) = processes_with(f'{pilot.pilot_sandbox}/agent_0.cfg')
    os.kill(pid, signal.SIGKILL)
    assert pilot.wait(timeout=30) == rp.FAILED
    assert pilot.exception == 'the agent of pilot.0000 was killed by signal 9 (SIGKILL)'
    assert {partition.wait(timeout=30) for partition in pilot.partitions} == {rp.FAILED}
    assert set(unruly.tmgr.wait_tasks([task.uid for task in tasks], timeout=30)) == {rp.FAILED}
    wait_until(lambda: not processes_with(pilot.pilot_sandbox))


@pytest.mark.long
@pytest.mark.fault
def test_an_agent_that_does_not_end(unruly: Site) -> None:
    """It is killed, and what it had is free."""
    pilot = unruly.pilot(partitions=1)
    (pid,) = processes_with(f'{pilot.partitions[0].agent_sandbox}/agent_0.cfg')
    os.kill(pid, signal.SIGSTOP)
    pilot.remove_partition(0)
    assert pilot.partitions[0].state == rp.CANCELED
    assert pilot.add_partition(cores=4).wait([rp.PMGR_ACTIVE], timeout=30) == rp.PMGR_ACTIVE


def test_raptor_in_partitions(site: Site) -> None:
    """Masters of several partitions do not get in each other's way; their tasks go where they are."""
    pilot = site.pilot()
    masters = [pilot.partitions[number].submit_raptors(rp.TaskDescription({'mode': rp.RAPTOR_MASTER}))[0]
               for number in range(2)]
    workers = [master.submit_workers(rp.TaskDescription({'mode': rp.RAPTOR_WORKER}))[0] for master in masters]
    tasks = [task for master in masters for task in master.submit_tasks(
        [rp.TaskDescription({'mode': rp.TASK_EVAL, 'code': '6 * 7'})] * 2)]
    site.tmgr.wait_tasks([task.uid for task in tasks], timeout=60)
    assert [(task.state, task.return_value, task.partition) for task in tasks] == [
        (rp.DONE, 42, number) for number in (0, 0, 1, 1)], [task.exception for task in tasks]
    assert [task.partition for task in (*masters, *workers)] == [0, 1, 0, 1]


def test_a_session_that_is_left_and_taken_over(base: Path) -> None:
    session = rp.Session(uid='left', cfg={'base': str(base)}, orphan_timeout=60)
    site = Site(session, base)
    pilot = site.pilot()
    standing = site.standing(2)
    session.close(terminate=False)
    with rp.Session(uid='left', cfg={'base': str(base)}) as session:
        pilot = session.get_pilot_managers('pmgr.0000').get_pilots('pilot.0000')
        tmgr = session.get_task_managers('tmgr.0000')
        assert [each.state for each in pilot.partitions] == [rp.PMGR_ACTIVE] * 2
        assert [tmgr.get_tasks(task.uid).partition for task in standing] == [0, 1]
        assert pilot.add_partition(cores=1).number == 2
        kill_agent(pilot.partitions[1])
        assert pilot.partitions[1].wait(timeout=30) == rp.FAILED
        (base / 'go').touch()
        assert tmgr.wait_tasks([task.uid for task in standing], timeout=30) == [rp.DONE, rp.FAILED]


def shown(uid: str, *options: str) -> dict[str, Any]:
    """What `rp session` says of a session, as its export counts records."""
    def said(*arguments: str) -> str:
        done = subprocess.run([sys.executable, '-m', 'rp_client.cli', 'session', *arguments, *options],
                              capture_output=True, text=True, timeout=50)
        assert done.returncode == 0, done.stderr
        return done.stdout

    (listed,) = json.loads(said('list', '--json'))
    kinds = Counter(json.loads(line).get('type') for line in said('export', uid).splitlines())
    return {'pilots': listed['pilots'], 'kinds': [kinds[kind] for kind in ('pilot', 'partition', 'task')],
            'lines': [line for line in said('show', uid).splitlines() if 'pilot' in line]}


@pytest.mark.parametrize('coordinator', ['hub', 'mongodb'])
def test_partitions_are_not_counted_as_pilots(coordinator: str, base: Path,
                                              tmp_path_factory: pytest.TempPathFactory) -> None:
    with ExitStack() as stack:
        options = []
        if coordinator == 'mongodb':
            options = ['--dburl', stack.enter_context(running('nx-27017', tmp_path_factory.mktemp('mongodb'))).url]
        with rp.Session(uid='divided', cfg={'base': str(base)}, dburl=options[-1] if options else None) as session:
            site = Site(session, base)
            site.pilot()
            site.outputs(site.submit(4))
        end = 'CANCELED  pilot.0000 cancelled'
        assert shown('divided', *options) == {
            'pilots': {rp.CANCELED: 1}, 'kinds': [1, 2, 4], 'lines': [
                'pilots   1 CANCELED', f'  pilot.0000  {end}', *(
                    f'    pilot.0000.000{number}  {end.replace("pilot.0000", f"pilot.0000.000{number}")}'
                    for number in range(2))]}


ANALYTICS = """
import json, sys
import radical.analytics as ra
import radical.pilot as rp
session = ra.Session(sys.argv[1], 'radical.pilot')
ran = rp.utils.get_consumed_resources(session)['exec_cmd']
print(json.dumps({'pilots': {pilot.uid: pilot.cfg['cores'] for pilot in session.get(etype='pilot')},
                  'boxes': [[uid, *box] for uid, boxes in ran.items() for box in boxes]}))
"""


@pytest.mark.long
def test_radical_analytics_reads_a_divided_pilot(base: Path) -> None:
    """As one pilot, on whose cores tasks run, each on its own."""
    if 'CI' not in os.environ:   # there it is installed
        pytest.importorskip('radical.analytics')
    with rp.Session(cfg={'base': str(base)}) as session:
        site = Site(session, base)
        site.pilot()
        tasks = site.standing(4)
        (base / 'go').touch()
        site.outputs(tasks)
        session.close(download=True)
    done = subprocess.run([sys.executable, '-W', 'ignore', '-c', ANALYTICS, session.path], capture_output=True,
                          text=True, timeout=50, cwd=base)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found['pilots'] == {'pilot.0000': 4}
    assert sorted(box[3:] for box in found['boxes']) == [[core, core] for core in range(4)]
    assert {box[0] for box in found['boxes']} == {task.uid for task in tasks}


def test_profiles_and_logs_of_all_agents(session: rp.Session, site: Site, base: Path) -> None:
    site.pilot()
    site.outputs(site.submit(4))
    site.pmgr.cancel_pilots()
    for files in (session.fetch_profiles(str(base / 'all')), session.fetch_logfiles(str(base / 'all'))):
        assert {os.path.relpath(Path(file).parent, base / 'all') for file in files} == {
            'pilot.0000', 'pilot.0000/pilot.0000.0000', 'pilot.0000/pilot.0000.0001'}
    events = [(row.event, row.uid, row.msg) for row in read_profile(base / 'all' / 'pilot.0000' / 'agent_0.prof')
              if row.event.startswith('partition_')]
    assert sorted(events) == [(f'partition_{event}', f'pilot.0000.000{number}', rp.CANCELED if event == 'stop' else '')
                              for event in ('ready', 'start', 'stop') for number in range(2)]
