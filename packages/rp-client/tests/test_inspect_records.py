"""The records of a session, read from the database of its hub: one task, pages, chunks of sweeps, tasks of one kind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rp_api import states
from rp_api.batch import ROWS, Chunk
from rp_api.coordination import sessions
from rp_api.coordination.hub.store import Store
from rp_api.coordination.records import SessionRecords
from rp_api.wire import codec
from rp_client.inspect.select import Selection

COUNT = 3000


@pytest.fixture(scope='module')
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A session with many tasks on one pilot, a sweep that no agent has taken, and a call to the pilot."""
    directory = tmp_path_factory.mktemp('sessions') / 's'
    directory.mkdir(mode=0o700)
    store = Store(directory / 'hub.db')
    store.set_meta([('session', 's'), ('created', 1.0), ('closed', '2.5')])
    store.insert_pilots('pmgr.0000', [('p0', codec.pack({'description': {'cores': 2}}))])
    store.note('tmgr.0000', codec.pack({'pilots': ['p0']}))
    shared = codec.pack({'executable': 'a', 'cores_per_rank': 2})
    for first in range(0, COUNT, 1000):
        store.tasks.insert('p0', 'tmgr.0000', shared, [
            (f't.{number}', codec.pack({'name': f'n{number}'})) for number in range(first, first + 1000)])
    done = [(f't.{number}', states.DONE, None) for number in range(COUNT - 10)]
    store.tasks.report(done, 'p0')
    ended = codec.pack({'target_state': states.FAILED, 'exit_code': 1})
    store.tasks.report([(f't.{COUNT - 10}', states.TMGR_STAGING_OUTPUT_PENDING, ended)], 'p0')
    store.tasks.insert('p0', 'calls', codec.pack({'mode': 'pilot.rpc'}), [('p0.rpc.0000', codec.NOTHING)])
    chunk = Chunk('sweep.0000', 0, 5, {'arguments': ['{0}']}, [[10, 11, 12, 13, 14]])
    store.tasks.insert_chunk('p0', 'tmgr.0000', codec.pack({'executable': 'b'}), chunk.uid, 5,
                             codec.pack({ROWS: list(chunk)}))
    store.tasks.insert('', 'tmgr.0000', codec.pack({'executable': 'c'}), [('last', codec.NOTHING)])
    store.close()
    return directory


@pytest.fixture
def records(directory: Path) -> Iterator[SessionRecords]:
    with sessions.records(directory) as found:
        assert isinstance(found, SessionRecords)
        yield found


def test_one_task(records: SessionRecords) -> None:
    task = records.task('t.17')
    assert task is not None
    assert (task['description'], task['state'], task['pilot']) == (
        {'executable': 'a', 'cores_per_rank': 2, 'name': 'n17'}, 'DONE', 'p0')
    assert records.task('nope') is None
    assert records.task(f't.{COUNT - 10}') == (records.task(f't.{COUNT - 10}') or {}) | {
        'state': 'FAILED', 'exit_code': 1}
    assert (records.now, records.uid, records.note('tmgr.0000')) == (2.5, 's', {'pilots': ['p0']})
    assert [pilot['uid'] for pilot in records.pilots()] == ['p0']


def test_tasks_in_chunks(records: SessionRecords) -> None:
    task = records.task('sweep.0000.000003')
    assert task is not None
    assert task['description'] == {'executable': 'b', 'arguments': ['13']}
    assert records.task('sweep.0000.000005') is None
    assert records.task('sweep.0000.3') is None


def test_pages_have_every_task_once_in_order(records: SessionRecords) -> None:
    expected = [*(f't.{number}' for number in range(COUNT)), *(f'sweep.0000.{row:06d}' for row in range(5)), 'last']
    for limit in (7, 1000, 5000):
        found: list[str] = []
        after = 0
        while page := records.page(after, limit):
            assert len(page) <= limit
            found += [task['uid'] for _, task in page]
            after = page[-1][0]
        assert found == expected
    assert records.count() == len(expected)
    assert sum(records.counts().values()) == len(expected)
    assert records.count_on('') == 1


def test_choices(records: SessionRecords) -> None:
    def chosen(**options: object) -> list[str]:
        return [row['uid'] for row in Selection(**options).rows(records)]   # type: ignore[arg-type]

    assert chosen(failed=True) == [f't.{COUNT - 10}']   # it waits for the application
    assert chosen(pilot='') == ['last']
    assert chosen(name='n1?') == [f't.{number}' for number in range(10, 20)]
    assert len(chosen(wanted=['waiting'])) == 15
    assert chosen(where='program == "b" and arguments == "12"') == ['sweep.0000.000002']
    with pytest.raises(ValueError, match='the state'):
        Selection(['nope'])


def test_tasks_of_one_kind(records: SessionRecords) -> None:
    task = records.task('t.1500')
    assert task is not None
    peers = records.peers(task)
    assert len(peers) == 1000
    assert {peer['description']['executable'] for peer in peers} == {'a'}
    last = records.task('last')
    assert last is not None
    assert records.peers(last) == []


def test_uids_by_their_beginning(records: SessionRecords) -> None:
    assert records.uids('t.299', 5) == ['t.299', 't.2990', 't.2991', 't.2992', 't.2993']
