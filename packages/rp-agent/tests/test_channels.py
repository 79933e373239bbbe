"""Channels of the application with a real broker: queues, publish/subscribe, keys, and the end of the broker."""

from __future__ import annotations

import os
import signal
import stat
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import zmq

from rp_agent.app_comm.channels import Channels
from rp_agent.resource_manager.base import Allocation
from rp_api.app_comm.channel import AppPublisher, AppQueue, AppSubscriber
from rp_api.errors import CoordinationError, PlatformError
from rp_api.loop.event_loop import Loop
from rp_api.transport.keys import generate, make_client

NAMES = ['work_queue', 'result_queue', 'news_pubsub']
HERE = Allocation(('here',), 1, 0, 0, 0)


@pytest.fixture
def loop() -> Iterator[Loop]:
    found = Loop()
    yield found
    found.close()


@pytest.fixture
def reasons() -> list[str]:
    return []


@pytest.fixture
def channels(tmp_path: Path, loop: Loop, reasons: list[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Channels]:
    monkeypatch.setenv('RP_PILOT_SANDBOX', str(tmp_path))
    found = Channels(config(tmp_path), loop, HERE, reasons.append)
    yield found
    found.close()
    assert os.listdir(tmp_path) == ['app_comm.err']


def config(sandbox: Path) -> dict[str, Any]:
    return {'app_comm': NAMES, 'pilot_sandbox': str(sandbox), 'platform': {}, 'registry_address': 'tcp://nowhere:1'}


def in_thread(function: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=function)
    thread.start()
    return thread


def test_addresses_are_variables_and_the_file_is_private(channels: Channels, tmp_path: Path) -> None:
    assert sorted(channels.variables) == sorted(
        f'RP_{name}_{side}' for name in ('WORK_QUEUE', 'RESULT_QUEUE', 'NEWS_PUBSUB') for side in ('IN', 'OUT'))
    assert channels.variables['RP_WORK_QUEUE_IN'] == channels.variables['RP_WORK_QUEUE_OUT']
    assert channels.variables['RP_NEWS_PUBSUB_IN'] != channels.variables['RP_NEWS_PUBSUB_OUT']
    assert stat.S_IMODE((tmp_path / 'app_comm.json').stat().st_mode) == 0o600


@pytest.mark.usefixtures('channels')
def test_a_queue_keeps_messages_until_a_getter_comes() -> None:
    sent = [None, True, 7, 0.5, 'text', b'bytes', [1, [2]], {'a': {'b': 'c'}}]
    with AppQueue('work_queue') as queue:
        for message in sent:
            queue.put(message)
    with AppQueue('work_queue') as queue:
        assert [queue.get(10) for _ in sent] == sent
        with pytest.raises(TimeoutError, match=r'get at work_queue: nothing for 0\.01 s'):
            queue.get(0.01)
        with pytest.raises(TypeError):
            queue.put(object())


@pytest.mark.usefixtures('channels')
def test_each_message_goes_to_exactly_one_getter() -> None:
    count, received = 500, []

    def put(first: int) -> None:
        with AppQueue('work_queue') as queue:
            for number in range(first, first + count):
                queue.put(number)

    def get() -> None:
        with AppQueue('work_queue') as queue:
            while (number := queue.get(30)) is not None:
                received.append(number)

    getters = [in_thread(get) for _ in range(3)]
    putters = [in_thread(lambda first=first: put(first)) for first in (0, count)]   # type: ignore[misc]
    for thread in putters:
        thread.join()
    put_end = AppQueue('work_queue')
    for _ in getters:
        put_end.put(None)
    put_end.close()
    for thread in getters:
        thread.join()
    assert sorted(received) == list(range(2 * count))


@pytest.mark.usefixtures('channels')
def test_a_message_of_a_getter_that_dies_goes_to_another_one() -> None:
    with AppQueue('work_queue') as queue:
        queue.put('first')
        dying = AppQueue('work_queue')
        dying._number = 1
        dying._say('get')
        assert dying._socket.poll(10_000)   # it has the message, and has not acknowledged it
        dying._socket.close(linger=0)   # as when its process is killed
        dying._context.term()
        assert queue.get(30) == 'first'


@pytest.mark.usefixtures('channels')
def test_a_putter_waits_for_room() -> None:
    large = bytes(40 << 20)
    with AppQueue('work_queue') as queue, AppQueue('work_queue') as other:
        queue.put(large)
        with pytest.raises(TimeoutError, match='put at work_queue'):
            queue.put(large, timeout=0.2)
        putter = in_thread(lambda: queue.put([large, 'second']))
        assert len(other.get(30)) == len(large)
        putter.join()
        assert other.get(30)[1] == 'second', 'the message that found no room in time is not in the queue'


@pytest.mark.usefixtures('channels')
def test_subscribers_get_what_is_published_from_then_on() -> None:
    with AppPublisher('news_pubsub') as publisher:
        publisher.publish('before', 'sport.ball')
        with AppSubscriber('news_pubsub') as everything, AppSubscriber('news_pubsub', ['sport', 'x']) as sport:
            for topic in ('', 'sport.ball', 'weather', 'sport'):
                publisher.publish({'about': topic}, topic)
            assert [everything.get(10)[0] for _ in range(4)] in (
                ['', 'sport.ball', 'weather', 'sport'], ['sport.ball', '', 'sport.ball', 'weather'])
            assert [sport.get(10) for _ in range(2)] == [
                ('sport.ball', {'about': 'sport.ball'}), ('sport', {'about': 'sport'})]
            with pytest.raises(TimeoutError, match='news_pubsub: nothing for'):
                sport.get(0.01)


@pytest.mark.usefixtures('channels')
@pytest.mark.parametrize(('make', 'error', 'sentence'), [
    (lambda: AppQueue('news_pubsub'), ValueError, 'whose name ends in "_queue", not \'news_pubsub\''),
    (lambda: AppPublisher('work_queue'), ValueError, 'whose name ends in "_pubsub", not \'work_queue\''),
    (lambda: AppQueue('no_queue'), CoordinationError, "no channel 'no_queue', but work_queue, result_queue, news_pub"),
    (lambda: AppQueue('work_queue', sandbox='/nowhere'), CoordinationError, 'the pilot has no channels, or has ended'),
])
def test_wrong_names_are_refused(make: Callable[[], object], error: type[Exception], sentence: str) -> None:
    with pytest.raises(error, match=sentence):
        make()


def test_a_program_outside_of_a_pilot_has_no_channels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv('RP_PILOT_SANDBOX', raising=False)
    with pytest.raises(CoordinationError, match='work_queue belongs to a pilot: use it in a task, or name the sandbox'):
        AppQueue('work_queue')


def test_a_stranger_without_the_keys_gets_nothing(channels: Channels) -> None:
    context: zmq.Context[Any] = zmq.Context()
    queue = AppQueue('work_queue')
    for keys in (None, generate()):
        stranger: zmq.Socket[bytes] = context.socket(zmq.DEALER)
        if keys is not None:   # it even knows the public key of the broker
            make_client(stranger, keys, queue._access.server_key)
        stranger.linger = 0
        stranger.connect(channels.variables['RP_WORK_QUEUE_OUT'])
        stranger.send_multipart([b'\x92\xa3get\x01'])
        queue.put('secret')
        assert not stranger.poll(200)
        assert queue.get(10) == 'secret'
        stranger.close()
    listener: zmq.Socket[bytes] = context.socket(zmq.SUB)
    listener.subscribe(b'')
    listener.connect(channels.variables['RP_NEWS_PUBSUB_OUT'])
    with AppPublisher('news_pubsub') as publisher, AppSubscriber('news_pubsub') as subscriber:
        publisher.publish('secret')
        assert subscriber.get(10) == ('', 'secret')
        assert not listener.poll(100)
    listener.close()
    queue.close()
    context.term()


def test_malformed_messages_change_nothing(channels: Channels) -> None:
    with AppQueue('work_queue') as queue:
        for frames in ([b''], [b'\x91\xa3get'], [b'\x92\xa3put\x01'], [b'\x92\xa3get\x01', b'x'],
                       [b'\x92\xa1?\x01'] * 3):
            queue._socket.send_multipart(frames)
        queue.put('good')
        assert queue.get(10) == 'good'
    assert channels._child.process.poll() is None


def test_waiting_tasks_learn_of_the_end(tmp_path: Path, loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr('rp_api.app_comm.channel.REPEAT', 0.1)
    channels = Channels(config(tmp_path), loop, HERE, lambda reason: None)
    waiting = AppQueue('work_queue', sandbox=str(tmp_path))
    channels.close()
    with pytest.raises(CoordinationError, match='the channel work_queue was closed: its pilot has ended'):
        waiting.get()
    waiting.close()


@pytest.mark.usefixtures('channels')
def test_the_death_of_the_broker_is_reported(channels: Channels, loop: Loop, reasons: list[str]) -> None:
    loop.call_later(30, loop.stop)
    def broken(reason: str) -> None:
        reasons.append(reason)
        loop.stop()

    channels._broken = broken
    os.kill(channels._child.process.pid, signal.SIGKILL)
    loop.run()
    assert f'their broker (process {channels._child.process.pid}) has ended with exit code -9' in reasons[0]


def test_a_broker_that_cannot_listen_says_why(tmp_path: Path, loop: Loop) -> None:
    allocation = replace(HERE, names=('here', 'there'), elsewhere=(1,))
    (tmp_path / 'app_comm.json').mkdir()
    with pytest.raises(PlatformError, match=r'the channels of app_comm cannot be opened; see .*app_comm\.err'):
        Channels(config(tmp_path), loop, allocation, lambda reason: None)
