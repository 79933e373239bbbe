"""How an agent tells the client about its tasks: soon when there is little to tell, in bulks when there is much."""

from __future__ import annotations

from collections.abc import Sequence

from rp_agent.task import AgentTask
from rp_api import states
from rp_api.coordination.contract import AgentConnection, Update
from rp_api.mesh.loop import Loop

DELAY_PER_TASK = 1e-4
"""Seconds that a report may wait for others, for each task that the agent has: it stays a small part of the time that
the tasks take, and the cost of a message is shared by many of them."""

MAX_DELAY = 0.05


class Reporter:
    """Collects state changes; of several states of one task, only the last one is sent."""

    def __init__(self, loop: Loop, connection: AgentConnection) -> None:
        self._loop = loop
        self._connection = connection
        self._updates: dict[str, Update] = {}
        self._scheduled = False
        self.tasks = 0
        """Number of tasks that the agent has in hand."""
        connection.on_room = self._send

    def changed(self, tasks: Sequence[AgentTask], state: str) -> None:
        """Tasks have reached a state that is not their last one here."""
        for task in tasks:
            self._updates[task.uid] = Update(task.uid, state)
        self._schedule()

    def finished(self, tasks: Sequence[AgentTask]) -> None:
        """Tasks have left the agent, for output staging by the client or for good."""
        for task in tasks:
            early = task.state != states.TMGR_STAGING_OUTPUT_PENDING
            state = task.target_state if early else task.state
            assert state is not None
            info = task.result() | ({'reached': task.state} if early else {'target_state': task.target_state})
            self._updates[task.uid] = Update(task.uid, state, info)
        self._schedule()

    def flush(self) -> None:
        """Send what there is now."""
        if self._updates:
            updates = list(self._updates.values())
            self._updates.clear()
            self._connection.update_tasks(updates)

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            delay = min(MAX_DELAY, DELAY_PER_TASK * self.tasks)
            self._loop.call_later(delay, self._due)

    def _due(self) -> None:
        self._scheduled = False
        self._send()

    def _send(self) -> None:
        """Send if there is room; what cannot be sent now is sent when there is."""
        if self._updates and self._connection.room and not self._scheduled:
            self.flush()
