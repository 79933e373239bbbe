"""The peers of a hub, their progress, and the detection of lost agents and of a session without its application.

The hub watches the process of a peer on its own host, and knows at once when it ends. A peer on another host is lost
when it does not answer within the lease. The loss of an agent fails its pilot. `Watch` decides when; the hub acts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from rp_api import states
from rp_api.coordination.hub.store import Store
from rp_api.coordination.shutdown_rule import ShutdownRule
from rp_api.loop.event_loop import Loop, Timer
from rp_api.system.host import host_id
from rp_api.transport.connection import PeerWatch

ARRIVAL_TIMEOUT_S = 60.0
"""Seconds that agents have to connect after the application died; then they are no longer expected."""

LAST_WORD_TIMEOUT_S = 2.0
"""Seconds that an attached client has to report how an agent ended: its launcher knows more than the hub."""

_COUNT_INTERVAL_S = 0.5
"""Seconds between counts of the remaining work: counting costs more than an update."""

_STALL_S = 1.0
"""Delay of a timer in seconds that shows that this process was stopped, and has received nothing."""

_IN_QUEUE = states.PILOT.value(states.PMGR_ACTIVE_PENDING)

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

    def feed(self, tasks: list[Any], others: list[Any]) -> tuple[bytes, list[Any]]:
        """Return address and message of the data that was not sent yet, up to the cursors, which is in flight then."""
        message = ['feed', *self.sent, *self.cursors, tasks, others]
        self.in_flight += 1
        self.sent = self.cursors
        return self.address, message

    def keep(self) -> None:
        """Note that the effects of all its messages are durable."""
        self.kept = self.number

    def forget_unkept(self) -> None:
        """Require its messages whose effects are not durable again, after a hello."""
        self.number = self.kept
        self.stale = True

    def has_got(self, others: int) -> bool:
        """Return whether it has confirmed the commands that were sent last, and had not before."""
        confirmed = others >= self.ordered > self.got
        if confirmed:
            self.got = self.ordered
        return confirmed

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


class Watch:
    """Watches the peers of one session.

    It calls `declare(pilot, reason)` for a lost pilot, `cancel(pilots)`, `end()` to end the hub, and `silent(peer)` for
    a peer that does not answer. `attachable` returns whether another client could attach.
    """

    def __init__(self, loop: Loop, store: Store, peers: Peers, lease: float, orphan_timeout: float,
                 attachable: Callable[[], bool]) -> None:
        self._loop = loop
        self._store = store
        self._peers = peers
        self._lease = lease
        self._shutdown_rule = ShutdownRule(orphan_timeout)
        self._attachable = attachable
        self._orphan_timer: Timer | None = None
        self._missing: dict[tuple[str, str], tuple[float, str]] = {}
        self._client_came = False

    def start(self, declare: Callable[[str, str], object], cancel: Callable[[list[str]], object],
              end: Callable[[], object], silent: Callable[[Peer], object]) -> None:
        """Start watching, with these functions to call.

        Agents that were connected before a restart of the hub are expected within the lease.
        """
        self._declare, self._cancel, self._end, self._silent = declare, cancel, end, silent
        for pilot, agent in self._store.agents():
            self._miss(pilot, agent, self._lease, self._silence(pilot))
        self._loop.call_later(ARRIVAL_TIMEOUT_S, self.expect_client)
        self._check_leases(time.monotonic())

    @property
    def orphaned(self) -> bool:
        """True if the client has ended, and no other one has attached."""
        return self._shutdown_rule.orphaned

    # events

    def client_attached(self) -> None:
        """Record that a client has attached."""
        self._client_came = True
        self._shutdown_rule.client_attached()

    def client_gone(self, *, detached: bool = False) -> None:
        """Record that the client has ended without closing the session."""
        if not self._attachable():   # it died while it opened the session, which others cannot find
            self._end()
            return
        self._shutdown_rule.client_lost(detached=detached)
        self._loop.call_later(ARRIVAL_TIMEOUT_S, self._fail_absent, detached)
        self._orphan_check_at(time.monotonic())

    def agent_attached(self, agent: Peer) -> None:
        """Record that an agent has connected (again)."""
        self._missing.pop((agent.uid, agent.agent), None)

    def agent_gone(self, agent: Peer, *, died: bool) -> None:
        """Record that an agent has ended without a goodbye: its process died, or it does not answer."""
        reason = f'the agent of {agent.uid} died' if died else self._silence(agent.uid)
        delay = LAST_WORD_TIMEOUT_S if died and self._peers.client is not None else 0.0
        self._miss(agent.uid, agent.agent, delay, reason)

    def turn(self) -> None:
        """Schedule a check after changes."""
        if self._shutdown_rule.orphaned:
            self._orphan_check_at(time.monotonic() + _COUNT_INTERVAL_S)

    # agents

    def _silence(self, pilot: str) -> str:
        return f'the agent of {pilot} was silent for longer than its lease of {self._lease:g} s'

    def _miss(self, pilot: str, agent: str, delay: float, reason: str) -> None:
        self._missing[pilot, agent] = time.monotonic() + delay, reason
        self._loop.call_later(delay, self._give_up, time.monotonic() + delay)

    def _give_up(self, due: float) -> None:
        """Declare pilots lost whose agents did not reconnect in time."""
        now = time.monotonic()
        if now > due + _STALL_S:   # process first the messages that arrived meanwhile
            self._loop.call_later(_STALL_S, self._give_up, now + _STALL_S)
            return
        for key, (deadline, reason) in list(self._missing.items()):
            if deadline <= now:
                del self._missing[key]
                self._declare(key[0], reason)

    def _check_leases(self, due: float) -> None:
        now = time.monotonic()
        if now > due + _STALL_S:
            self._peers.hear_all()
        for peer in self._peers.silent(self._lease):
            self._silent(peer)
        again = self._lease / 4
        self._loop.call_later(again, self._check_leases, now + again)

    # the application

    def expect_client(self) -> None:
        """Handle the absence of a client, which must have connected by now."""
        if not self._client_came:   # it died before it could send a hello
            self.client_gone()

    def _fail_absent(self, detached: bool) -> None:
        """Declare pilots lost whose agents never connected: the application may have died before starting them."""
        if not self._shutdown_rule.orphaned:
            return
        there = {agent.uid for agent in self._peers.agents()} | {pilot for pilot, _ in self._missing}
        for pilot, state in self._store.live_pilots().items():
            in_queue = states.PILOT.value(state) >= _IN_QUEUE   # a batch system may still start it
            if pilot not in there and not (detached and in_queue):
                self._declare(pilot, f'the agent of {pilot} never connected, and the application has ended')

    def _orphan_check_at(self, deadline: float) -> None:
        if self._orphan_timer is not None and self._orphan_timer.callback is not None:
            if self._orphan_timer.deadline <= deadline:
                return
            self._orphan_timer.cancel()
        self._orphan_timer = self._loop.call_at(deadline, self._orphan_check)

    def _orphan_check(self) -> None:
        self._orphan_timer = None
        pilots = list(self._store.live_pilots())
        unfinished = self._store.tasks.unfinished(self._store.stuck_pilots())
        action, again = self._shutdown_rule.next(time.monotonic(), unfinished, len(pilots))
        if action == 'cancel':
            self._cancel(pilots)
        elif action == 'end':
            self._end()
        if again is not None:
            self._orphan_check_at(again)
