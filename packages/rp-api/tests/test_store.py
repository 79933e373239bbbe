"""The hub's file: idempotent inserts, states that only move forward, and feeds that miss nothing."""

from __future__ import annotations

import itertools
import resource
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from operator import attrgetter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rp_api import states
from rp_api.batch import Chunk
from rp_api.constants import RAPTOR_MASTER
from rp_api.coordination.contract import UNBOUND
from rp_api.coordination.hub import database as module
from rp_api.coordination.hub.store import Store
from rp_api.errors import StateError
from rp_api.wire import codec


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / 'hub.db'


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    store = Store(path)
    yield store
    store.close()


@pytest.fixture
def filled(store: Store) -> Store:
    """Two pilots, three tasks: a and c for p0, b for p1."""
    store.insert_pilots('', [('p0', b'pilot 0'), ('p1', b'pilot 1')])
    store.tasks.insert('p0', '', b'shared', [('a', b'A')])
    store.tasks.insert('p1', '', b'other', [('b', b'B')])
    store.tasks.insert('p0', '', b'third', [('c', b'C')])
    store.commit()
    return store


def state_of(store: Store, uid: str) -> tuple[str, bytes | None]:
    return {row[0]: (row[2], row[3]) for row in store.results()}[uid]


def pilot_states(path: Path) -> dict[str, str]:
    database = sqlite3.connect(path)
    try:
        return dict(database.execute('SELECT uid, state FROM pilots'))
    finally:
        database.close()


def move(store: Store, uid: str, state: str, info: bytes | None = None, *, announce: bool = True) -> None:
    if announce:
        pilot = {row[0]: row[1] for row in store.results()}.get(uid, '')
        store.tasks.report([(uid, state, info)], pilot)
    else:
        store.tasks.update([(uid, state, info)])


# what goes in


@pytest.mark.parametrize('together', [True, False])
@pytest.mark.parametrize('kind', ['{}', 'a "quoted" {}', 'täsk {}', 'zero\0{}'])
def test_tasks_that_differ_only_in_their_uids_are_each_written(store: Store, kind: str, together: bool) -> None:
    store.tasks._joins = together
    uids = [kind.format(number) for number in range(20)]
    store.insert_pilots('', [('p0', b''), ('p1', b'')])
    store.tasks.insert('p0', '', b'', [(uid, b'') for uid in uids[:10]])
    store.tasks.insert('p0', '', b'', [(uid, b'') for uid in uids])   # half of them are there
    assert [row[1] for row in store.tasks.new('p0', 0, 30).rows] == uids
    assert store.tasks.report([(uid, states.DONE, b'info') for uid in uids[5:]], 'p0') == (True, [])
    assert not any(row[2] != states.DONE or row[3] != b'info' for row in store.results() if row[0] in uids[5:])
    assert [uid for _, uid, *_ in store.tasks.since(0, 30).rows] == uids[5:]
    complete, refused = store.tasks.report([(uid, states.FAILED, b'late') for uid in uids], 'p1')
    assert not complete
    assert refused == uids
    complete, refused = store.tasks.report([(uid, states.FAILED, b'late') for uid in uids], 'p0')
    assert not complete   # some were DONE
    assert not refused
    assert {uid: state_of(store, uid) for uid in uids} == {
        uid: (states.DONE, b'info') if uid in uids[5:] else (states.FAILED, b'late') for uid in uids}


@pytest.mark.parametrize('together', [True, False])
@pytest.mark.parametrize('data', [
    [b'%04d' % number for number in range(30)], [b'a' * number for number in range(1, 31)],
    [b'\0' * 3, b'\xff' * 3, b"'\\\"" * 1] * 10], ids=['equally long', 'of any length', 'no text'])
def test_tasks_have_the_data_of_their_own(store: Store, data: list[bytes], together: bool) -> None:
    store.tasks._joins = together
    store.insert_pilots('', [('p0', b'')])
    uids = [f'task.{number}' for number in range(len(data))]
    store.tasks.insert('p0', '', b'shared', list(zip(uids, data, strict=True)))
    store.tasks.forget_recent()
    assert [row[1:] for row in store.tasks.new('p0', 0, 100).rows] == [
        (uid, 1, each) for uid, each in zip(uids, data, strict=True)]
    done = [(uid, states.DONE, each) for uid, each in zip(uids, reversed(data), strict=True)]
    assert store.tasks.report([(uid, states.AGENT_EXECUTING, None) for uid in uids], 'p0') == (True, [])
    assert store.tasks.report(done, 'p0') == (True, [])
    assert [row[1:] for row in store.tasks.since(0, 100).rows] == done
    assert len(list(store.results())) == len(data)


def test_a_task_can_be_in_a_report_twice(filled: Store) -> None:
    filled.tasks.insert('p0', '', b'', [(f't.{number}', b'') for number in range(10)])
    filled.tasks.report([(f't.{number % 10}', states.DONE, b'info') for number in range(20)], 'p0')
    assert state_of(filled, 't.9') == (states.DONE, b'info')
    assert len(filled.tasks.since(0, 30).rows) == 10


def test_tasks_come_out_in_the_order_in_which_they_came(filled: Store) -> None:
    rows, upto = filled.tasks.new('p0', 0, 10)
    assert [(uid, filled.tasks.shared(shared)[0], description) for _, uid, shared, description in rows] == [
        ('a', b'shared', b'A'), ('c', b'third', b'C')]
    assert upto == filled.rev
    assert [row[1] for row in filled.tasks.new('p1', 0, 10).rows] == ['b']
    assert filled.tasks.new('nobody', 0, 10) == ([], filled.rev)


def test_what_is_there_already_stays_as_it_is(filled: Store) -> None:
    move(filled, 'a', states.AGENT_EXECUTING)
    filled.tasks.insert('p1', '', b'new', [('a', b'changed'), ('d', b'D')])
    filled.insert_pilots('', [('p0', b'changed')])
    filled.commit()
    assert state_of(filled, 'a') == (states.AGENT_EXECUTING, None)
    assert [row[1] for row in filled.tasks.new('p0', 0, 10).rows] == ['a', 'c']
    assert [row[1] for row in filled.tasks.new('p1', 0, 10).rows] == ['b', 'd']
    assert len(filled.live_pilots()) == 2


def test_new_tasks_are_bound_but_not_started(filled: Store) -> None:
    assert state_of(filled, 'a') == (states.AGENT_STAGING_INPUT_PENDING, None)


def test_commands_come_out_in_order_for_their_pilot(store: Store) -> None:
    for pilot, command in (('p0', b'one'), ('p1', b'two'), ('p0', b'three')):
        store.insert_command(pilot, command)
    assert [row[1] for row in store.new_commands('p0', 0, 10).rows] == [b'one', b'three']
    assert [row[1] for row in store.new_commands('p1', 0, 10).rows] == [b'two']


def test_meta_data_can_be_replaced(store: Store, path: Path) -> None:
    store.set_meta([('session', 's0')])
    store.set_meta([('session', 's1'), ('protocol', '1')])
    store.commit()
    database = sqlite3.connect(path)
    assert dict(database.execute("SELECT key, value FROM meta WHERE key != 'rev'")) == {
        'session': 's1', 'protocol': '1'}
    database.close()


# states


def test_a_state_only_moves_forward(filled: Store) -> None:
    move(filled, 'a', states.AGENT_EXECUTING, b'info')
    move(filled, 'a', states.AGENT_SCHEDULING, b'old news')
    assert state_of(filled, 'a') == (states.AGENT_EXECUTING, b'info')
    move(filled, 'a', states.AGENT_EXECUTING)
    assert state_of(filled, 'a') == (states.AGENT_EXECUTING, b'info')
    move(filled, 'a', states.AGENT_EXECUTING, b'more')
    assert state_of(filled, 'a') == (states.AGENT_EXECUTING, b'more')


def test_what_is_known_stays_known_unless_there_is_news(filled: Store) -> None:
    move(filled, 'a', states.AGENT_EXECUTING, b'info')
    move(filled, 'a', states.DONE)
    assert state_of(filled, 'a') == (states.DONE, b'info')


@pytest.mark.parametrize(('first', 'second'), list(itertools.permutations(states.FINAL, 2)))
def test_final_states_change_as_the_model_says(filled: Store, path: Path, first: str, second: str) -> None:
    for model in (states.TASK, states.PILOT):
        for state in (first, second):
            if model is states.TASK:
                move(filled, 'a', state)
            else:
                filled.update_pilots([('p0', state, None)], announce=True)
        filled.commit()
        found = state_of(filled, 'a')[0] if model is states.TASK else pilot_states(path)['p0']
        try:
            expected, _ = model.progress(first, second)
        except StateError:
            expected = first
        assert found == expected


def test_an_unknown_state_is_refused_and_changes_nothing(filled: Store) -> None:
    with pytest.raises(StateError, match='NOWHERE'):
        filled.tasks.report([('a', states.DONE, None), ('c', 'NOWHERE', None)], 'p0')
    assert state_of(filled, 'a')[0] == states.AGENT_STAGING_INPUT_PENDING


def test_an_update_of_an_unknown_task_changes_nothing(filled: Store) -> None:
    move(filled, 'nobody', states.DONE)
    assert [row[0] for row in filled.results()] == ['a', 'b', 'c']
    assert filled.tasks.since(0, 10).rows == []


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(news=st.lists(st.sampled_from(states.TASK.names), max_size=8))
def test_states_follow_the_model_whatever_is_reported(filled: Store, news: list[str]) -> None:
    uid = f'h{filled.rev}'
    filled.tasks.insert('p0', '', b'', [(uid, b'')])
    expected = states.AGENT_STAGING_INPUT_PENDING
    for state in news:
        move(filled, uid, state)
        with suppress(StateError):   # a final state stays
            expected, _ = states.TASK.progress(expected, state)
        assert state_of(filled, uid)[0] == expected


# feeds


def test_only_announced_changes_are_fed(filled: Store) -> None:
    move(filled, 'a', states.DONE, announce=False)
    move(filled, 'b', states.DONE, b'info')
    rows, upto = filled.tasks.since(0, 10)
    assert [row[1:] for row in rows] == [('b', states.DONE, b'info')]
    assert filled.tasks.since(upto, 10).rows == []


def test_a_change_is_fed_once_in_the_order_of_the_last_changes(filled: Store) -> None:
    for uid, state in (('a', states.AGENT_EXECUTING), ('b', states.AGENT_EXECUTING), ('a', states.DONE)):
        move(filled, uid, state)
    rows, upto = filled.tasks.since(0, 10)
    assert [row[1:3] for row in rows] == [('b', states.AGENT_EXECUTING), ('a', states.DONE)]
    move(filled, 'b', states.FAILED)
    assert [row[1:3] for row in filled.tasks.since(upto, 10).rows] == [('b', states.FAILED)]


def test_changes_of_pilots_are_fed(filled: Store) -> None:
    filled.update_pilots([('p1', states.PMGR_ACTIVE, b'nodes')], announce=True)
    rows, upto = filled.pilots_since(0, 10)
    assert [row[1:] for row in rows] == [('p1', states.PMGR_ACTIVE, b'nodes')]
    assert filled.pilots_since(upto, 10).rows == []


def test_tasks_that_have_left_the_agent_are_not_fed_to_one(filled: Store) -> None:
    move(filled, 'a', states.TMGR_STAGING_OUTPUT_PENDING)
    assert [row[1] for row in filled.tasks.new('p0', 0, 10).rows] == ['c']
    move(filled, 'c', states.CANCELED, announce=False)
    assert filled.tasks.new('p0', 0, 10).rows == []


@pytest.mark.parametrize('feed', ['tasks.new', 'new_commands', 'tasks.since', 'pilots_since'])
def test_a_batch_has_a_limit_and_says_how_far_it_goes(store: Store, feed: str) -> None:
    for number in range(10):
        uid = f'u{number}'
        store.insert_pilots('', [(uid, b'')])
        store.tasks.insert('p', '', b'', [(uid, b'')])
        store.insert_command('p', uid.encode())
    for number in range(10):
        uid = f'u{number}'
        store.update_pilots([(uid, states.PMGR_ACTIVE, None)], announce=True)
        move(store, uid, states.AGENT_EXECUTING)
    arguments = ('p',) if 'new' in feed else ()
    seen, since = [], 0
    while (batch := attrgetter(feed)(store)(*arguments, since, 4)).rows:
        assert len(batch.rows) <= 4
        seen += batch.rows
        since = batch.upto
    assert len(seen) == len(set(seen)) == 10
    assert [row[0] for row in seen] == sorted(row[0] for row in seen)
    assert since == store.rev


def test_a_batch_takes_no_more_rows_when_it_is_large(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, 'INCREMENT_BYTES', 100)
    store.tasks.insert('p', '', b'', [(f't{number}', b'x' * 60) for number in range(4)] + [('big', b'x' * 1000)])
    rows, upto = store.tasks.new('p', 0, 10)
    assert [row[1] for row in rows] == ['t0', 't1']
    assert upto == rows[-1][0]
    rows, upto = store.tasks.new('p', upto, 10)
    assert [row[1] for row in rows] == ['t2', 't3']
    assert [row[1] for row in store.tasks.new('p', upto, 10).rows] == ['big']


def test_only_the_chunk_with_a_task_is_opened_for_it(store: Store) -> None:
    chunks = [Chunk(sweep, first, 4, {}, [[1, 2, 3, 4]]) for sweep in ('s', 't') for first in (0, 4, 100)]
    for chunk in chunks:
        store.tasks.insert_chunk('p0', '', b'shared', chunk.uid, chunk.size, chunk.packed())
    for absent in ('s.000050', 's.000104', 'u.000000', 's.'):
        assert store.tasks.end_of(absent) is None
    assert list(store.results()) == []
    for number, chunk in enumerate(chunks):
        assert store.tasks.end_of(chunk.uids[number % 4]) is not None
        assert [row[0] for row in store.results()] == [uid for each in chunks[:number + 1] for uid in each.uids]


def test_a_client_hears_that_it_has_a_chunk_back_whose_tasks_are_needed_before(store: Store) -> None:
    chunk = Chunk('sweep.0', 0, 4, {}, [[1, 2, 3, 4]])
    store.tasks.insert_chunk('p0', '', b'shared', chunk.uid, chunk.size, chunk.packed())
    store.chunks.withdraw([chunk.uid])
    assert store.tasks.end_of(chunk.uids[2]) == (states.TMGR_SCHEDULING_PENDING, UNBOUND, None)
    (answer,) = store.tasks.since(0, 10).rows
    assert answer[1:] == (chunk.uid, states.AGENT_SCHEDULING, codec.pack({'returned': 'p0'}))
    known, _ = store.tasks.known(0, 10)
    assert [row[6] for row in known] == [states.AGENT_STAGING_INPUT, *4 * [states.TMGR_SCHEDULING_PENDING]]


# counts


def test_tasks_that_cannot_go_on_are_not_waited_for(store: Store) -> None:
    plain = codec.pack({})
    store.insert_pilots('', [('p0', b'pilot 0'), ('p1', b'pilot 1')])
    for pilot, uid in (('p0', 'a'), ('p1', 'b')):
        store.tasks.insert(pilot, '', plain, [(uid, plain)])

    def told(pilot: str, info: bytes) -> bool:
        store.update_pilots([(pilot, states.PMGR_ACTIVE, info)], announce=True)
        return store.tasks.unfinished(store.stuck_pilots())

    assert told('p0', codec.pack({'stuck': 'a waits'}))
    assert not told('p1', codec.pack({'stuck': 'b waits'}))
    assert store.stuck_pilots() == {'p0': 'a waits', 'p1': 'b waits'}
    assert told('p0', codec.pack({'stuck': ''}))
    assert not told('p0', codec.pack({'stuck': 'a waits'}))
    assert told('p1', b'broken')


def test_unfinished_are_the_tasks_that_live_pilots_still_have(store: Store) -> None:
    plain = codec.pack({})
    store.insert_pilots('', [('p0', b'pilot 0'), ('p1', b'pilot 1')])
    for pilot, uid in (('p0', 'a'), ('p1', 'b'), ('p0', 'c')):
        store.tasks.insert(pilot, '', plain, [(uid, plain)])
    store.tasks.insert('p1', '', codec.pack({'mode': RAPTOR_MASTER}), [('master', plain)])   # is there for others
    assert store.tasks.unfinished()
    move(store, 'a', states.AGENT_STAGING_OUTPUT)
    assert store.tasks.unfinished()
    move(store, 'a', states.TMGR_STAGING_OUTPUT_PENDING)
    assert store.tasks.unfinished()
    move(store, 'c', states.FAILED)
    assert store.tasks.unfinished()
    store.update_pilots([('p1', states.FAILED, None)], announce=True)
    assert not store.tasks.unfinished()
    store.tasks.insert('never heard of', '', plain, [('lost', plain)])
    assert not store.tasks.unfinished()


def test_live_pilots_are_those_that_are_not_final(filled: Store) -> None:
    filled.update_pilots([('p0', states.PMGR_ACTIVE, None)], announce=True)
    assert sorted(filled.live_pilots()) == ['p0', 'p1']
    filled.update_pilots([('p0', states.DONE, None)], announce=True)
    assert filled.live_pilots() == {'p1': states.NEW}


# what survives


def test_a_reopened_file_has_everything_and_goes_on_counting(filled: Store, path: Path) -> None:
    move(filled, 'a', states.AGENT_EXECUTING)
    filled.close()
    again = Store(path)
    try:
        assert [row[1] for row in again.tasks.new('p0', 0, 10).rows] == ['a', 'c']
        assert again.rev == filled.rev
        again.tasks.insert('p0', '', b'', [('d', b'')])
        assert again.tasks.new('p0', filled.rev, 10).rows[0][1] == 'd'
    finally:
        again.close()


def test_revisions_that_had_no_effect_are_not_used_again(filled: Store, path: Path) -> None:
    """A reader has seen them; what would get their numbers would never reach it."""
    filled.tasks.insert('p0', '', b'', [('a', b''), ('c', b'')])
    move(filled, 'a', states.NEW)
    filled.commit()
    seen = filled.tasks.new('p0', 0, 10).upto
    filled.close()
    again = Store(path)
    try:
        again.tasks.insert('p0', '', b'', [('d', b'')])
        assert [row[1] for row in again.tasks.new('p0', seen, 10).rows] == ['d']
    finally:
        again.close()


KILLED = '''
import os, signal, sys
from rp_api.coordination.hub.store import Store

store = Store(sys.argv[1])
store.tasks.insert('p0', '', b'', [('committed', b'')])
store.commit()
store.tasks.insert('p0', '', b'', [('not committed', b'')])
store.tasks.update([('committed', 'DONE', None)])
os.kill(os.getpid(), signal.SIGKILL)
'''


def test_after_a_kill_the_file_is_as_it_was_at_the_last_commit(path: Path) -> None:
    assert subprocess.run([sys.executable, '-c', KILLED, str(path)]).returncode == -9
    store = Store(path)
    try:
        assert [row[0] for row in store.results()] == ['committed']
        assert state_of(store, 'committed')[0] == states.AGENT_STAGING_INPUT_PENDING
    finally:
        store.close()


def test_others_can_read_what_was_committed_while_the_hub_works(filled: Store, path: Path) -> None:
    reader = sqlite3.connect(f'file:{path}?mode=ro', uri=True)
    try:
        filled.tasks.insert('p0', '', b'', [('d', b'')])
        assert [uid for uid, in reader.execute('SELECT uid FROM tasks ORDER BY id')] == ['a', 'b', 'c']
        filled.commit()
        assert [uid for uid, in reader.execute('SELECT uid FROM tasks ORDER BY id')] == ['a', 'b', 'c', 'd']
    finally:
        reader.close()


def test_commit_and_close_can_be_repeated(filled: Store, path: Path) -> None:
    filled.commit()
    filled.commit()
    filled.insert_command('p0', b'said last')
    filled.close()
    filled.close()
    again = Store(path)
    try:
        assert [row[1] for row in again.new_commands('p0', 0, 10).rows] == [b'said last']
    finally:
        again.close()


def test_of_forgotten_tasks_only_uid_and_state_are_kept(filled: Store) -> None:
    filled.tasks.insert('p0', 'tmgr.0000', b'shared', [('d', codec.pack({'arguments': ['secret']}))])
    for uid in ('a', 'd'):
        move(filled, uid, states.DONE, codec.pack({'stdout': 'secret'}))
    move(filled, 'c', states.TMGR_STAGING_OUTPUT_PENDING, b'info')
    filled.tasks.forget(['a', 'c', 'd', 'unknown'])
    known, _ = filled.known_tasks(0, 10)
    assert {row[1]: (row[2], row[6], row[7]) for row in known} == {
        'a': ('', states.DONE, None), 'b': ('', states.AGENT_STAGING_INPUT_PENDING, None),
        'c': ('', states.TMGR_STAGING_OUTPUT_PENDING, b'info'), 'd': ('', states.DONE, None)}
    assert {row[1]: row[5] for row in known} == {'a': codec.NOTHING, 'b': b'B', 'c': b'C', 'd': codec.NOTHING}
    filled.tasks.insert('p0', 'tmgr.0000', b'', [('d', b'again')])   # its uid stays taken
    move(filled, 'd', states.FAILED)
    assert state_of(filled, 'd') == (states.DONE, None)


GROWING = '''
import sys
from rp_api.coordination.hub.store import Store

store = Store(sys.argv[1])
for first in range(0, 60_000, 500):
    uids = [f'task.{number:06d}' for number in range(first, first + 500)]
    store.tasks.insert('p0', 'tmgr.0000', b'', [(uid, b'description') for uid in uids])
    store.commit()
    store.tasks.report([(uid, 'DONE', bytes(80)) for uid in uids], 'p0')
    store.commit()
    if first in (29_500, 59_500):
        print(open('/proc/self/statm').read().split()[1])   # pages
'''


def test_tasks_that_have_ended_take_no_memory(path: Path) -> None:
    """What is kept of the file in memory has a limit; the file has 14 MB in the end."""
    done = subprocess.run([sys.executable, '-c', GROWING, str(path)], check=True, stdout=subprocess.PIPE, text=True)
    before, after = map(int, done.stdout.split())
    assert (after - before) * resource.getpagesize() < 4 << 20
