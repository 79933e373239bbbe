"""Channels over pipes that are lost and replaced, with a clock of their own; and the files of calls on their way."""

from __future__ import annotations

import os
import random
from array import array
from collections import deque
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest
from leftovers import open_descriptors

from rp_api.errors import DeserializationError
from rp_api.loop.event_loop import Loop
from rp_api.wire.codec import unpack
from rp_raptor.carriers.channel import FIRST_KIND, Channel, OpenFile, PipeEnd, content_of, file_with
from rp_raptor.wire.batch import Payloads, pack_message
from rp_raptor.wire.carried_results import carried_result, with_content, with_contents
from rp_raptor.wire.large_calls import opened_call
from rp_raptor.wire.payload import call_encoder, decode_result, discard, encode_value
from rp_raptor.wire.protocol import WORKER, parse, parse_from_master
from rp_raptor.wire.result_files import ResultFiles
from rp_raptor.wire.store import ValueStore
from rp_raptor.worker.carried_calls import CarriedFiles, results_placed, with_files


class FakePipe:
    """What is written waits for the test; `other` is the end at the other side."""

    def __init__(self, end: PipeEnd) -> None:
        self.end = end
        self.other: FakePipe | None = None
        self.open = True
        self.messages: deque[tuple[int, bytes, Sequence[OpenFile]]] = deque()

    def write(self, kind: int, data: bytes, files: Sequence[OpenFile]) -> None:
        assert self.open
        self.messages.append((kind, data, files))

    def flush(self) -> None:
        """Nothing waits."""

    def close(self) -> None:
        self.open = False

    def deliver(self, count: int = 1 << 30) -> None:
        """Let the other side have so many messages."""
        while self.messages and count:
            count -= 1
            kind, data, files = self.messages.popleft()
            assert self.other
            if self.other.open:
                self.other.end.take(kind, data, [*files])

    def lose(self) -> None:
        """Lose the pipe, with what is on its way."""
        if self.open:
            self.open = False
            self.end.lost()


class Pair:
    """Two channels, and what each has heard."""

    def __init__(self) -> None:
        self.loop = Loop()
        self.heard: tuple[list[bytes], list[bytes]] = [], []
        self.channels = [Channel(self.loop, partial(self._hear, side), lambda: None) for side in range(2)]

    def _hear(self, side: int, _kind: int, data: bytes, _files: list[OpenFile]) -> None:
        self.heard[side].append(data)

    def connect(self) -> list[FakePipe]:
        pipes: list[FakePipe] = []
        for channel in self.channels:
            def opened(end: PipeEnd) -> FakePipe:
                pipes.append(FakePipe(end))
                return pipes[-1]
            channel.attach(opened)
        pipes[0].other, pipes[1].other = pipes[1], pipes[0]
        return pipes


def test_messages_arrive_once_and_in_order_whatever_becomes_of_pipes() -> None:
    for seed in range(200):
        chance, pair = random.Random(seed), Pair()
        sent: tuple[list[bytes], list[bytes]] = [], []
        pipes = pair.connect()
        for number in range(100):
            side = chance.randrange(2)
            sent[side].append(b'%d' % number)
            pair.channels[side].send(FIRST_KIND, sent[side][-1])
            step = chance.random()
            if step < 0.5:
                for pipe in chance.sample(pipes, len(pipes)):
                    pipe.deliver(chance.randrange(5))
            elif step < 0.6:   # others, while these still deliver
                pipes += pair.connect()
            elif step < 0.7:
                for pipe in pipes:
                    pipe.lose()
                pipes = pair.connect()
        pipes += pair.connect()
        while any(pipe.open and pipe.messages for pipe in pipes):
            for pipe in pipes:
                pipe.deliver()
        assert (pair.heard[1], pair.heard[0]) == sent
        pair.loop.close()


def test_files_are_closed_when_they_have_arrived() -> None:
    before, pair = open_descriptors(), Pair()
    pipes = pair.connect()
    for pipe in pipes:
        pipe.deliver()
    for _ in range(20):
        pair.channels[0].send(FIRST_KIND, b'', [file_with(b'content')])
    for _ in range(3):
        for pipe in pipes:
            pipe.deliver()
    pair.loop.close()
    assert open_descriptors() <= before
    assert content_of(file_with(b'content')) == b'content'


def test_files_of_calls_travel_beside_them(tmp_path: Path) -> None:
    store, there, before = ValueStore(str(tmp_path)), CarriedFiles(), open_descriptors()
    encode = call_encoder(bytes(16), store)
    arguments = [os.urandom(100_000 if id % 2 else 10) for id in range(300)]
    calls = [encode((argument,)) for argument in arguments]   # which keep the files
    ids = array('Q', range(300))
    message = pack_message(['calls', ids, Payloads(map(bytes, calls)), {5: {'timeout': 1.0}}])
    arrived: dict[int, bytes] = {}
    attributes: dict[int, object] = {}
    for data, files in with_files(message):
        _, (found, payloads, each) = parse_from_master(there.placed(data, files), WORKER)
        arrived |= dict(zip(found, payloads, strict=True))
        attributes |= each or {}
    store.close()
    assert list(arrived) == list(ids)
    assert attributes == {5: {'timeout': 1.0}}
    for id, argument in enumerate(arguments):
        call = arrived[id]
        assert argument in (bytes(b''.join(opened_call(call)[2])) if id % 2 else call)
    paths = {id: unpack(arrived[id][1:])[2][0][0] for id in (1, 3)}
    there.done([1])
    assert not os.path.exists(paths[1])
    with pytest.raises(Exception, match='cannot read'):
        opened_call(arrived[1])
    assert os.path.exists(paths[3])
    there.clear()
    assert not os.path.exists(paths[3])
    there.close()
    del files, data
    assert open_descriptors() <= before


@pytest.mark.parametrize('caller', [True, False])
@pytest.mark.parametrize('master', [True, False])
def test_files_of_results_travel_beside_them(tmp_path: Path, caller: bool, master: bool) -> None:
    """To the directory of the caller, or that of the master, or into the message; each can be decoded."""
    before, stores = open_descriptors(), {name: ValueStore() for name in ('caller', 'master', 'manager')}
    kind = b'L' if caller else b'K' if master else b'I'
    files = ResultFiles('elsewhere\n/', str(tmp_path / 'values'), stores['manager'].path)
    values = [os.urandom(300_000) if id % 2 else id for id in range(300)]
    payloads = [encode_value(value, files) for value in values]
    assert encode_value(values[1], files.nested)[:1] == b'R'
    results = stores['caller'].results if caller else 'elsewhere\n/'
    for id in range(1, 300, 2):
        path, size, _ = unpack(payloads[id][1:])
        payloads[id] = carried_result(path, size, results)
    arrived: dict[int, bytes] = {}
    data = pack_message(['results', array('Q', range(300)), Payloads(payloads)])
    for message, beside in with_files(data):
        beside = [file_with(content_of(file)) for file in beside]   # as carriers do
        _, (ids, found) = parse(results_placed(message, beside, stores['master'].results if master else ''), WORKER)
        assert {each[:1] for each in found} == {b'R', kind}
        arrived |= dict(zip(ids, with_contents(found), strict=True))
    del beside
    assert [len(os.listdir(store.path)) for store in stores.values()] == [150 if caller else 0, 0, 0]
    discard(arrived.pop(299))
    assert [decode_result(arrived[id]) for id in range(299)] == values[:299]
    for store in stores.values():
        assert not os.listdir(store.path)
        store.close()
    assert open_descriptors() <= before


def test_results_whose_file_is_gone(tmp_path: Path) -> None:
    files = ResultFiles('elsewhere\n/', str(tmp_path / 'values'), str(tmp_path))
    payload = encode_value(os.urandom(300_000), files)
    discard(payload)
    assert not [*tmp_path.iterdir()]
    ((message, beside),) = with_files(pack_message(['results', array('Q', [1]), Payloads([payload])]))
    _, (_, found) = parse(results_placed(message, beside, ''), WORKER)
    with pytest.raises(DeserializationError, match='cannot read the value'):
        decode_result(with_content(found[0]))
    with pytest.raises(DeserializationError, match='cannot read a value'):
        decode_result(b'I' + bytes(100))


def test_other_messages_are_passed_on_as_they_are() -> None:
    for message in (b'', pack_message(['stop']), pack_message(['calls', array('Q', [1]), Payloads([b'F']), None])):
        assert list(with_files(message)) == [(message, [])]
