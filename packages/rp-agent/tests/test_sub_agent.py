"""Sub-agents: how they end, how they die, and what that costs. Real processes."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pipeline_support import ALL, SLEEP, Agent, nothing_left, sub_agent_pid

from rp_agent.components.build import ComponentPorts
from rp_agent.nodes import child, sub_agents
from rp_agent.nodes.remote import Remote
from rp_agent.nodes.sub_agents import BRIDGE
from rp_agent.pipeline import pipeline
from rp_agent.task import AgentTask
from rp_api import states
from rp_profiling.read.profile import read_profile

TWO: dict[str, Any] = {'agents': {name: {'components': {'agent_executing': {}}} for name in ('agent_1', 'agent_2')}}
ALONE = {'components': {'agent_executing': {'target': 'process'}}}

# a process that its parent's death does not reach, and another one that has left its session
STRAYS = {'executable': '/bin/sh', 'arguments': ['-c', 'sleep 100 & setsid sleep 100 & wait']}


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Agent]]:
    """Makes a pipeline of that layout."""
    made: list[Agent] = []

    def of_layout(settings: dict[str, Any], **options: Any) -> Agent:
        made.append(Agent(tmp_path, settings, **options))
        return made[-1]

    yield of_layout
    for agent in made:
        agent.close()
    nothing_left(str(tmp_path))


def once(agent: Agent, count: int, state: str, action: Callable[[], object]) -> None:
    """Call `action` in the loop when so many tasks have reached a state."""
    reached = []

    def note(task: AgentTask, new: str) -> None:
        if new == state:
            reached.append(task.uid)
            if len(reached) == count:
                agent.loop.call_soon(action)

    agent.on_state = note


def kill(agent: Agent, name: str, number: signal.Signals = signal.SIGKILL) -> None:
    os.kill(sub_agent_pid(agent.base, name), number)


def test_dead_sub_agent_costs_the_tasks_that_it_had(make: Callable[..., Agent]) -> None:
    agent = make(TWO, cores=4)
    long = [agent.task(f'task.{number}', **STRAYS) for number in range(4)]
    short = [agent.task(f'task.{number}') for number in range(4, 12)]   # they need the cores of the dead

    def left(task: AgentTask, state: str) -> None:
        if task is short[-1] and state == states.TMGR_STAGING_OUTPUT_PENDING:
            agent.loop.call_soon(agent.pipeline.cancel, long)

    def kill_one() -> None:
        agent.on_state = left
        kill(agent, 'agent_1')

    once(agent, 4, states.AGENT_EXECUTING, kill_one)
    agent.run(*long, *short)
    lost = [task for task in long if task.target_state == states.FAILED]
    assert len(lost) == 2
    for task in lost:
        assert 'sub-agent agent_1' in str(task.exception)
        assert 'killed by signal 9 (SIGKILL)' in str(task.exception)
        assert str(agent.base / 'agent_1.err') in str(task.exception_detail)
        assert task.exit_code is None
    assert [task.target_state for task in long if task not in lost] == [states.CANCELED] * 2
    assert {task.target_state for task in short} == {states.DONE}
    assert agent.broken == []
    for task in lost:
        nothing_left(f'RP_TASK_SANDBOX={task.sandbox}\0')


def test_last_words_of_a_sub_agent(make: Callable[..., Agent], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, 'python_program',
                        lambda _: [sys.executable, '-c', 'import sys; sys.exit("no luck today")'])
    agent = make(ALONE)
    task = agent.task()
    agent.run(task)
    assert task.target_state == states.FAILED
    assert 'ended with exit code 1' in str(task.exception)
    assert 'no luck today' in str(task.exception_detail)


def test_a_sub_agent_that_is_not_let_in_says_so(make: Callable[..., Agent], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sub_agents, 'START_TIMEOUT', 0.0)
    agent = make(ALONE)
    task = agent.task()
    agent.run(task)
    assert task.target_state == states.FAILED
    assert 'ended with exit code 0' in str(task.exception)
    assert 'agent_executing.0000 ends: no connection to ipc://' in str(task.exception_detail)


@pytest.mark.parametrize('component', ['agent_staging_input', 'agent_executing', 'agent_staging_output'])
def test_pilot_cannot_go_on_without_a_component(make: Callable[..., Agent], component: str) -> None:
    agent = make({'components': {component: {'target': 'process'}}})
    agent.loop.call_soon(kill, agent, f'{component}.0000')
    agent.until_broken = True
    agent.run(agent.task())
    (reason,) = agent.broken
    assert reason.startswith(f'has lost its last {component}: sub-agent {component}.0000 (process ')
    assert [task.target_state for task in agent.out] == [states.FAILED]


def test_stop_does_not_wait_for_the_dead(make: Callable[..., Agent]) -> None:
    agent = make(TWO, cores=4)

    def stop() -> None:
        kill(agent, 'agent_1')
        agent.stop()

    once(agent, 4, states.AGENT_EXECUTING, stop)
    agent.run(*(agent.task(f'task.{number}', **SLEEP) for number in range(4)))
    assert len(agent.out) == 4
    assert {task.target_state for task in agent.out} <= {states.CANCELED, states.FAILED}


def test_sub_agent_that_does_not_answer_is_killed_at_the_end(make: Callable[..., Agent],
                                                             monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, 'STOP_TIMEOUT', 0.3)
    agent = make(ALONE)

    def stop() -> None:
        kill(agent, 'agent_executing.0000', signal.SIGSTOP)
        agent.stop()

    once(agent, 1, states.AGENT_EXECUTING, stop)
    (task,) = agent.run(agent.task(**SLEEP))
    assert 'SIGKILL' in str(task.exception)


def test_orderly_end(make: Callable[..., Agent]) -> None:
    """Every instance has its own trace, complete to the end, and nothing is written to where errors go."""
    agent = make({'number_of_workers': {'ExecWorker': 2}, 'agents': {'agent_1': {'components': {
        'agent_executing': {}, 'agent_staging_output': {'count': 2}}}}}, cores=3, profile=True)
    agent.loop.call_later(20, pytest.fail, 'it did not end')

    def end(task: AgentTask, state: str) -> None:
        if len(agent.states) == 6 and all(reached == ALL for reached in agent.states.values()):
            agent.loop.call_soon(agent.pipeline.end, lambda: agent.loop.call_soon(agent.loop.stop))

    agent.on_state = end
    agent.wanted = 7   # so that only that stops the loop
    agent.pipeline.put([agent.task(f'task.{number}') for number in range(6)])
    agent.loop.run()
    assert (agent.base / 'agent_1.err').read_text() == ''
    agent.pipeline.close()
    parts = ['agent_executing.0002', 'agent_staging_output.0000', 'agent_staging_output.0001']
    assert agent.parts == [
        ('bridge_start', BRIDGE), *(('comp_start', uid) for uid in parts), *(('comp_stop', uid) for uid in parts),
        ('sub_agent_stop', 'agent_1'), ('bridge_stop', BRIDGE)]
    traced: set[str] = set()
    for number in range(3):
        events = read_profile(agent.base / f'agent_executing.{number:04d}.prof')
        assert events[-1].event == 'END'
        mine = {event.uid for event in events if event.event == 'rank_start'}
        assert len(mine) == 2
        traced |= mine
    assert len(traced) == 6
    assert {path.name for path in agent.base.glob('agent_staging_*.prof')} == {
        'agent_staging_input.0000.prof', 'agent_staging_output.0000.prof', 'agent_staging_output.0001.prof'}


def test_tasks_see_the_same_environment(tmp_path: Path) -> None:
    seen = []
    for number, settings in enumerate(({}, ALONE)):
        base = tmp_path / str(number)
        base.mkdir()
        agent = Agent(base, settings)
        try:
            agent.run(agent.task(executable='/usr/bin/env', arguments=['-0']))
        finally:
            agent.close()
        seen.append((base / 'task.000000/task.000000.out').read_text().replace(str(base), '').split('\0'))
    assert sorted(seen[0]) == sorted(seen[1])


def test_keys_are_for_nobody_else(make: Callable[..., Agent]) -> None:
    """They are in no file, environment or command line, and the hub's are not passed on."""
    agent = make(ALONE)
    agent.run(agent.task())
    pid = sub_agent_pid(agent.base, 'agent_executing.0000')
    told = Path(f'/proc/{pid}/cmdline').read_bytes() + Path(f'/proc/{pid}/environ').read_bytes()
    assert b'secret' not in told
    assert all('secret' not in path.read_text() for path in agent.base.iterdir() if path.is_file())


PROGRAM = '''
import sys
from pathlib import Path
from pipeline_support import Agent

agent = Agent(Path(sys.argv[1]), {'agents': {'agent_1': {'components': {'agent_executing': {}}}}})
agent.on_state = lambda task, state: state == 'AGENT_EXECUTING' and print('runs', flush=True)
agent.run(agent.task(executable='/bin/sh', arguments=['-c', 'echo started; exec sleep 100']))
'''


@pytest.mark.parametrize('stopped', [False, True])
def test_nothing_outlives_the_agent(tmp_path: Path, stopped: bool) -> None:
    """Not even what does not run at the moment."""
    process = subprocess.Popen([sys.executable, '-c', PROGRAM, str(tmp_path)], stdout=subprocess.PIPE, text=True,
                               cwd=Path(__file__).parent, env=os.environ | {'TMPDIR': str(tmp_path)})
    assert process.stdout is not None
    assert process.stdout.readline() == 'runs\n'
    pid = sub_agent_pid(tmp_path, 'agent_1', process.pid)
    if stopped:
        os.kill(pid, signal.SIGSTOP)
    process.kill()
    process.wait()
    process.stdout.close()
    nothing_left(str(tmp_path))


def test_closed_pipe_ends_a_sub_agent(make: Callable[..., Agent]) -> None:
    """So it does where the kernel does not tell of the agent's end, as on another node."""
    agent = make(ALONE)
    sub_agent = agent.pipeline.sub_agents._running['agent_executing.0000']   # type: ignore[union-attr]
    once(agent, 1, states.AGENT_EXECUTING, sub_agent.child.process.stdin.close)   # type: ignore[union-attr]
    (task,) = agent.run(agent.task(**SLEEP))
    assert task.target_state == states.CANCELED
    assert 'the agent has ended' in str(task.exception)
    nothing_left(str(agent.base))


def test_signals_are_for_the_agent(make: Callable[..., Agent]) -> None:
    """A batch system tells all processes; the agent then ends its tasks as it should."""
    agent = make(ALONE)

    def tell() -> None:
        kill(agent, 'agent_executing.0000', signal.SIGTERM)
        kill(agent, 'agent_executing.0000', signal.SIGINT)
        agent.stop()

    once(agent, 1, states.AGENT_EXECUTING, tell)
    (task,) = agent.run(agent.task(**SLEEP))
    assert 'pilot.0000 ends' in str(task.exception)


def test_files_of_a_sub_agent(make: Callable[..., Agent]) -> None:
    agent = make(ALONE)
    agent.run(agent.task())
    assert stat.S_ISREG((agent.base / 'agent_executing.0000.err').stat().st_mode)
    assert not (agent.base / 'agent_executing.0000.log').exists(), 'it had something to log'


def test_the_log_of_a_sub_agent(tmp_path: Path) -> None:
    program = '''from rp_agent import logs
from rp_api.transport.keys import Tally
logs.start_with_first_message('a.log')
Tally('some mishap').add('of this kind')'''
    subprocess.run([sys.executable, '-c', program], check=True, cwd=tmp_path)
    assert (tmp_path / 'a.log').read_text().endswith(' WARNING rp_api.mesh.keys some mishap: of this kind (1 so far)\n')


def loaded(program: str) -> set[str]:
    """The modules that a new process has loaded when it has run this program."""
    ran = subprocess.run([sys.executable, '-c', f'import sys\n{program}\nprint(*sys.modules)'], capture_output=True,
                         text=True, check=True)
    return set(ran.stdout.split())


def test_what_a_sub_agent_does_not_load() -> None:
    """All of this took more than half of the time in which it starts; see decision 0039."""
    own = loaded('import rp_agent.nodes.sub_agent, rp_agent.nodes.node_agent, rp_agent.executor.popen.component\n'
                 'rp_agent.nodes.sub_agent.become_subreaper()')
    dear = {'asyncio', 'ctypes', 'dataclasses', 'importlib.metadata', 'inspect', 'logging', 'pathlib', 'queue',
            'shutil', 'socket', 'subprocess'}
    assert not (own - loaded('import json, msgpack, zmq')) & dear
    unused = ('rp_agent.executor.launching.rank_script', 'rp_agent.executor.launching.script',
              'rp_agent.launch_method.', 'rp_agent.components.layout', 'rp_agent.stager.',
              'rp_api.tree.parent_socket', 'rp_api.tree.root', 'rp_api.staging')
    assert not [name for name in own if name.startswith(unused)]


def test_the_rest_of_a_task_on_other_nodes_is_swept() -> None:
    """What an executor in another process asks for; its own process cannot reach these nodes."""
    swept: list[tuple[str, list[int]]] = []
    ports = ComponentPorts(print, print, print, lambda uid, positions: swept.append((uid, list(positions))))
    remote = Remote('agent_executing.0000', 'agent_executing', print, ports)
    remote.receive({'component': remote.uid, 'op': 'sweep_elsewhere', 'task': 'task.000000', 'positions': [1, 3]})
    assert swept == [('task.000000', [1, 3])]
