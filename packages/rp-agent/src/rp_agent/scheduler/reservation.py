"""Nodes that are set aside for a task that waits too long, so that smaller ones cannot starve it.

No I/O, no clock. A large task finds no room as long as smaller ones take every node that becomes free. When it has
waited for the time called *patience*, the nodes that would hold it are hidden from everybody else, what runs there
ends, and the task is placed there; the smaller ones go on on the other nodes. One reservation at a time.

How it is used, whenever something was submitted, released or cancelled, and at the time that `update` has given:

    if (offered := reservation.offer()) is not None:    # (task, placement): take it from the pool and start it
        ...
    for task in pool.place(fits, now):
        reservation.dropped(task)
    deadline = reservation.update(now)                  # do all this again then; None: only when something happens
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

from rp_agent.scheduler.slotmap import Placement, SlotMap
from rp_agent.scheduler.waitpool import WaitPool

T = TypeVar('T')
Item = TypeVar('Item', contravariant=True)


class Reserving(Protocol[Item]):
    """What a reservation asks of a policy."""

    def candidates(self, item: Item) -> Sequence[int]:
        """Positions of the nodes to set aside for an item (`slots.candidates`); none if it is to wait without."""

    def place_on(self, item: Item, positions: Sequence[int]) -> Placement | None:
        """Place the item on these nodes, which are hidden: `slots.place_on`; None if there is no room yet."""


class Reservation(Generic[T]):
    """The nodes that are set aside, and `item`, for which they are; None if there is no reservation now."""

    def __init__(self, slots: SlotMap, pool: WaitPool[T], policy: Reserving[T], patience: float) -> None:
        if not patience > 0:
            raise ValueError(f'patience is {patience}: it must be seconds above 0, or inf for no reservations')
        self._slots = slots
        self._pool = pool
        self._policy = policy
        self._patience = patience
        self._next_look = -math.inf
        self.item: T | None = None
        self.positions: tuple[int, ...] = ()

    def update(self, now: float) -> float | None:
        """Set nodes aside if an item has waited too long; gives when to look again, None if no time is known.

        While there is a reservation, or nothing is stuck, only other events can change anything.
        """
        if self.item is not None:
            return None
        if now >= self._next_look:
            self._next_look = self._look(now)
        return self._next_look if math.isfinite(self._next_look) else None

    def offer(self) -> tuple[T, Placement] | None:
        """The item and its placement if the nodes suffice by now, which ends the reservation."""
        if self.item is None:
            return None
        item = self.item
        placement = self._policy.place_on(item, self.positions)
        if placement is None:
            return None
        self._end()
        return item, placement

    def dropped(self, item: T) -> None:
        """The item has left the pool in another way (placed elsewhere, cancelled); this ends its reservation."""
        if item is self.item:
            self._end()

    def node_down(self, position: int) -> None:
        """A node was lost; if it is set aside, the next `update` chooses anew."""
        if position in self.positions:
            self._end()

    def check(self) -> None:
        """Verify all invariants; raises AssertionError."""
        assert (self.item is None) == (not self.positions), f'{self.positions} are set aside for {self.item}'
        assert len(set(self.positions)) == len(self.positions), f'{self.positions} are not different nodes'

    def _look(self, now: float) -> float:
        """Set nodes aside for the first item that starves; gives when to look again."""
        item = None
        for item in self._pool.starving(now, self._patience):
            positions = tuple(self._policy.candidates(item))
            if positions:
                self._begin(item, positions)
                # there may be room already
                return now
        if item is not None:
            return now + self._patience
        since = self._pool.waiting_since()
        return -math.inf if since is None else since + self._patience

    def _begin(self, item: T, positions: tuple[int, ...]) -> None:
        self.item, self.positions = item, positions
        for position in positions:
            self._slots.hide(position)

    def _end(self) -> None:
        for position in self.positions:
            self._slots.show(position)
        self.item, self.positions = None, ()
        # others may use these nodes again
        self._pool.wake()
