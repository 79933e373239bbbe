"""References to objects, their files, and from where a master lets each host get them."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import threading
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zmq

from rp_api.description.python_task import PythonTask
from rp_api.errors import CoordinationError, DeserializationError, SerializationError
from rp_api.loop.event_loop import Loop
from rp_raptor.objects import reference
from rp_raptor.objects.reference import Mapped, ObjectRef, ObjectStore, Observer, own, taken
from rp_raptor.objects.registry import MAX_TRANSFERS_PER_HOLDER, Answers, Holder, Registry
from rp_raptor.objects.transfer import AHEAD, PIECE_BYTES, Download, ObjectServer, Transfer, read_piece
from rp_raptor.wire.payload import call_encoder

ID = bytes(16)


@pytest.fixture
def store() -> Iterator[ObjectStore]:
    """A store of this process."""
    made = ObjectStore()
    yield made
    made.close()


class Watching(Observer):
    """Keeps the identifiers of objects that were dropped."""

    def __init__(self) -> None:
        self.seen: list[bytes] = []

    def dropped(self, id: bytes) -> None:
        self.seen.append(id)


def put(store: ObjectStore, value: Any, observer: Observer | None = None) -> ObjectRef:
    owned = own(store, value, 'raptor.0000')
    if observer is not None:
        owned.observers.add(observer)
    return ObjectRef(owned)


def path_of(ref: ObjectRef) -> str:
    assert ref._owned is not None
    return ref._owned.path


# references

def test_an_object_is_dropped_with_its_last_reference(store: ObjectStore) -> None:
    """A copy is another reference; a released one is none."""
    observer = Watching()
    ref = put(store, [1, 2], observer)
    path = path_of(ref)
    other: ObjectRef = pickle.loads(pickle.dumps(ref))
    taken()
    assert other.get() == ref.get() == [1, 2]
    assert copy.copy(ref) is copy.deepcopy(ref) is ref
    ref.release()
    ref.release()
    assert (ref.released, other.released, os.path.exists(path), observer.seen) == (True, False, True, [])
    del other
    assert not os.path.exists(path)
    assert len(observer.seen) == 1


def test_a_call_keeps_its_objects(store: ObjectStore) -> None:
    """Those that an encoder has pickled, at any depth, each once."""
    observer = Watching()
    one, two = put(store, 'one', observer), put(store, 'two', observer)
    call_encoder(ID)(([one, {'two': two}], one))
    kept = taken()
    assert {owned.id for owned in kept} == {owned.id for owned in (one._owned, two._owned) if owned}
    assert taken() == ()
    one.release()
    del two
    gc.collect()
    assert observer.seen == []
    del kept
    assert len(observer.seen) == 2


def test_what_another_thread_pickles_is_not_taken(store: ObjectStore) -> None:
    ref = put(store, 1)
    thread = threading.Thread(target=pickle.dumps, args=(ref,))
    thread.start()
    thread.join()
    assert taken() == ()
    reference.pending.clear()


def test_a_pickle_alone_keeps_nothing(store: ObjectStore) -> None:
    """As that of a PythonTask, whose reference the application keeps."""
    observer = Watching()
    ref = put(store, 1, observer)
    PythonTask(abs, (ref,))
    del ref
    assert len(observer.seen) == 1
    assert taken() == ()


def test_a_released_reference_is_refused(store: ObjectStore) -> None:
    """By the call that uses it, which names the object."""
    with put(store, array('d', [1])) as ref:
        assert 'array of' in repr(ref)
    assert 'released' in repr(ref)
    with pytest.raises(SerializationError, match=r'reference to the array of \d+ bytes at raptor.0000 was released'):
        call_encoder(ID)((ref,))
    with pytest.raises(ValueError, match='was released'):
        ref.get()


def test_a_reference_of_another_process_is_refused(store: ObjectStore) -> None:
    ref = put(store, 1)
    data = pickle.dumps(ref)
    taken()
    ref.release()
    with pytest.raises(DeserializationError, match=r'raptor\.0000'):
        pickle.loads(data)


def test_an_object_that_cannot_be_pickled(store: ObjectStore) -> None:
    with pytest.raises(SerializationError, match='lock'):
        put(store, threading.Lock())
    store.tidy()
    assert store._directory is None


# files

@pytest.mark.parametrize('value', [np.arange(10), np.arange(100000).reshape(100, 1000).T, np.arange(100)[::3],
                                   np.zeros(0)])
def test_arrays_are_read_only_views(store: ObjectStore, value: Any) -> None:
    """Of one map, whatever their size and form; each call has an array of its own."""
    ref = put(store, value)
    mapped = Mapped(path_of(ref))
    first, second = mapped.value(), mapped.value()
    assert (first == value).all()
    assert first.shape == value.shape
    assert not first.flags.writeable
    with pytest.raises(ValueError, match='WRITEABLE'):
        first.flags.writeable = True
    first.shape = (1, *first.shape)
    assert (second.shape, mapped.value().shape) == (value.shape, value.shape)
    if value.size:
        assert np.shares_memory(first, second)


def test_containers_are_new_and_share_their_arrays(store: ObjectStore) -> None:
    ref = put(store, {'a': np.arange(1000), 'b': [1]})
    mapped = Mapped(path_of(ref))
    first, second = mapped.value(), mapped.value()
    first['b'].append(2)
    assert second['b'] == [1]
    assert np.shares_memory(first['a'], second['a'])
    assert not first['a'].flags.writeable
    ref.release()
    assert second['a'].sum() == 499500   # also without the file


def test_values_that_cannot_change_are_restored_once(store: ObjectStore) -> None:
    ref = put(store, b'x' * 100000)
    mapped = Mapped(path_of(ref))
    assert mapped.value() is mapped.value()


# the registry

class Told(Answers):
    """The messages of managers: [uid, how, holder]."""

    def __init__(self) -> None:
        self.heard: list[list[str]] = []

    def at(self, uid: str, id: bytes, size: int, holder: Holder, *, mapped: bool) -> None:
        assert (id, size) == (ID, 100)
        self.heard.append([uid, 'map' if mapped else 'get', holder.uid])

    def lost(self, uid: str, id: bytes, reason: str) -> None:
        self.heard.append([uid, 'lost', reason])

    def carried(self, uid: str, id: bytes, size: int) -> None:
        self.heard.append([uid, 'carried', ''])

    def forget(self, uid: str, id: bytes) -> None:
        self.heard.append([uid, 'forget', ''])

    def news(self) -> list[list[str]]:
        heard, self.heard = self.heard, []
        return heard


def holder(uid: str, place: str = '') -> Holder:
    return Holder(uid, place or f'host of {uid}', '/file', dict)


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def registry(told: Told) -> Registry:
    """With one object of an application, that the master has."""
    made = Registry('raptor.0000', told)
    made.own(ID, 100, 'app')
    made.hold(ID, holder('master'))
    return made


def test_a_file_on_the_same_host_is_mapped(told: Told, registry: Registry) -> None:
    registry.hold(ID, holder('one', 'host of w'))
    registry.want(ID, 'w', 'host of w', [])
    registry.want(ID, 'v', 'host of master', [])
    assert told.news() == [['w', 'map', 'one'], ['v', 'map', 'master']]


def test_each_host_gets_it_once(told: Told, registry: Registry) -> None:
    """Other managers of the host wait for the first one."""
    for name in ('a', 'b', 'c'):
        registry.want(ID, name, 'host', [])
    assert told.news() == [['a', 'get', 'master']]
    registry.hold(ID, holder('a', 'host'))
    assert told.news() == [['b', 'map', 'a'], ['c', 'map', 'a']]


def test_what_carriers_bring(told: Told, registry: Registry) -> None:
    """All hosts hear at once that they get it from the first manager of their worker; a host gets it once."""
    for name in ('a', 'b', 'c', 'd'):
        registry.want(ID, name, f'host of {name[0]}', [], carried=True)
    assert told.news() == [[name, 'carried', ''] for name in 'abcd']
    registry.want(ID, 'a2', 'host of a', [], carried=True)
    registry.want(ID, 'm', 'host of master', [], carried=True)
    assert told.news() == [['m', 'map', 'master']]
    registry.hold(ID, holder('a'))
    assert told.news() == [['a2', 'map', 'a']]
    registry.want(ID, 'b', 'host of b', [])   # as carriers did not bring it
    assert told.news() == [['b', 'get', 'master']]


def test_it_spreads_as_a_tree(told: Told, registry: Registry) -> None:
    """A holder has few transfers at a time, and each host that has the object gives it to others."""
    waiting = {f'w{number}' for number in range(50)}
    for name in sorted(waiting):
        registry.want(ID, name, f'host of {name}', [])
    senders: dict[str, int] = {}
    rounds = 0
    while waiting:
        rounds += 1
        news = told.news()
        running: dict[str, int] = {}
        for name, how, sender in news:
            assert how == 'get'
            assert name in waiting
            running[sender] = running.get(sender, 0) + 1
            senders[sender] = senders.get(sender, 0) + 1
        assert max(running.values()) <= MAX_TRANSFERS_PER_HOLDER
        for name, _, _ in news:
            waiting.discard(name)
            registry.hold(ID, holder(name))
    assert rounds <= 4     # 1, 3, 9, 27, 81 holders
    assert len(senders) >= 17


def test_the_next_holder_after_a_failure(told: Told, registry: Registry) -> None:
    """A holder that has failed is asked again only if there is no other one."""
    registry.want(ID, 'w', 'here', [])
    registry.want(ID, 'w', 'here', ['master'])
    assert told.news() == [['w', 'get', 'master']] * 2
    registry.hold(ID, holder('other'))
    registry.want(ID, 'w', 'here', ['master'])
    assert told.news() == [['w', 'get', 'other']]


def test_a_holder_that_dies_in_the_middle(told: Told, registry: Registry) -> None:
    """Those that were getting the object from it get it from another one, those that wait are not forgotten."""
    registry.hold(ID, holder('other'))
    for name in ('a', 'b', 'c', 'd', 'e'):
        registry.want(ID, name, name, [])
    assert sorted(news[2] for news in told.news()) == ['master', 'master', 'other', 'other']
    registry.leave('other')
    assert told.news() == []
    registry.hold(ID, holder('a', 'a'))
    assert len(told.news()) >= 2


def test_a_receiver_that_dies_makes_room(told: Told, registry: Registry) -> None:
    for name in ('a', 'b', 'c'):
        registry.want(ID, name, name, [])
    told.news()
    registry.leave('a')
    assert told.news() == [['c', 'get', 'master']]


def test_requests_wait_for_an_object_that_is_on_its_way(told: Told) -> None:
    registry = Registry('raptor.0000', told)
    registry.own(ID, 100, 'app')
    registry.want(ID, 'w', 'here', [])
    assert told.news() == []
    registry.hold(ID, holder('master', 'here'))
    assert told.news() == [['w', 'map', 'master']]


def test_dropped_with_the_last_owner(told: Told, registry: Registry) -> None:
    """Every manager that has heard of the object hears of its end, and a late one that there is none."""
    registry.own(ID, 100, 'stream')
    registry.want(ID, 'w', 'here', [])
    registry.hold(ID, holder('w', 'here'))
    registry.want(ID, 'v', 'there', [])
    told.news()
    assert not registry.disown(ID, 'app')
    assert registry.leave('stream') == [ID]
    news = [(name, how) for name, how, _ in told.news()]
    assert news[0] == ('v', 'lost')
    assert sorted(news[1:]) == [('v', 'forget'), ('w', 'forget')]
    assert not registry.hold(ID, holder('v'))
    registry.want(ID, 'v', 'there', [])
    (_, how, reason), = told.news()
    assert how == 'lost'
    assert 'raptor.0000 has no such object' in reason
    assert not registry.disown(ID, 'app')


# transfers

def test_a_download_in_pieces(tmp_path: Path) -> None:
    """Few pieces are requested ahead; the next sender continues where the one before has stopped."""
    content = os.urandom(20 * PIECE_BYTES + 7)
    source = tmp_path / 'source'
    source.write_bytes(content)
    download = Download(str(tmp_path / 'copy'), len(content))
    asked: list[tuple[int, int]] = []
    download.start(lambda *piece: asked.append(piece))
    assert len(asked) == AHEAD
    for _ in range(5):
        offset, length = asked.pop(0)
        download.take(offset, read_piece(str(source), offset, length))
    with pytest.raises(CoordinationError, match='instead of'):
        download.take(0, b'x' * PIECE_BYTES)
    asked.clear()
    download.start(lambda *piece: asked.append(piece))
    assert asked[0] == (5 * PIECE_BYTES, PIECE_BYTES)
    while not download.done:
        offset, length = asked.pop(0)
        download.take(offset, read_piece(str(source), offset, length))
    download.close()
    assert (tmp_path / 'copy').read_bytes() == content
    assert asked == []


class Transfers:
    """A loop with senders of one file, and transfers of it."""

    def __init__(self, path: Path, size: int) -> None:
        self.source = path / 'source'
        self.source.write_bytes(os.urandom(size))
        self.loop = Loop()
        self.contexts: list[zmq.Context[Any]] = []
        self.ends: list[str] = []

    def server(self) -> ObjectServer:
        paths: dict[bytes, str] = {ID: str(self.source)}
        return ObjectServer(self.loop, self.context(), 'tcp://127.0.0.1', None, paths.get)

    def context(self) -> zmq.Context[Any]:
        self.contexts.append(zmq.Context())
        return self.contexts[-1]

    def run(self, download: Download, server: ObjectServer, id: bytes = ID) -> str:
        """Transfer what is missing; the fault."""
        def ended(fault: str) -> None:
            self.ends.append(fault)
            self.loop.stop()
        transfer = Transfer(self.loop, self.context(), server.access, id, download, ended)
        timer = self.loop.call_later(30, self.loop.stop)
        self.loop.run()
        timer.cancel()
        transfer.close()
        return self.ends.pop()


@pytest.fixture
def transfers(tmp_path: Path) -> Iterator[Transfers]:
    made = Transfers(tmp_path, 11 * PIECE_BYTES + 5)
    yield made
    for context in made.contexts:
        context.term()
    made.loop.close()


def test_a_transfer(tmp_path: Path, transfers: Transfers) -> None:
    server = transfers.server()
    download = Download(str(tmp_path / 'copy'), 11 * PIECE_BYTES + 5)
    assert transfers.run(download, server) == ''
    download.close()
    server.close()
    assert (tmp_path / 'copy').read_bytes() == transfers.source.read_bytes()


def test_a_transfer_that_another_holder_resumes(tmp_path: Path, transfers: Transfers) -> None:
    """The first one dies in the middle."""
    first, second = transfers.server(), transfers.server()
    download = Download(str(tmp_path / 'copy'), 11 * PIECE_BYTES + 5)
    take = download.take

    def take_three(offset: int, data: bytes) -> None:
        take(offset, data)
        if download.received == 3 * PIECE_BYTES:
            first.close()
    download.take = take_three   # type: ignore[method-assign]
    assert 'lost' in transfers.run(download, first)
    assert 3 * PIECE_BYTES <= download.received < download.size
    assert transfers.run(download, second) == ''
    download.close()
    second.close()
    assert (tmp_path / 'copy').read_bytes() == transfers.source.read_bytes()


def test_a_holder_without_the_object(tmp_path: Path, transfers: Transfers) -> None:
    server = transfers.server()
    download = Download(str(tmp_path / 'copy'), 100)
    assert 'does not have the object' in transfers.run(download, server, b'x' * 16)
    transfers.source.write_bytes(b'short')
    assert 'instead of' in transfers.run(download, server)
    download.close()
    server.close()


def test_objects_of_a_fork_are_those_of_its_parent(store: ObjectStore) -> None:
    """The end of a fork drops nothing."""
    ref = put(store, 1)
    path = path_of(ref)
    pid = os.fork()
    if not pid:
        ref.release()
        os._exit(0)
    os.waitpid(pid, 0)
    assert os.path.exists(path)

