"""The store of results: what survives, what is removed, and several users at a time."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from rp_api.errors import OwnershipError
from rp_client.cache.store import LIMIT, ResultStore


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ResultStore]:
    made = ResultStore(tmp_path / 'cache')
    yield made
    made.close()


def output(store: ResultStore, text: str = 'text') -> Path:
    directory = store.new_directory()
    (directory / '0').mkdir()
    (directory / '0' / 'file').write_text(text)
    return directory


def identities(store: ResultStore) -> list[bytes]:
    return [result.identity for result in store.results()]


def directories(store: ResultStore) -> set[str]:
    return set(os.listdir(store.directory / 'outputs'))


def test_a_result_is_found_by_its_identity(store: ResultStore) -> None:
    store.add([(b'1', 'one', b'info', None), (b'2', 'two', b'more', output(store))])
    found = store.find([b'2', b'1', b'3'])
    assert {identity: (result.label, result.info) for identity, result in found.items()} == {
        b'1': ('one', b'info'), b'2': ('two', b'more')}
    assert {name: size for name, (size, _) in found[b'2'].files.items() if size > 0} == {'0/file': 4}
    assert (store.path(found[b'2']) / '0' / 'file').read_text() == 'text'
    assert store.summary() == (2, sum(result.size for result in found.values()), LIMIT)


def test_a_new_result_replaces_the_old_one(store: ResultStore) -> None:
    store.add([(b'1', 'one', b'info', output(store))])
    store.add([(b'1', 'two', b'new', output(store, 'longer text'))])
    found = store.find([b'1'])[b'1']
    assert (found.label, found.info, found.files['0/file'][0]) == ('two', b'new', 11)
    assert directories(store) == {found.directory}
    assert store.summary().size == found.size


@pytest.mark.parametrize('damage', ['file', 'directory', 'size'])
def test_a_result_without_its_output_is_none(store: ResultStore, damage: str) -> None:
    store.add([(b'1', 'one', b'info', output(store))])
    path = store.path(store.find([b'1'])[b'1'])
    if damage == 'directory':
        shutil.rmtree(path)
    elif damage == 'file':
        (path / '0' / 'file').unlink()
    else:
        (path / '0' / 'file').write_text('')
    assert store.find([b'1']) == {}


def test_results_used_least_recently_make_room(store: ResultStore, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time()
    for number in range(4):
        monkeypatch.setattr(time, 'time', lambda number=number: now + 1000 * number)
        store.add([(b'%d' % number, '', b'', output(store, 'x' * 1000))])
    monkeypatch.setattr(time, 'time', lambda: now + 4000)
    store.find([b'0'])
    store.set_limit(2500)
    assert identities(store) == [b'0', b'3']
    assert len(directories(store)) == 2
    store.add([(b'4', '', b'x' * 2000, None)])
    assert set(identities(store)) == {b'4'}


def test_many_results_make_room_for_one(store: ResultStore) -> None:
    store.add([(b'%03d' % number, '', b'x' * 100, None) for number in range(300)])
    store.set_limit(store.summary().size)
    store.add([(b'large', '', b'x' * 50_000, None)])
    kept = store.results()
    assert b'large' in identities(store)
    assert store.summary() == (len(kept), sum(result.size for result in kept), store.summary().limit)
    assert len(kept) == 300 - 220 + 1   # 219 are a little too small


def test_a_result_larger_than_the_limit_does_not_replace_the_others(
        store: ResultStore, caplog: pytest.LogCaptureFixture) -> None:
    store.set_limit(2500)
    store.add([(b'1', '', b'x' * 1000, None)])
    before = store.summary()
    store.add([(b'2', 'large', b'', output(store, 'x' * 3000)), (b'3', 'larger', b'x' * 4000, None)])
    assert identities(store) == [b'1']
    assert store.summary() == before
    assert directories(store) == set()
    assert 'the result of large is not cached' in caplog.text
    store.add([(b'1', '', b'x' * 3000, None)])   # the earlier result is not that of the task any more
    assert identities(store) == []


def test_the_limit_stays(store: ResultStore) -> None:
    store.set_limit(1234)
    other = ResultStore(store.directory)
    assert other.summary().limit == 1234
    other.close()


def test_prune_removes_what_a_crash_has_left(store: ResultStore) -> None:
    store.add([(b'1', '', b'', output(store))])
    left, present = store.new_directory(), store.new_directory()
    os.utime(left, (1, 1))
    assert store.prune() == 0
    assert directories(store) == {store.find([b'1'])[b'1'].directory, present.name}


def test_prune_removes_what_is_not_used(store: ResultStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.add([(b'1', '', b'', output(store))])
    now = time.time()
    monkeypatch.setattr(time, 'time', lambda: now + 100)
    store.add([(b'2', '', b'', None)])
    assert store.prune(older_than=50) == 1
    assert identities(store) == [b'2']


def test_others_cannot_use_it(store: ResultStore) -> None:
    assert store.directory.stat().st_mode & 0o077 == 0
    store.directory.chmod(0o777)
    with pytest.raises(OwnershipError, match='others may write to it'):
        ResultStore(store.directory)


def test_a_store_of_another_version_is_refused(store: ResultStore) -> None:
    with sqlite3.connect(store.directory / 'cache.db') as db:
        db.execute('UPDATE settings SET value = 3 WHERE name = "version"')
    db.close()
    with pytest.raises(OSError, match='a cache of version 3'):
        ResultStore(store.directory)


def test_results_of_an_older_version_are_removed(store: ResultStore) -> None:
    store.add([(b'1', '', b'info', output(store))])
    with sqlite3.connect(store.directory / 'cache.db') as db:
        db.execute('UPDATE settings SET value = 1 WHERE name = "version"')
    db.close()
    with closing(ResultStore(store.directory)) as later:
        assert later.results() == []
        assert directories(later) == set()
        later.add([(b'2', '', b'info', None)])
        assert identities(later) == [b'2']


def test_a_result_is_taken_as_it_was_stored(store: ResultStore) -> None:
    made = store.new_directory()
    (made / '0' / 'empty').mkdir(parents=True)
    (made / '0' / 'closed').mkdir()
    (made / '0' / 'closed' / 'file').write_text('text')
    (made / '0' / 'closed').chmod(0o555)
    (made / '0' / 'link').symlink_to('closed')
    store.add([(b'1', '', b'', made)])
    taken = store.take(store.find([b'1'])[b'1'])
    store.remove([b'1'])   # as another process might, to make room
    assert (taken / '0' / 'empty').is_dir()
    assert (taken / '0' / 'link').readlink() == Path('closed')
    assert (taken / '0' / 'link' / 'file').read_text() == 'text'
    assert (taken / '0' / 'closed').stat().st_mode & 0o777 == 0o555
    (taken / '0' / 'closed').chmod(0o755)


@pytest.mark.parametrize('damage', ['gone', 'other content', 'a file less'])
def test_a_result_that_vanishes_or_is_damaged_cannot_be_taken(store: ResultStore, damage: str) -> None:
    made = output(store)
    (made / '0' / 'other').write_text('other')
    store.add([(b'1', '', b'', made)])
    found = store.find([b'1'])[b'1']
    if damage == 'gone':
        store.remove([b'1'])
    elif damage == 'a file less':
        (store.path(found) / '0' / 'other').unlink()
    else:
        (store.path(found) / '0' / 'file').write_text('fake')   # of equal size
    with pytest.raises(OSError, match=r'0/file is damaged|No such file'):
        store.take(found)
    assert not [name for name in directories(store) if name.endswith('.part')]


def test_damaged_data_in_the_database_is_none(store: ResultStore) -> None:
    store.add([(b'1', '', b'info', None)])
    with sqlite3.connect(store.directory / 'cache.db') as db:
        db.execute('UPDATE results SET info = CAST(info || "x" AS BLOB)')
    db.close()
    assert store.find([b'1']) == {}


def test_a_damaged_store_is_named(tmp_path: Path) -> None:
    (tmp_path / 'cache').mkdir(mode=0o700)
    (tmp_path / 'cache' / 'cache.db').write_text('no database at all' * 100)
    with pytest.raises(OSError, match=f'the cache in {tmp_path}/cache cannot be used: file is not a database'):
        ResultStore(tmp_path / 'cache')


WRITER = '''
import sys
from rp_client.cache.store import ResultStore
store = ResultStore(sys.argv[1])
for number in range(int(sys.argv[3])):
    directory = store.new_directory()
    (directory / 'file').write_text('text')
    store.add([(f'{sys.argv[2]} {number}'.encode(), '', b'', directory)])
    print(number, flush=True)
'''


def writer(store: ResultStore, name: str, number: int) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, '-c', WRITER, store.directory, name, str(number)], stdout=subprocess.PIPE,
                            text=True)


def test_several_processes_and_threads_use_it_together(store: ResultStore) -> None:
    others = [writer(store, name, 40) for name in 'ab']
    threads = [threading.Thread(target=store.add, args=([(b'%d' % number, '', b'', None)],)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(50)
    for process in others:
        process.communicate(timeout=50)
        assert process.returncode == 0
    assert len(store.results()) == 100
    assert store.summary().size == sum(result.size for result in store.results())


def test_a_killed_writer_leaves_complete_results(store: ResultStore) -> None:
    process = writer(store, 'a', 100_000)
    assert process.stdout is not None
    seen = [next(process.stdout) for _ in range(20)]
    process.kill()
    process.communicate(timeout=50)
    found = store.find(identities(store))
    assert len(found) == len(store.results()) >= len(seen)
