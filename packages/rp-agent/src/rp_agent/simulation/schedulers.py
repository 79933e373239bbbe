"""The schedulers of a simulated pilot: the agent's in simulated time, and one that works in passes, as the paper's."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rp_agent.resource_manager.base import Allocation
from rp_agent.scheduler.component import Scheduler
from rp_agent.scheduler.explicit_slots import ExplicitRequest
from rp_agent.scheduler.policy import Item
from rp_agent.task import AgentTask
from rp_api.errors import DescriptionError, ResourceError
from rp_api.simulation.contract import VirtualClock
from rp_api.simulation.model import Model
from rp_profiling.write.tracer import Tracer

TURN_S = 0.01
"""Seconds of virtual time per turn: a fast scheduler places several tasks in one turn."""


class TimedScheduler(Scheduler):
    """Places tasks in turns, each of which takes simulated time for its placements and its searches without room."""

    def __init__(self, uid: str, tracer: Tracer, allocation: Allocation, config: Mapping[str, Any],
                 failed: Callable[[list[AgentTask]], None], placed: Callable[[list[AgentTask]], None],
                 clock: VirtualClock, model: Model) -> None:
        super().__init__(uid, tracer, allocation, config, failed, clock.call_later, clock.time)
        self.output = placed
        self.advanced = lambda *_: None   # the pilot traces state changes itself
        nodes = len(allocation.names)
        self._placement, self._search = model.placement.mean(nodes), model.search.mean(nodes)
        self._later = clock.call_later
        self._busy = False

    def _place(self) -> None:
        if self._busy:
            return   # called again at the end of the turn
        spent = self._turn()
        if spent:
            self._busy = True
            self._later(spent, self._turn_is_over)

    def _turn(self) -> float:
        """Place tasks, and return the seconds that this takes."""
        raise NotImplementedError

    def _place_now(self) -> None:
        super()._place()

    def _turn_is_over(self) -> None:
        self._busy = False
        if not self._closed:
            self._place()


class PacedScheduler(TimedScheduler):
    """Places tasks one after the other, as the scheduler of this system."""

    def __init__(self, uid: str, tracer: Tracer, allocation: Allocation, config: Mapping[str, Any],
                 failed: Callable[[list[AgentTask]], None], placed: Callable[[list[AgentTask]], None],
                 clock: VirtualClock, model: Model) -> None:
        super().__init__(uid, tracer, allocation, config, failed, placed, clock, model)
        self._most = max(1, round(TURN_S / self._placement)) if self._placement else None
        self._spent = 0.0

    def _turn(self) -> float:
        self._place_now()
        spent, self._spent = self._spent, 0.0
        return spent

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


class PassScheduler(TimedScheduler):
    """Tries each new task, and after a release some of the waiting ones, in passes that take simulated time.

    A pass tries tasks in the order of their arrival; of the waiting ones, until the model's `lookahead` of them found
    no room. Placed tasks are passed on at the end of the pass. Resources that are released meanwhile count in the next
    pass.
    """

    def __init__(self, uid: str, tracer: Tracer, allocation: Allocation, config: Mapping[str, Any],
                 failed: Callable[[list[AgentTask]], None], placed: Callable[[list[AgentTask]], None],
                 clock: VirtualClock, model: Model) -> None:
        super().__init__(uid, tracer, allocation, config, failed, placed, clock, model)
        self._lookahead = model.lookahead
        self._come_new: list[Item] = []
        self._tried: deque[Item] = deque()
        self._placed_items: list[Item] = []
        self._freed = False

    def release(self, tasks: Iterable[AgentTask]) -> None:
        """Free the resources of finished tasks, for the next pass."""
        self._freed = True
        super().release(tasks)

    def cancel_all(self, reason: str) -> None:
        """Cancel all waiting tasks, and those placed in an unfinished pass; try none of them again."""
        self._come_new.clear()
        self._tried.clear()
        self._placed_items.clear()
        super().cancel_all(reason)

    def _enter_again(self) -> None:
        """Validate all items again, without changing which ones are new and which are waiting."""
        came, self._come_new = self._come_new, []
        self._enter(self._tried, self._clock())
        self._tried = deque(self._come_new)
        self._come_new = []
        self._enter(came, self._clock())

    def _enter(self, items: Iterable[Item], now: float) -> None:
        for item in items:
            try:
                if type(item.request) is not ExplicitRequest:
                    item.request = self._policy.request(item)
            except (ResourceError, DescriptionError) as error:
                self._refuse(item, error)
            else:
                self._come_new.append(item)

    def _turn(self) -> float:
        spent = self._pass()
        if not spent:
            self._place_now()
        return spent

    def _turn_is_over(self) -> None:
        self._busy = False
        if not self._closed:
            self._place_now()
        super()._turn_is_over()

    def _from_pool(self, now: float) -> list[Item]:
        placed, self._placed_items = self._placed_items, []
        return placed

    def _pass(self) -> float:
        """Try waiting items if resources were released, and all new ones; return the seconds that the pass takes."""
        placed = self._placed_items
        waits: list[Item] = []
        if self._freed:
            while self._tried and len(waits) < self._lookahead:
                item = self._tried.popleft()
                (placed if self._fits(item) else waits).append(item)
            self._tried.extendleft(reversed(waits))
        self._freed = False
        came, self._come_new = self._come_new, []
        for item in came:
            if self._fits(item):
                placed.append(item)
            else:
                waits.append(item)
                self._tried.append(item)
        return self._placement * len(placed) + self._search * len(waits)
