"""What agents report is passed on as it comes to a client that is up to date, and read from the file for all others."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rp_api import states
from rp_api.coordination.contract import BULK
from rp_api.coordination.hub import delivery
from rp_api.coordination.hub.database import INCREMENT_BYTES
from rp_api.coordination.hub.delivery import News, next_delivery
from rp_api.coordination.hub.peers import Peer
from rp_api.coordination.hub.store import Store
from rp_api.wire import codec

HELLO: dict[str, Any] = {
    'role': 'client', 'uid': 's', 'agent': '', 'instance': 'i', 'host': 'h', 'host_name': 'n', 'pid': 1, 'settled': 0,
    'hold': False, 'recover': False}


def a_client(since: int = 0) -> Peer:
    return Peer(b'c', HELLO | {'since': since, 'others': since}, 0)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path / 'hub.db')
    store.tasks.insert('p0', '', b'', [(f't{number}', b'') for number in range(10)])
    yield store
    store.close()


def report(store: Store, news: News, client: Peer | None, *updates: tuple[str, str, bytes | None]) -> bool:
    """Have an agent report; whether that is passed on."""
    complete, _ = store.tasks.report(list(updates), 'p0')
    if complete and news.pass_on(client, updates, store.rev):
        return True
    news.announced(store.rev)
    return False


def passed(news: News) -> list[list[Any]]:
    return [message[-2] for _, message in news.messages()]


RUNS = states.AGENT_EXECUTING
LEFT = states.TMGR_STAGING_OUTPUT_PENDING


def test_reports_of_one_turn_go_together_and_are_not_read_again(store: Store) -> None:
    news, client = News(store.rev), a_client(store.rev)
    assert report(store, news, client, ('t0', RUNS, None), ('t1', LEFT, b'1'))
    store.tasks.insert('p1', '', b'', [('more', b'')])   # what the client says itself is no news for it
    assert report(store, news, client, ('t2', RUNS, None))
    assert passed(news) == [[('t0', RUNS, None), ('t1', LEFT, b'1'), ('t2', RUNS, None)]]
    assert client.in_flight == 1
    assert next_delivery(store, client, 1) is None
    assert passed(news) == []


def test_a_client_that_is_behind_is_told_from_the_file(store: Store) -> None:
    news, client = News(store.rev), a_client()
    news.announced(store.rev)
    assert not report(store, news, client, ('t0', RUNS, None))
    assert next_delivery(store, client, 1) == ([('t0', RUNS, None)], [])
    assert report(store, news, client, ('t0', LEFT, None))


@pytest.mark.parametrize('flaw', ['nobody', 'stale', 'recovering'])
def test_a_client_that_cannot_be_told_now_is_told_later(store: Store, flaw: str) -> None:
    news, client = News(store.rev), a_client(store.rev)
    if flaw != 'nobody':
        setattr(client, flaw, True)
    assert not report(store, news, None if flaw == 'nobody' else client, ('t0', RUNS, None))
    assert passed(news) == []
    assert next_delivery(store, client, 1) == ([('t0', RUNS, None)], [])


def test_news_wait_for_a_client_that_has_too_much_on_its_way(store: Store) -> None:
    news, client = News(store.rev), a_client(store.rev)
    client.in_flight = delivery.MAX_IN_FLIGHT
    assert report(store, news, client, ('t0', RUNS, None))
    assert report(store, news, client, ('t1', RUNS, None))
    assert passed(news) == []
    client.in_flight -= 1
    assert passed(news) == [[('t0', RUNS, None), ('t1', RUNS, None)]]
    assert client.in_flight == delivery.MAX_IN_FLIGHT
    assert next_delivery(store, client, 1) is None


@pytest.mark.parametrize('flaw', ['stale', 'recovering', 'elsewhere', 'another'])
def test_news_that_wait_in_vain_are_read_from_the_file(store: Store, flaw: str) -> None:
    news, client = News(store.rev), a_client(store.rev)
    since = client.cursors
    client.in_flight = delivery.MAX_IN_FLIGHT
    assert report(store, news, client, ('t0', RUNS, None))
    client.in_flight, client.has_pending = 0, False
    if flaw == 'elsewhere':
        client.cursors = 0, 0
    elif flaw == 'another':
        assert not report(store, news, a_client(since[0]), ('t1', RUNS, None))
    else:
        setattr(client, flaw, True)
    assert passed(news) == []
    assert client.has_pending
    client.cursors = since
    batch = next_delivery(store, client, 1)
    assert batch is not None
    assert batch[0][0] == ('t0', RUNS, None)


def test_more_news_than_are_to_wait_are_read_from_the_file(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, 'MAX_WAITING_BYTES', 400)
    news, client = News(store.rev), a_client(store.rev)
    assert report(store, news, client, ('t0', RUNS, None))
    assert not report(store, news, client, ('t1', RUNS, None))
    assert not report(store, news, client, ('t2', RUNS, None))   # which follows something that is not here
    assert passed(news) == [[('t0', RUNS, None)]]
    assert next_delivery(store, client, 1) == ([('t1', RUNS, None), ('t2', RUNS, None)], [])


def test_old_news_are_not_passed_on(store: Store) -> None:
    news, client = News(store.rev), a_client(store.rev)
    assert report(store, news, client, ('t0', LEFT, None))
    assert not report(store, news, client, ('t0', RUNS, None), ('t1', RUNS, None))
    assert passed(news) == [[('t0', LEFT, None)]]
    assert next_delivery(store, client, 1) == ([('t1', RUNS, None)], [])


def test_messages_stay_of_a_decent_size(store: Store) -> None:
    news, client = News(store.rev), a_client(store.rev)
    big = b'x' * (INCREMENT_BYTES // 2 + 1)
    for number in range(2):
        assert report(store, news, client, (f't{number}', LEFT, big))
    assert report(store, news, client, *[('t2', LEFT, None)] * 1) is True
    assert [len(rows) for rows in passed(news)] == [1, 2]
    many = [(f'u{number}', b'') for number in range(BULK)]
    store.tasks.insert('p0', '', b'', many)
    assert report(store, news, client, ('t3', RUNS, None))
    assert report(store, news, client, *[(uid, RUNS, None) for uid, _ in many])
    assert [len(rows) for rows in passed(news)] == [1, BULK]


UPDATES = st.lists(st.tuples(st.sampled_from(['p0', 'p1']), st.sampled_from(['t0', 't1', 't2']),
                             st.sampled_from(states.TASK.names[6:]), st.booleans()), max_size=20)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(updates=UPDATES, bound=st.dictionaries(st.integers(0, 19), st.sampled_from(['t0', 't1', 't2']), max_size=3))
def test_a_client_knows_what_the_file_says_and_only_the_pilot_of_a_task_is_heard(
        store: Store, updates: list[tuple[str, str, str, bool]], bound: dict[int, str]) -> None:
    """Each update is taken in twice, as after a lost acknowledgement; tasks move to the other pilot in between."""
    store.tasks.bind('p1', ['t0', 't1', 't2'])
    store.query('DELETE FROM tasks')
    store.query('DELETE FROM bindings')
    store.tasks.insert('p0', '', b'', [(uid, b'') for uid in ('t0', 't1', 't2')])
    news, client = News(store.rev), a_client(store.rev)
    pilots, model = dict.fromkeys(['t0', 't1', 't2'], 'p0'), dict.fromkeys(['t0', 't1', 't2'], states.NEW)
    seen: dict[str, str] = {}
    for step, (pilot, uid, state, told) in enumerate(updates):
        if step in bound:
            task = bound[step]
            if states.TASK.value(model[task]) < states.TASK.value(LEFT) and pilots[task] == 'p0':
                pilots[task], model[task] = 'p1', states.NEW
                seen.pop(task, None)
            store.tasks.bind('p1', [task])
        for _ in range(2):
            complete, refused = store.tasks.report([(uid, state, None)], pilot)
            assert refused == ([uid] if pilot != pilots[uid] else [])
            if not (complete and news.pass_on(client, [(uid, state, None)], store.rev)):
                news.announced(store.rev)
        before = model[uid]
        forward = states.TASK.value(state) > states.TASK.value(before) or (before, state) in states.TASK.corrections
        if pilot == pilots[uid] and forward:
            model[uid] = state
        if told:
            seen |= take(store, news, client)
    seen |= take(store, news, client)
    assert {uid: state for uid, _, state, _ in store.results() if model[uid] != states.NEW} == {
        uid: state for uid, state in model.items() if state != states.NEW}
    assert all(seen[uid] == state for uid, state in model.items() if state != states.NEW)


def take(store: Store, news: News, client: Peer) -> dict[str, str]:
    """The states that the client is told now."""
    rows = [row for bulk in passed(news) for row in bulk]
    while batch := next_delivery(store, client, 1):
        rows += batch[0]
    client.in_flight = 0
    return {uid: state for uid, state, _ in rows}


def test_a_page_holds_a_bulk_and_says_how_to_go_on(store: Store) -> None:
    store.tasks.insert('p1', 'o', codec.pack({'a': 1}), [(f'u{number}', b'') for number in range(BULK)])
    after, upto, rev, notes, pilots, shared, tasks, submitted = delivery.page(store, 0)
    assert (after, rev, notes, pilots, len(tasks), len(shared)) == (0, store.rev, {}, [], BULK, 2)
    assert submitted.keys() == shared.keys()
    assert all(when is not None and 0 < when <= time.time() for when in submitted.values())
    *_, rest, _ = delivery.page(store, upto)
    assert [row[1] for row in tasks + rest] == [f't{n}' for n in range(10)] + [f'u{n}' for n in range(BULK)]
    assert delivery.page(store, upto)[1] == 0
