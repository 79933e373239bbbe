"""The peers of a hub: connected clients and agents, and their progress."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from rp_api.loop.event_loop import Loop
from rp_api.system.host import host_id
from rp_api.transport.peer_watch import PeerWatch

Key = tuple[str, str, str]


class Peer:
    """A connected client or agent.

    `cursors` are the revisions up to which tasks (for a client: all changes) and commands were sent to it, `sent` those
    of the last feed. `number` is that of the last processed message, `kept` that of the last one whose effects are
    durable. `got` is the last command that it has confirmed, `ordered` the last one sent; `asked` is the page that it
    has requested. `has_pending` means that there may be something to send, `caught_up` that it has received all tasks
    claimed before it connected. A `stale` peer must send another hello before its messages are processed.
    """

    __slots__ = ('address', 'agent', 'asked', 'caught_up', 'cursors', 'got', 'has_pending', 'hold', 'host', 'host_name',
                 'in_flight', 'instance', 'kept', 'number', 'ordered', 'pid', 'recovering', 'role', 'sent', 'stale',
                 'started', 'uid', 'watch')

    def __init__(self, address: bytes, hello: dict[str, Any], number: int) -> None:
        self.address = address
        self.role: str = hello['role']
        self.uid: str = hello['uid']
        self.agent: str = hello['agent']
        self.instance: str = hello['instance']
        self.host: str = hello['host']
        self.host_name: str = hello['host_name']
        self.pid: int = hello['pid']
        self.started: int | None = hello.get('started')
        self.cursors: tuple[int, int] = hello['since'], hello['others']
        self.sent = self.cursors
        self.number = self.kept = max(number, hello['settled'])
        self.got = self.ordered = self.cursors[1]
        self.hold: bool = hello['hold']
        self.recovering: bool = hello['recover']
        self.asked: int | None = None
        self.in_flight = 0
        self.has_pending = True
        self.caught_up = False
        self.stale = False
        self.watch = PeerWatch()

    @property
    def key(self) -> Key:
        """Role, uid of the session or pilot, and uid of the agent; a new process can take the same place."""
        return self.role, self.uid, self.agent

    @property
    def listens(self) -> bool:
        """True if updates can be sent to it."""
        return not self.stale and not self.recovering

    def __str__(self) -> str:
        return f'the client of {self.uid}' if self.role == 'client' else f'{self.agent} of {self.uid}'

    def lives(self, lease: float) -> bool:
        """Return whether its process is assumed to exist."""
        if self.watch.by_process:
            return not self.watch.ended()
        return self.host != host_id() and not self.watch.silent(lease)


class Peers:
    """All connected peers by address; `died(peer)` is called when the process of one on this host ends."""

    def __init__(self, loop: Loop, died: Callable[[Peer], object]) -> None:
        self._loop = loop
        self._died = died
        self._peers: dict[bytes, Peer] = {}

    def __iter__(self) -> Iterator[Peer]:
        return iter(list(self._peers.values()))

    def at(self, address: bytes) -> Peer | None:
        """Return the peer with that address."""
        return self._peers.get(address)

    def attach(self, peer: Peer) -> None:
        """Add a peer, and watch its process."""
        self._peers[peer.address] = peer
        if peer.host == host_id() and not peer.watch.start(
                self._loop, peer.pid, peer.started, lambda: self._died(peer)):
            self._loop.call_soon(self._died, peer)

    def forget(self, peer: Peer) -> bool:
        """Remove a peer; return False if it was not present."""
        if self._peers.get(peer.address) is not peer:
            return False
        del self._peers[peer.address]
        peer.watch.stop()
        return True

    def holder(self, key: Key) -> Peer | None:
        """Return the peer that has this key."""
        return next((peer for peer in self._peers.values() if peer.key == key), None)

    @property
    def client(self) -> Peer | None:
        """The attached client."""
        return next((peer for peer in self._peers.values() if peer.role == 'client'), None)

    def agents(self, pilot: str | None = None) -> list[Peer]:
        """Return the agents of one pilot, or all agents."""
        return [peer for peer in self._peers.values() if peer.role == 'agent' and pilot in (None, peer.uid)]

    def takers(self, pilot: str) -> int:
        """Return the number of agents among which the tasks of a pilot are divided."""
        return max(1, sum(not agent.hold for agent in self.agents(pilot)))

    def silent(self, seconds: float) -> list[Peer]:
        """Return the peers on other hosts that sent nothing for that many seconds."""
        return [peer for peer in self._peers.values() if peer.watch.silent(seconds)]

    def hear_all(self) -> None:
        """Reset the silence of all peers."""
        for peer in self._peers.values():
            peer.watch.hear()

    def close(self) -> None:
        """Remove all peers."""
        for peer in self:
            self.forget(peer)
