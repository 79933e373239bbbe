"""The connection between agent and RAPTOR master breaks, again and again: no message is lost, and none comes twice."""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import zmq

from rp_agent.raptor.link import MasterLink
from rp_api.loop.event_loop import Loop
from rp_api.raptor_link import link_file
from rp_api.transport.access import Access
from rp_raptor.master.agent_link import AgentLink

pytestmark = pytest.mark.fault

MESSAGES = 3000
BREAKS = 6
TIMEOUT = 40.0


class Forwarder:
    """A TCP forwarder that can break all of its connections, with all that is on its way."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._open: list[socket.socket] = []
        self._lock = threading.Lock()
        self._listener = socket.create_server(('127.0.0.1', 0))
        self.port = self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def cut(self) -> None:
        """Break what is connected."""
        with self._lock:
            ends, self._open = self._open, []
        for end in ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._threads[0].join(TIMEOUT)
        self.cut()
        for thread in self._threads:
            thread.join(TIMEOUT)
            assert not thread.is_alive()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(('127.0.0.1', self._target))
                with self._lock:
                    self._open += [near, far]
                for pair in ((near, far), (far, near)):
                    self._threads.append(threading.Thread(target=self._pump, args=pair))
                    self._threads[-1].start()

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(4096):
                target.sendall(data)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        source.close()


class Master:
    """What a master hears; it says its next messages as it is asked to."""

    def __init__(self) -> None:
        self.heard: list[int] = []

    def on_cancel(self, uids: list[str]) -> None:
        self.heard.append(int(uids[0]))

    def on_agent_lost(self, reason: str) -> None:
        raise AssertionError(reason)

    def __getattr__(self, name: str) -> Any:
        return lambda *_: pytest.fail(name)


@contextmanager
def a_loop() -> Iterator[Loop]:
    loop = Loop()
    try:
        yield loop
    finally:
        loop.close()


@pytest.mark.parametrize('seed', [1, 2])
def test_messages_outlast_the_connection(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    heard: list[int] = []
    senders: set[bytes] = set()
    hellos: list[str] = []

    def receive(sender: bytes, operation: str, arguments: list[Any]) -> None:
        senders.add(sender)
        if operation == 'hello':
            hellos.append(arguments[0])
        else:
            heard.append(*arguments)

    with a_loop() as loop:
        link = MasterLink(loop, link_file(str(tmp_path)), 'tcp://127.0.0.1', receive)
        access = Access.load(link_file(str(tmp_path)))
        forwarder = Forwarder(int(access.address.rpartition(':')[2]))
        near = Access(f'tcp://127.0.0.1:{forwarder.port}', access.server, access.public, access.secret)
        context: zmq.Context[Any] = zmq.Context()
        master = Master()
        agent_link = AgentLink(loop, context, near, 'raptor.0000', near, master)
        breaks = sorted(rng.sample(range(100, MESSAGES), BREAKS))
        said = 0

        def go_on() -> None:
            """Say more, and break the connection while that is on its way."""
            nonlocal said
            if senders and said < MESSAGES:
                for _ in range(min(MESSAGES - said, rng.randrange(1, 60))):
                    said += 1
                    agent_link.send('credit', said)
                    for sender in senders:
                        link.send(sender, 'cancel', [str(said)])
                    if breaks and said >= breaks[0]:
                        breaks.pop(0)
                        forwarder.cut()
            if len(heard) == len(master.heard) == MESSAGES:
                loop.stop()
            else:
                loop.call_later(0.002, go_on)

        loop.call_soon(go_on)
        deadline = loop.call_later(TIMEOUT, loop.stop)
        loop.run()
        deadline.cancel()
        agent_link.close(0)
        link.close()
        forwarder.close()
        context.term()
    assert heard == master.heard == list(range(1, MESSAGES + 1))
    assert len(hellos) > 1, 'the connection was never lost'
