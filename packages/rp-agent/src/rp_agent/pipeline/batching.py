"""Batching between two components: under load, small bulks of tasks are merged into larger ones."""

from __future__ import annotations

from collections.abc import Callable

from rp_agent.reporting.reporter import delay
from rp_agent.task import AgentTask
from rp_api.loop.event_loop import Loop


class Gather:
    """A batch of tasks, passed to `receive` after a delay that grows with the number of tasks in hand (`in_hand()`).

    Tasks end one by one, and handling each end on its own would delay the start of other tasks.
    """

    def __init__(self, loop: Loop, receive: Callable[[list[AgentTask]], object], in_hand: Callable[[], int]) -> None:
        self._loop = loop
        self._receive = receive
        self._in_hand = in_hand
        self._tasks: list[AgentTask] = []

    def put(self, tasks: list[AgentTask]) -> None:
        """Take tasks to pass on."""
        if not self._tasks:
            self._loop.call_later(delay(self._in_hand()), self._hand_on)
        self._tasks += tasks

    def _hand_on(self) -> None:
        tasks, self._tasks = self._tasks, []
        self._receive(tasks)
