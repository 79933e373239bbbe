"""The broker of a pilot's channels: a process beside the agent, which all tasks connect to.

It reads its configuration from standard input, opens a socket per queue and two per publish/subscribe channel, writes
their addresses and keys to a file that only its owner can read, and prints a line when it is ready. It ends when its
standard input is closed, and removes the file. `rp_api.app_comm.protocol` describes the messages.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Any

import zmq

from rp_agent.app_comm.message_queue import Delivery, MessageQueue
from rp_agent.nodes.child import address_beside
from rp_api.app_comm.protocol import DATA, HELLO, TO_QUEUE, is_queue
from rp_api.errors import CoordinationError
from rp_api.loop.event_loop import Loop
from rp_api.system import private, signals
from rp_api.transport.access import AccessPoint
from rp_api.transport.connection import Listener, arrivals
from rp_api.transport.keys import Tally
from rp_api.wire import codec, form

_log = logging.getLogger('radical.pilot.app_comm')

Listen = Callable[..., Listener]
"""Makes a socket: its kind, the messages that wait for a peer at most, and the receiver."""

BACKLOG = 4096
"""Messages that wait for a subscriber at most; more are dropped for that subscriber."""

PROBE_DELAY = 0.05
"""Seconds from the loss of a connection until the peers are looked for that were lost."""


class QueueServer:
    """A queue and its socket (ROUTER)."""

    def __init__(self, loop: Loop, listen: Listen, malformed: Tally) -> None:
        self._loop = loop
        self._malformed = malformed
        self._queue = MessageQueue()
        self._probing = False
        self._listener = listen(zmq.ROUTER, 0, self._arrived, gone=self._gone)
        self.addresses = {'in': self._listener.address, 'out': self._listener.address}

    def close(self) -> None:
        """Close the socket."""
        self._listener.close(0)

    def _arrived(self) -> None:
        for peer, *frames in arrivals(self._listener.socket):
            try:
                operation, (number,) = form.parse(frames[0], TO_QUEUE, 'a task')
                if (len(frames) != 2) is (operation == 'put'):
                    raise CoordinationError(f'{operation} with {len(frames)} frames')
            except (CoordinationError, IndexError) as error:
                self._malformed.add(error)
                continue
            self._take(peer, operation, number, frames[-1])
        while (delivery := self._queue.deliver()) is not None:
            self._deliver(delivery)
        for putter, number in self._queue.have_room():
            self._send(putter, 'room', number)

    def _take(self, peer: bytes, operation: str, number: int, message: bytes) -> None:
        queue = self._queue
        if operation == 'put':
            self._send(peer, 'ok' if queue.put(peer, number, message) else 'full', number)
        elif operation == 'get':
            repeated = queue.get(peer, number)
            if repeated:
                self._deliver(repeated)
        elif operation == 'got':
            queue.got(peer, number)
        elif operation == 'bye':
            queue.lost(peer)
        elif queue.cancel(peer, number):
            self._send(peer, 'cancelled', number)

    def _deliver(self, delivery: Delivery) -> None:
        self._send(delivery.getter, 'message', delivery.number, delivery.message)

    def _send(self, peer: bytes, operation: str, number: int, *frames: bytes) -> None:
        try:
            self._listener.socket.send_multipart([peer, codec.pack([operation, number]), *frames], zmq.NOBLOCK)
        except zmq.ZMQError as error:
            _log.debug('%s has left before %s: %s', peer.hex(), operation, error)
            self._queue.lost(peer)

    def _gone(self) -> None:
        if not self._probing:
            self._probing = True
            self._loop.call_later(PROBE_DELAY, self._probe)

    def _probe(self) -> None:
        """Find the peers that were lost: sending to them fails."""
        self._probing = False
        for peer in self._queue.peers:
            self._send(peer, 'probe', 0)
        self._arrived()


class TopicServer:
    """A publish/subscribe channel: a socket for publishers (PULL) and one for subscribers (XPUB)."""

    def __init__(self, listen: Listen) -> None:
        self._publishers = listen(zmq.PULL, 0, self._published)
        self._subscribers = listen(zmq.XPUB, BACKLOG, self._subscribed)
        self.addresses = {'in': self._publishers.address, 'out': self._subscribers.address}

    def close(self) -> None:
        """Close the sockets; what was published is still sent."""
        self._publishers.close(0)
        self._subscribers.close()

    def _published(self) -> None:
        for frames in arrivals(self._publishers.socket):
            if len(frames) == 2 and frames[0].startswith(DATA):
                self._subscribers.socket.send_multipart(frames)

    def _subscribed(self) -> None:
        """Answer a subscriber that asks whether its subscriptions are in effect."""
        for frames in arrivals(self._subscribers.socket):
            if frames[0].startswith(b'\x01' + HELLO):
                self._subscribers.socket.send_multipart([frames[0][1:], b''])


def main() -> int:
    """Serve channels until standard input is closed."""
    signals.set_defaults()
    config: dict[str, Any] = json.loads(sys.stdin.buffer.readline())
    for number in (signal.SIGTERM, signal.SIGINT):   # the agent handles them for the whole pilot
        signal.signal(number, signal.SIG_IGN)
    with ExitStack() as stack:
        loop = Loop()
        stack.callback(loop.close)
        _serve(config, loop, stack)
        loop.add_fd(sys.stdin.fileno(), loop.stop)
        print('ready', flush=True)
        loop.run()
    return 0


def _serve(config: dict[str, Any], loop: Loop, stack: ExitStack) -> None:
    def listen(kind: int, *arguments: Any, **more: Any) -> Listener:
        return point.listen(kind, config['address'] or address_beside(config['hub']), *arguments, **more)

    point = AccessPoint(loop)
    stack.callback(point.close)
    malformed = Tally('dropped what a task has sent to a queue')
    found = {}
    for name in config['names']:
        server = QueueServer(loop, listen, malformed) if is_queue(name) else TopicServer(listen)
        stack.callback(server.close)
        found[name] = {side: point.admit(address).as_dict() for side, address in server.addresses.items()}
    stack.callback(_remove, config['file'])
    private.write_file(config['file'], json.dumps(found).encode())


def _remove(path: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(path)
