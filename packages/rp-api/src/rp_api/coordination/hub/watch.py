"""Detection of lost agents, and of a session without its application. Decides when; the hub acts.

The hub watches the process of a peer on its own host, and knows at once when it ends. A peer on another host is lost
when it does not answer within the lease. The loss of an agent fails its pilot.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from rp_api import states
from rp_api.coordination.hub.peers import Peer, Peers
from rp_api.coordination.hub.store import Store
from rp_api.coordination.shutdown_rule import ShutdownRule
from rp_api.loop.event_loop import Loop, Timer

ARRIVAL_TIMEOUT_S = 60.0
"""Seconds that agents have to connect after the application died; then they are no longer expected."""

LAST_WORD_TIMEOUT_S = 2.0
"""Seconds that an attached client has to report how an agent ended: its launcher knows more than the hub."""

_COUNT_INTERVAL_S = 0.5
"""Seconds between counts of the remaining work: counting costs more than an update."""

_STALL_S = 1.0
"""Delay of a timer in seconds that shows that this process was stopped, and has received nothing."""

_IN_QUEUE = states.PILOT.value(states.PMGR_ACTIVE_PENDING)


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
