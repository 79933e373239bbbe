"""Queues between one process and any number of others, all over one socket in the one in the middle.

A star is a bridge that has one end of each queue in its own process. The others come as to any bridge: a `QueueGetter`
gets the items that were put under its name, and what a `QueuePutter` puts is received here. So what travels is packed
and encrypted once, and the process in the middle watches one socket, however many others there are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from rp_api.errors import CoordinationError
from rp_api.mesh.bridge import WINDOW, Getter, QueueBridge
from rp_api.mesh.codec import pack_bulk, unpack_bulk
from rp_api.mesh.flow import BULK, Backlog, Inflow, Soon
from rp_api.mesh.inproc import Receiver
from rp_api.mesh.keys import DOMAIN, Gate, KeyPair
from rp_api.mesh.loop import Loop


class Star(QueueBridge):
    """The middle of a star; `receiver(items)` is called by the loop with what putters bring."""

    def __init__(self, loop: Loop, keys: KeyPair, gate: Gate, receiver: Receiver, address: str | None = None, *,
                 domain: str = DOMAIN) -> None:
        self._lanes: defaultdict[str, Backlog] = defaultdict(Backlog)
        self._receiver = receiver
        self._turn_soon = Soon(loop, self._turn)
        super().__init__(loop, keys, gate, address, domain=domain)

    def put(self, name: str, items: Sequence[Mapping[str, Any]]) -> None:
        """Put items for the getter of that name, which may still have to come; TypeError for what cannot travel."""
        lane = self._lanes[name]
        for first in range(0, len(items), BULK):
            lane.add(*pack_bulk(items[first:first + BULK]))
        self._turn_soon()

    def forget(self, name: str) -> None:
        """Drop all items for the getters of that name; the caller knows that they are gone for good."""
        for peer in [peer for peer, getter in self._getters.items() if getter.name == name]:
            del self._getters[peer]
        self._lanes.pop(name, None)

    def _lane(self, getter: Getter) -> Backlog:
        return self._lanes[getter.name]

    def _deal(self) -> None:
        for peer, getter in self._getters.items():
            lane = self._lane(getter)
            while lane and getter.free > 0:
                self._give(peer, getter, min(getter.free, BULK))

    def _take_in(self, putter: Inflow, shared: bytes, bodies: list[bytes]) -> None:
        # most of what comes are single items, and telling each time would be as many messages back
        unsaid = putter.received - putter.done
        if unsaid >= WINDOW // 4:
            putter.finish(unsaid)
        try:
            items = unpack_bulk(shared, bodies)
        except CoordinationError as error:
            self._malformed.add(f'{error} ({len(bodies)} items are lost)')
        else:
            if items:
                self._receiver(items)
