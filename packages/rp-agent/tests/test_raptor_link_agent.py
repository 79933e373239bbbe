"""The agent's pipeline with a master on a real connection: keys, files, and the way of tasks there and back."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq
from pipeline_support import ALL, LAYOUTS, Agent

from rp_agent.raptor import link
from rp_agent.raptor.component import Raptor
from rp_agent.raptor.start import find_program
from rp_agent.task import AgentTask, Description
from rp_api import constants as c
from rp_api import distributions, states
from rp_api.raptor_link import from_agent, link_file, master_file
from rp_api.transport.access import Access
from rp_api.transport.connection import PeerConnection, arrivals
from rp_api.transport.keys import generate
from rp_api.wire import codec

ACCESS = {'address': 'ipc:///x', 'server': 's', 'public': 'p', 'secret': 'q'}


class ScriptedMaster:
    """A master whose process is nothing but a long sleep, and that speaks from the test's own loop."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self.got: list[tuple[str, list[Any]]] = []
        self.on: Callable[[str, list[Any]], object] = lambda operation, arguments: None
        self.connection: PeerConnection | None = None
        self.task = agent.task('raptor.0', mode=c.RAPTOR_MASTER, executable='/bin/sleep', arguments=['100'])

    def start(self) -> None:
        """Connect as soon as the input of the master is staged."""
        self._agent.pipeline.put([self.task])
        self._agent.loop.call_soon(self._connect)

    def say(self, *message: Any) -> None:
        assert self.connection is not None
        self.connection.socket.send(codec.pack(message))

    def close(self) -> None:
        if self.connection is not None:
            self.connection.close(0)

    def _connect(self) -> None:
        staged = states.TASK.value(self.task.state) >= states.TASK.value(states.AGENT_SCHEDULING_PENDING)
        if not staged:   # an input stager may be another process
            self._agent.loop.call_later(0.01, self._connect)
            return
        access = Access.load(link_file(str(self._agent.base)))
        self.connection = PeerConnection(self._agent.loop, zmq.DEALER, access.address, access.keys, access.server_key,
                                         None, self._receive, lambda: None, pytest.fail)
        self.connection.open()
        self.say('hello', 'raptor.0', 7, ACCESS)

    def _receive(self) -> None:
        assert self.connection is not None
        for frames in arrivals(self.connection.socket):
            operation, arguments = from_agent(frames[-1])
            self.got.append((operation, arguments))
            self.on(operation, arguments)


@pytest.fixture(params=[LAYOUTS['inline'], LAYOUTS['everything in one sub-agent']], ids=['inline', 'sub-agent'])
def agent(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Agent]:
    made = Agent(tmp_path, request.param, cores=3)
    yield made
    made.close()


@pytest.fixture
def master(agent: Agent) -> Iterator[ScriptedMaster]:
    made = ScriptedMaster(agent)
    yield made
    made.close()


def a_function(agent: Agent, number: int = 0) -> AgentTask:
    return agent.task(f'task.{number}', mode=c.TASK_FUNCTION, executable='', function='f', raptor_id='raptor.0')


def test_way_of_functions(agent: Agent, master: ScriptedMaster) -> None:
    """There, to be executed, and back with their results; nothing of it needs the pilot's cores."""
    def answer(operation: str, arguments: list[Any]) -> None:
        if operation == 'welcome':
            master.say('credit', 100)
        elif operation == 'tasks':
            uids = arguments[1]
            master.say('states', states.AGENT_EXECUTING, uids)
            master.say('results', uids, [
                {'exit_code': 0, 'return_value': {'uid': uid}, 'stdout': 'out'} for uid in uids])

    master.on = answer
    tasks = [a_function(agent, number) for number in range(20)]
    agent.loop.call_soon(agent.pipeline.put, tasks)
    agent.wanted = len(tasks)
    master.start()
    agent.wait()
    assert {task.uid: (task.target_state, task.return_value, task.stdout) for task in agent.out} == {
        task.uid: (states.DONE, {'uid': task.uid}, 'out') for task in tasks}
    assert all(agent.states[task.uid] == ALL for task in tasks)
    assert states.AGENT_EXECUTING_PENDING in agent.states['raptor.0']
    raptor, = [stage for stage in agent.pipeline.stages.present if isinstance(stage, Raptor)]
    raptor.check()


def test_keys_are_the_owners_alone_and_go_with_the_agent(agent: Agent, master: ScriptedMaster) -> None:
    """Who knows where the agent listens, but has other keys, is refused."""
    path = Path(link_file(str(agent.base)))
    refused: list[str] = []
    others: list[PeerConnection] = []

    def refuse(reason: str) -> None:
        refused.append(reason)
        agent.loop.stop()

    def intrude(operation: str, arguments: list[Any]) -> None:
        access = Access.load(path)
        others.append(PeerConnection(agent.loop, zmq.DEALER, access.address, generate(), access.server_key, None,
                                 lambda: None, lambda: None, refuse))
        others[0].open()

    master.on = intrude
    master.start()
    agent.wait()
    others[0].close(0)
    assert refused
    assert path.stat().st_mode & 0o777 == 0o600
    agent.pipeline.close()
    assert not path.exists()


def test_killed_master_takes_its_tasks_with_it(agent: Agent, master: ScriptedMaster) -> None:
    def answer(operation: str, arguments: list[Any]) -> None:
        if operation == 'welcome':
            master.say('credit', 1)
        elif operation == 'tasks':
            agent.pipeline.cancel([master.task])

    master.on = answer
    agent.loop.call_soon(agent.pipeline.put, [a_function(agent, number) for number in range(3)])
    agent.wanted = 4
    master.start()
    agent.wait()
    assert {task.uid: task.target_state for task in agent.out} == {
        'raptor.0': states.CANCELED, **{f'task.{number}': states.FAILED for number in range(3)}}
    assert 'raptor.0 has ended before it ran the task: it was cancelled' in str(agent.out[-1].exception)


def test_worker_is_one_process_and_told_where_its_ranks_belong(agent: Agent, master: ScriptedMaster) -> None:
    worker = agent.task('worker.0', mode=c.RAPTOR_WORKER, raptor_id='raptor.0', ranks=2, executable='printenv',
                        arguments=['RP_RANKS', 'RP_RAPTOR_SLOTS'])
    agent.loop.call_soon(agent.pipeline.put, [worker])
    agent.wanted = 1
    master.start()
    agent.wait()
    assert worker.target_state == states.DONE, worker.exception_detail
    ranks, slots = worker.stdout.splitlines()
    assert ranks == '2'
    assert json.loads(slots) == [{'node': 'localhost', 'cores': [core], 'cpus': [], 'gpus': []} for core in (1, 2)]


def test_master_without_a_program(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where rp-raptor is not installed, the task says so, and nothing waits for it."""
    monkeypatch.setattr(distributions, 'missing', lambda dist: f'{dist} is not installed')
    monkeypatch.setenv('PATH', str(agent.base))
    task = agent.task('raptor.0', mode=c.RAPTOR_MASTER, executable='radical-pilot-raptor-master')
    agent.loop.call_soon(agent.pipeline.put, [a_function(agent)])
    agent.wanted = 2
    agent.loop.call_soon(agent.pipeline.put, [task])
    agent.wait()
    exceptions = {task.uid: task.exception for task in agent.out}
    assert exceptions == {'raptor.0': 'rp-raptor is not installed', 'task.0': (
        'raptor.0 has ended before it ran the task: it has failed: raptor.0 cannot be started: '
        'rp-raptor is not installed')}


def test_remains_of_a_killed_master(tmp_path: Path) -> None:
    Path(master_file(str(tmp_path), 'raptor.0')).touch()
    own, begun, others = tmp_path / 'rp.x', tmp_path / 'rp.y', tmp_path / 'mine'
    for directory in (own, begun, others):
        directory.mkdir(mode=0o700)
        if directory != begun:   # one that was killed when it cleaned up
            (directory / 's').touch()
        link.remove_leftovers(str(tmp_path), 'raptor.0', f'ipc://{directory}/s')
    link.remove_leftovers(str(tmp_path), 'raptor.0', 'tcp://10.0.0.1:7')
    assert sorted(path.name for path in tmp_path.iterdir()) == ['mine']
    assert (others / 's').exists()


def test_program_is_found_beside_the_agent(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('PATH', str(agent.base))
    monkeypatch.setattr(distributions, 'missing', lambda dist: None)
    description = Description({'executable': 'radical-pilot-raptor-worker', 'arguments': ['f', 'C', 'raptor.0'],
                               'named_env': 'rp'})
    find_program(description, {'SEEN': 'by the agent'})
    assert description['executable'] == sys.executable
    assert description['arguments'] == ['-m', 'rp_raptor.cli', 'worker', 'f', 'C', 'raptor.0']
    assert description['named_env'] == ''
    assert description['environment'] == {'SEEN': 'by the agent'}


def test_program_in_another_environment_is_found_there(agent: Agent) -> None:
    description = Description({'executable': 'radical-pilot-raptor-worker', 'named_env': 'mine'})
    find_program(description, {'SEEN': 'by the agent'})
    assert description == {'executable': 'radical-pilot-raptor-worker', 'named_env': 'mine'}
