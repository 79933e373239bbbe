"""Objects on their way along a tree of carriers, in pieces from and into mapped files.

The carrier of the first node is told the other nodes of an object. A head with these goes in front of the pieces, from
which each carrier derives the nodes that it passes the pieces on to, as soon as it has them.
"""

from __future__ import annotations

import errno
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

_POPULATE_WRITE = 23   # of madvise, since Linux 5.14: faster than a fault for each page

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
        self.receiving: deque[Any] = deque()
        self.told = False

    def room(self) -> memoryview:
        """Return the memory for the next piece, which is not that of the file if there is no room for that."""
        number, self.begun = self.begun, self.begun + 1
        if self.file is not None:
            try:
                _get_memory(self._map, self.file, number * PIECE_BYTES, len(self.pieces[number]))
            except OSError:
                self.file = None
        if self.file is None:
            self.pieces[number] = memoryview(bytearray(len(self.pieces[number])))
        return self.pieces[number]


def _get_memory(mapped: mmap.mmap, file: OpenFile, start: int, size: int) -> None:
    """Get memory for a part of a file, as a process is killed that writes where there is none; OSError without room."""
    try:
        mapped.madvise(_POPULATE_WRITE, start, size)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        os.posix_fallocate(file.fd, start, size)


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
            while each.receiving and each.receiving[0].Test():
                each.receiving.popleft()
                each.ready += 1
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
                    found.receiving.append(message.Irecv([found.room(), self._byte]))
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
