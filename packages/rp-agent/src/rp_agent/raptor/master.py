"""The agent's record of a master: its state, the tasks that wait for it, and those that it has."""

from __future__ import annotations

from collections import OrderedDict

from rp_agent.task import AgentTask
from rp_api import states

Queue = OrderedDict[str, AgentTask]

_LARGE = ('function', 'code')

STALLED = 5.0
"""Seconds without a result after which a master counts as stalled."""


class Master:
    """A master, from the first task that names it."""

    __slots__ = ('address', 'awaited', 'credit', 'ended', 'gone', 'held', 'last_result', 'listens', 'own', 'queue',
                 'requests', 'uid', 'up', 'waiting', 'workers')

    def __init__(self, uid: str) -> None:
        self.uid = uid
        self.awaited = False
        """Whether its task has arrived and has not ended."""
        self.up = False
        """Whether it accepts tasks: it has sent `hello`, and not `bye`."""
        self.gone = False
        """Whether its task has ended."""
        self.ended = ''
        """How it has ended, once no more messages can arrive from it."""
        self.address = b''
        """Its address at the link."""
        self.listens = ''
        """The address at which it listens for its workers and for applications."""
        self.credit = 0
        self.last_result = 0.0
        self.queue: Queue = OrderedDict()
        """Tasks that wait until it asks for them."""
        self.requests: Queue = OrderedDict()
        """RPC tasks, which wait for its answer."""
        self.held: Queue = OrderedDict()
        """Tasks that it has."""
        self.waiting: Queue = OrderedDict()
        """Workers that wait until it is up."""
        self.workers: Queue = OrderedDict()
        """Workers that were passed to the scheduler."""
        self.own: Queue = OrderedDict()
        """Tasks that it has submitted, which the application does not know."""

    @property
    def queues(self) -> tuple[Queue, ...]:
        """The queues of all tasks that wait for it."""
        return self.queue, self.requests, self.waiting

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


def take(queue: Queue, most: int, most_bytes: int) -> list[AgentTask]:
    """Take the first tasks of a queue, as many as fit into one message."""
    taken: list[AgentTask] = []
    size = 0
    while queue and len(taken) < most and size < most_bytes:
        _, task = queue.popitem(last=False)
        for name in _LARGE:
            size += len(dict.get(task.description, name, ''))
        taken.append(task)
    return taken
