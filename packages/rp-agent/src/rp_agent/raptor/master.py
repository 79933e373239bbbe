"""The agent's record of a master: its state, the tasks that wait for it, and those that it has."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Container, Iterator, MutableMapping
from dataclasses import dataclass, field

from rp_agent.task import AgentTask, Description
from rp_api import states


class TaskQueue(MutableMapping[str, AgentTask]):
    """Tasks by uid; a task keeps its place if it is set again."""

    __slots__ = ('_levels',)

    def __init__(self) -> None:
        self._levels: dict[int, OrderedDict[str, AgentTask]] = {}   # by priority, the highest first; none is empty

    def __setitem__(self, uid: str, task: AgentTask) -> None:
        self.level(task.description['priority'])[uid] = task

    def put_first(self, task: AgentTask) -> None:
        """Add a task before the others of its priority."""
        level = self.level(task.description['priority'])
        level[task.uid] = task
        level.move_to_end(task.uid, last=False)

    def take(self, most: int, most_bytes: int) -> list[AgentTask]:
        """Remove and return the tasks that are next, as many as fit into one message."""
        taken: list[AgentTask] = []
        size = 0
        before: Description | None = None
        for priority, level in list(self._levels.items()):
            while level and len(taken) < most and size < most_bytes:
                _, task = level.popitem(last=False)
                taken.append(task)
                size += len(task.own)
                if task.description is not before:   # most share that of the one before
                    before = task.description
                    size += _size(before)
            if level:
                break
            del self._levels[priority]
        return taken

    def __getitem__(self, uid: str) -> AgentTask:
        for level in self._levels.values():
            if uid in level:
                return level[uid]
        raise KeyError(uid)

    def __delitem__(self, uid: str) -> None:
        for priority, level in self._levels.items():
            if uid in level:
                del level[uid]
                if not level:
                    del self._levels[priority]
                return
        raise KeyError(uid)

    def __iter__(self) -> Iterator[str]:
        for level in self._levels.values():
            yield from level

    def __len__(self) -> int:
        return sum(map(len, self._levels.values()))

    def level(self, priority: int) -> OrderedDict[str, AgentTask]:
        """Return the tasks of a priority by uid, for a caller that adds at least one."""
        level = self._levels.get(priority)
        if level is None:
            level = self._levels[priority] = OrderedDict()
            self._levels = dict(sorted(self._levels.items(), reverse=True))
        return level


def _size(description: Description) -> int:
    """Return the bytes of a description that may be large."""
    return sum([len(dict.get(description, name, '')) for name in ('function', 'code', 'args')])


STALLED = 5.0
"""Seconds without a result after which a master counts as stalled."""


@dataclass(slots=True, eq=False)
class Master:
    """A master, from the first task that names it."""

    uid: str
    awaited: bool = False
    """True while its task is in the agent."""
    up: bool = False
    """True while it accepts tasks: it has sent `hello`, and not `bye`."""
    gone: bool = False
    """True if its task has ended."""
    ended: str = ''
    """How it has ended, once no more messages can arrive from it."""
    address: bytes = b''
    """Its address at the link."""
    listens: str = ''
    """The address at which it listens for its workers and for applications."""
    credit: int = 0
    ranks: int = 0
    """The number of ranks of its workers."""
    asked: int = 0
    """The number of tasks that it was asked to give back, until its answer."""
    exhausted: bool = False
    """True if it had no tasks to give back, and has got none and sent no result since."""
    last_result: float = 0.0
    queue: TaskQueue = field(default_factory=TaskQueue)
    """Tasks that wait until it asks for them."""
    requests: TaskQueue = field(default_factory=TaskQueue)
    """RPC tasks, which wait for its answer."""
    held: dict[str, AgentTask] = field(default_factory=dict)
    """Tasks that it has."""
    waiting: TaskQueue = field(default_factory=TaskQueue)
    """Workers that wait until it is up."""
    workers: OrderedDict[str, AgentTask] = field(default_factory=OrderedDict)
    """Workers that were passed to the scheduler."""
    own: OrderedDict[str, AgentTask] = field(default_factory=OrderedDict)
    """Tasks that it has submitted, which the application does not know."""

    @property
    def free(self) -> int:
        """The number of tasks that it accepts."""
        return self.credit

    @property
    def load(self) -> int:
        """The number of tasks that it has."""
        return len(self.held)

    @property
    def queues(self) -> tuple[TaskQueue, ...]:
        """The queues of all tasks that wait for it."""
        return self.queue, self.requests, self.waiting

    def begins(self, listens: str) -> None:
        """Note that it is up, and listens at this address."""
        self.listens = listens
        self.up = True
        self.last_result = time.monotonic()

    def take_held(self, running: Container[str]) -> list[AgentTask]:
        """Take all its tasks that the agent does not execute."""
        return [self.held.pop(uid) for uid in [*self.held] if uid not in running]

    def stalled(self, now: float) -> bool:
        """Return whether its tasks may have to wait until other tasks arrive."""
        return not self.up or now - self.last_result > STALLED


def how_it_ended(task: AgentTask) -> str:
    """Return how the task of a master ended, as a part of a sentence."""
    if task.target_state == states.CANCELED:
        return f'it was cancelled ({task.exception})' if task.exception else 'it was cancelled'
    if task.target_state == states.FAILED:
        return f'it has failed: {task.exception_detail or task.exception}'
    return f'it was done (exit code {task.exit_code})'
