"""A sub-agent: a process that hosts components outside Agent_0.

It receives tasks and commands from Agent_0, and sends back the output of its components. It ends at a command, and at
the latest with Agent_0. On Agent_0's host, it reads its configuration from standard input; on other nodes of the pilot,
from a file (see `node_agent`).
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

from rp_agent import limits, logs, sandbox
from rp_agent.components.build import HOST_CLOCK, Builder, ComponentPorts, belongs
from rp_agent.components.isolation import Isolation
from rp_agent.components.killed import HeldBack
from rp_agent.components.names import EXECUTING, STAGING_INPUT
from rp_agent.components.pool import all_of
from rp_agent.executor.base import BaseExecutor
from rp_agent.executor.launching.environment import NodePorts
from rp_agent.lineage import become_subreaper, die_with_parent
from rp_agent.node_copies import place
from rp_agent.nodes import guard
from rp_agent.nodes.remote import Item, changes, from_wire, with_tasks
from rp_agent.task import AgentTask
from rp_api import states
from rp_api.errors import LimitError, PlatformError
from rp_api.loop.event_loop import Loop
from rp_api.loop.offload import Helpers
from rp_api.loop.signal_watch import watch
from rp_api.system import private, signals
from rp_api.system.host import host_id
from rp_api.transport.keys import KeyPair
from rp_api.tree.node import TreeNode
from rp_profiling.write.host_clock import Reading

if TYPE_CHECKING:
    from rp_agent.components.build import Worker
    from rp_agent.node_copies.receiver import Receiver
    from rp_agent.stager.component import StagerInput

FLUSH = 1.0
"""Seconds between two writes of traces to their files."""

SWEEP_DELAY_S = 1.0
"""Seconds from the start until what dead processes have left in memory is removed."""

STATE_DELAY = 0.02
"""Seconds until a state is sent that is not the last one in the sub-agent; tasks that end sooner need no message."""

LEAVING = (states.AGENT_SCHEDULING_PENDING, states.AGENT_STAGING_OUTPUT_PENDING, states.TMGR_STAGING_OUTPUT_PENDING)
"""States in which components pass tasks on."""


class Host(NodePorts):
    """The components of a sub-agent, connected to Agent_0 by a stream."""

    def __init__(self, config: dict[str, Any], loop: Loop, on_node: bool) -> None:
        own = config['sub_agent']
        self._name: str = own['name']
        self._loop = loop
        self._helpers = Helpers(loop)
        self._tasks: dict[str, AgentTask] = {}
        self._news: dict[str, tuple[str, str]] = {}   # by uid of a task: component and state that were not sent yet
        self._on_node = on_node
        self._config = config
        self._copies: Receiver | None = None
        self._held_back = HeldBack(loop)
        self._context: zmq.Context[Any] = zmq.Context()
        keys = KeyPair(own['public'].encode(), own['secret'].encode())
        builder = Builder(config, loop, self._helpers.run, self)
        self._components: dict[str, Worker] = {}
        self._stagers: dict[str, StagerInput] = {}
        self._executors: dict[str, BaseExecutor] = {}
        self._isolation: dict[str, Isolation] = {}
        for component, uid in own['instances']:
            self._components[uid] = made = builder.make(component, uid, ComponentPorts(
                partial(self._done_with, uid), partial(self._leave, uid, 'failed'), partial(self._advanced, uid)))
            self._isolation[uid] = Isolation(partial(self._lacks, uid), partial(self._give_up, uid))
            if component == EXECUTING:
                self._executors[uid] = cast(BaseExecutor, made)
            elif component == STAGING_INPUT:
                self._stagers[uid] = cast('StagerInput', made)
        interval, timeout = own['heartbeat']
        self._tree_node = TreeNode(loop, self._name, own['address'], keys, own['server'].encode(), self._receive,
                                   self._forsaken, context=self._context, let_in=own['let_in'], relay=own['relay'],
                                   interval=interval, timeout=timeout,
                                   on_clock=None if own['host'] == host_id() else self._read_clock)
        loop.call_later(FLUSH, self._flush_traces)

    def close(self) -> None:
        """Send the last messages, and release all resources."""
        self._helpers.close(0)
        for component in self._components.values():
            component.close()
        if self._copies is not None:
            self._copies.close()
        self._tree_node.close()
        self._context.term()

    # messages of Agent_0

    def _receive(self, items: list[Item]) -> None:
        for item in items:
            uid, op = item['component'], item['op']
            if op == 'put':
                tasks = [from_wire(task) for task in item['tasks']]
                self._tasks.update((task.uid, task) for task in tasks)
                self._isolation[uid].run('handling it on a node', self._components[uid].put, tasks)
            elif op == 'copy':
                self._receiver_of_copies().receive(item)
            elif op == 'end':
                self._loop.stop()
            else:
                self._command(uid, op, item)

    def _lacks(self, uid: str, task: AgentTask) -> bool:
        return task.uid not in self._components[uid]

    def _give_up(self, uid: str, task: AgentTask) -> None:
        """End a task that has failed because of an error of a component."""
        if not self._lacks(uid, task):
            self._command(uid, 'cancel', {'uids': [task.uid]})
        elif uid in self._stagers:
            self._leave(uid, 'failed', [task])
        else:
            task.state = states.AGENT_STAGING_OUTPUT_PENDING if uid in self._executors else LEAVING[-1]
            self._leave(uid, 'output', [task])

    def _command(self, uid: str, op: str, item: Item) -> None:
        if op == 'cancel':
            for each in item['uids']:
                if each in self._tasks:
                    self._tasks[each].cancelled = True
            (self._executors.get(uid) or self._stagers[uid]).cancel(item['uids'])
        elif op == 'signal':
            self._executors[uid].forward_signal(item['number'])
        elif op == 'sweep':
            self._executors[uid].sweep(item['uids'])
        elif op == 'cancel_all':
            self._stagers[uid].cancel_all(item['reason'])
        else:
            assert op == 'stop', op
            self._held_back.release()
            self._executors[uid].stop(partial(self._say, uid, 'stopped'), item['reason'])

    def signalled(self, number: int) -> None:
        """Report a signal to Agent_0, which handles it for the whole pilot; tasks that end now may end with it."""
        if number == signal.SIGTERM and self._on_node:
            self._held_back.hold_all()
        if number != signal.SIGTERM or self._on_node:
            for uid in self._executors:
                self._say(uid, 'signalled', number=number)

    def _receiver_of_copies(self) -> Receiver:
        """Return the receiver of copies of environments, which the first one makes."""
        if self._copies is None:
            from rp_agent.node_copies.receiver import Receiver

            self._copies = Receiver(self._config, self._loop, lambda item: self._say('', 'copy', **item))
        return self._copies

    # messages to Agent_0

    def _say(self, uid: str, op: str, **values: Any) -> None:
        self._tree_node.put([{'component': uid, 'op': op} | values])

    def _advanced(self, uid: str, tasks: Sequence[AgentTask], state: str) -> None:
        if state in LEAVING:   # the tasks themselves are about to be sent with this state
            return
        if not self._news:
            self._loop.call_later(STATE_DELAY, self._tell_all)
        self._news.update((task.uid, (uid, state)) for task in tasks)

    def _tell_all(self) -> None:
        self._tell(list(self._news))

    def _tell(self, tasks: Iterable[str]) -> None:
        """Send the states of these tasks that were not sent yet."""
        found: dict[tuple[str, str], list[str]] = {}
        for task in tasks:
            if task in self._news:
                found.setdefault(self._news.pop(task), []).append(task)
        for (uid, state), uids in found.items():
            self._say(uid, 'advance', state=state, uids=uids)

    def sweep_elsewhere(self, uid: str, positions: Sequence[int]) -> None:
        """Kill what is left on these nodes of a task whose launcher ran here."""
        self._say(next(iter(self._executors)), 'sweep_elsewhere', task=uid, positions=list(positions))

    def _done_with(self, uid: str, tasks: list[AgentTask]) -> None:
        if self._on_node and uid in self._executors:
            tasks = self._held_back.hold(tasks, partial(self._leave, uid, 'output'))
        if tasks:
            self._leave(uid, 'output', tasks)

    def _leave(self, uid: str, op: str, tasks: list[AgentTask]) -> None:
        if self._news:
            self._tell([task.uid for task in tasks])
        for task in tasks:
            self._tasks.pop(task.uid, None)
        self._tree_node.put(with_tasks(uid, op, [(task.uid, changes(task)) for task in tasks]))

    def agent_gone(self) -> None:
        """End all tasks and the sub-agent: Agent_0 has ended."""
        stopped: Callable[[], None] = all_of(max(1, len(self._executors)), self._loop.stop)
        for executor in self._executors.values():
            executor.stop(stopped, 'the agent has ended')
        if not self._executors:
            stopped()

    def _forsaken(self, why: str) -> None:
        with suppress(OSError):   # the reader of standard error may have ended, too
            print(f'sub-agent {self._name} ends: {why}', file=sys.stderr, flush=True)
        self.agent_gone()

    def _read_clock(self, reading: Reading) -> None:
        moment = HOST_CLOCK.read(reading)
        if moment:
            for component in self._components.values():
                component.tracer.relate(moment.message, moment.here, component.uid)
            self._tree_node.tell_moment(moment)

    def _flush_traces(self) -> None:
        for component in self._components.values():
            component.tracer.flush()
        self._loop.call_later(FLUSH, self._flush_traces)


def main() -> int:
    """Run a sub-agent and return the exit code. Agent_0 shows what is on standard error."""
    signals.set_defaults()
    arguments = sys.argv[1:]
    try:
        config = _of_node(*arguments) if arguments else _of_agent()
    except PlatformError as error:
        print(f'sub-agent: {error}', file=sys.stderr)
        return 1
    if config['sub_agent']['host'] != host_id():   # else the agent's own guard is on this host
        guard.start(belongs(config), place.directory(config, os.environ))
    return _run(config, bool(arguments))


def _run(config: dict[str, Any], on_node: bool) -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)   # Agent_0 handles it for the whole pilot
    signal.signal(signal.SIGTERM, signals.survive)
    sandbox.enter(config)
    try:
        limits.prepare(config, f'sub-agent {config["sub_agent"]["name"]}')
    except LimitError as error:
        print(f'sub-agent: {error}', file=sys.stderr)
        return 1
    become_subreaper()
    loop = Loop()
    loop.call_later(SWEEP_DELAY_S, _sweep)
    host = Host(config, loop, on_node)
    watch(loop, {signal.SIGTERM, *signals.WARNINGS}, host.signalled)
    logs.start_with_first_message(f'{config["sub_agent"]["name"]}.log')
    if not on_node:
        loop.add_fd(sys.stdin.fileno(), partial(_agent_gone, loop, host))
    try:
        loop.run()
    finally:
        host.close()
        loop.close()
    return 0


def _sweep() -> None:
    """Remove the directories in memory of processes that have died with the node, or with what ran here before."""
    from rp_api.system import shared_directory  # loads slow modules, see decision 0039

    with suppress(OSError):
        shared_directory.sweep()


def _of_node(path: str, *arguments: str) -> dict[str, Any]:
    """Return the configuration of a sub-agent on a node, from a file."""
    config = json.loads(private.read_file(path).decode())
    from rp_agent.nodes import node_agent  # loads modules that other sub-agents do not need

    shared = config['sub_agent']
    if not arguments:   # the parent is the script that reports our end (see `node_launch`)
        die_with_parent(os.getppid())
    elif shared['host'] == host_id() and shared['parent'] == os.getppid():   # started without a launcher
        die_with_parent(shared['parent'])
    return node_agent.own_config(config, arguments)


def _of_agent() -> dict[str, Any]:
    """Return the configuration of a sub-agent that is a child of Agent_0, and tie its life to its parent."""
    config: dict[str, Any] = json.loads(_first_line(sys.stdin.fileno()))
    die_with_parent(config['sub_agent']['parent'])
    return config


def _agent_gone(loop: Loop, host: Host) -> None:
    """End the sub-agent: the pipe from Agent_0 is closed."""
    loop.remove_fd(sys.stdin.fileno())
    host.agent_gone()


def _first_line(descriptor: int) -> bytes:
    """Return the first line; nothing follows it."""
    line = b''
    while not line.endswith(b'\n'):
        data = os.read(descriptor, 65536)
        if not data:
            raise EOFError('standard input holds no configuration')
        line += data
    return line
