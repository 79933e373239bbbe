"""Where an agent's components live: chosen through `PilotDescription._config`, the same for the user in any case."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from conftest import Run, pilot_description, processes_with, wait_until

import radical.pilot as rp
from rp_profiling.read.profile import read_profile

LAYOUTS: dict[str, dict[str, Any]] = {
    'inline': {'number_of_workers': {'StageinWorker': 2, 'ExecWorker': 2, 'StageoutWorker': 2}},
    'process': {'components': {'agent_executing': {'target': 'process'}}},
    'sub-agents': {'agents': {'agent_1': {'target': 'local', 'components': {'agent_executing': {}}},
                              'agent_2': {'target': 'local', 'components': {'agent_executing': {},
                                                                            'agent_staging_output': {}}}}},
    'stagers': {'components': {'agent_staging_input': {'target': 'process', 'count': 2},
                               'agent_staging_output': {'target': 'process'}}},
}
TWO: dict[str, Any] = {'agents': {name: {'components': {'agent_executing': {}}} for name in ('agent_1', 'agent_2')}}

Start = Callable[[dict[str, Any]], Run]


@pytest.fixture
def start(session: rp.Session, base: Path) -> Start:
    """Starts a pilot with that agent configuration."""
    def started(settings: dict[str, Any]) -> Run:
        pmgr, tmgr = rp.PilotManager(session=session), rp.TaskManager(session=session)
        pilot = pmgr.submit_pilots(pilot_description(base, _config=settings))
        tmgr.add_pilots(pilot)
        pilot.wait([rp.PMGR_ACTIVE, rp.FAILED], timeout=30)
        return Run(session, pmgr, pilot, tmgr)

    return started


def sub_agents(run: Run) -> dict[str, int]:
    """The process numbers of the pilot's sub-agents, by name."""
    found = {}
    for pid, line in processes_with(os.environ['RADICAL_BASE']).items():
        if 'rp_agent.nodes.sub_agent' in line:
            with suppress(OSError):   # it has just ended
                found[Path(os.readlink(f'/proc/{pid}/fd/2')).stem] = pid
    return found


def sleepers(run: Run, count: int, command: str = 'sleep 1234') -> list[rp.Task]:
    """Tasks that run for long, as shells with a process below them and one that has left their session."""
    tasks = run.tmgr.submit_tasks([rp.TaskDescription({
        'executable': '/bin/sh', 'arguments': ['-c', f'{command} & setsid {command} & wait']}) for _ in range(count)])
    run.tmgr.wait_tasks([task.uid for task in tasks], state=rp.AGENT_EXECUTING, timeout=30)
    return list(tasks)


@pytest.mark.parametrize('settings', LAYOUTS.values(), ids=LAYOUTS)
def test_same_results_in_any_layout(start: Start, base: Path, settings: dict[str, Any]) -> None:
    run = start(settings)
    assert run.pilot.state == rp.PMGR_ACTIVE, run.pilot.exception_detail
    (base / 'in').write_text('data')
    descriptions = [rp.TaskDescription({
        'executable': '/bin/sh', 'arguments': ['-c', f'echo {number}; exit {number % 3}'],
        'cores_per_rank': 1 + number % 4, 'input_staging': ['in'] if number % 2 else [],
        'output_staging': [{'source': 'in', 'target': f'client:///out.{number}', 'action': rp.COPY}]
        if number % 2 else []}) for number in range(12)]
    tasks = run.tmgr.submit_tasks(descriptions)
    run.tmgr.wait_tasks([task.uid for task in tasks], timeout=40)
    assert [(task.state, task.exit_code, task.stdout) for task in tasks] == [
        (rp.FAILED if number % 3 else rp.DONE, number % 3, f'{number}\n') for number in range(12)]
    assert {path.name for path in base.glob('out.*')} == {'out.3', 'out.9'}
    assert [len((task.slots or [])[0]['cores']) for task in tasks] == [1 + number % 4 for number in range(12)]
    (cancelled,) = sleepers(run, 1)
    cancelled.cancel()
    cancelled.wait(timeout=30)
    assert cancelled.state == rp.CANCELED
    sandbox = Path(run.pilot.pilot_sandbox)
    run.session.close()
    traced = [row.uid for path in sandbox.glob('agent_executing.*.prof') for row in read_profile(path)
              if row.event == 'rank_start']
    assert sorted(traced) == sorted(task.uid for task in [*tasks, cancelled])
    ends = [read_profile(path)[-1].event for path in sandbox.glob('*.prof')]
    assert set(ends) == {'END'}


def test_instances_in_other_processes_share_the_tasks_over_the_bridge(start: Start, base: Path) -> None:
    """Count, place and heartbeat as they are configured: each instance has tasks, and one that hangs is found out."""
    staged = {'target': 'process', 'count': 2}
    run = start({'components': {'agent_staging_input': staged, 'agent_executing': staged,
                                'agent_staging_output': staged}, 'heartbeat': {'interval': 0.5, 'timeout': 5}})
    assert run.pilot.state == rp.PMGR_ACTIVE, run.pilot.exception_detail
    instances = [f'{component}.{number:04d}' for component in
                 ('agent_staging_input', 'agent_executing', 'agent_staging_output') for number in range(2)]
    assert sorted(sub_agents(run)) == sorted(instances)
    (base / 'in').write_text('data')
    tasks = run.tmgr.submit_tasks([rp.TaskDescription({
        'executable': '/bin/cp', 'arguments': ['in', 'out'], 'input_staging': ['in'],
        'output_staging': [{'source': 'out', 'target': f'pilot:///out.{number}', 'action': rp.COPY}]})
        for number in range(12)])
    run.tmgr.wait_tasks([task.uid for task in tasks], timeout=40)
    assert [task.state for task in tasks] == [rp.DONE] * 12
    sandbox, uids = Path(run.pilot.pilot_sandbox), {task.uid for task in tasks}

    def traced(name: str) -> set[str]:
        """The tasks that have left an instance, by what is in its trace so far."""
        found = sandbox / f'{name}.prof'
        return {row.uid for row in read_profile(found) if row.state.endswith('_PENDING')} if found.exists() else set()

    wait_until(lambda: uids <= traced('agent_executing.0000') | traced('agent_executing.0001'))   # one is killed now
    long = sleepers(run, 2)
    os.kill(sub_agents(run)['agent_executing.0001'], signal.SIGSTOP)
    wait_until(lambda: any(task.state == rp.FAILED for task in long))
    (lost,) = [task for task in long if task.state == rp.FAILED]
    assert 'sub-agent agent_executing.0001' in str(lost.exception)
    assert ('sub-agent agent_executing.0001 is killed: no heartbeat for 5 s'
            in (sandbox / 'agent_0.log').read_text())
    assert run.one(executable='/bin/echo', arguments=['still here']).stdout == 'still here\n'
    run.session.close()
    assert [name for name in instances if not traced(name) & uids] == []


def until_ended(text: str) -> None:
    """Wait until there is no process that has this text in its environment or command line."""
    wait_until(lambda: not processes_with(text))


def test_dead_sub_agent_is_not_the_end_of_the_pilot(start: Start) -> None:
    run = start(TWO)
    tasks = sleepers(run, 4)
    os.kill(sub_agents(run)['agent_1'], signal.SIGKILL)
    wait_until(lambda: sum(task.state == rp.FAILED for task in tasks) == 2)
    for task in tasks:
        if task.state == rp.FAILED:
            assert 'sub-agent agent_1' in str(task.exception)
            assert 'SIGKILL' in str(task.exception)
            until_ended(f'RP_TASK_SANDBOX={str(task.task_sandbox).removeprefix("file://localhost")}\0')
    assert run.one(executable='/bin/echo', arguments=['still here']).stdout == 'still here\n'
    assert run.pilot.state == rp.PMGR_ACTIVE


def test_last_sub_agent_dies(start: Start) -> None:
    run = start({'components': {'agent_executing': {'target': 'process'}}})
    running = sleepers(run, 1)[0]
    waiting = run.tmgr.submit_tasks(rp.TaskDescription({'executable': '/bin/true', 'cores_per_rank': 4}))
    os.kill(sub_agents(run)['agent_executing.0000'], signal.SIGKILL)
    run.pilot.wait(timeout=30)
    assert run.pilot.state == rp.FAILED
    assert 'has lost its last agent_executing: sub-agent agent_executing.0000' in str(run.pilot.exception)
    run.tmgr.wait_tasks([running.uid, waiting.uid], timeout=30)
    assert [running.state, waiting.state] == [rp.FAILED, rp.FAILED]


STAGERS = ['agent_staging_input', 'agent_staging_output']
STAGED: dict[str, Any] = {'executable': '/bin/cp', 'arguments': ['in', 'out'], 'input_staging': ['in'],
                          'stdout': 'said', 'restartable': True}


def staged(run: Run, base: Path, count: int, **attributes: Any) -> list[rp.Task]:
    """Tasks with input and output, whose staging takes as long as a stager in another process likes."""
    (base / 'in').write_text('data')
    return list(run.tmgr.submit_tasks([rp.TaskDescription(STAGED | attributes | {'output_staging': [
        {'source': 'out', 'target': f'pilot:///out.{number}', 'action': rp.COPY}]}) for number in range(count)]))


def wait_for(tasks: list[rp.Task], component: str, run: Run) -> None:
    """Wait until all tasks are at this stager or past it."""
    if component == 'agent_staging_input':
        run.tmgr.wait_tasks([task.uid for task in tasks], state=rp.AGENT_STAGING_INPUT_PENDING, timeout=30)
    else:
        wait_until(lambda: all(Path(str(task.sandbox), 'out').exists() or task.state == rp.DONE for task in tasks))


@pytest.mark.parametrize('component', STAGERS)
def test_another_stager_takes_over_from_one_that_dies(start: Start, base: Path, component: str) -> None:
    run = start({'components': {component: {'target': 'process', 'count': 2}}})
    wait_until(lambda: len(sub_agents(run)) == 2)
    killed = sub_agents(run)[f'{component}.0001']
    os.kill(killed, signal.SIGSTOP)
    tasks = staged(run, base, 8, cleanup=True)
    wait_for(tasks, component, run)
    wait_until(lambda: any(task.state == rp.DONE for task in tasks))
    assert not all(task.state == rp.DONE for task in tasks)
    os.kill(killed, signal.SIGKILL)
    run.tmgr.wait_tasks([task.uid for task in tasks], timeout=40)
    assert [(task.state, task.attempts) for task in tasks] == [(rp.DONE, 1)] * 8, [task.exception for task in tasks]
    sandbox = Path(run.pilot.pilot_sandbox)
    assert [(sandbox / f'out.{number}').read_text() for number in range(8)] == ['data'] * 8


@pytest.mark.parametrize('component', STAGERS)
def test_loss_of_the_last_stager_is_the_end_of_the_pilot_and_not_of_tasks(start: Start, base: Path,
                                                                          component: str) -> None:
    run = start({'components': {component: {'target': 'process'}}})
    wait_until(lambda: len(sub_agents(run)) == 1)
    killed = sub_agents(run)[f'{component}.0000']
    os.kill(killed, signal.SIGSTOP)
    tasks = staged(run, base, 4)
    wait_for(tasks, component, run)
    run.tmgr.add_pilots(run.pmgr.submit_pilots(pilot_description(base)))
    os.kill(killed, signal.SIGKILL)
    run.pilot.wait(timeout=30)
    assert run.pilot.state == rp.FAILED
    run.tmgr.wait_tasks([task.uid for task in tasks], timeout=40)
    lost = 0 if component == 'agent_staging_input' else 1   # their runs, if output cannot be staged any more
    assert [(task.state, task.losses) for task in tasks] == [(rp.DONE, lost)] * 4, [task.exception for task in tasks]


def test_killed_agent_leaves_nothing(start: Start) -> None:
    """Neither its sub-agents nor anything that was started for their tasks; the fixtures look after that."""
    run = start(TWO)
    sleepers(run, 4)
    (agent,) = [pid for pid, line in processes_with(str(run.pilot.pilot_sandbox)).items() if 'rp_agent.cli' in line]
    os.kill(agent, signal.SIGKILL)
    run.pilot.wait(timeout=30)
    assert run.pilot.state == rp.FAILED
    wait_until(lambda: not [line for line in processes_with(run.session.uid).values() if 'sleep 1234' in line])
    wait_until(lambda: not sub_agents(run))


def test_configuration_that_is_refused(start: Start) -> None:
    run = start({'components': {'agent_executing': {'count': -2}}})
    assert run.pilot.state == rp.FAILED
    assert ('agent configuration: components.agent_executing.count is -2, allowed: a whole number from 0 to 1024'
            in str(run.pilot.exception_detail))
