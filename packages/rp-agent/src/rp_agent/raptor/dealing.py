"""Messages of the RAPTOR component to masters: tasks that they have asked for, and requests."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rp_agent.components.stage import Flow
from rp_agent.raptor.master import Master
from rp_agent.raptor.master_registry import MasterRegistry
from rp_agent.raptor.ports import RaptorPorts
from rp_agent.task import AgentTask
from rp_api import states
from rp_api.constants import TASK_EXECUTABLE
from rp_api.errors import sentence
from rp_api.failures.kinds import DESCRIPTION
from rp_api.wire import codec


class Dealer:
    """Gives masters the tasks and requests that wait for them; `advance(tasks, state)` is that of the component."""

    def __init__(self, ports: RaptorPorts, flow: Flow, registry: MasterRegistry,
                 advance: Callable[[Sequence[AgentTask], str], None]) -> None:
        self._ports = ports
        self._flow = flow
        self._registry = registry
        self._advance = advance
        self._last_request = 0
        self._asked: dict[int, AgentTask] = {}

    def serve(self) -> None:
        """Send masters the tasks that they have asked for."""
        for master, tasks in self._registry.deal():
            # the master returns executables to the agent, which schedules them first; tasks that another master has
            # given back keep their state
            self._advance([task for task in tasks if task.description['mode'] != TASK_EXECUTABLE
                           and task.state == states.AGENT_SCHEDULING], states.AGENT_EXECUTING_PENDING)
            self._send_tasks(master, tasks)
        for master, number in self._registry.to_give_back():
            master.asked = number
            self._ports.send(master.address, 'give_back', number)

    def _send_tasks(self, master: Master, tasks: list[AgentTask]) -> None:
        try:
            common, rests = _packed(tasks)
            self._ports.send(master.address, 'tasks', common, [task.uid for task in tasks],
                             [task.sandbox for task in tasks], rests)
        except ValueError as error:   # too large or nested too deeply
            if len(tasks) > 1:
                self._send_tasks(master, tasks[:len(tasks) // 2])
                self._send_tasks(master, tasks[len(tasks) // 2:])
                return
            task, = tasks
            del master.held[task.uid]
            master.credit += 1
            task.fail(sentence(error), f'{task.uid} cannot be sent to {master.uid}', DESCRIPTION)
            self._flow.leave([task])

    def ask(self, master: Master) -> None:
        """Send a master the requests that were not sent yet."""
        if not master.up:
            return
        for task in [task for task in master.requests.values() if task.state != states.AGENT_EXECUTING]:
            self._last_request += 1
            self._asked[self._last_request] = task
            self._advance([task], states.AGENT_EXECUTING)
            description = task.description
            self._ports.send(master.address, 'rpc', self._last_request, description['method'], description['args'],
                             description['kwargs'])

    def answered(self, master: Master, number: int) -> AgentTask | None:
        """Take the request that a master has answered; None if it has ended."""
        task = self._asked.pop(number, None)
        return None if task is None else master.requests.pop(task.uid, None)


def _packed(tasks: list[AgentTask]) -> tuple[bytes, list[bytes]]:
    """Return the common part of the descriptions of tasks, and the rest of each."""
    first = tasks[0].description
    if all(task.description is first for task in tasks):   # often
        return codec.pack(first), [task.own for task in tasks]
    return codec.pack_bulk([task.description if task.own == codec.NOTHING else
                            {**task.description, **codec.unpack_dict(task.own)} for task in tasks])
