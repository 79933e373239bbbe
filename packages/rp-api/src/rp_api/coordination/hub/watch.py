"""Who is missed: agents that are lost, and a session without its application. Decides when, the hub does the rest.

The process of a peer on the hub's host is watched, its end is known at once. A peer elsewhere is lost when it is silent
for longer than the lease. An agent that is lost takes its pilot with it.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from rp_api import states
from rp_api.coordination.hub.peers import Peer, Peers
from rp_api.coordination.hub.store import Store
from rp_api.coordination.shutdown_rule import ShutdownRule
from rp_api.loop.event_loop import Loop, Timer

ARRIVAL = 60.0
"""Seconds that agents have to come after the application has died; then nobody waits for them any more."""

LAST_WORD = 2.0
"""Seconds that an attached client has to tell how an agent has ended: its launcher knows more than the hub."""

_SOON = 0.5
"""Seconds between looks at what is left to do: counting costs more than an update."""

_LATE = 1.0
"""Seconds after which a timer is so late that this process must have been stopped, and has heard nobody."""

_IN_QUEUE = states.PILOT.value(states.PMGR_ACTIVE_PENDING)


class Watch:
    """Watches over one session.

    What it can have done: `declare(pilot, reason)` a pilot lost, `cancel(pilots)`, `end()` the hub, take note that a
    peer is `silent(peer)`. `attachable` tells whether another client could come when there is none.
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
        """Begin to call these functions when it is time.

        Agents that were there before the hub was started (again) are expected back within the lease.
        """
        self._declare, self._cancel, self._end, self._silent = declare, cancel, end, silent
        for pilot, agent in self._store.agents():
            self._miss(pilot, agent, self._lease, self._silence(pilot))
        self._loop.call_later(ARRIVAL, self.expect_client)
        self._check_leases(time.monotonic())

    # what happens

    def client_attached(self) -> None:
        """A client is there."""
        self._client_came = True
        self._shutdown_rule.client_attached()

    def client_gone(self, *, detached: bool = False) -> None:
        """The client is there no more, and has not closed the session."""
        if not self._attachable():   # it died while it opened the session, of which nobody else knows
            self._end()
            return
        self._shutdown_rule.client_lost(detached=detached)
        self._loop.call_later(ARRIVAL, self._fail_absent, detached)
        self._orphan_check_at(time.monotonic())

    def agent_attached(self, agent: Peer) -> None:
        """An agent is there (again)."""
        self._missing.pop((agent.uid, agent.agent), None)

    def agent_gone(self, agent: Peer, *, died: bool) -> None:
        """An agent is there no more, and has not said goodbye: its process has ended, or it is silent."""
        reason = f'the agent of {agent.uid} died' if died else self._silence(agent.uid)
        self._miss(agent.uid, agent.agent, LAST_WORD if died and self._peers.client is not None else 0.0, reason)

    def turn(self) -> None:
        """Something has changed."""
        if self._shutdown_rule.orphaned:
            self._orphan_check_at(time.monotonic() + _SOON)

    # agents

    def _silence(self, pilot: str) -> str:
        return f'the agent of {pilot} was silent for longer than its lease of {self._lease:g} s'

    def _miss(self, pilot: str, agent: str, delay: float, reason: str) -> None:
        self._missing[pilot, agent] = time.monotonic() + delay, reason
        self._loop.call_later(delay, self._give_up, time.monotonic() + delay)

    def _give_up(self, due: float) -> None:
        """Declare pilots lost whose agents did not come back in time."""
        now = time.monotonic()
        if now > due + _LATE:   # hear first what they have said meanwhile
            self._loop.call_later(_LATE, self._give_up, now + _LATE)
            return
        for key, (deadline, reason) in list(self._missing.items()):
            if deadline <= now:
                del self._missing[key]
                self._declare(key[0], reason)

    def _check_leases(self, due: float) -> None:
        now = time.monotonic()
        if now > due + _LATE:
            self._peers.hear_all()
        for peer in self._peers.silent(self._lease):
            self._silent(peer)
        again = self._lease / 4
        self._loop.call_later(again, self._check_leases, now + again)

    # the application

    def expect_client(self) -> None:
        """A client must have come by now."""
        if not self._client_came:   # it died before it could say hello
            self.client_gone()

    def _fail_absent(self, detached: bool) -> None:
        """Declare pilots lost whose agents never came: the application may have gone before it had started them."""
        if not self._shutdown_rule.orphaned:
            return
        there = {agent.uid for agent in self._peers.agents()} | {pilot for pilot, _ in self._missing}
        for pilot, state in self._store.live_pilots().items():
            in_queue = states.PILOT.value(state) >= _IN_QUEUE   # a batch system may still start it
            if pilot not in there and not (detached and in_queue):
                self._declare(pilot, f'the agent of {pilot} never came, and the application is gone')

    def _orphan_check_at(self, deadline: float) -> None:
        if self._orphan_timer is not None and self._orphan_timer.callback is not None:
            if self._orphan_timer.deadline <= deadline:
                return
            self._orphan_timer.cancel()
        self._orphan_timer = self._loop.call_at(deadline, self._orphan_check)

    def _orphan_check(self) -> None:
        self._orphan_timer = None
        pilots = list(self._store.live_pilots())
        action, again = self._shutdown_rule.next(time.monotonic(), self._store.tasks.unfinished(), len(pilots))
        if action == 'cancel':
            self._cancel(pilots)
        elif action == 'end':
            self._end()
        if again is not None:
            self._orphan_check_at(again)
