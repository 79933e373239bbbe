"""Calls with large arguments: in files of the caller's store, each content once, and as bytes on other hosts."""

from __future__ import annotations

import os
import pickle
import threading
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rp_api import blobs
from rp_api.errors import DeserializationError, SerializationError
from rp_api.system import shared_directory
from rp_raptor.wire import result_files
from rp_raptor.wire import store as stores
from rp_raptor.wire.batch import Payloads
from rp_raptor.wire.large_calls import lease_of, opened_call, sent_to_others, size_of_call, stored_again
from rp_raptor.wire.payload import (
    call_encoder,
    chunk_of,
    decode_result,
    discard,
    encode_call,
    encode_chunk,
    encode_value,
    fid_of,
)
from rp_raptor.wire.result_files import ResultFiles
from rp_raptor.wire.store import STORED_BYTES, ValueStore

FID = bytes(range(16))
SIZES = [STORED_BYTES // 8 + 1, 12_500, 125_000, blobs.COPIED // 8 + 1000]


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory in the place of the shared memory."""
    path = tmp_path / 'memory'
    path.mkdir()
    monkeypatch.setattr(shared_directory, 'shared_memory', lambda: str(path))
    monkeypatch.setattr(shared_directory, 'room', lambda directory: 1 << 30)
    return path


@pytest.fixture
def store(memory: Path, tmp_path: Path) -> Iterator[ValueStore]:
    store = ValueStore(str(tmp_path / 'disk'))
    yield store
    store.close()
    assert not list(memory.iterdir())


def files_of(store: ValueStore) -> list[str]:
    return sorted(os.listdir(store.path))


def paths_in(call: bytes) -> list[str]:
    lease = lease_of(call)
    assert lease
    return [file.path for file in lease.files]


def arguments_in(call: bytes) -> tuple[Any, Any]:
    """Return what a rank gets."""
    start, body, buffers = opened_call(bytes(call))
    assert start == b'F' + FID
    args, kwargs = pickle.loads(body, buffers=buffers)
    return args, kwargs


@pytest.mark.parametrize('size', SIZES)
def test_arguments_arrive_as_they_were(store: ValueStore, size: int) -> None:
    numbers = np.arange(size, dtype=float)
    text, data, changing = 'x' * 8 * size, os.urandom(8 * size), bytearray(8 * size)
    args, kwargs = arguments_in(encode_call(FID, (numbers, 1, data), {'more': [{'a': numbers[::2]}, text, changing],
                                                                     'data': data}, store))
    assert np.array_equal(args[0], numbers)
    assert args[1:] == (1, data)
    assert np.array_equal(kwargs['more'][0]['a'], numbers[::2])
    assert kwargs['more'][1:] == [text, changing]
    assert type(kwargs['data']) is bytes
    assert type(kwargs['more'][2]) is bytearray
    args[0][:] = 0   # a function can change its arguments, as without files
    kwargs['more'][2][0] = 1


def test_small_arguments_need_no_files(store: ValueStore) -> None:
    encode = call_encoder(FID, store)
    for args in ((1,), (bytes(STORED_BYTES // 2),), (np.arange(10),), ([np.arange(9)], 'x' * 1000)):
        assert encode(args)[:17] == b'F' + FID
    assert files_of(store) == []


def test_a_content_is_written_once_and_a_changed_one_again(store: ValueStore) -> None:
    numbers = np.arange(20_000)
    encode = call_encoder(FID, store)
    first, again = encode((numbers, 1)), encode((numbers, 2))
    assert len(files_of(store)) == 1
    assert size_of_call(first) > numbers.nbytes
    assert size_of_call(again) < 1000
    numbers[7000] = -1   # not in the sample
    changed = encode((numbers, 3))
    numbers[0] = -2
    other = encode((numbers, 4))
    assert len(files_of(store)) == 3
    assert [arguments_in(call)[0][0][7000] for call in (first, again, changed, other)] == [7000, 7000, -1, -1]
    assert [arguments_in(call)[0][0][0] for call in (first, again, changed, other)] == [0, 0, 0, -2]


def test_free_files_keep_their_content_until_they_get_another(store: ValueStore) -> None:
    numbers, others = np.zeros(20_000), np.ones(20_000)
    call = encode_call(FID, (numbers,), None, store)
    (path,), old = paths_in(call), bytes(call)
    del call
    call = encode_call(FID, (numbers,), None, store)
    assert paths_in(call) == [path]
    assert size_of_call(call) < 1000
    del call
    call = encode_call(FID, (others,), None, store)
    assert paths_in(call) == [path]
    assert arguments_in(call)[0][0].sum() == 20_000
    with pytest.raises(DeserializationError, match='replaced'):   # a rank that is late never gets other arguments
        opened_call(old)


def test_files_that_ranks_map_are_not_written_again(store: ValueStore) -> None:
    numbers = np.zeros(blobs.COPIED // 8 + 1000)
    call = encode_call(FID, (numbers,), None, store)
    (mapped,), _ = arguments_in(call)
    (path,) = paths_in(call)
    del call
    assert paths_in(encode_call(FID, (numbers + 1,), None, store)) != [path]
    assert paths_in(encode_call(FID, (numbers,), None, store)) == [path]
    assert mapped.sum() == 0


def test_few_free_files_are_kept(store: ValueStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, '_MAX_FREE_BYTES', 500_000)
    sizes = [10_000] * 10 + [20_000] * 5 + [30_000] * 3
    calls = [encode_call(FID, (np.full(size, number),), None, store) for number, size in enumerate(sizes)]
    assert len(files_of(store)) == 18
    calls.clear()
    assert 0 < sum(os.path.getsize(f'{store.path}/{name}') for name in files_of(store)) <= 500_000
    encode_call(FID, (np.zeros(100_000),), None, store)
    assert max(os.path.getsize(f'{store.path}/{name}') for name in files_of(store)) < 500_000


def test_without_room_in_memory_files_are_on_disk(
        store: ValueStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_directory, 'room', lambda directory: 0)
    call = encode_call(FID, (np.arange(10_000),), None, store)
    (path,) = paths_in(call)
    assert Path(path).is_relative_to(tmp_path / 'disk')
    assert arguments_in(call)[0][0][-1] == 9_999
    store.close()
    assert list((tmp_path / 'disk').iterdir()) == []


def test_without_a_directory_nothing_is_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_directory, 'shared_memory', lambda: str(tmp_path / 'missing'))
    store = ValueStore()
    assert store.results == ''
    assert encode_call(FID, (np.arange(10_000),), None, store)[:17] == b'F' + FID
    store.close()


def test_a_store_that_is_gone_is_an_error_at_the_call(store: ValueStore) -> None:
    store.close()
    with pytest.raises(SerializationError, match='cannot be stored'):
        encode_call(FID, (np.arange(10_000),), None, store)


def test_calls_to_other_hosts_have_their_contents(store: ValueStore) -> None:
    calls: list[bytes] = [encode_call(FID, (np.full(100_000, number), 'x' * 50_000), None, store)
                          for number in range(20)]
    calls.insert(3, encode_call(FID, (1,), None, store))
    messages = list(sent_to_others(['calls', array('Q', range(21)), Payloads(map(bytes, calls)), {3: {'timeout': 1}}]))
    assert [id for _, ids, _, _ in messages for id in ids] == list(range(21))
    assert len(messages) > 2
    assert [attributes for _, _, _, attributes in messages if attributes] == [{3: {'timeout': 1}}]
    sent = [call for _, _, message, _ in messages for call in message]
    assert all(message.size() < 6 << 20 for _, _, message, _ in messages)
    store.close()
    for number, call in enumerate([*sent[:3], *sent[4:]]):
        (numbers, text), _ = arguments_in(call)
        assert np.array_equal(numbers, np.full(100_000, number))
        assert text == 'x' * 50_000
        numbers[0] = 1
    # the rank says what is missing
    ((_, _, message, _),) = sent_to_others(['calls', array('Q', [1]), Payloads([bytes(calls[0])]), None])
    with pytest.raises(DeserializationError, match='No such file'):
        opened_call(message[0])


def test_calls_without_files_stay_in_one_message(store: ValueStore) -> None:
    calls = Payloads(encode_call(FID, (number,), None, store) for number in range(5))
    ((_, ids, message, _),) = sent_to_others(['calls', array('Q', range(5)), calls, None])
    assert message is calls
    assert list(ids) == list(range(5))


def test_chunks_are_stored_as_one(store: ValueStore) -> None:
    data = bytes(STORED_BYTES + 1)
    call = encode_chunk(FID, [((data, 1), None), ((np.arange(10_000),), {'more': data})], store)
    start, body, buffers = opened_call(call)
    assert start[:1] == b'C'
    assert fid_of(start) == FID
    (first, second) = chunk_of(body, buffers)
    assert first == ((data, 1), {})
    assert second[1] == {'more': data}
    assert len(files_of(store)) == 2
    assert encode_chunk(FID, [((1,), None)], store)[:1] == b'C'


def test_files_of_results_are_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank uses a file again when its result was read; few are kept, and one that was discarded does no harm."""
    monkeypatch.setattr(result_files, '_MAX_FREE_BYTES', 1_000_000)
    files = ResultFiles(f'{shared_directory.place()}\n{tmp_path}', str(tmp_path / 'values'))
    inodes = set()
    for number in range(10):
        result = encode_value(np.full(10_000 - number, number), files)
        (file,) = tmp_path.iterdir()
        inodes.add(file.stat().st_ino)
        assert np.array_equal(decode_result(result), np.full(10_000 - number, number))
        with pytest.raises(DeserializationError, match='replaced'):
            decode_result(result)
        discard(result)   # late: what follows is written to the same file
    assert len(inodes) == 1
    results = [encode_value(np.full(10_000, number), files) for number in range(30)]
    discard(results[0])
    assert [decode_result(result)[0] for result in results[1:]] == list(range(1, 30))
    assert len(list(tmp_path.iterdir())) <= 13
    results = [encode_value(np.full(10_000, number), files) for number in range(30)]
    assert [decode_result(result)[0] for result in results] == list(range(30))
    assert len(list(tmp_path.iterdir())) <= 13


def test_threads_make_and_drop_calls(store: ValueStore) -> None:
    wrong: list[int] = []

    def work(seed: int) -> None:
        kept = []
        for number in range(200):
            value = seed * 1000 + number
            kept.append((value, encode_call(FID, (np.full(5_000, value),), None, store)))
            if len(kept) == 10:
                value, call = kept.pop(number % 10)
                if not (arguments_in(call)[0][0] == value).all():
                    wrong.append(value)
    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_contents_that_have_come_are_stored_again(store: ValueStore, tmp_path: Path) -> None:
    """As a master does for workers on its host; small calls and those with files stay as they are."""
    values = [np.arange(SIZES[2]), os.urandom(100_000), 'x' * 50_000]
    arguments: tuple[tuple[list[Any]], dict[str, Any]] = ((values,), {})
    filed, small = encode_call(FID, *arguments, store), encode_call(FID, (1,), {}, store)
    ((_, _, (sent,), _),) = sent_to_others(['calls', array('Q', [1]), Payloads([bytes(filed)]), None])
    other = ValueStore(str(tmp_path / 'other'))
    message = ['calls', array('Q', [5, 6, 7]), Payloads([sent, bytes(small), bytes(filed)]), {5: {'timeout': 1}}]
    (_, ids, calls, attributes), leases = stored_again(message, other)
    assert [*ids] == [5, 6, 7]
    assert attributes == {5: {'timeout': 1}}
    assert [*calls[1:]] == [small, filed]
    assert len(calls[0]) < STORED_BYTES
    assert [*leases] == [5]
    assert len(files_of(other)) == 3
    start, body, buffers = opened_call(calls[0])
    assert start == opened_call(bytes(filed))[0]
    found = pickle.loads(body, buffers=buffers)[0][0]
    assert found[0].flags.writeable
    assert (found[0] == arguments[0][0][0]).all()
    assert found[1:] == arguments[0][0][1:]
    first = files_of(other)
    leases.clear()
    _, leases = stored_again(message, other)
    assert files_of(other) == first
    other.close()
    assert stored_again(message, other)[0] == message
