"""What the agent knows about one master: how far it is, which tasks wait for it, and which ones it has."""

from __future__ import annotations

from collections import OrderedDict

from rp_agent.task import AgentTask
from rp_api import states

Queue = OrderedDict[str, AgentTask]

_LARGE = ('function', 'code')

STALLED = 5.0
"""Seconds without any result after which a master does not count as working on what it has."""


class Master:
    """A master, from the moment when something is known about it."""

    __slots__ = ('address', 'awaited', 'credit', 'ended', 'gone', 'held', 'last_result', 'listens', 'own', 'queue',
                 'requests', 'uid', 'up', 'waiting', 'workers')

    def __init__(self, uid: str) -> None:
        self.uid = uid
        self.awaited = False
        """Whether its task has come, and has not ended."""
        self.up = False
        """Whether it takes tasks: it has said hello, and not goodbye."""
        self.gone = False
        """Whether its task has ended."""
        self.ended = ''
        """How it has ended, when nothing more will come from it."""
        self.address = b''
        """By which the link knows it."""
        self.listens = ''
        """The address where it listens for its workers and for applications."""
        self.credit = 0
        self.last_result = 0.0
        self.queue: Queue = OrderedDict()
        """Tasks that wait until it asks for them."""
        self.requests: Queue = OrderedDict()
        """What it is to be asked to do, or was asked to do, by somebody who waits for the answer."""
        self.held: Queue = OrderedDict()
        """Tasks that it has."""
        self.waiting: Queue = OrderedDict()
        """Workers that wait until it is up."""
        self.workers: Queue = OrderedDict()
        """Workers that were passed on to be executed."""
        self.own: Queue = OrderedDict()
        """What it has submitted itself, and the application does not know."""

    @property
    def queues(self) -> tuple[Queue, ...]:
        """All that waits for it."""
        return self.queue, self.requests, self.waiting

    def stalled(self, now: float) -> bool:
        """Whether nothing shows that the tasks which wait for it will go on without others coming first."""
        return not self.up or now - self.last_result > STALLED


def how_it_ended(task: AgentTask) -> str:
    """A few words on the end of a master's task."""
    if task.target_state == states.CANCELED:
        return f'it was cancelled ({task.exception})' if task.exception else 'it was cancelled'
    if task.target_state == states.FAILED:
        return f'it has failed: {task.exception_detail or task.exception}'
    return f'it was done (exit code {task.exit_code})'


def take(queue: Queue, most: int, most_bytes: int) -> list[AgentTask]:
    """The first tasks of a queue, as many as go into one message, and taken from it."""
    taken: list[AgentTask] = []
    size = 0
    while queue and len(taken) < most and size < most_bytes:
        _, task = queue.popitem(last=False)
        for name in _LARGE:
            size += len(dict.get(task.description, name, ''))
        taken.append(task)
    return taken
