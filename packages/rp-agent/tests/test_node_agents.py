"""Sub-agents on nodes: where tasks run, what a lost node costs, and that nothing is left. Real processes.

The nodes are pretended: each is a sub-agent of its own on this machine.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import stat
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pipeline_support import ALL, ON_RESERVED, SLEEP, TIMEOUT, Agent, nothing_left, processes_of

from rp_agent.components.build import belongs
from rp_agent.nodes.sub_agents import SubAgents
from rp_agent.pipeline import losses
from rp_agent.task import HISTORY, AgentTask
from rp_api import states
from rp_api.constants import COPY
from rp_api.errors import PlatformError
from rp_api.failures.kinds import NODE
from rp_api.staging import expand
from rp_api.system.shared_directory import shared_memory

ON_NODES = {'components': {'agent_executing': {'target': 'node'}}}
PARENT: dict[str, Any] = {'executable': '/usr/bin/cut', 'arguments': ['-d ', '-f4', '/proc/self/stat']}
SPREAD: dict[str, Any] = {'ranks': 2, 'use_mpi': False, 'slots': [
    {'node_index': node, 'node_name': 'localhost', 'cores': [{'index': 0, 'occupation': 1.0}], 'gpus': []}
    for node in range(2)]}
LONG = {'executable': '/bin/sh', 'arguments': ['-c', 'sleep 100 & setsid sleep 100 & wait']}


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Agent]]:
    """Makes a pipeline with sub-agents on so many nodes."""
    made: list[Agent] = []

    def with_nodes(nodes: int, settings: dict[str, Any] | None = None, **options: Any) -> Agent:
        made.append(Agent(tmp_path, ON_NODES | (settings or {}), nodes=nodes, **options))
        return made[-1]

    yield with_nodes
    for agent in made:
        agent.close()
    nothing_left(str(tmp_path))


def pid_on(base: Path, node: int) -> int:
    """The process number of the sub-agent on a node."""
    argument = f'{base}/agent_n.cfg {node} '
    deadline = time.monotonic() + TIMEOUT
    # it cannot be told while a shell becomes its program
    while not (found := [pid for pid, line in processes_of(str(base)).items() if line.endswith(argument)]):
        assert time.monotonic() < deadline, f'no sub-agent on node {node}'
    return min(found)   # its forks look alike


def where(task: AgentTask) -> int:
    assert task.slots is not None
    return int(task.slots[0]['node_index'])


def once_running(agent: Agent, count: int, action: Callable[[], object]) -> None:
    """Call `action` in the loop when so many tasks run."""
    running = set()

    def note(task: AgentTask, state: str) -> None:
        if state == states.AGENT_EXECUTING:
            running.add(task.uid)
            if len(running) == count:
                agent.loop.call_soon(action)

    agent.on_state = note


def test_each_node_starts_its_own_tasks(make: Callable[..., Agent]) -> None:
    agent = make(3)
    tasks = [agent.task(f'task.{number}', **PARENT) for number in range(12)]
    pids = {node: str(pid_on(agent.base, node)) for node in range(3)}
    agent.run(*tasks)
    assert {task.target_state for task in tasks} == {states.DONE}
    assert {task.uid: agent.states[task.uid] for task in tasks} == {task.uid: ALL for task in tasks}
    assert [task.stdout.strip() for task in tasks] == [pids[where(task)] for task in tasks]
    assert {where(task) for task in tasks} == {0, 1, 2}


def test_what_dead_processes_have_left_in_the_memory_of_a_node_is_removed(make: Callable[..., Agent]) -> None:
    left = Path(shared_memory(), f'radical.pilot.{os.geteuid()}.1.{os.urandom(6).hex()}')
    left.mkdir(mode=0o700)
    (left / 'file').write_bytes(bytes(100))
    agent = make(2)
    agent.run(agent.task(**PARENT))
    deadline = time.monotonic() + TIMEOUT
    while left.exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_components_on_nodes_of_their_own(make: Callable[..., Agent]) -> None:
    """No task runs on these nodes; an executor there starts the tasks on several nodes, each node its own tasks."""
    agent = make(4, ON_RESERVED)
    (agent.base / 'in').write_text('data')
    staged = {'input_staging': expand({'source': 'pilot:///in', 'action': COPY}),
              'output_staging': expand({'source': 'in', 'target': 'pilot:///out', 'action': COPY})}
    tasks = [agent.task(f'task.{number}', **PARENT, **staged) for number in range(8)]
    spread = agent.task('task.8', **SPREAD, **PARENT)
    starters = [str(pid_on(agent.base, node)) for node in range(4)]
    agent.run(*tasks, spread)
    assert [str(task.exception) for task in [*tasks, spread] if task.target_state != states.DONE] == []
    assert {where(task) for task in tasks} == {0, 1}
    assert [task.stdout.strip() for task in tasks] == [starters[where(task)] for task in tasks]
    assert set(spread.stdout.split()) == {starters[3]}
    assert (agent.base / 'out').read_text() == 'data'


def test_the_loss_of_a_node_with_the_last_executor_for_several_nodes(make: Callable[..., Agent]) -> None:
    agent = make(4, ON_RESERVED)
    task = agent.task(**SPREAD, **SLEEP)
    once_running(agent, 1, lambda: os.kill(pid_on(agent.base, 3), signal.SIGKILL))
    agent.until_broken = True
    agent.run(task)
    assert agent.broken[0].startswith('has lost its last agent_executing: sub-agent agent_2 ')
    assert task.target_state == states.FAILED


def test_what_spans_nodes_is_started_by_the_agent_itself(make: Callable[..., Agent]) -> None:
    agent = make(2)
    task = agent.task(**SPREAD, **PARENT)
    agent.run(task)
    assert {slot['node_index'] for slot in task.slots or ()} == {0, 1}
    assert set(task.stdout.split()) == {str(os.getpid())}


def test_keys_are_in_a_file_that_is_ours_alone(make: Callable[..., Agent]) -> None:
    agent = make(2)
    agent.run(agent.task())
    path = agent.base / 'agent_n.cfg'
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert json.loads(path.read_text())['coordination'] == {}   # the hub's key is for the agent alone
    others = [each for each in agent.base.iterdir() if each.is_file() and each != path]
    secret = json.loads(path.read_text())['sub_agent']['secret']
    assert not [each for each in others if secret in each.read_text()]


@pytest.mark.parametrize('how', ['killed', 'silent'])
def test_a_lost_node_costs_the_tasks_on_it(make: Callable[..., Agent], how: str) -> None:
    """Others go on, what waits runs elsewhere, and what may run again does."""
    agent = make(2, {'heartbeat': {'interval': 0.2, 'timeout': 2}} if how == 'silent' else None)
    long = [agent.task(f'task.{number}', restartable=number % 2 == 1, **LONG) for number in range(4)]
    short = [agent.task(f'task.{number}') for number in range(4, 8)]
    lost: list[AgentTask] = []
    left: list[str] = []

    def lose() -> None:
        lost.extend(task for task in long if where(task) == 1)
        os.kill(pid_on(agent.base, 1), signal.SIGKILL if how == 'killed' else signal.SIGSTOP)
        agent.on_state = note

    def note(task: AgentTask, state: str) -> None:
        if state == states.TMGR_STAGING_OUTPUT_PENDING:
            left.append(task.uid)
            if len(left) == 1:   # one of the lost: those that run on node 0 make room for what waits
                agent.loop.call_soon(agent.pipeline.cancel, [task for task in long if task not in lost])
            elif set(left) >= {task.uid for task in short}:
                agent.loop.call_soon(agent.pipeline.cancel, long)

    once_running(agent, 4, lose)
    agent.run(*long, *short)
    assert {task.target_state for task in short} == {states.DONE}
    assert {where(task) for task in short} == {0}
    failed = [task for task in lost if not task.description['restartable']]
    again = [task for task in lost if task.description['restartable']]
    for task in failed:
        assert task.target_state == states.FAILED
        assert 'node localhost is lost: sub-agent agent_n.0001' in str(task.exception)
        words = 'killed by signal 9' if how == 'killed' else 'no heartbeat for 2 s'
        assert words in str(task.exception)
        assert str(agent.base / 'agent_n.err') in str(task.exception_detail)
    for task in again:
        assert task.target_state == states.CANCELED
        assert where(task) == 0
        (entry,) = task.extra[HISTORY]
        assert (entry['attempt'], entry['kind']) == (1, 'node')
        assert 'node localhost is lost' in entry['reason']
    assert len(failed) == len(again) == 1
    assert agent.broken == []
    for task in failed:
        nothing_left(f'RP_TASK_SANDBOX={task.sandbox}\0')


def test_tasks_on_other_nodes_run_again(make: Callable[..., Agent]) -> None:
    """Their records and their number of attempts stay with the agent, whatever node they run on."""
    agent = make(2)
    once = 'test -e ../$RP_TASK_ID.was || { touch ../$RP_TASK_ID.was; exit 3; }'.replace('$', r'\$')
    tasks = [agent.task(f'task.{number}', executable='/bin/sh', arguments=['-c', once], retries=1, retry_delay=0.01,
                        tags={'nodes': [number % 2]}) for number in range(4)]
    agent.run(*tasks)
    assert {task.target_state for task in tasks} == {states.DONE}
    for task in tasks:
        (entry,) = task.extra[HISTORY]
        assert (entry['attempt'], entry['kind'], entry['exit_code'], entry['nodes']) == (1, 'exit', 3, ['localhost'])


def children(pid: int) -> list[int]:
    return list(map(int, Path(f'/proc/{pid}/task/{pid}/children').read_text().split()))


def kill_children(pid: int) -> None:
    """Kill what a sub-agent runs, as soon as that runs; returns when it knows of it."""
    own = Path(f'/proc/{pid}/cmdline').read_bytes()
    while not (running := children(pid)) or any(
            Path(f'/proc/{child}/cmdline').read_bytes() == own for child in running):
        time.sleep(0.01)
    for child in running:
        os.kill(child, signal.SIGKILL)
    while children(pid):
        time.sleep(0.01)


@pytest.mark.parametrize('script', ['exec sleep 100', 'sleep 100 & wait $!'])
def test_a_task_that_is_killed_shortly_before_its_node_is_lost_with_it(make: Callable[..., Agent], script: str) -> None:
    """Who takes a node down kills all that runs there, in whatever order."""
    agent = make(2)
    sh = {'executable': '/bin/sh', 'arguments': ['-c', script], 'cores_per_rank': 2, 'restartable': True}
    tasks = [agent.task(f'task.{number}', **sh) for number in range(2)]

    def kill() -> None:
        pid = pid_on(agent.base, 1)
        kill_children(pid)
        time.sleep(0.2)   # enough for it to tell of that
        os.kill(pid, signal.SIGKILL)
        agent.on_sub_agent_stop = lambda name: agent.pipeline.cancel(tasks)

    once_running(agent, 2, kill)
    agent.run(*tasks)
    assert {task.target_state for task in tasks} == {states.CANCELED}


def test_a_task_that_is_killed_alone_has_failed(make: Callable[..., Agent]) -> None:
    agent = make(2)
    tasks = [agent.task(f'task.{number}', executable='/bin/sh', arguments=['-c', 'kill -9 $$']) for number in range(4)]
    agent.run(*tasks)
    assert {(task.target_state, task.exit_code) for task in tasks} == {(states.FAILED, -9)}
    assert {task.exception_detail for task in tasks} == {'killed by signal 9 (SIGKILL)'}


def test_who_stops_hears_of_all_that_was_killed(make: Callable[..., Agent]) -> None:
    agent = make(1)
    task = agent.task(**SLEEP)
    at_the_end: list[str | None] = []

    def stop() -> None:
        kill_children(pid_on(agent.base, 0))
        agent.stopping = True
        agent.pipeline.stop('the end', stopped)

    def stopped() -> None:
        at_the_end.append(task.target_state)
        agent.stopped = True
        agent._check_end()

    once_running(agent, 1, stop)
    agent.run(task)
    assert at_the_end == [states.FAILED]


def test_a_task_over_several_nodes_ends_with_one_of_them(make: Callable[..., Agent]) -> None:
    agent = make(2)
    task = agent.task(**SPREAD, **SLEEP)
    once_running(agent, 1, lambda: os.kill(pid_on(agent.base, 1), signal.SIGKILL))
    agent.run(task)
    assert task.target_state == states.FAILED
    assert str(task.exception) == repr(RuntimeError('node localhost is lost'))


def test_a_task_that_needs_more_than_is_left_fails(make: Callable[..., Agent]) -> None:
    agent = make(2)
    first, second = agent.task('task.0', **SLEEP), agent.task('task.1', **SPREAD)

    def kill() -> None:
        os.kill(pid_on(agent.base, 1 - where(first)), signal.SIGKILL)
        agent.on_left = lambda: agent.pipeline.cancel([first])

    once_running(agent, 1, kill)
    assert agent.run(first, second)[0] is second
    assert second.target_state == states.FAILED
    assert 'can never run on pilot.0000: a slot is for node 1 (localhost), which is lost' in str(second.exception)
    assert re.search(r'; out of use: localhost \(sub-agent agent_n\.000\d .* was killed by signal 9 \(SIGKILL\)\)$',
                     str(second.exception))
    assert (second.error or {})['kind'] == NODE


def test_without_a_node_the_pilot_fails(make: Callable[..., Agent]) -> None:
    agent = make(2)

    def kill() -> None:
        for node in range(2):
            os.kill(pid_on(agent.base, node), signal.SIGKILL)

    once_running(agent, 4, kill)
    agent.until_broken = True
    tasks = [agent.task(f'task.{number}', restartable=True, **SLEEP) for number in range(4)]
    agent.run(*tasks)
    assert agent.broken[0].startswith('has lost its last node: sub-agent agent_n.000')
    assert {task.target_state for task in tasks} <= {states.FAILED, states.CANCELED}
    assert not any('can never run' in (task.exception or '') for task in tasks)   # other pilots can run them


def test_a_node_that_is_lost_after_it_was_taken_out_of_use_counts_once(make: Callable[..., Agent],
                                                                       monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(losses, 'ROW', 1)
    agent = make(2)

    def on(node: int, uid: str, executable: str, core: int = 0, *arguments: str) -> AgentTask:
        return agent.task(uid, executable=executable, arguments=arguments, slots=[
            {**SPREAD['slots'][node], 'cores': [{'index': core, 'occupation': 1.0}]}])

    def next_step() -> None:
        if rest:
            agent.pipeline.put([rest.pop(0)])
        elif lost.target_state is None:
            os.kill(pid_on(agent.base, 1), signal.SIGKILL)

    lost, *rest = (on(1, 'task.0', '/bin/sleep', 1, '100'), on(1, 'task.1', '/bin/false'),
                   on(0, 'task.2', '/bin/true'), on(1, 'task.3', '/bin/false'))
    agent.on_left = lambda: agent.loop.call_soon(next_step)
    agent.wanted = 4
    agent.pipeline.put([lost, rest.pop(0)])
    agent.wait()
    assert 'node localhost is lost' in str(lost.exception)
    assert agent.broken == []


@pytest.mark.parametrize(('instead', 'why'), [
    ('exec sleep 100', r'agent_n\.0001 has not started within 180 s'),
    ('echo no luck today; exit 0', r'agent_n\.0001 \(process \d+\) ended with exit code 0; (.|\n)*no luck today')])
def test_a_node_that_never_comes_costs_nothing(make: Callable[..., Agent], tmp_path: Path, instead: str, why: str,
                                               caplog: pytest.LogCaptureFixture,
                                               monkeypatch: pytest.MonkeyPatch) -> None:
    """What was meant for it was not started, so that it runs elsewhere whether it is restartable or not."""
    script = tmp_path / 'bootstrap_2.sh'   # as if a bootstrap had written it
    agent_0 = Agent(tmp_path, ON_NODES, nodes=1)
    agent_0.close()
    text = script.read_text()
    script.write_text(text.replace('sandbox=', f'if test "$3" = 1; then {instead}; fi\nsandbox=', 1))
    come = SubAgents._came

    def it_is_time(group: SubAgents, name: str) -> None:
        """The first has come: who has not, has taken too long."""
        come(group, name)
        group._check_start()

    if 'sleep' in instead:
        monkeypatch.setattr(SubAgents, '_came', it_is_time)
    agent = make(2)
    tasks = [agent.task(f'task.{number}') for number in range(4)]
    agent.run(*tasks)
    assert {task.target_state for task in tasks} == {states.DONE}
    assert {where(task) for task in tasks} == {0}
    assert re.search(why, caplog.text)


# a launcher that starts a process on each node, none of which outlives it
SRUN = '''#!/bin/sh
test "$1" = --version && echo slurm 23.02.1 && exit
while test "$1" != --ntasks; do shift; done
count=$2
while test "$1" != /bin/sh; do shift; done
for rank in $(seq 0 $((count - 1))); do SLURM_PROCID=$rank setpriv --pdeathsig KILL "$@" & done
wait
'''


@pytest.fixture
def one_launcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """The name of a launch method that starts all sub-agents together: a stand-in for `srun`, or a real `mpiexec`."""
    name = str(request.param)
    if name == 'SRUN':
        programs = tmp_path / 'programs'
        programs.mkdir()
        (programs / 'srun').write_text(SRUN)
        (programs / 'srun').chmod(0o755)
        monkeypatch.setenv('PATH', f'{programs}:{os.environ["PATH"]}')
    elif not shutil.which('mpiexec'):
        (pytest.fail if 'CI' in os.environ else pytest.skip)('there is no mpiexec')
    return name


@pytest.mark.parametrize('one_launcher', ['SRUN', 'MPIEXEC'], indirect=True)
@pytest.mark.parametrize(('instead', 'how'), [
    ('echo no luck today; exit 3', 'exit code: 3; '),
    ('echo no luck today; kill -9 $$', r'killed by signal 9 \(SIGKILL\); ')])
def test_one_of_many_that_dies_before_it_connects(make: Callable[..., Agent], tmp_path: Path, one_launcher: str,
                                                  instead: str, how: str, caplog: pytest.LogCaptureFixture) -> None:
    """It costs its node as soon as it has died: the launcher, which would tell, stays for the others."""
    agent_0 = Agent(tmp_path, ON_NODES, nodes=1)
    agent_0.close()
    script = tmp_path / 'bootstrap_2.sh'
    script.write_text(script.read_text().replace(
        'sandbox=', f'if test "${{SLURM_PROCID-$PMI_RANK}}" = 1; then {instead}; fi\nsandbox=', 1))
    agent = make(3, launch_methods={'order': [one_launcher]})
    tasks = [agent.task(f'task.{number}') for number in range(12)]
    agent.run(*tasks)
    assert {task.target_state for task in tasks} == {states.DONE}
    assert {where(task) for task in tasks} == {0, 2}
    said = fr'agent_n\.0001 launched by {one_launcher} has ended before it was connected: {how}'
    assert re.search(fr'{said}(.|\n)*no luck today', caplog.text)
    assert 'RP_SUB_AGENT_ENDED' not in (tmp_path / 'agent_n.err').read_text()


@pytest.mark.parametrize('one_launcher', ['SRUN', 'MPIEXEC'], indirect=True)
def test_one_of_many_that_is_killed(make: Callable[..., Agent], one_launcher: str) -> None:
    """It costs its node, and no launcher ends the others for it."""
    agent = make(3, launch_methods={'order': [one_launcher]})
    tasks = [agent.task(f'task.{number}', cores_per_rank=2, **LONG) for number in range(3)]

    def kill() -> None:
        agent.on_state = left
        os.kill(min(pid for pid, line in processes_of(str(agent.base)).items() if 'rp_agent.nodes.sub_agent' in line),
                signal.SIGKILL)

    def left(task: AgentTask, state: str) -> None:
        if state == states.TMGR_STAGING_OUTPUT_PENDING and task.target_state == states.FAILED:
            agent.loop.call_soon(agent.pipeline.cancel, [each for each in tasks if each is not task])

    once_running(agent, 3, kill)
    agent.run(*tasks)
    assert sorted(str(task.target_state) for task in tasks) == [states.CANCELED, states.CANCELED, states.FAILED]
    assert agent.broken == []


def test_stop_ends_everything_on_all_nodes(make: Callable[..., Agent]) -> None:
    agent = make(3)
    tasks = [agent.task(f'task.{number}', **LONG) for number in range(6)]
    once_running(agent, 6, agent.stop)
    agent.run(*tasks)
    assert {task.target_state for task in tasks} == {states.CANCELED}
    for task in tasks:
        nothing_left(f'RP_TASK_SANDBOX={task.sandbox}\0')


def test_cancel_reaches_the_node(make: Callable[..., Agent]) -> None:
    agent = make(2)
    tasks = [agent.task(f'task.{number}', **LONG) for number in range(4)]
    once_running(agent, 4, lambda: agent.pipeline.cancel(tasks))
    agent.run(*tasks)
    assert {task.target_state for task in tasks} == {states.CANCELED}


def test_what_a_launcher_has_left_on_a_node_is_cleared_up_there(make: Callable[..., Agent]) -> None:
    agent = make(2)
    marks = belongs(agent.config) | {'RP_TASK_ID': 'ended'}
    left = [subprocess.Popen(['sleep', '1000'], env=marks | {'RP_TASK_ID': uid}) for uid in ('ended', 'other')]
    try:
        agent.loop.call_soon(agent.pipeline._instances.sweep_elsewhere, 'ended', (1,))
        agent.run(*(agent.task(f'task.{number}') for number in range(4)))
        assert left[0].wait(30) == -signal.SIGKILL
        assert left[1].poll() is None
    finally:
        for process in left:
            process.kill()
            process.wait()


def test_no_launch_method_that_could_start_them(make: Callable[..., Agent]) -> None:
    with pytest.raises(PlatformError) as caught:
        make(2, launch_methods={'order': ['SRUN', 'NONE']}, agent_launch_method='SRUN')
    assert 'no launch method of the platform can start sub-agents there: SRUN: srun' in str(caught.value) or (
        'SRUN: `' in str(caught.value))
