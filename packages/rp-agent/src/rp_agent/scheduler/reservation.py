"""Reservations: nodes set aside for a task that waits too long, so that smaller tasks cannot starve it.

No I/O, no clock. A large task finds no room while smaller ones take every node that becomes free. After a wait of
`patience` seconds, the reservation hides the nodes that can hold it from other tasks; when the tasks on them have
ended, the large task is placed there. Smaller tasks continue on the other nodes. There is one reservation at a time.

Usage, after each submission, release or cancellation, and at the deadline of `update`:

    if (offered := reservation.offer()) is not None:    # (task, placement): take it from the pool and start it
        ...
    for task in pool.place(fits, now):
        reservation.dropped(task)
    deadline = reservation.update(now)                  # time to repeat all this; None: wait for an event
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
    """The methods of a policy that a reservation calls."""

    def candidates(self, item: Item) -> Sequence[int]:
        """Return positions of the nodes to set aside for an item (`slots.candidates`); none for no reservation."""

    def place_on(self, item: Item, positions: Sequence[int]) -> Placement | None:
        """Place the item on these hidden nodes (`slots.place_on`); return None if there is no room yet."""


class Reservation(Generic[T]):
    """The reserved nodes (`positions`), and the item that they are for; None without a reservation."""

    def __init__(self, slots: SlotMap, pool: WaitPool[T], policy: Reserving[T], patience: float) -> None:
        if not patience > 0:
            raise ValueError(f'patience must be more than 0 seconds, or inf for no reservations, not {patience}')
        self._slots = slots
        self._pool = pool
        self._policy = policy
        self._patience = patience
        self._next_look = -math.inf
        self.item: T | None = None
        self.positions: tuple[int, ...] = ()

    def update(self, now: float) -> float | None:
        """Reserve nodes for an item that has waited too long; return the time of the next check, None for no time.

        Time alone changes nothing while there is a reservation, or while all items can be tried.
        """
        if self.item is not None:
            return None
        if now >= self._next_look:
            self._next_look = self._look(now)
        return self._next_look if math.isfinite(self._next_look) else None

    def offer(self) -> tuple[T, Placement] | None:
        """Return the item and its placement, and end the reservation, if the nodes have room for it now."""
        if self.item is None:
            return None
        item = self.item
        placement = self._policy.place_on(item, self.positions)
        if placement is None:
            return None
        self._end()
        return item, placement

    def dropped(self, item: T) -> None:
        """End the reservation of an item that has left the pool in another way (placed elsewhere, cancelled)."""
        if item is self.item:
            self._end()

    def node_down(self, position: int) -> None:
        """End the reservation if it includes a lost node; the next `update` selects other nodes."""
        if position in self.positions:
            self._end()

    def check(self) -> None:
        """Verify all invariants; raise `AssertionError` if one is violated."""
        assert (self.item is None) == (not self.positions), f'{self.positions} are set aside for {self.item}'
        assert len(set(self.positions)) == len(self.positions), f'{self.positions} are not different nodes'

    def _look(self, now: float) -> float:
        """Reserve nodes for the first starving item; return the time of the next check."""
        item = None
        for item in self._pool.starving(now, self._patience):
            positions = tuple(self._policy.candidates(item))
            if positions:
                self._begin(item, positions)
                # there may be room at once
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
        # these nodes are available to others again
        self._pool.wake()
