"""The distribution of one archive to the nodes of a pilot: what is sent to which node, and what the nodes report.

A node that is asked to unpack a copy reports that it wants the archive, or that another process on it unpacks the copy,
or that the copy is there. When all nodes have done so, the archive is sent to those that want it: each piece once per
connection to relays, and only while less than `WINDOW_BYTES` are on the way to the slowest node. So the memory of the
agent, relays and nodes stays bounded. A piece can be lost with a connection: after `REPEAT` seconds without progress of
a node, what follows its progress is repeated for that node. A node without progress for `TIMEOUT` seconds is given up.
Nodes that have waited in vain for another process get the archive in a further round.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from rp_api.loop.event_loop import Loop, Timer
from rp_api.loop.offload import Offload

PIECE_BYTES = 256 << 10
WINDOW_BYTES = 1 << 20
"""Bytes on the way to a node, at most; a piece is read when there is room for it."""

REPEAT = 5.0
"""Seconds."""

TIMEOUT = 60.0
"""Seconds without progress after which a node is given up, also while it waits for another process."""

Item = dict[str, Any]


class Nodes(Protocol):
    """The ways from the distributor to the nodes."""

    def put(self, name: str, item: Item) -> None:
        """Send an item to a node."""

    def spread(self, names: list[str], item: Item) -> None:
        """Send an item to several nodes at once, without a guarantee."""


@dataclass
class Outcome:
    """The paths of the copies by node, and the reasons of the nodes without one."""

    paths: dict[str, str] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)


class _Node:
    """A node whose copy is not complete."""

    __slots__ = ('idle', 'state', 'taken')

    def __init__(self) -> None:
        self.state = 'asked'   # then `wants`, `waits` or `taken`
        self.taken = 0
        self.idle = 0.0


class Distributor:
    """The distribution of an archive as the copy `name`; `done(outcome)` is called once, when no node is left."""

    def __init__(self, name: str, archive: str, loop: Loop, offload: Offload, ways: Nodes,
                 done: Callable[[Outcome], object]) -> None:
        self._name = name
        self._loop = loop
        self._offload = offload
        self._ways = ways
        self._done = done
        self._outcome = Outcome()
        self._nodes: dict[str, _Node] = {}
        self._file = os.open(archive, os.O_RDONLY | os.O_CLOEXEC)
        self._size = os.fstat(self._file).st_size
        self._sent = 0
        self._reads = 0
        self._sending = False
        self._timer: Timer | None = None

    def start(self, nodes: Iterable[str]) -> None:
        """Ask the nodes to unpack."""
        self._nodes = {name: _Node() for name in nodes}
        self._timer = self._loop.call_later(REPEAT, self._tick)
        for name in [*self._nodes]:
            self._put(name, 'unpack', size=self._size)
        self._check()

    def report(self, name: str, event: str, value: str) -> None:
        """Handle an event of the unpacker on a node."""
        node = self._nodes.get(name)
        if node is None:
            return
        if event != 'taken' or int(value) > node.taken:
            node.idle = 0.0
        if event == 'ready':
            self._outcome.paths[name] = value
            del self._nodes[name]
        elif event == 'failed':
            self._fail(name, value)
        elif event == 'taken':
            node.taken = max(node.taken, int(value))
        else:
            node.state = event
        self._check()

    def lost(self, name: str) -> None:
        """Handle the loss of a node, which is reported elsewhere: no task misses a copy there."""
        if self._nodes.pop(name, None) is not None:
            self._check()

    def close(self) -> None:
        """Stop the distribution."""
        self._nodes.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._reads and self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _check(self) -> None:
        """End, or begin a round, or send more."""
        if not self._nodes:
            if self._timer is not None:
                self.close()
                self._loop.call_soon(self._done, self._outcome)
            return
        states = {node.state for node in self._nodes.values()}
        if 'taken' not in states and 'asked' not in states and 'wants' in states:
            self._sent = 0
            for node in self._nodes.values():
                node.state = 'taken' if node.state == 'wants' else node.state
        self._send()

    def _send(self) -> None:
        """Read and send the next piece, if there is one and all nodes of the round have room for it."""
        taken = [node.taken for node in self._nodes.values() if node.state == 'taken']
        room = WINDOW_BYTES - PIECE_BYTES
        if taken and not self._sending and self._sent < self._size and self._sent - min(taken) <= room:
            self._sending = True
            self._read(self._sent, PIECE_BYTES, self._spread)

    def _spread(self, offset: int, data: bytes) -> None:
        self._sending = False
        self._sent = offset + len(data)
        names = [name for name, node in self._nodes.items() if node.state == 'taken']
        if names:
            self._ways.spread(names, self._item('piece', offset=offset, data=data))
        self._send()

    def _read(self, offset: int, count: int, use: Callable[[int, bytes], object]) -> None:
        """Read a piece outside of the loop, as the file system may be slow."""
        def done(data: bytes) -> None:
            self._reads -= 1
            if self._timer is None:
                self.close()
            elif data:
                use(offset, data)
            else:
                self._unreadable('it has become shorter')

        def failed(error: BaseException) -> None:
            self._reads -= 1
            self._unreadable(str(error))

        self._reads += 1
        self._offload(lambda: os.pread(self._file, count, offset), done, failed)

    def _unreadable(self, reason: str) -> None:
        for name in [*self._nodes]:
            self._give_up(name, f'the archive cannot be read: {reason}')
        self._check() if self._timer is not None else self.close()

    def _tick(self) -> None:
        """Repeat what nodes may have lost, and give up nodes without progress."""
        self._timer = self._loop.call_later(REPEAT, self._tick)
        sending = any(node.state == 'taken' for node in self._nodes.values())
        for name, node in [*self._nodes.items()]:
            if self._is_waited_for(node, sending):
                node.idle += REPEAT
            if node.idle > TIMEOUT:
                self._give_up(name, f'no progress for {TIMEOUT:g} s')
            elif node.idle > REPEAT and node.state == 'taken' and node.taken < self._sent:
                self._read(node.taken, self._sent - node.taken, partial(self._repeat, name))
        self._check()

    def _is_waited_for(self, node: _Node, sending: bool) -> bool:
        """Return whether a node has to make progress; others wait for their start, or for other nodes."""
        if node.state == 'taken':
            return node.taken < self._sent or self._sent == self._size
        return node.state == 'waits' and not sending

    def _repeat(self, name: str, offset: int, data: bytes) -> None:
        if name in self._nodes:
            self._put(name, 'piece', offset=offset, data=data)

    def _give_up(self, name: str, reason: str) -> None:
        self._put(name, 'give_up')
        self._fail(name, reason)

    def _fail(self, name: str, reason: str) -> None:
        self._outcome.failures[name] = reason
        del self._nodes[name]

    def _put(self, name: str, what: str, **values: Any) -> None:
        self._ways.put(name, self._item(what, **values))

    def _item(self, what: str, **values: Any) -> Item:
        return {'copy': self._name, 'what': what} | values
