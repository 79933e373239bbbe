"""The objects that an application has made known to a master over one connection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import ReferenceType

from rp_api.loop.event_loop import Loop
from rp_api.system.shared_directory import place
from rp_raptor.objects.download import read_piece
from rp_raptor.objects.reference import Observer, Owned


class ShownObjects(Observer):
    """Tells a master of objects before the calls with them, and sends their content to a master on another host.

    All methods but `dropped` are for the loop's thread.
    """

    def __init__(self, loop: Loop, send: Callable[[list[Any]], object]) -> None:
        self._loop = loop
        self._send = send
        self._objects: dict[bytes, ReferenceType[Owned]] = {}
        self._met = False

    def __len__(self) -> int:
        return len(self._objects)

    def show(self, owned: Owned) -> None:
        """Make an object known to the master, now or when the connection is there."""
        if owned.id not in self._objects:
            self._objects[owned.id] = owned.weak
            owned.observers.add(self)
            if self._met:
                self._tell(owned)

    def connected(self) -> None:
        """Make all objects known after a handshake."""
        self._met = True
        for weak in list(self._objects.values()):
            owned = weak()
            if owned is not None:
                self._tell(owned)

    def disconnected(self) -> None:
        """Send nothing any more."""
        self._met = False

    def dropped(self, id: bytes) -> None:
        """Tell the master in the loop's thread that an object is dropped."""
        self._loop.call_soon(self._drop, id)

    def give(self, id: bytes, offset: int, length: int) -> None:
        """Send a piece of an object; an empty one if it is not there, which ends the transfer."""
        weak = self._objects.get(id)
        owned = weak() if weak is not None else None
        try:
            data = read_piece(owned.path, offset, length) if owned is not None else b''
        except OSError:
            data = b''
        self._send(['object_piece', id, offset, data])

    def _tell(self, owned: Owned) -> None:
        self._send(['put_object', owned.id, owned.size, place(), owned.path])

    def _drop(self, id: bytes) -> None:
        if self._objects.pop(id, None) is not None and self._met:
            self._send(['drop_object', id])
