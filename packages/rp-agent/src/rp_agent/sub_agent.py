"""A sub-agent: the process of components that do not live in Agent_0.

It takes tasks and commands from Agent_0, and gives back what the components say. It ends when it is told to, and at the
latest with Agent_0. One on Agent_0's own machine is told on standard input who it is and how to reach Agent_0; one on a
node of the pilot reads it from a file (see `node_agent`).
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import zmq

from rp_agent import guard, limits, logs, sandbox
from rp_agent.build import HOST_CLOCK, Builder, belongs
from rp_agent.components import EXECUTING, STAGING_INPUT
from rp_agent.crew import all_of
from rp_agent.executor.spawners import AnyExecutor
from rp_agent.killed import HeldBack
from rp_agent.lineage import become_subreaper, die_with_parent
from rp_agent.remote import Item, with_tasks
from rp_agent.task import AgentTask
from rp_agent.wire import changes, from_wire
from rp_api import private, signals, states
from rp_api.errors import LimitError, PlatformError
from rp_api.host import host_id
from rp_api.mesh.keys import KeyPair
from rp_api.mesh.leaf import Leaf
from rp_api.mesh.loop import Loop
from rp_api.mesh.offload import Helpers
from rp_profiling.host_clock import Reading

if TYPE_CHECKING:
    from rp_agent.build import Worker
    from rp_agent.stager.input import StagerInput

FLUSH = 1.0
"""Seconds after which traces are written to their files, if there is anything new."""


STATE_DELAY = 0.02
"""Seconds that a state waits which is not the last one here: of tasks that end sooner, it needs no message."""


LEAVING = (states.AGENT_SCHEDULING_PENDING, states.AGENT_STAGING_OUTPUT_PENDING, states.TMGR_STAGING_OUTPUT_PENDING)
"""States in which components hand tasks on."""


class Host:
    """Components, joined to Agent_0 by a stream."""

    def __init__(self, config: dict[str, Any], loop: Loop, on_node: bool) -> None:
        own = config['sub_agent']
        self._name: str = own['name']
        self._loop = loop
        self._helpers = Helpers(loop)
        self._tasks: dict[str, AgentTask] = {}
        self._news: dict[str, tuple[str, str]] = {}   # components and states that were not told yet
        self._on_node = on_node
        self._held_back = HeldBack(loop)
        self._context: zmq.Context[Any] = zmq.Context()
        keys = KeyPair(own['public'].encode(), own['secret'].encode())
        builder = Builder(config, loop, self._helpers.run)
        self._components: dict[str, Worker] = {}
        self._stagers: dict[str, StagerInput] = {}
        self._executors: dict[str, AnyExecutor] = {}
        for component, uid in own['instances']:
            self._components[uid] = made = self._make(builder, component, uid)
            if component == EXECUTING:
                self._executors[uid] = cast(AnyExecutor, made)
            elif component == STAGING_INPUT:
                self._stagers[uid] = cast('StagerInput', made)
        interval, patience = own['heartbeat']
        self._leaf = Leaf(loop, self._name, own['address'], keys, own['server'].encode(), self._receive,
                          self._forsaken, context=self._context, let_in=own['let_in'], relay=own['relay'],
                          interval=interval, patience=patience,
                          on_clock=None if own['host'] == host_id() else self._read_clock)
        loop.call_later(FLUSH, self._flush_traces)

    def close(self) -> None:
        """Say what is left to say, and free everything."""
        self._helpers.close(0)
        for component in self._components.values():
            component.close()
        self._leaf.close()
        self._context.term()

    def _make(self, builder: Builder, component: str, uid: str) -> Worker:
        made = builder.make(component, uid, partial(self._leave, uid, 'failed'))
        made.output = partial(self._done_with, uid)
        made.advanced = partial(self._advanced, uid)
        return made

    # what comes from Agent_0

    def _receive(self, items: list[Item]) -> None:
        for item in items:
            uid, op = item['component'], item['op']
            if op == 'put':
                self._put(self._components[uid], [from_wire(task) for task in item['tasks']])
            elif op == 'end':
                self._loop.stop()
            else:
                self._command(uid, op, item)

    def _put(self, component: Worker, tasks: list[AgentTask]) -> None:
        self._tasks.update((task.uid, task) for task in tasks)
        component.put(tasks)

    def _command(self, uid: str, op: str, item: Item) -> None:
        if op == 'cancel':
            for each in item['uids']:
                if each in self._tasks:
                    self._tasks[each].cancelled = True
            (self._executors.get(uid) or self._stagers[uid]).cancel(item['uids'])
        elif op == 'sweep':
            self._executors[uid].sweep(item['uids'])
        elif op == 'cancel_all':
            self._stagers[uid].cancel_all(item['reason'])
        else:
            assert op == 'stop', op
            self._held_back.release()
            self._executors[uid].stop(partial(self._say, uid, 'stopped'), item['reason'])

    # what goes to Agent_0

    def _say(self, uid: str, op: str, **values: Any) -> None:
        self._leaf.put([{'component': uid, 'op': op} | values])

    def _advanced(self, uid: str, tasks: Sequence[AgentTask], state: str) -> None:
        if state in LEAVING:   # with that the tasks themselves come, at once
            return
        if not self._news:
            self._loop.call_later(STATE_DELAY, self._tell_all)
        self._news.update((task.uid, (uid, state)) for task in tasks)

    def _tell_all(self) -> None:
        self._tell(list(self._news))

    def _tell(self, tasks: Iterable[str]) -> None:
        """Tell which states these tasks have reached, as far as that was not told yet."""
        found: dict[tuple[str, str], list[str]] = {}
        for task in tasks:
            if task in self._news:
                found.setdefault(self._news.pop(task), []).append(task)
        for (uid, state), uids in found.items():
            self._say(uid, 'advance', state=state, uids=uids)

    def _done_with(self, uid: str, tasks: list[AgentTask]) -> None:
        if self._on_node:
            tasks = self._held_back.hold(tasks, partial(self._leave, uid, 'output'))
        if tasks:
            self._leave(uid, 'output', tasks)

    def _leave(self, uid: str, op: str, tasks: list[AgentTask]) -> None:
        if self._news:
            self._tell([task.uid for task in tasks])
        for task in tasks:
            self._tasks.pop(task.uid, None)
        self._leaf.put(with_tasks(uid, op, [(task.uid, changes(task)) for task in tasks]))

    def agent_gone(self) -> None:
        """Agent_0 is gone: end what was started for it, and then oneself."""
        stopped: Callable[[], None] = all_of(max(1, len(self._executors)), self._loop.stop)
        for executor in self._executors.values():
            executor.stop(stopped, 'the agent is gone')
        if not self._executors:
            stopped()

    def _forsaken(self, why: str) -> None:
        with suppress(OSError):   # who would read it may be gone, too
            print(f'sub-agent {self._name} ends: {why}', file=sys.stderr, flush=True)
        self.agent_gone()

    def _read_clock(self, reading: Reading) -> None:
        moment = HOST_CLOCK.read(reading)
        if moment:
            for component in self._components.values():
                component.tracer.relate(moment.message, moment.here, component.uid)
            self._leaf.tell_moment(moment)

    def _flush_traces(self) -> None:
        for component in self._components.values():
            component.tracer.flush()
        self._loop.call_later(FLUSH, self._flush_traces)


def main() -> int:
    """Run a sub-agent; the exit code. Errors go to standard error, which Agent_0 shows."""
    signals.set_defaults()
    arguments = sys.argv[1:]
    try:
        config = _of_node(*arguments) if arguments else _of_agent()
    except PlatformError as error:
        print(f'sub-agent: {error}', file=sys.stderr)
        return 1
    if config['sub_agent']['host'] != host_id():   # else the agent's own guard sees to it
        guard.start(belongs(config))
    return _run(config, bool(arguments))


def _run(config: dict[str, Any], on_node: bool) -> int:
    for number in (signal.SIGTERM, signal.SIGINT):   # whoever means the agent tells Agent_0
        signal.signal(number, signal.SIG_IGN)
    sandbox.enter(config)
    try:
        limits.prepare(config, f'sub-agent {config["sub_agent"]["name"]}')
    except LimitError as error:
        print(f'sub-agent: {error}', file=sys.stderr)
        return 1
    become_subreaper()
    loop = Loop()
    host = Host(config, loop, on_node)
    logs.start_with_first_message(f'{config["sub_agent"]["name"]}.log')
    if not on_node:
        loop.add_fd(sys.stdin.fileno(), partial(_agent_gone, loop, host))
    try:
        loop.run()
    finally:
        host.close()
        loop.close()
    return 0


def _of_node(path: str, *arguments: str) -> dict[str, Any]:
    """The configuration of a sub-agent on a node, from a file."""
    config = json.loads(private.read_file(path).decode())
    from rp_agent import node_agent  # with what finds out about the node, which others do not need

    shared = config['sub_agent']
    if not arguments:   # our parent is the script that tells of our end (see `node_ends`)
        die_with_parent(os.getppid())
    elif shared['host'] == host_id() and shared['parent'] == os.getppid():   # no launcher stands in between
        die_with_parent(shared['parent'])
    return node_agent.own_config(config, arguments)


def _of_agent() -> dict[str, Any]:
    """The configuration of a sub-agent that is a child of Agent_0, which it does not outlive."""
    config: dict[str, Any] = json.loads(_first_line(sys.stdin.fileno()))
    die_with_parent(config['sub_agent']['parent'])
    return config


def _agent_gone(loop: Loop, host: Host) -> None:
    """The pipe from Agent_0 is closed."""
    loop.remove_fd(sys.stdin.fileno())
    host.agent_gone()


def _first_line(descriptor: int) -> bytes:
    """The first line, and nothing that may come after it."""
    line = b''
    while not line.endswith(b'\n'):
        data = os.read(descriptor, 65536)
        if not data:
            raise EOFError('standard input holds no configuration')
        line += data
    return line
