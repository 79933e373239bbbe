"""Each task goes to exactly one agent of its pilot, in order, whatever is started again and in whichever order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from rp_api import states
from rp_api.coordination.hub import store as hub_store
from rp_api.coordination.hub import task_table
from rp_api.coordination.hub.delivery import next_delivery
from rp_api.coordination.hub.peers import Peer
from rp_api.coordination.hub.store import Store
from rp_api.wire import codec

PILOTS = ['p0', 'p1']
AGENTS = [(pilot, agent) for pilot in PILOTS for agent in ('agent_0', 'agent_1', 'agent_2')]

HELLO: dict[str, Any] = {
    'role': 'agent', 'instance': 'i', 'host': 'h', 'host_name': 'n', 'pid': 1, 'settled': 0, 'hold': False,
    'recover': False}


def a_peer(pilot: str, agent: str, since: int = 0, others: int = 0) -> Peer:
    return Peer(agent.encode(), HELLO | {'uid': pilot, 'agent': agent, 'since': since, 'others': others}, 0)


def fed(store: Store, peer: Peer, share: int = 1) -> list[str]:
    """What an agent is told next: uids of tasks, then commands."""
    tasks, commands = next_delivery(store, peer, share) or ([], [])
    return [uid for _, bulk in tasks for uid, _ in bulk] + [codec.unpack(command) for command in commands]


def all_fed(store: Store, peer: Peer, share: int = 1) -> list[str]:
    got: list[str] = []
    while new := fed(store, peer, share):
        got += new
    return got


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path / 'hub.db')
    yield store
    store.close()


def insert(store: Store, pilot: str, *uids: str) -> None:
    store.tasks.insert(pilot, '', b'\x80', [(uid, b'\x80') for uid in uids])


def say(store: Store, pilot: str, command: str) -> None:
    store.insert_command(pilot, codec.pack(command))


def claims(store: Store) -> list[tuple[str, int, int]]:
    return store.query('SELECT agent, first, last FROM claims ORDER BY last').fetchall()


def test_agents_that_ask_in_turn_share_the_tasks(store: Store) -> None:
    insert(store, 'p0', *map(str, range(3000)))
    agents = [a_peer('p0', f'agent_{number}') for number in range(3)]
    got = [len(fed(store, agent, 3)) for agent in agents]
    assert got == [1024 // 3] * 3


def test_one_agent_needs_one_claim(store: Store) -> None:
    agent = a_peer('p0', 'agent_0')
    for number in range(5):
        insert(store, 'p0', f'a{number}', f'b{number}')
        insert(store, 'p1', f'c{number}')
        assert fed(store, agent) == [f'a{number}', f'b{number}']
    assert len(claims(store)) == 1


def test_an_agent_that_comes_again_gets_its_own_tasks_and_nobody_else_does(store: Store) -> None:
    first, second = a_peer('p0', 'agent_0'), a_peer('p0', 'agent_1')
    for number, agent in enumerate([first, second, first]):
        insert(store, 'p0', f'a{number}', f'b{number}')
        fed(store, agent)
    assert all_fed(store, a_peer('p0', 'agent_2')) == []
    assert all_fed(store, a_peer('p0', 'agent_0')) == ['a0', 'b0', 'a2', 'b2']
    assert all_fed(store, a_peer('p0', 'agent_0', since=first.cursors[0])) == []
    assert all_fed(store, a_peer('p0', 'agent_1', since=1)) == ['a1', 'b1']


def test_commands_keep_their_place_among_the_tasks_of_each_agent(store: Store) -> None:
    insert(store, 'p0', 'a')
    say(store, 'p0', 'first')
    insert(store, 'p0', 'b')
    say(store, 'p0', 'second')
    insert(store, 'p0', 'c')
    one, other = a_peer('p0', 'agent_0'), a_peer('p0', 'agent_1')
    assert all_fed(store, one) == ['a', 'first', 'b', 'second', 'c']
    assert all_fed(store, other) == ['first', 'second']
    say(store, 'p0', 'third')
    assert all_fed(store, one) == all_fed(store, other) == ['third']
    assert all_fed(store, a_peer('p0', 'agent_0')) == ['a', 'first', 'b', 'second', 'c', 'third']


def test_who_holds_gets_commands_only(store: Store) -> None:
    agent = a_peer('p0', 'agent_0')
    agent.hold = True
    insert(store, 'p0', 'a')
    say(store, 'p0', 'first')
    insert(store, 'p0', 'b')
    assert all_fed(store, agent) == ['first']
    say(store, 'p0', 'second')
    assert all_fed(store, agent) == ['second']
    agent.hold = False
    assert all_fed(store, agent) == ['a', 'b']


def test_a_task_that_was_bound_elsewhere_is_not_given_to_its_former_pilot_again(store: Store) -> None:
    insert(store, 'p0', 'a', 'b', 'c')
    assert all_fed(store, a_peer('p0', 'agent_0')) == ['a', 'b', 'c']
    store.tasks.bind('p1', ['c', 'a'])
    assert all_fed(store, a_peer('p0', 'agent_0')) == ['b']
    assert all_fed(store, a_peer('p1', 'agent_0')) == ['c', 'a']
    store.tasks.bind('p0', ['a'])
    assert all_fed(store, a_peer('p0', 'agent_0')) == ['b', 'a']


def test_tasks_that_are_still_in_memory_are_those_of_the_file(store: Store) -> None:
    """Whatever happens between; each way to change them has its turn."""
    def bulk(name: str) -> list[str]:
        uids = [f'{name}{number}' for number in range(4)]
        insert(store, 'p0', *uids)
        assert store.tasks.unclaimed('p0', 0, 100) == store.tasks.new('p0', 0, 100)
        assert store.tasks.unclaimed('p0', 0, 2) == store.tasks.new('p0', 0, 2)
        return uids

    changes: list[Callable[[list[str]], object]] = [
        lambda uids: store.tasks.update([(uids[1], states.CANCELED, None)]),
        lambda uids: store.tasks.report([(uids[2], states.DONE, None)], 'p0'),
        lambda uids: store.tasks.bind('p1', uids[:1]),
        lambda uids: insert(store, 'p0', uids[0], 'one more', uids[3]),
        lambda uids: insert(store, 'p0'),
        lambda uids: insert(store, 'p1', 'of another pilot')]
    for number, change in enumerate(changes):
        change(bulk(str(number)))
        assert store.tasks.unclaimed('p0', 0, 100) == store.tasks.new('p0', 0, 100)
    store.commit()
    insert(store, 'p0', 'undone')
    store.rollback()
    assert store.tasks.unclaimed('p0', 0, 100) == store.tasks.new('p0', 0, 100)


def test_of_agents_that_do_not_keep_up_no_tasks_stay_in_memory(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_table, 'MAX_ROWS', 2)
    agent = a_peer('p0', 'agent_0')
    insert(store, 'p0', 'a', 'b')
    assert fed(store, agent) == ['a', 'b']
    for uids in ('cd', 'ef', 'g'):
        insert(store, 'p0', *uids)
    assert all_fed(store, agent) == list('cdefg')
    insert(store, 'p0', 'h')
    assert fed(store, agent) == ['h']


def test_claims_of_tasks_that_have_left_are_dropped(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store.claims, '_prune_at', 4)
    monkeypatch.setattr(hub_store, '_PRUNE_AFTER_CLAIMS', 4)
    agents = [a_peer('p0', 'agent_0'), a_peer('p0', 'agent_1')]
    insert(store, 'p0', 'stays')
    assert fed(store, agents[1]) == ['stays']
    for number in range(100):
        insert(store, 'p0', str(number))
        assert fed(store, agents[number % 2]) == [str(number)]
        store.tasks.report([(str(number), states.TMGR_STAGING_OUTPUT_PENDING, None)], 'p0')
        assert len(claims(store)) < 10
    assert all_fed(store, a_peer('p0', 'agent_2')) == []
    assert all_fed(store, a_peer('p0', 'agent_1')) == ['stays']


def test_commands_that_all_agents_have_got_are_dropped_when_no_task_before_them_is_free(store: Store) -> None:
    def kept() -> int:
        store.drop_commands('p0')
        count: int = store.query('SELECT count(*) FROM commands').fetchone()[0]
        return count

    def got(agent: str, command: int) -> None:
        store.keep_peers([('agent', 'p0', agent, 'i', 1, command)])

    insert(store, 'p0', 'a')
    say(store, 'p0', 'one')
    say(store, 'p1', 'of another pilot')
    got('agent_0', store.rev)
    assert kept() == 2, 'a later agent may get the task'
    insert(store, 'p0', 'b')
    store.claims.claim('p0', 'agent_0', store.rev)
    got('agent_1', 0)
    assert kept() == 2
    got('agent_1', store.rev)
    assert kept() == 1


class Sharing(RuleBasedStateMachine):
    """Two pilots with three agents each; hub and agents are started again, connections break, tasks are rebound."""

    @initialize()
    def begin(self) -> None:
        self._directory = TemporaryDirectory()
        self._path = Path(self._directory.name) / 'hub.db'
        self._store = Store(self._path)
        self._store.claims._prune_at = 3
        self._count = 0
        self._pilot: dict[str, str] = {}
        self._finished: set[str] = set()
        self._got: dict[tuple[str, str], Counter[str]] = {key: Counter() for key in AGENTS}
        self._peers = {key: a_peer(*key) for key in AGENTS}

    @rule(pilot=st.sampled_from(PILOTS), count=st.integers(1, 5))
    def submit(self, pilot: str, count: int) -> None:
        uids = [f't{self._count + number}' for number in range(count)]
        self._count += count
        self._pilot |= dict.fromkeys(uids, pilot)
        insert(self._store, pilot, *uids)
        self._store.commit()

    @rule(key=st.sampled_from(AGENTS), share=st.sampled_from([1, 512, 1024]))
    def feed(self, key: tuple[str, str], share: int) -> None:
        new = fed(self._store, self._peers[key], share)
        assert all(self._pilot[uid] == key[0] and uid not in self._finished for uid in new)
        self._got[key].update(new)
        self._store.commit()

    @rule(key=st.sampled_from(AGENTS))
    def connect_again(self, key: tuple[str, str]) -> None:
        self._peers[key] = a_peer(*key, since=self._peers[key].cursors[0])

    @rule(key=st.sampled_from(AGENTS))
    def start_agent_again(self, key: tuple[str, str]) -> None:
        """What it had is gone with it, and comes again."""
        self._got[key].clear()
        self._peers[key] = a_peer(*key)

    @rule()
    def start_hub_again(self) -> None:
        self._store.close()
        self._store = Store(self._path)
        self._store.claims._prune_at = 3
        self._peers = {key: a_peer(*key, since=peer.cursors[0]) for key, peer in self._peers.items()}

    @precondition(lambda self: self._pilot)
    @rule(data=st.data(), pilot=st.sampled_from(PILOTS))
    def bind(self, data: st.DataObject, pilot: str) -> None:
        uids = data.draw(st.lists(st.sampled_from(sorted(self._pilot)), unique=True, max_size=4))
        self._store.tasks.bind(pilot, uids)
        self._store.commit()
        for uid in uids:
            if self._pilot[uid] != pilot and uid not in self._finished:
                self._pilot[uid] = pilot
                for got in self._got.values():
                    del got[uid]

    @precondition(lambda self: self._pilot)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        uid = data.draw(st.sampled_from(sorted(self._pilot)))
        self._store.tasks.report([(uid, states.TMGR_STAGING_OUTPUT_PENDING, None)], self._pilot[uid])
        self._store.commit()
        self._finished.add(uid)

    @invariant()
    def nobody_has_what_another_has(self) -> None:
        if hasattr(self, '_got'):
            total = sum(self._got.values(), Counter())
            assert not [uid for uid, count in total.items() if count > 1 and uid not in self._finished], total

    def teardown(self) -> None:
        if not hasattr(self, '_got'):
            return
        for key in AGENTS:
            self._got[key].update(all_fed(self._store, self._peers[key]))
        total = sum(self._got.values(), Counter())
        assert {uid: total[uid] for uid in self._pilot if uid not in self._finished} == dict.fromkeys(
            (uid for uid in self._pilot if uid not in self._finished), 1)
        self._store.close()
        self._directory.cleanup()


TestSharing = Sharing.TestCase
TestSharing.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
