"""A component that lives in another process, as Agent_0 sees it.

What travels, each item a mapping with `component` (the instance's uid) and `op`:

to the component    `put` (a task), `cancel` (uids), `cancel_all` (reason), `stop` (reason);
                    `end`, without a component, ends its process
from the component  `advance` (state, uids), `output` and `failed` (a task that leaves, and which way), `stopped`

The state in which a task is handed on to the next component comes with the task itself.

All items of one direction arrive in the order in which they were sent, so that a cancel finds its task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

from rp_agent.task import AgentTask
from rp_agent.wire import apply, to_wire

Item = dict[str, Any]
Send = Callable[[list[Item]], object]

_KIND = itemgetter('component', 'op')


def in_bulks(items: Iterable[Item]) -> list[tuple[str, str, list[Item]]]:
    """Items that follow each other and are of one kind, with their component and what is to be done."""
    return [(component, op, list(bulk)) for (component, op), bulk in groupby(items, _KIND)]


class Remote:
    """Stands for a component elsewhere; the tasks that it has are in `tasks`.

    Of two wires on which tasks leave, `output` leads to the next component and `failed` out of the agent.
    """

    def __init__(self, uid: str, component: str, send: Send, failed: Callable[[list[AgentTask]], None]) -> None:
        self.uid = uid
        self.component = component
        self.tasks: dict[str, AgentTask] = {}
        self.output: Callable[[list[AgentTask]], None] = failed
        self.advanced: Callable[[Sequence[AgentTask], str], None] = lambda tasks, state: None
        self._failed = failed
        self._send = send
        self._on_empty: Callable[[], Any] | None = None

    def put(self, tasks: list[AgentTask]) -> None:
        """Hand tasks to the component."""
        self.tasks.update((task.uid, task) for task in tasks)
        self._send([self._item('put') | to_wire(task) for task in tasks])

    def cancel(self, uids: Iterable[str]) -> None:
        """End those of the tasks that the component has."""
        mine = [uid for uid in uids if uid in self.tasks]
        if mine:
            self._send([self._item('cancel') | {'uids': mine}])

    def cancel_all(self, reason: str) -> None:
        """End all tasks that the component has, for this reason."""
        if self.tasks:
            self._send([self._item('cancel_all') | {'reason': reason}])

    def stop(self, on_empty: Callable[[], Any], reason: str) -> None:
        """End all tasks, and take no more; `on_empty` is called when the last one is out."""
        self._on_empty = on_empty
        self._send([self._item('stop') | {'reason': reason}])

    def receive(self, op: str, items: list[Item]) -> None:
        """Take in what the component says."""
        if op == 'advance':
            for item in items:
                self._advance(item['state'], item['uids'])
        elif op == 'stopped':
            self.emptied()
        else:
            self._return([self._back(item) for item in items if item['uid'] in self.tasks], op)

    def leave(self) -> None:
        """The component has died: there is nobody any more to send to."""
        self._send = _to_nobody

    def bury(self) -> list[AgentTask]:
        """The tasks that died with the component."""
        tasks = list(self.tasks.values())
        self.tasks.clear()
        return tasks

    def emptied(self) -> None:
        """No task is left."""
        on_empty, self._on_empty = self._on_empty, None
        if on_empty is not None:
            on_empty()

    def _item(self, op: str) -> Item:
        return {'component': self.uid, 'op': op}

    def _advance(self, state: str, uids: list[str]) -> None:
        tasks = [self.tasks[uid] for uid in uids if uid in self.tasks]
        for task in tasks:
            task.state = state
        self.advanced(tasks, state)

    def _return(self, tasks: list[AgentTask], op: str) -> None:
        """Hand on tasks that have left the component."""
        if tasks and op == 'output':
            self.advanced(tasks, tasks[0].state)   # which is the same for all
            self.output(tasks)
        elif tasks:
            self._failed(tasks)

    def _back(self, item: Item) -> AgentTask:
        task = self.tasks.pop(item['uid'])
        apply(task, item)
        return task


def _to_nobody(_: list[Item]) -> None:
    """What a dead component is sent."""
