"""How an agent tells the client about its tasks: soon when there is little to tell, in bulks when there is much."""

from __future__ import annotations

from collections.abc import Sequence

from rp_agent.task import AgentTask
from rp_api import states
from rp_api.coordination.contract import AgentConnection, Update
from rp_api.mesh.loop import Loop

DELAY_PER_TASK = 1e-4
"""Seconds that news may wait for others, for each task that the agent has: it stays a small part of the time that the
tasks take, and the cost of what is done in bulks is shared by many of them."""

MAX_DELAY = 0.05

MIN_DELAY = 1e-3
"""The loop's timers are no finer than this; what would have to wait for less is done at once."""


def delay(tasks: int) -> float:
    """Seconds that news may wait when the agent has that many tasks."""
    seconds = DELAY_PER_TASK * tasks
    return 0.0 if seconds < MIN_DELAY else min(MAX_DELAY, seconds)


class Reporter:
    """Collects state changes; of several states of one task, only the last one is sent."""

    def __init__(self, loop: Loop, connection: AgentConnection) -> None:
        self._loop = loop
        self._connection = connection
        self._states: dict[str, str] = {}
        self._finished: dict[str, AgentTask] = {}
        self._scheduled = False
        self.tasks = 0
        """Number of tasks that the agent has in hand."""
        connection.on_room = self._send

    def changed(self, tasks: Sequence[AgentTask], state: str) -> None:
        """Tasks have reached a state that is not their last one here."""
        self._states.update(dict.fromkeys([task.uid for task in tasks], state))
        self._schedule()

    def finished(self, tasks: Sequence[AgentTask]) -> None:
        """Tasks have left the agent, for output staging by the client or for good."""
        for task in tasks:
            self._states.pop(task.uid, None)
            self._finished[task.uid] = task
        self._schedule()

    def flush(self) -> None:
        """Send what there is now."""
        updates = [Update(uid, state) for uid, state in self._states.items()]
        updates += [_end(task) for task in self._finished.values()]
        if updates:
            self._states.clear()
            self._finished.clear()
            self._connection.update_tasks(updates)

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_later(delay(self.tasks), self._due)

    def _due(self) -> None:
        self._scheduled = False
        self._send()

    def _send(self) -> None:
        """Send if there is room; what cannot be sent now is sent when there is."""
        if self._connection.room and not self._scheduled:
            self.flush()


def _end(task: AgentTask) -> Update:
    """The last state that the agent reports, with the results."""
    info = task.result()
    if task.state == states.TMGR_STAGING_OUTPUT_PENDING:
        info['target_state'] = task.target_state
        return Update(task.uid, task.state, info)
    assert task.target_state is not None, f'{task.uid} has left without a final state'
    info['reached'] = task.state
    return Update(task.uid, task.target_state, info)
