"""The agent's scheduler at the speed of a model: decisions are real, their durations are simulated."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rp_agent.resource_manager.base import Allocation
from rp_agent.scheduler.component import Scheduler
from rp_agent.scheduler.policy import Item
from rp_agent.task import AgentTask
from rp_api.simulation.clock import VirtualClock
from rp_api.simulation.model import Model
from rp_profiling.write.tracer import Tracer

TURN = 0.01
"""Seconds of virtual time per turn: a fast scheduler places several tasks in one turn."""


class PacedScheduler(Scheduler):
    """Places tasks one after the other; each placement and each search without room takes simulated time."""

    def __init__(self, uid: str, tracer: Tracer, allocation: Allocation, config: Mapping[str, Any],
                 failed: Callable[[list[AgentTask]], None], clock: VirtualClock, model: Model) -> None:
        super().__init__(uid, tracer, allocation, config, failed, clock.call_later, clock.time)
        nodes = len(allocation.names)
        self._placement, self._search = model.placement.mean(nodes), model.search.mean(nodes)
        self._most = max(1, round(TURN / self._placement)) if self._placement else None
        self._later = clock.call_later
        self._spent = 0.0
        self._busy = False

    def _place(self) -> None:
        if self._busy:
            return   # called again after the time spent on earlier placements
        super()._place()
        if self._spent:
            self._busy = True
            self._later(self._spent, self._go_on)
            self._spent = 0.0

    def _go_on(self) -> None:
        self._busy = False
        if not self._closed:
            self._place()

    def _from_pool(self, now: float) -> list[Item]:
        if self._most is None:
            return super()._from_pool(now)
        placed = self._pool.place(self._fits, now, self._most)
        self._spent += self._placement * len(placed)
        return placed

    def _fits(self, item: Item) -> bool:
        fits = super()._fits(item)
        if not fits:
            self._spent += self._search
        return fits
