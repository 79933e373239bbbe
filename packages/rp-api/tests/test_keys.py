"""Keys stay with their owner, and only those whom the gate knows get in."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import zmq
from zmq.utils import z85

from rp_api.errors import CoordinationError
from rp_api.loop.event_loop import Loop
from rp_api.transport import keys

TIMEOUT = 30.0
REFUSALS = (zmq.Event.HANDSHAKE_FAILED_AUTH | zmq.Event.HANDSHAKE_FAILED_NO_DETAIL
            | zmq.Event.HANDSHAKE_FAILED_PROTOCOL)


class Site:
    """A server with a gate and a loop in a thread, and clients in a context of their own."""

    def __init__(self, address: str) -> None:
        self.context: zmq.Context[Any] = zmq.Context()
        self.clients: zmq.Context[Any] = zmq.Context()
        self.loop = Loop()
        self.gate = keys.Gate(self.context, self.loop)
        self.keys = keys.generate()
        self.server = self.context.socket(zmq.ROUTER)
        keys.make_server(self.server, self.keys)
        self.server.bind(address)
        self.address = self.server.getsockopt_string(zmq.LAST_ENDPOINT)
        self._open: list[zmq.Socket[Any]] = []
        self.messages: list[bytes] = []
        self.arrived = threading.Event()
        self.loop.add_socket(self.server, self._receive)
        self._thread = threading.Thread(target=self.loop.run)
        self._thread.start()

    def _receive(self) -> None:
        self.messages.append(self.server.recv_multipart()[-1])
        self.arrived.set()

    def client(self, own: keys.KeyPair | None, server: bytes) -> zmq.Socket[Any]:
        """Have a client say 'hello'; gives a socket that tells how its handshake ended."""
        socket = self.clients.socket(zmq.DEALER)
        if own:
            keys.make_client(socket, own, server)
        monitor: zmq.Socket[Any] = socket.get_monitor_socket(REFUSALS | zmq.Event.HANDSHAKE_SUCCEEDED)
        self._open += [monitor, socket]
        socket.connect(self.address)
        with suppress(zmq.Again):   # refused already
            socket.send(b'hello', zmq.NOBLOCK)
        return monitor

    def close(self) -> None:
        self.loop.stop()
        self._thread.join()
        self.loop.remove_socket(self.server)
        self.server.close(linger=0)
        self.gate.close()
        self.loop.close()
        self.context.term()
        for socket in self._open:
            socket.close(linger=0)
        self.clients.term()


@pytest.fixture(params=['tcp', 'ipc'])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    site = Site('tcp://127.0.0.1:*' if request.param == 'tcp' else f'ipc://{tmp_path}/server')
    yield site
    site.close()


def outcome(monitor: zmq.Socket[Any]) -> int:
    """The event that ended a handshake."""
    assert monitor.poll(int(TIMEOUT * 1000)), 'the handshake did not end'
    return int.from_bytes(monitor.recv_multipart()[0][:2], 'little')


def test_a_key_in_the_gate_gets_in(site: Site) -> None:
    own = keys.generate()
    site.gate.allow(own.public)
    monitor = site.client(own, site.keys.public)
    assert outcome(monitor) == zmq.Event.HANDSHAKE_SUCCEEDED
    assert site.arrived.wait(TIMEOUT)
    assert site.messages == [b'hello']
    assert site.gate.refused == 0


def test_an_unknown_key_is_refused_and_counted(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            monitor = site.client(keys.generate(), site.keys.public)
            assert outcome(monitor) == zmq.Event.HANDSHAKE_FAILED_AUTH
    assert site.gate.refused == 5
    told = [record.getMessage() for record in caplog.records if 'refused a peer' in record.message]
    assert [line.rpartition('(')[2] for line in told] == ['1 so far)', '2 so far)', '4 so far)']
    assert site.messages == []


def test_no_key_is_refused(site: Site) -> None:
    monitor = site.client(None, b'')
    assert outcome(monitor) & REFUSALS
    assert site.messages == []


def test_a_server_with_other_keys_is_refused(site: Site) -> None:
    own = keys.generate()
    site.gate.allow(own.public)
    monitor = site.client(own, keys.generate().public)
    assert outcome(monitor) & REFUSALS
    assert site.messages == []


def test_a_key_of_another_domain_is_refused(site: Site) -> None:
    other = keys.generate()
    site.gate.allow(other.public, 'elsewhere')
    monitor = site.client(other, site.keys.public)
    assert outcome(monitor) == zmq.Event.HANDSHAKE_FAILED_AUTH
    assert site.messages == []


def test_nobody_gets_in_where_no_gate_stands() -> None:
    site = Site('tcp://127.0.0.1:*')
    try:
        own = keys.generate()
        site.gate.allow(own.public)
        closed = threading.Event()
        site.loop.call_soon(site.gate.close)
        site.loop.call_soon(closed.set)
        assert closed.wait(TIMEOUT)
        monitor = site.client(own, site.keys.public)
        assert outcome(monitor) & REFUSALS
        assert site.messages == []
    finally:
        site.close()


class TestGateProtocol:
    """The gate's answers to requests that ZeroMQ itself would not send like this."""

    @pytest.fixture
    def gate(self) -> Iterator[keys.Gate]:
        context: zmq.Context[Any] = zmq.Context()
        self.loop = Loop()
        self.own = keys.generate()
        gate = keys.Gate(context, self.loop)
        gate.allow(self.own.public)
        self.asker = context.socket(zmq.DEALER)
        self.asker.connect('inproc://zeromq.zap.01')
        yield gate
        self.asker.close(linger=0)
        gate.close()
        self.loop.close()
        context.term()

    def ask(self, *frames: bytes) -> None:
        self.asker.send_multipart([b'', *frames])

    def answer(self) -> list[bytes]:
        self.loop.add_socket(self.asker, self.loop.stop)
        self.loop.run()
        frames: list[bytes] = self.asker.recv_multipart()
        return frames[1:]

    def test_a_known_key_is_admitted_by_name(self, gate: keys.Gate) -> None:
        self.ask(b'1.0', b'7', b'rp', b'127.0.0.1', b'', b'CURVE', z85.decode(self.own.public))
        assert self.answer() == [b'1.0', b'7', b'200', b'OK', self.own.public, b'']
        assert gate.refused == 0

    @pytest.mark.parametrize('frames', [
        (b'NULL',), (b'PLAIN', b'user', b'password'), (b'CURVE', b'short'), (b'CURVE',),
        (b'\xff\xfe', b'x' * 32)])
    def test_everything_else_is_refused(self, gate: keys.Gate, frames: tuple[bytes, ...]) -> None:
        self.ask(b'1.0', b'7', b'rp', b'127.0.0.1', b'', *frames)
        assert self.answer()[:3] == [b'1.0', b'7', b'400']
        assert gate.refused == 1

    def test_malformed_requests_do_no_harm(self, gate: keys.Gate) -> None:
        self.ask()
        self.ask(b'1.0', b'7', b'rp')
        self.ask(b'9.9', b'7', b'rp', b'127.0.0.1', b'', b'CURVE', z85.decode(self.own.public))
        self.asker.send_multipart([b'no delimiter'] + [b''] * 9)
        self.ask(b'1.0', b'8', b'\xff', b'127.0.0.1', b'', b'CURVE', z85.decode(self.own.public))
        assert self.answer()[:3] == [b'1.0', b'8', b'400']

    def test_a_context_has_one_gate(self, gate: keys.Gate) -> None:
        with pytest.raises(CoordinationError, match='has a gate already'):
            keys.Gate(gate.context, self.loop)


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / 'key'
    path.touch(mode=0o600)
    path.write_bytes(b'secret')
    return path


def test_keys_of_their_owner_are_read(key_file: Path) -> None:
    assert keys.read_private(key_file, 100) == b'secret'


@pytest.mark.parametrize('mode', [0o640, 0o604, 0o620, 0o601])
def test_keys_that_others_may_use_are_not_read(key_file: Path, mode: int) -> None:
    key_file.chmod(mode)
    with pytest.raises(CoordinationError, match=f'others may use it .mode {mode:04o}'):
        keys.read_private(key_file, 100)


def test_keys_of_another_user_are_not_read(key_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = os.stat(key_file).st_uid
    monkeypatch.setattr(os, 'geteuid', lambda: owner + 1)
    with pytest.raises(CoordinationError, match=f'it belongs to user {owner}'):
        keys.read_private(key_file, 100)


def test_links_directories_pipes_and_absent_files_are_not_read(key_file: Path, tmp_path: Path) -> None:
    (tmp_path / 'link').symlink_to(key_file)
    (tmp_path / 'directory').mkdir(mode=0o700)
    os.mkfifo(tmp_path / 'pipe', 0o600)
    for name in ('link', 'directory', 'pipe', 'absent'):
        with pytest.raises(CoordinationError, match=name):
            keys.read_private(tmp_path / name, 100)


def test_the_secret_does_not_show() -> None:
    pair = keys.generate()
    assert pair.secret.decode() not in f'{pair!r} {pair}'
    assert pair.public.decode() in repr(pair)


@pytest.mark.parametrize('key', [b'', b'a' * 39, b'~' * 40, 'a' * 40])
def test_what_is_no_key_is_refused_at_once(key: Any) -> None:
    good = keys.generate()
    with pytest.raises(CoordinationError, match='40 characters of z85'):
        keys.KeyPair(key, good.secret)
