"""The agent's record of a master: its state, the tasks that wait for it, and those that it has."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from rp_agent.raptor.task_queue import TaskQueue
from rp_agent.task import AgentTask
from rp_api import states

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
