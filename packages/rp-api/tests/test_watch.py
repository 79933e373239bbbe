"""When an agent or the application counts as lost, held against a clock that moves when the test says so."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rp_api import states
from rp_api.coordination.hub import peers as module
from rp_api.coordination.hub.peers import ARRIVAL_TIMEOUT_S, LAST_WORD_TIMEOUT_S, Peer, Peers, Watch
from rp_api.coordination.hub.store import Store
from rp_api.loop.event_loop import Timer
from rp_api.transport import connection
from rp_api.wire import codec

LEASE = 60.0


class Clock:
    """Takes the place of the loop and of the module `time`."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._timers: list[Timer] = []
        self._numbers = itertools.count()

    def monotonic(self) -> float:
        return self.now

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any) -> Timer:
        return self.call_at(self.now + delay, callback, *args)

    def call_at(self, deadline: float, callback: Callable[..., object], *args: Any) -> Timer:
        timer = Timer(deadline, next(self._numbers), callback, args)
        heapq.heappush(self._timers, timer)
        return timer

    def call_soon(self, callback: Callable[..., object], *args: Any) -> None:
        self.call_later(0, callback, *args)

    def run(self, seconds: float) -> None:
        """Let time pass; what becomes due happens in time."""
        end = self.now + seconds
        while self._timers and self._timers[0].deadline <= end:
            timer = heapq.heappop(self._timers)
            self.now = max(self.now, timer.deadline)
            if timer.callback is not None:
                callback, timer.callback = timer.callback, None
                callback(*timer.args)
        self.now = end

    def sleep(self, seconds: float) -> None:
        """Let time pass while this process is stopped; what became due happens late."""
        self.now += seconds
        self.run(0)


class Hub:
    """What a watch can have done, as it was done."""

    def __init__(self, path: Path, clock: Clock, orphan_timeout: float) -> None:
        self.clock = clock
        self.store = Store(path)
        self.peers = Peers(clock, lambda peer: None)   # type: ignore[arg-type]
        self.attachable = True
        self.watch = Watch(clock, self.store, self.peers, LEASE, orphan_timeout,   # type: ignore[arg-type]
                           lambda: self.attachable)
        self.lost: dict[str, str] = {}
        self.silent: list[str] = []
        self.cancelled: list[str] = []
        self.ended = False

    def start(self) -> Hub:
        self.watch.start(self.lost.__setitem__, self.cancelled.extend, self._end, self._silent)
        return self

    def _end(self) -> None:
        self.ended = True

    def _silent(self, peer: Peer) -> None:
        self.silent.append(peer.uid)
        self.peers.forget(peer)
        if peer.role == 'agent':
            self.watch.agent_gone(peer, died=False)

    def pilot(self, uid: str, state: str = states.PMGR_ACTIVE) -> None:
        self.store.insert_pilots('', [(uid, b'')])
        self.store.update_pilots([(uid, state, None)], announce=False)

    def attach(self, role: str, uid: str, agent: str = '') -> Peer:
        peer = Peer(f'{role}.{uid}.{agent}'.encode(), {
            'role': role, 'uid': uid, 'agent': agent, 'instance': 'i', 'host': 'elsewhere', 'host_name': 'n', 'pid': 1,
            'since': 0, 'others': 0, 'settled': 0, 'hold': False, 'recover': False}, 0)
        self.peers.attach(peer)
        self.watch.client_attached() if role == 'client' else self.watch.agent_attached(peer)
        return peer

    def hear(self, peer: Peer, seconds: float) -> None:
        """Let time pass in which a peer is heard of every ten seconds."""
        for _ in range(int(seconds / 10)):
            self.clock.run(10)
            peer.watch.heard = self.clock.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, 'time', clock)
    monkeypatch.setattr(connection, 'time', clock)
    return clock


@pytest.fixture
def hub(tmp_path: Path, clock: Clock) -> Iterator[Hub]:
    hub = Hub(tmp_path / 'hub.db', clock, 30.0)
    hub.pilot('p0')
    yield hub
    hub.store.close()


def test_who_is_heard_of_is_there(hub: Hub, clock: Clock) -> None:
    agent = hub.start().attach('agent', 'p0', 'agent_0')
    hub.hear(agent, 1000)
    assert not hub.silent
    clock.run(LEASE)
    clock.run(LEASE / 2)
    assert hub.silent == ['p0']
    assert hub.lost == {'p0': 'the agent of p0 was silent for longer than its lease of 60 s'}


def test_a_hub_that_was_stopped_blames_nobody(hub: Hub, clock: Clock) -> None:
    agent = hub.start().attach('agent', 'p0', 'agent_0')
    clock.sleep(10 * LEASE)
    assert not hub.silent
    hub.hear(agent, LEASE)
    assert not hub.silent


def test_an_attached_client_has_the_first_word_on_an_agent_that_died(hub: Hub, clock: Clock) -> None:
    hub.start().attach('client', 's')
    hub.watch.agent_gone(hub.attach('agent', 'p0', 'agent_0'), died=True)
    clock.run(LAST_WORD_TIMEOUT_S - 0.1)
    assert not hub.lost
    clock.run(0.1)
    assert hub.lost == {'p0': 'the agent of p0 died'}


def test_without_a_client_the_end_is_told_at_once(hub: Hub, clock: Clock) -> None:
    hub.start().watch.agent_gone(hub.attach('agent', 'p0', 'agent_0'), died=True)
    clock.run(0)
    assert hub.lost == {'p0': 'the agent of p0 died'}


def test_an_agent_that_comes_back_in_time_is_not_lost(hub: Hub, clock: Clock) -> None:
    hub.start().attach('client', 's')
    hub.watch.agent_gone(hub.attach('agent', 'p0', 'agent_0'), died=True)
    clock.run(LAST_WORD_TIMEOUT_S / 2)
    hub.attach('agent', 'p0', 'agent_0')
    clock.run(LEASE / 2)
    assert not hub.lost


def test_agents_of_a_former_hub_have_the_lease_to_come_back(hub: Hub, clock: Clock) -> None:
    hub.pilot('p1')
    hub.pilot('ended', states.DONE)
    for pilot in ('p0', 'p1', 'ended'):
        hub.store.keep_peers([('agent', pilot, 'agent_0', 'i', 1, 0)])
    hub.start().attach('client', 's')
    clock.run(LEASE - 1)
    hub.attach('agent', 'p1', 'agent_0')
    assert not hub.lost
    clock.run(2)
    assert set(hub.lost) == {'p0'}


def test_a_hub_that_was_stopped_listens_before_it_declares_anybody_lost(hub: Hub, clock: Clock) -> None:
    hub.store.keep_peers([('agent', 'p0', 'agent_0', 'i', 1, 0)])
    hub.start().attach('client', 's')
    clock.sleep(2 * LEASE)
    assert not hub.lost
    hub.attach('agent', 'p0', 'agent_0')
    clock.run(LEASE / 2)
    assert not hub.lost


@pytest.mark.parametrize('detached', [False, True])
def test_pilots_whose_agents_never_came_are_lost_with_the_application(hub: Hub, clock: Clock, detached: bool) -> None:
    """A client that leaves on purpose knows that a batch system will start them."""
    for uid, state in (('launched', states.PMGR_ACTIVE_PENDING), ('not launched', states.PMGR_LAUNCHING)):
        hub.pilot(uid, state)
    hub.start().attach('agent', 'p0', 'agent_0').watch.heard = clock.now + 1000
    client = hub.attach('client', 's')
    hub.peers.forget(client)
    hub.watch.client_gone(detached=detached)
    clock.run(ARRIVAL_TIMEOUT_S - 1)
    assert not hub.lost
    clock.run(1)
    assert set(hub.lost) == ({'not launched'} if detached else {'launched', 'not launched'})


def test_a_client_that_comes_back_ends_the_wait(hub: Hub, clock: Clock) -> None:
    hub.start()
    hub.watch.client_gone()
    clock.run(20)
    hub.attach('client', 's').watch.heard = clock.now + 1000
    clock.run(2 * ARRIVAL_TIMEOUT_S)
    assert not hub.lost
    assert not hub.cancelled
    assert not hub.ended


def test_idle_pilots_of_a_lost_application_are_cancelled_and_the_hub_ends_with_them(hub: Hub, clock: Clock) -> None:
    hub.store.tasks.insert('p0', '', codec.pack({}), [('a', codec.pack({}))])
    hub.start().attach('agent', 'p0', 'agent_0').watch.heard = clock.now + 1000
    hub.watch.client_gone()
    clock.run(50)
    assert not hub.cancelled
    hub.store.tasks.report([('a', states.DONE, None)], 'p0')
    hub.watch.turn()
    clock.run(29)
    assert not hub.cancelled
    clock.run(2)
    assert hub.cancelled == ['p0']
    hub.store.update_pilots([('p0', states.CANCELED, None)], announce=True)
    hub.watch.turn()
    clock.run(1)
    assert hub.ended


def test_a_hub_without_a_client_from_the_beginning_ends(hub: Hub, clock: Clock) -> None:
    hub.store.update_pilots([('p0', states.DONE, None)], announce=True)
    hub.start()
    clock.run(ARRIVAL_TIMEOUT_S - 1)
    assert not hub.ended
    clock.run(32)
    assert hub.ended


@pytest.mark.parametrize('came', [True, False])
def test_a_hub_that_only_its_client_can_find_ends_with_that(hub: Hub, came: bool) -> None:
    hub.attachable = False
    hub.start()
    if came:
        client = hub.attach('client', 's')
        hub.watch.expect_client()   # it is there
        assert not hub.ended
        hub.peers.forget(client)
        hub.watch.client_gone()
    else:
        hub.watch.expect_client()
    assert hub.ended


def test_a_hub_that_can_be_found_waits_for_the_next_client_when_its_own_did_not_come(hub: Hub, clock: Clock) -> None:
    hub.start().watch.expect_client()
    clock.run(29)
    assert not hub.cancelled
    clock.run(2)
    assert hub.cancelled == ['p0']
