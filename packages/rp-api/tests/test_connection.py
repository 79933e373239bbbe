"""The two sides of a connection: where a socket listens, who gets in, and who is told of what."""

from __future__ import annotations

import os
import socket as sockets
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import zmq
from leftovers import open_descriptors

from rp_api.errors import CoordinationError
from rp_api.loop.event_loop import Loop
from rp_api.transport import keys
from rp_api.transport.connection import BACKLOG, Listener, PeerConnection, arrivals, refuse_loudly

TIMEOUT = 30.0


class Site:
    """A context with a gate, and makers of both sides, which are closed at last; `heard` is what the servers got."""

    def __init__(self) -> None:
        self.context: zmq.Context[Any] = zmq.Context()
        self.loop = Loop()
        self.keys, self.own = keys.generate(), keys.generate()
        self.gate = keys.Gate(self.context, self.loop)
        self.gate.allow(self.own.public)
        self.heard: list[list[bytes]] = []
        self.refusals: list[str] = []
        self._ends: list[Any] = []

    def listener(self, address: str | None = None, own: keys.KeyPair | None = None) -> Listener:
        def receive() -> None:
            self.heard.extend(frames[1:] for frames in arrivals(made.socket))

        made = Listener(self.loop, zmq.ROUTER, own or self.keys, self.gate, address, keys.DOMAIN, 100, receive)
        self._ends.append(made)
        return made

    def connection(self, address: str, own: keys.KeyPair | None = None,
                   refused: Callable[[str], object] | None = None) -> PeerConnection:
        made = PeerConnection(self.loop, zmq.DEALER, address, own or self.own, self.keys.public, self.context,
                          lambda: None, lambda: None, refused or self.refusals.append)
        made.open()
        self._ends.append(made)
        made.socket.send(b'hello')
        return made

    def until(self, holds: Callable[[], object]) -> None:
        """Run the loop until that has come true."""
        def ask() -> None:
            if holds():
                self.loop.stop()
            else:
                self.loop.call_later(0.002, ask)

        late = self.loop.call_later(TIMEOUT, pytest.fail, 'it did not come true')
        self.loop.call_soon(ask)
        self.loop.run()
        late.cancel()

    def close(self) -> None:
        for end in reversed(self._ends):
            end.close(0)
        self.gate.close()
        self.loop.close()
        self.context.term()


@pytest.fixture
def site() -> Iterator[Site]:
    files = open_descriptors()
    made = Site()
    yield made
    made.close()
    assert open_descriptors() <= files


def addresses(kind: str, directory: Path) -> str | None:
    return {'fresh': None, 'tcp': 'tcp://127.0.0.1', 'ipc': f'ipc://{directory}/s'}[kind]


@pytest.mark.parametrize('kind', ['fresh', 'tcp', 'ipc'])
class TestAccess:
    def test_a_known_key_gets_in(self, site: Site, tmp_path: Path, kind: str) -> None:
        site.connection(site.listener(addresses(kind, tmp_path)).address)
        site.until(lambda: site.heard == [[b'hello']])

    def test_a_strange_key_is_refused(self, site: Site, tmp_path: Path, kind: str) -> None:
        address = site.listener(addresses(kind, tmp_path)).address
        site.connection(address, keys.generate())
        site.until(lambda: site.refusals)
        assert site.refusals == [f'{address} does not accept the key of this process']
        assert site.gate.refused == 1
        assert not site.heard

    def test_a_refusal_ends_the_loop_unless_the_caller_handles_it(self, site: Site, tmp_path: Path, kind: str) -> None:
        address = site.listener(addresses(kind, tmp_path)).address
        site.connection(address, keys.generate(), refuse_loudly)
        with pytest.raises(CoordinationError, match=f'{address} does not accept the key'):
            site.loop.run()

    def test_no_key_gets_nowhere(self, site: Site, tmp_path: Path, kind: str) -> None:
        address = site.listener(addresses(kind, tmp_path)).address
        stranger = site.context.socket(zmq.DEALER)
        monitor = stranger.get_monitor_socket(zmq.Event.DISCONNECTED)
        stranger.connect(address)
        with suppress(zmq.Again):   # refused already
            stranger.send(b'hello', zmq.NOBLOCK)
        site.until(lambda: monitor.poll(0))
        monitor.close(linger=0)
        stranger.close(linger=0)
        assert not site.heard

    def test_a_server_with_other_keys_gets_nothing(self, site: Site, tmp_path: Path, kind: str,
                                                   caplog: pytest.LogCaptureFixture) -> None:
        site.connection(site.listener(addresses(kind, tmp_path), keys.generate()).address)
        site.until(lambda: 'cannot connect to' in caplog.text)
        assert not site.heard


def test_a_thousand_peers_may_connect_at_once(site: Site) -> None:
    assert site.listener().socket.backlog == BACKLOG >= 1000


def test_strangers_are_counted(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    listener = site.listener('tcp://127.0.0.1')
    host, _, port = listener.address.removeprefix('tcp://').rpartition(':')
    for _ in range(5):
        with sockets.create_connection((host, int(port))) as stranger:
            stranger.sendall(b'GET / HTTP/1.0')
    site.until(lambda: listener.strangers == 5)
    told = [record.getMessage().rpartition('(')[2] for record in caplog.records if 'stranger' in record.getMessage()]
    assert told == ['1 so far)', '2 so far)', '4 so far)']


class TestAddresses:
    def test_a_fresh_address_is_private_and_goes_away(self, site: Site) -> None:
        listener = site.listener()
        directory = os.path.dirname(listener.address.removeprefix('ipc://'))
        assert stat.S_IMODE(os.stat(directory).st_mode) == 0o700
        listener.close()
        assert not os.path.exists(directory)

    def test_a_long_temporary_directory_is_avoided(self, site: Site, tmp_path: Path,
                                                   monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv('TMPDIR', str(tmp_path / ('x' * 100)))
        assert site.listener().address.startswith('ipc:///tmp/rp.')

    @pytest.mark.parametrize('address', ['tcp://127.0.0.1', 'tcp://127.0.0.1:0', 'tcp://lo:0'])
    def test_a_free_port_of_an_interface_is_found(self, site: Site, address: str) -> None:
        host, _, port = site.listener(address).address.rpartition(':')
        assert host == 'tcp://127.0.0.1'
        assert int(port) > 0

    @pytest.mark.parametrize('address', [
        '', 'ipc://', 'tcp://', 'tcp://*:0', 'tcp://0.0.0.0', 'tcp://127.0.0.1:http', 'inproc://x',
        'tcp://nowhere.invalid:0', 'ipc:///proc/nonexistent/x', f'ipc:///tmp/{"x" * 200}'])
    def test_other_addresses_are_refused(self, site: Site, address: str) -> None:
        with pytest.raises(CoordinationError, match='cannot listen at'):
            site.listener(address)

    def test_a_directory_that_others_can_enter_is_refused(self, site: Site, tmp_path: Path) -> None:
        tmp_path.chmod(0o755)
        with pytest.raises(CoordinationError, match=r'is not ours alone: .*mode 0755, allowed is 0700'):
            site.listener(f'ipc://{tmp_path}/x')

    def test_an_address_that_is_none_cannot_be_connected_to(self, site: Site) -> None:
        with pytest.raises(CoordinationError, match="cannot connect to 'nonsense'"):
            site.connection('nonsense')
