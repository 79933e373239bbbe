"""The proxy in Agent_0 of a component in another process.

Messages consist of items, which are mappings with `component` (the instance's uid) and `op`:

to the component    `put` (tasks, see `to_wire`), `cancel` (uids), `sweep` (uids), `signal` (number), `cancel_all`
                    (reason), `stop` (reason);
                    `end`, without a component, ends its process; `copy`, also without one, concerns copies on the
                    node (see `rp_agent.node_copies.receiver`)
from the component  `advance` (state, uids), `output` and `failed` (tasks that leave), `stopped`, `signalled` (number),
                    `sweep_elsewhere` (task, positions of nodes); `copy`

Tasks are a list in one item, which is packed as it is: searching for common parts takes longer than it saves. A task
that leaves carries the state in which it is passed on. All items of one direction arrive in the order in which they
were sent, so that a cancel finds its task.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from rp_agent.components.build import ComponentPorts
from rp_agent.components.names import ANYWHERE
from rp_agent.task import AgentTask
from rp_api import states

Item = dict[str, Any]
Send = Callable[[list[Item]], object]

BULK = 512
"""Most tasks in one item."""

_FILLED_IN = ('state', 'target_state', 'exit_code', 'stdout', 'stderr', 'return_value', 'exception',
              'exception_detail', 'error', 'output_files', 'ran')

_FRESH = AgentTask('', {}, '', '')
_AS_FRESH = tuple((name, getattr(_FRESH, name)) for name in _FILLED_IN)

_OF_SCHEDULER = 'scheduler.'
"""Prefix of the scheduler's keys in `extra`, which stay in Agent_0."""


def with_tasks(component: str, op: str, tasks: Sequence[Any]) -> list[Item]:
    """Return items that carry these tasks, which are plain data."""
    return [{'component': component, 'op': op, 'tasks': tasks[first:first + BULK]}
            for first in range(0, len(tasks), BULK)]


class Remote:
    """The proxy of a component in another process; `tasks` are those that the component has."""

    def __init__(self, uid: str, component: str, send: Send, ports: ComponentPorts, node: int = ANYWHERE) -> None:
        self.uid = uid
        self.component = component
        self.node = node
        """The position of the node on which an executor starts tasks."""
        self.came = False
        """True if the process of the component has connected."""
        self.tasks: dict[str, AgentTask] = {}
        self._ports = ports
        self._send = send
        self._on_empty: Callable[[], Any] | None = None

    def __contains__(self, uid: object) -> bool:
        return uid in self.tasks

    def put(self, tasks: list[AgentTask]) -> None:
        """Send tasks to the component."""
        self.tasks.update((task.uid, task) for task in tasks)
        self._send(with_tasks(self.uid, 'put', [to_wire(task) for task in tasks]))

    def cancel(self, uids: Iterable[str]) -> None:
        """Cancel those of the tasks that the component has."""
        mine = [uid for uid in uids if uid in self.tasks]
        if mine:
            self._send([self._item('cancel') | {'uids': mine}])

    def sweep(self, uids: Iterable[str]) -> None:
        """Tell an executor to kill the processes on its node of tasks that others have started."""
        self._send([self._item('sweep') | {'uids': list(uids)}])

    def forward_signal(self, number: int) -> None:
        """Tell an executor to pass a signal on to its tasks that want it."""
        self._send([self._item('signal') | {'number': number}])

    def cancel_all(self, reason: str) -> None:
        """Cancel all tasks that the component has."""
        if self.tasks:
            self._send([self._item('cancel_all') | {'reason': reason}])

    def stop(self, on_empty: Callable[[], Any], reason: str) -> None:
        """Tell an executor to end all tasks and accept no more; calls `on_empty` when the last one has left."""
        self._on_empty = on_empty
        self._send([self._item('stop') | {'reason': reason}])

    def receive(self, item: Item) -> None:
        """Handle an item that the component has sent."""
        op = item['op']
        if op == 'advance':
            self._advance(item['state'], item['uids'])
        elif op == 'stopped':
            self.emptied()
        elif op == 'signalled':
            self._ports.signalled(self.uid, item['number'])
        elif op == 'sweep_elsewhere':
            self._ports.sweep_elsewhere(item['task'], item['positions'])
        else:
            self._return([self._back(uid, filled_in) for uid, filled_in in item['tasks'] if uid in self.tasks], op)

    def leave(self) -> None:
        """Send nothing more: the component has died."""
        self._send = lambda items: None

    def take_tasks(self) -> list[AgentTask]:
        """Take the tasks that died with the component."""
        tasks = list(self.tasks.values())
        self.tasks.clear()
        return tasks

    def emptied(self) -> None:
        """Report that no task is left, if `stop` was called."""
        on_empty, self._on_empty = self._on_empty, None
        if on_empty is not None:
            on_empty()

    def _item(self, op: str) -> Item:
        return {'component': self.uid, 'op': op}

    def _advance(self, state: str, uids: list[str]) -> None:
        tasks = [self.tasks[uid] for uid in uids if uid in self.tasks]
        for task in tasks:
            task.state = state
        if state == states.AGENT_EXECUTING:
            now = time.time()
            for task in tasks:
                task.note_run(now)
        self._ports.advanced(tasks, state)

    def _return(self, tasks: list[AgentTask], op: str) -> None:
        """Pass on tasks that have left the component."""
        if tasks and op == 'output':
            self._ports.advanced(tasks, tasks[0].state)   # the same for all
            self._ports.output(tasks)
        elif tasks:
            self._ports.failed(tasks)

    def _back(self, uid: str, filled_in: dict[str, Any]) -> AgentTask:
        task = self.tasks.pop(uid)
        apply(task, filled_in)
        return task


def to_wire(task: AgentTask) -> list[Any]:
    """Return a task as plain data: attributes that components only read, then the changes."""
    return [task.uid, task.description, task.pilot, task.sandbox, task.slots, changes(task)]


def from_wire(data: Sequence[Any]) -> AgentTask:
    """Return the task for the result of `to_wire`."""
    uid, description, pilot, sandbox, slots, filled_in = data
    task = AgentTask(uid, description, pilot, sandbox)
    task.slots = slots
    apply(task, filled_in)
    return task


def changes(task: AgentTask) -> dict[str, Any]:
    """Return the attributes that components have set."""
    found = {name: value for name, fresh in _AS_FRESH if (value := getattr(task, name)) != fresh}
    if task.extra:
        extra = {key: value for key, value in task.extra.items() if not key.startswith(_OF_SCHEDULER)}
        sets = {key: list(extra.pop(key)) for key in [*extra] if isinstance(extra[key], (set, frozenset))}
        found |= {'extra': extra, 'sets': sets}
    return found


def apply(task: AgentTask, filled_in: Mapping[str, Any]) -> None:
    """Apply changes of another process to a task."""
    for name, value in filled_in.items():
        if name == 'extra':
            task.extra.update(value)
        elif name == 'sets':
            task.extra.update((key, set(members)) for key, members in value.items())
        elif name in _FILLED_IN:
            setattr(task, name, value)
