"""How an agent tells the client about its tasks: soon when there is little to tell, in bulks when there is much.

What cannot be sent waits: of tasks that are still here, the last state; of others, the results, in memory and beyond a
limit on disk.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from rp_agent.backlog import Backlog
from rp_agent.task import AgentTask
from rp_api import states
from rp_api.coordination.contract import BULK, AgentConnection, Update
from rp_api.mesh.loop import Loop

DELAY_PER_TASK = 1e-4
"""Seconds that news may wait for others, for each task that the agent has: it stays a small part of the time that the
tasks take, and the cost of what is done in bulks is shared by many of them."""

MAX_DELAY = 0.05

MIN_DELAY = 1e-3
"""The loop's timers are no finer than this; what would have to wait for less is done at once."""

MOST_BYTES = 16 << 20
"""Size of the results that wait in memory while they cannot be sent; what is more goes to disk."""

_PER_TASK, _PER_RANK, _PER_FILE = 512, 640, 128
"""Bytes, roughly, as measured; texts come on top."""

_LEFT = states.TASK.value(states.TMGR_STAGING_OUTPUT_PENDING)


def delay(tasks: int) -> float:
    """Seconds that news may wait when the agent has that many tasks."""
    seconds = DELAY_PER_TASK * tasks
    return 0.0 if seconds < MIN_DELAY else min(MAX_DELAY, seconds)


class Reporter:
    """Collects state changes; of several states of one task, only the last one is sent."""

    def __init__(self, loop: Loop, connection: AgentConnection, backlog: Backlog) -> None:
        self._loop = loop
        self._connection = connection
        self._backlog = backlog
        self._states: dict[str, str] = {}
        self._infos: dict[str, dict[str, Any]] = {}
        self._finished: list[Update] = []
        self._size = 0
        self._limit = MOST_BYTES
        self._scheduled = False
        self._kept = False
        self.tasks = 0
        """Number of tasks that the agent has in hand."""
        connection.on_room = self._on_room

    def changed(self, tasks: Sequence[AgentTask], state: str, info: dict[str, Any] | None = None) -> None:
        """Tasks have reached a state that is not their last one here; `info` is what became known with it."""
        if info is not None:
            self._infos.update((task.uid, info) for task in tasks)
        self._states.update(dict.fromkeys([task.uid for task in tasks], state))
        self._schedule()

    def finished(self, tasks: Sequence[AgentTask]) -> None:
        """Tasks have left the agent, for output staging by the client or for good."""
        for task in tasks:
            self._states.pop(task.uid, None)
            self._finished.append(_end(task))
            self._size += _size(task)
        if self._size > self._limit and not self._connection.room:
            self._spill()
        self._schedule()

    def flush(self, *, sending: bool = True) -> None:
        """Send what there is now, whether there is room or not; `sending` False: write results to disk."""
        if not sending:
            self._spill()
            return
        while self._backlog.waiting:
            self._send_from_disk()
        self._send_news()

    def keep(self, pilot: Update | None) -> None:
        """Leave on disk the results that the coordinator does not have, with the last state of the pilot."""
        self._kept = True
        sent = [update for update in self._connection.unsettled() if states.TASK.value(update.state) >= _LEFT]
        if sent or self._finished or pilot:
            self._backlog.keep(sent + self._finished, pilot)

    def forget(self) -> None:
        """The coordinator has everything: leave nothing on disk."""
        self._kept = True
        self._backlog.discard()

    def close(self) -> None:
        """Leave on disk the results that the coordinator does not have, if that was not done yet."""
        if not self._kept:
            self.keep(None)
        self._backlog.close()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_later(delay(self.tasks), self._due)

    def _due(self) -> None:
        self._scheduled = False
        self._send()

    def _on_room(self) -> None:
        if not self._scheduled:
            self._send()

    def _send(self) -> None:
        """Send while there is room, what has waited longest first; what cannot be sent now is sent when there is."""
        while self._backlog.waiting and self._connection.room:
            self._send_from_disk()
        if self._connection.room:
            self._send_news()

    def _send_from_disk(self) -> None:
        updates = self._backlog.take(BULK)
        if updates:
            self._connection.update_tasks(updates)
        if not self._backlog.waiting:
            self._connection.when_settled(partial(self._backlog.accepted, self._backlog.taken))

    def _send_news(self) -> None:
        updates = [Update(uid, state) for uid, state in self._states.items()] + self._finished
        if self._infos:
            updates = [update._replace(info=self._infos.pop(update.uid, update.info)) if update.uid in self._states
                       else update for update in updates]
            self._infos.clear()
        if updates:
            self._states.clear()
            self._finished = []
            self._size = 0
            self._limit = MOST_BYTES
            self._connection.update_tasks(updates)

    def _spill(self) -> None:
        """Make room in memory."""
        if not self._finished or self._backlog.put(self._finished):
            self._finished = []
            self._size = 0
        else:
            self._limit = 2 * self._size   # not with each task again


def _size(task: AgentTask) -> int:
    """Bytes, roughly, that the result of a task takes."""
    return (_PER_TASK + len(task.stdout) + len(task.stderr) + _PER_RANK * len(task.slots or ())
            + _PER_FILE * len(task.output_files))


def _end(task: AgentTask) -> Update:
    """The last state that the agent reports, with the results."""
    info = task.result()
    if task.state == states.TMGR_STAGING_OUTPUT_PENDING:
        info['target_state'] = task.target_state
        return Update(task.uid, task.state, info)
    assert task.target_state is not None, f'{task.uid} has left without a final state'
    info['reached'] = task.state
    return Update(task.uid, task.target_state, info)
