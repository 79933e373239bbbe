"""The endpoint of a pilot: visitors call the agent and are called by it, and no message does harm."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import zmq

from rp_agent.calls import Call, Calls
from rp_agent.endpoint import Endpoint
from rp_api.endpoint.visitor import PilotEndpoint, endpoint_file
from rp_api.errors import CoordinationError
from rp_api.loop.event_loop import Loop
from rp_api.transport.access import Access
from rp_api.transport.keys import generate, make_client
from rp_api.wire import codec

TIMEOUT = 20.0


class Agent:
    """An endpoint in a loop of its own, and what the agent answers."""

    def __init__(self, sandbox: Path, address: str | None = None) -> None:
        self.file = endpoint_file(str(sandbox))
        self.loop = Loop()
        self.calls = Calls()
        self.held: list[Call] = []
        self.cancelled = threading.Event()
        self.calls.register('echo', lambda call: call.done([call.args, call.kwargs]))
        self.calls.register('fail', lambda call: call.fail('it is full', 'last line'))
        self.calls.register('hold', self._hold)
        self.calls.register('odd', lambda call: call.done(object()))
        self.endpoint = Endpoint(self.loop, self.calls, self.file, address)
        self._thread = threading.Thread(target=self.loop.run)
        self._thread.start()

    def _hold(self, call: Call) -> None:
        self.held.append(call)
        call.when_cancelled(self.cancelled.set)

    def ask(self, name: str, *args: Any, address: str = '') -> tuple[Any, str | None]:
        """Call a procedure as the application does, and return its value and the reason of a failure."""
        answers: list[tuple[Any, str | None]] = []
        done = threading.Event()

        def answered(_: Call, value: Any, reason: str | None, detail: str) -> None:
            answers.append((value, reason))
            done.set()

        self.loop.call_soon(self.calls.call, f'call.{id(done)}', name, args, {}, answered, address)
        assert done.wait(TIMEOUT)
        return answers[0]

    def do(self, function: Callable[..., object], *args: Any) -> None:
        done = threading.Event()
        self.loop.call_soon(function, *args)
        self.loop.call_soon(done.set)
        assert done.wait(TIMEOUT)

    def end(self) -> None:
        self.loop.stop()
        self._thread.join()
        self.endpoint.close()
        self.loop.close()


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Agent]:
    for name in ('RP_TASK_ID', 'RP_PARTITION_ID', 'RP_PILOT_SANDBOX'):
        monkeypatch.delenv(name, raising=False)
    made = Agent(tmp_path, getattr(request, 'param', None))
    yield made
    made.end()
    assert not os.path.exists(made.file)


@pytest.fixture
def visitor(agent: Agent, tmp_path: Path) -> Iterator[PilotEndpoint]:
    with PilotEndpoint(str(tmp_path)) as made:
        yield made


def test_calls_of_many_threads_get_their_own_answers(visitor: PilotEndpoint) -> None:
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda number: visitor.call('echo', number, rpc_timeout=TIMEOUT, twice=2 * number),
                                range(100)))
    assert answers == [[[number], {'twice': 2 * number}] for number in range(100)]


@pytest.mark.parametrize(('name', 'text'), [
    ('fail', 'fail of the pilot failed: it is full\nlast line'), ('odd', 'cannot be sent'),
    ('dance', "no procedure 'dance': it has echo, fail, hold, odd")])
def test_failures_reach_the_caller(visitor: PilotEndpoint, name: str, text: str) -> None:
    with pytest.raises(RuntimeError, match=text):
        visitor.call(name, rpc_timeout=TIMEOUT)


def test_arguments_that_are_refused(visitor: PilotEndpoint) -> None:
    with pytest.raises(TypeError, match='cannot be sent'):
        visitor.call('echo', object())


def test_deadline_cancels_the_call(agent: Agent, visitor: PilotEndpoint) -> None:
    with pytest.raises(TimeoutError, match=r'hold of the pilot was not answered within 0\.05 s'):
        visitor.call('hold', rpc_timeout=0.05)
    assert agent.cancelled.wait(TIMEOUT)


def test_a_call_with_a_bad_time_limit_is_not_sent(visitor: PilotEndpoint) -> None:
    with pytest.raises(ValueError, match="rpc_timeout is 'soon', it must be a number of seconds"):
        visitor.call('hold', rpc_timeout='soon')
    assert visitor._waiting == {}


def test_procedures_of_a_task(agent: Agent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The application and other tasks call them, by their task or any; the agent's own cannot be replaced."""
    visitors = []
    for number in range(2):
        monkeypatch.setenv('RP_TASK_ID', f'task.{number}')
        visitors.append(PilotEndpoint(str(tmp_path)))
        visitors[number].register_rpc_cb('who', lambda *args, number=number: [number, *args])
    assert agent.ask('who', 7) == ([0, 7], None)
    assert agent.ask('who', address='task.1') == ([1], None)
    assert visitors[0].call('who', rpc_addr='task.1', rpc_timeout=TIMEOUT) == [1]
    visitors[0].register_rpc_cb('broken', lambda: 1 / 0)
    assert agent.ask('broken') == (None, 'ZeroDivisionError: division by zero')
    with pytest.raises(RuntimeError, match="the agent itself answers 'echo'"):
        visitors[0].register_rpc_cb('echo', max)
    for each in visitors:
        each.close()


@pytest.mark.parametrize('agent', [None, 'tcp://127.0.0.1'], indirect=True)
def test_process_that_dies_answers_no_more(agent: Agent, tmp_path: Path) -> None:
    """Its open calls end, those that it had to answer fail, and its procedures are unknown."""
    program = ('import os, sys; from rp_api.endpoint.visitor import PilotEndpoint; end = PilotEndpoint(sys.argv[1]); '
               'end.register_rpc_cb("die", lambda: os.kill(os.getpid(), 9)); end.call("hold")')
    env = {**os.environ, 'RP_TASK_ID': 'task.0'}
    with subprocess.Popen([sys.executable, '-c', program, str(tmp_path)], env=env) as process:
        while not agent.held:
            agent.do(lambda: None)
        value, reason = agent.ask('die')
        process.wait(TIMEOUT)
    assert (value, reason) == (None, 'task.0 has gone before it answered die')
    assert agent.cancelled.wait(TIMEOUT)
    assert 'no procedure' in str(agent.ask('die')[1])


def test_end_of_the_agent_ends_calls(tmp_path: Path) -> None:
    agent = Agent(tmp_path)
    with PilotEndpoint(str(tmp_path)) as visitor, ThreadPoolExecutor(1) as pool:
        call = pool.submit(visitor.call, 'hold')
        while not agent.held:
            agent.do(lambda: None)
        agent.end()
        with pytest.raises(RuntimeError, match='the connection to the agent was lost'):
            call.result(TIMEOUT)


def test_closed_connection(visitor: PilotEndpoint) -> None:
    visitor.close()
    with pytest.raises(RuntimeError, match='the connection was closed'):
        visitor.call('echo')


def test_fork_cannot_use_it(visitor: PilotEndpoint) -> None:
    """It raises an error there instead of waiting, and its end does not close the connection."""
    pid = os.fork()
    if not pid:
        try:
            visitor.call('echo')
        except CoordinationError:
            visitor.close()
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
    assert visitor.call('echo', rpc_timeout=TIMEOUT) == [[], {}]


def test_no_endpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RuntimeError, match='enable_ep'):
        PilotEndpoint(str(tmp_path))
    monkeypatch.delenv('RP_PILOT_SANDBOX', raising=False)
    with pytest.raises(RuntimeError, match='RP_PILOT_SANDBOX is not set'):
        PilotEndpoint()


# attacks


def test_only_the_owner_can_read_the_keys(agent: Agent) -> None:
    assert stat.S_IMODE(os.stat(agent.file).st_mode) == 0o600
    directory = os.path.dirname(agent.endpoint.address.removeprefix('ipc://'))
    assert stat.S_IMODE(os.stat(directory).st_mode) == 0o700


def test_visitor_with_other_keys_is_not_heard(agent: Agent, visitor: PilotEndpoint) -> None:
    access = Access.load(agent.file)
    with zmq.Context() as context, context.socket(zmq.DEALER) as stranger:
        make_client(stranger, generate(), access.server_key)
        stranger.linger = 0
        stranger.connect(access.address)
        stranger.send(codec.pack(['hello', '']))
        stranger.send(codec.pack(['call', 1, 'hold', [], {}, '']))
        while not agent.endpoint._point.gate.refused:
            agent.do(lambda: None)
        assert visitor.call('echo', rpc_timeout=TIMEOUT) == [[], {}]
    assert agent.held == []


def test_malformed_messages_are_dropped_and_counted(agent: Agent, visitor: PilotEndpoint) -> None:
    access = Access.load(agent.file)
    before_hello = [['call', 1, 'hold', [], {}, '']]
    wrong = [b'', b'\xc1', b'\x00' * 100, *map(codec.pack, [
        7, [], ['dance'], ['call'], ['call', -1, 'hold', [], {}, ''], ['call', 1, b'hold', [], {}, ''],
        ['call', 1, 'hold', {}, [], ''], ['call', 2**63, 'hold', [], {}, ''], ['hello', 7], ['register', 1, ['x']],
        ['result', 1, 'yes', None], ['cancel', 'all'], *before_hello])]
    harmless = [['hello', 'task.1'], ['result', 99, True, None], ['cancel', 99]]
    with zmq.Context() as context, context.socket(zmq.DEALER) as attacker:
        make_client(attacker, access.keys, access.server_key)
        attacker.linger = 0
        attacker.connect(access.address)
        for message in wrong:
            attacker.send(message)
        for harm in harmless:
            attacker.send(codec.pack(harm))
        attacker.send(codec.pack(['call', 5, 'echo', [], {}, '']))
        assert attacker.poll(20_000)
        assert codec.unpack(attacker.recv()) == ['result', 5, True, [[], {}]]
    assert agent.endpoint.dropped == len(wrong)
    assert agent.held == []
    assert visitor.call('echo', rpc_timeout=TIMEOUT) == [[], {}]
