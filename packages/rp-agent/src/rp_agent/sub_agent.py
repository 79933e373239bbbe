"""A sub-agent: the process of components that do not live in Agent_0.

It is told on standard input who it is and how to reach Agent_0, takes tasks and commands from there, and gives back
what the components say. It ends when it is told to, and at the latest with Agent_0.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

import zmq

from rp_agent import layout, logs
from rp_agent.build import Builder, Worker
from rp_agent.crew import all_of
from rp_agent.executor.spawners import AnyExecutor
from rp_agent.remote import Item, in_bulks
from rp_agent.stager.input import StagerInput
from rp_agent.task import AgentTask
from rp_agent.wire import changes, from_wire
from rp_api import processes, states
from rp_api.mesh.channel import QueueGetter, QueuePutter
from rp_api.mesh.flow import BULK, Soon
from rp_api.mesh.keys import KeyPair
from rp_api.mesh.loop import Loop
from rp_api.mesh.offload import Helpers

FLUSH = 1.0
"""Seconds after which traces are written to their files, if there is anything new."""


LEAVING = (states.AGENT_SCHEDULING_PENDING, states.AGENT_STAGING_OUTPUT_PENDING, states.TMGR_STAGING_OUTPUT_PENDING)
"""States in which components hand tasks on."""


class Host:
    """Components, joined to Agent_0 by a queue in each direction."""

    def __init__(self, config: dict[str, Any], loop: Loop) -> None:
        own = config['sub_agent']
        self._loop = loop
        self._helpers = Helpers(loop)
        self._tasks: dict[str, AgentTask] = {}
        self._outbox: list[Item] = []
        self._flush_soon = Soon(loop, self._flush)
        self._unsaid = 0
        self._context: zmq.Context[Any] = zmq.Context()
        keys = KeyPair(own['public'].encode(), own['secret'].encode())
        link = own['address'], keys, own['server'].encode()
        self._putter = QueuePutter(loop, *link, name=own['name'], context=self._context)
        builder = Builder(config, loop, self._helpers.run)
        self._components: dict[str, Worker] = {}
        self._stagers: dict[str, StagerInput] = {}
        self._executors: dict[str, AnyExecutor] = {}
        for component, uid in own['instances']:
            self._components[uid] = made = self._make(builder, component, uid)
            if component == layout.EXECUTING:
                self._executors[uid] = cast(AnyExecutor, made)
            elif component == layout.STAGING_INPUT:
                self._stagers[uid] = cast(StagerInput, made)
        self._getter = QueueGetter(loop, *link, self._receive, BULK, name=own['name'], context=self._context)
        loop.add_fd(sys.stdin.fileno(), self._agent_gone)
        loop.call_later(FLUSH, self._flush_traces)

    def close(self) -> None:
        """Say what is left to say, and free everything."""
        self._helpers.close(0)
        for component in self._components.values():
            component.close()
        self._getter.close()
        self._flush()
        self._putter.close()
        self._context.term()

    def _make(self, builder: Builder, component: str, uid: str) -> Worker:
        made = builder.make(component, uid, partial(self._leave, uid, 'failed'))
        made.output = partial(self._leave, uid, 'output')
        made.advanced = partial(self._advanced, uid)
        return made

    # what comes from Agent_0

    def _receive(self, items: list[Item]) -> None:
        for uid, op, bulk in in_bulks(items):
            if op == 'put':
                self._put(self._components[uid], [from_wire(item) for item in bulk])
            elif op == 'end':
                self._loop.stop()
            else:
                for item in bulk:
                    self._command(uid, op, item)
        self._unsaid += len(items)
        if self._unsaid >= BULK // 4:   # not each time, which would be as many messages back
            self._getter.done(self._unsaid)
            self._unsaid = 0

    def _put(self, component: Worker, tasks: list[AgentTask]) -> None:
        self._tasks.update((task.uid, task) for task in tasks)
        component.put(tasks)

    def _command(self, uid: str, op: str, item: Item) -> None:
        if op == 'cancel':
            for each in item['uids']:
                if each in self._tasks:
                    self._tasks[each].cancelled = True
            (self._executors.get(uid) or self._stagers[uid]).cancel(item['uids'])
        elif op == 'cancel_all':
            self._stagers[uid].cancel_all(item['reason'])
        else:
            assert op == 'stop', op
            self._executors[uid].stop(partial(self._say, uid, 'stopped'), item['reason'])

    # what goes to Agent_0

    def _say(self, uid: str, op: str, **values: Any) -> None:
        self._send([{'component': uid, 'op': op} | values])

    def _advanced(self, uid: str, tasks: Sequence[AgentTask], state: str) -> None:
        if state not in LEAVING:   # with that the tasks themselves come, at once
            self._say(uid, 'advance', state=state, uids=[task.uid for task in tasks])

    def _leave(self, uid: str, op: str, tasks: list[AgentTask]) -> None:
        for task in tasks:
            self._tasks.pop(task.uid, None)
        self._send([{'component': uid, 'op': op} | changes(task) for task in tasks])

    def _send(self, items: list[Item]) -> None:
        """Send items, together with all others of this turn of the loop."""
        self._outbox += items
        self._flush_soon()

    def _flush(self) -> None:
        items, self._outbox = self._outbox, []
        if items:
            self._putter.put(items)

    def _agent_gone(self) -> None:
        """The pipe from Agent_0 is closed: end what was started for it, and then oneself."""
        self._loop.remove_fd(sys.stdin.fileno())
        stopped: Callable[[], None] = all_of(max(1, len(self._executors)), self._loop.stop)
        for executor in self._executors.values():
            executor.stop(stopped, 'the agent is gone')
        if not self._executors:
            stopped()

    def _flush_traces(self) -> None:
        for component in self._components.values():
            component.tracer.flush()
        self._loop.call_later(FLUSH, self._flush_traces)


def main() -> int:
    """Run a sub-agent; the exit code. Errors go to standard error, which Agent_0 shows."""
    config = json.loads(_first_line(sys.stdin.fileno()))
    processes.die_with_parent(config['sub_agent']['parent'])
    for number in (signal.SIGTERM, signal.SIGINT):   # whoever means the agent tells Agent_0
        signal.signal(number, signal.SIG_IGN)
    os.chdir(config['pilot_sandbox'])
    logs.start(f'{config["sub_agent"]["name"]}.log')
    processes.become_subreaper()
    loop = Loop()
    host = Host(config, loop)
    try:
        loop.run()
    finally:
        host.close()
        loop.close()
    return 0


def _first_line(descriptor: int) -> bytes:
    """The first line, and nothing that may come after it."""
    line = b''
    while not line.endswith(b'\n'):
        data = os.read(descriptor, 65536)
        if not data:
            raise EOFError('standard input holds no configuration')
        line += data
    return line
