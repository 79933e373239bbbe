"""Objects on their way along a tree of carriers, in pieces from mapped files and into files.

The carrier of the first node is told the other nodes of an object. A head with these goes in front of the pieces, from
which each carrier derives the nodes that it passes the pieces on to, as soon as it has them. It receives to buffers and
writes these to the file, which costs less than a fault for each new page of a map.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import cycle
from typing import Any

from rp_raptor.carriers.channel import OpenFile, new_file
from rp_raptor.objects.tree import BroadcastTree

ID_BYTES = 16
"""Bytes of the identifier of an object."""

FIRST_TAG = 4
"""The first tag of messages about objects."""

PIECE_BYTES = 1 << 20
"""Bytes of a piece."""

AHEAD = 4
"""Pieces that are under way from one node to another at most."""

_HEAD = struct.Struct(f'=HQ{ID_BYTES}s')   # tag of the pieces, size, and identifier; the numbers of the nodes follow
_TAGS = range(FIRST_TAG + 1, FIRST_TAG + 1001)   # of pieces: more than there are objects under way

Ended = Callable[[bytes, list[OpenFile]], object]


class _Child:
    """A node to which the pieces go."""

    def __init__(self, node: int, head: Any) -> None:
        self.node = node
        self.sending: deque[Any] = deque([head])
        self.sent = 0


class _Object:
    """An object: its pieces, of which the first `ready` ones are here."""

    def __init__(self, id: bytes, size: int, children: list[_Child], file: OpenFile | None = None) -> None:
        self.id = id
        self.children = children
        self.count = -(-size // PIECE_BYTES)
        self.file: OpenFile | None = None   # that is received
        if file is None:
            self.file = new_file(size)
            self._map = mmap.mmap(self.file.fd, size)
        else:
            self._map = mmap.mmap(file.fd, size, access=mmap.ACCESS_READ)
        content = memoryview(self._map)
        self.pieces = [content[start:start + PIECE_BYTES] for start in range(0, size, PIECE_BYTES)]
        self.ready = self.count if file is not None else 0
        self.begun = 0
        self.receiving: deque[tuple[Any, bytearray]] = deque()
        self._free: list[bytearray] = []   # buffers of pieces
        self.told = False

    def buffer(self) -> bytearray:
        """Return a buffer for the next piece."""
        size, self.begun = len(self.pieces[self.begun]), self.begun + 1
        return self._free.pop() if self._free and size == PIECE_BYTES else bytearray(size)

    def take(self, buffer: bytearray) -> None:
        """Write a piece to the file; it stays in the buffer if there is no room for that."""
        number, self.ready = self.ready, self.ready + 1
        try:
            if self.file is not None and os.pwrite(self.file.fd, buffer, number * PIECE_BYTES) == len(buffer):
                self._free.append(buffer)
                return
        except OSError:
            pass
        self.file = None
        self.pieces[number] = memoryview(buffer)


class Passing:
    """Passes objects on.

    `ended(id, files)` is called with the file of one that has arrived, or without one if there was no room; at the
    first node, when it has sent one.
    """

    def __init__(self, mpi: Any, ended: Ended) -> None:
        self._world = mpi.COMM_WORLD
        self._byte = mpi.BYTE
        self._ended = ended
        self._tags = cycle(_TAGS)
        self._objects: dict[int, _Object] = {}   # by tag
        self._held: dict[int, deque[tuple[int, int, Any]]] = {}   # messages that are not being received, by source
        self._heads: dict[int, tuple[Any, bytearray]] = {}        # that are being received, by source

    def start(self, id: bytes, nodes: Sequence[int], file: OpenFile) -> None:
        """Send an object to nodes."""
        tag, size = next(self._tags), os.fstat(file.fd).st_size
        nodes = [self._world.rank, *nodes]
        head = _HEAD.pack(tag, size, id) + struct.pack(f'={len(nodes)}H', *nodes)
        self._objects[tag] = _Object(id, size, self._children(head, nodes), file)

    def receive(self, source: int, tag: int, size: int, message: Any) -> None:
        """Begin to receive a message, when the head before it is here."""
        self._held.setdefault(source, deque()).append((tag, size, message))
        self._take([source])

    def progress(self) -> bool:
        """Pass on what has come; return whether something is still under way."""
        self._take([*self._heads])
        for tag, each in [*self._objects.items()]:
            while each.receiving and each.receiving[0][0].Test():
                each.take(each.receiving.popleft()[1])
            for child in each.children:
                self._send(child, each, tag)
            here = each.ready == each.count
            sent = here and not any(child.sending for child in each.children)
            if not each.told and (sent if self._world.rank == 0 else here):
                each.told = True
                self._ended(each.id, [each.file] if each.file is not None else [])
            if sent:
                del self._objects[tag]
        return bool(self._objects or self._heads)

    def _take(self, sources: Iterable[int]) -> None:
        for source in sources:
            held = self._held[source]
            while held:
                tag, size, message = held[0]
                if tag == FIRST_TAG:
                    if source not in self._heads:
                        head = bytearray(size)
                        self._heads[source] = message.Irecv([head, self._byte]), head
                    request, head = self._heads[source]
                    if not request.Test():
                        break
                    del self._heads[source]
                    self._expect(head)
                else:
                    found = self._objects[tag]
                    buffer = found.buffer()
                    found.receiving.append((message.Irecv([buffer, self._byte]), buffer))
                held.popleft()

    def _expect(self, head: bytearray) -> None:
        tag, size, id = _HEAD.unpack_from(head)
        nodes = memoryview(head)[_HEAD.size:].cast('H').tolist()
        self._objects[tag] = _Object(id, size, self._children(bytes(head), nodes))

    def _children(self, head: bytes, nodes: list[int]) -> list[_Child]:
        """Send the head on."""
        places = BroadcastTree(len(nodes)).children(nodes.index(self._world.rank))
        return [_Child(node, self._world.Isend([head, self._byte], node, FIRST_TAG))
                for node in (nodes[place] for place in places)]

    def _send(self, child: _Child, each: _Object, tag: int) -> None:
        while child.sending and child.sending[0].Test():
            child.sending.popleft()
        while child.sent < each.ready and len(child.sending) < AHEAD:
            child.sending.append(self._world.Isend([each.pieces[child.sent], self._byte], child.node, tag))
            child.sent += 1
