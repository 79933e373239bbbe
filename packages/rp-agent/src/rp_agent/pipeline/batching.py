"""Between two components: bulks that need not be dealt with at once wait for others, when there is much to do."""

from __future__ import annotations

from collections.abc import Callable

from rp_agent.reporting.reporter import delay
from rp_agent.task import AgentTask
from rp_api.loop.event_loop import Loop


class Gather:
    """Hands tasks on to `receive` a little later; `in_hand()` tells how many tasks the agent has.

    What follows the execution of a task is not urgent, but each bulk costs time that the next start would have to wait
    for: most bulks are of one task, as tasks end one by one.
    """

    def __init__(self, loop: Loop, receive: Callable[[list[AgentTask]], object], in_hand: Callable[[], int]) -> None:
        self._loop = loop
        self._receive = receive
        self._in_hand = in_hand
        self._tasks: list[AgentTask] = []

    def put(self, tasks: list[AgentTask]) -> None:
        """Take tasks to hand on."""
        if not self._tasks:
            self._loop.call_later(delay(self._in_hand()), self._hand_on)
        self._tasks += tasks

    def _hand_on(self) -> None:
        tasks, self._tasks = self._tasks, []
        self._receive(tasks)
