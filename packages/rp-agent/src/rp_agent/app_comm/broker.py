"""The broker of a pilot's channels: a process beside the agent, which all tasks connect to.

It reads its configuration from standard input, opens a socket per queue and two per publish/subscribe channel, writes
their addresses and keys to a file that only its owner can read, and prints a line when it is ready. It ends when its
standard input is closed, and removes the file. `rp_api.app_comm.protocol` describes the messages.
"""

from __future__ import annotations

import json
import logging
import signal
import sys
from collections import OrderedDict, deque
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import zmq

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

MAX_MESSAGES = 16384
"""Messages in a queue at most."""

MAX_BYTES = 64 << 20
"""Bytes of the messages in a queue at most; a larger message is accepted by an empty queue."""

_REMEMBERED = 65536
"""Putters whose last number is remembered."""


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
    stack.callback(Path(config['file']).unlink, missing_ok=True)
    private.write_file(config['file'], json.dumps(found).encode())


class Delivery(NamedTuple):
    """A message for a getter, as the answer to its request of that number."""

    getter: bytes
    number: int
    message: bytes


class MessageQueue:
    """A queue with limits; putters and getters are known by the identities of their sockets."""

    def __init__(self, max_messages: int = MAX_MESSAGES, max_bytes: int = MAX_BYTES) -> None:
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._messages: deque[bytes] = deque()
        self._bytes = 0
        self._accepted: OrderedDict[bytes, int] = OrderedDict()   # last number of each putter, accepted or cancelled
        self._putters: dict[bytes, tuple[int, int]] = {}   # that wait for room: number and size of their message
        self._getters: dict[bytes, int] = {}   # that wait for a message, the longest wait first
        self._unacknowledged: dict[bytes, Delivery] = {}

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def peers(self) -> set[bytes]:
        """The peers whose loss matters."""
        return {*self._putters, *self._getters, *self._unacknowledged}

    def put(self, putter: bytes, number: int, message: bytes) -> bool:
        """Accept a message, or return False if the queue is full: the putter is told when it has room."""
        if self._accepted.get(putter, 0) >= number:   # repeated
            return True
        if self._messages and (len(self._messages) >= self._max_messages
                               or self._bytes + len(message) > self._max_bytes):
            self._putters[putter] = number, len(message)
            return False
        self._putters.pop(putter, None)
        self._settle(putter, number)
        self._messages.append(message)
        self._bytes += len(message)
        return True

    def get(self, getter: bytes, number: int) -> Delivery | None:
        """Make a getter wait for a message; a repeated request returns the message that was sent already."""
        sent = self._unacknowledged.get(getter)
        if sent is not None and sent.number == number:
            return sent
        self.got(getter, number - 1)
        self._getters[getter] = number
        return None

    def got(self, getter: bytes, number: int) -> None:
        """Remove the message that a getter has acknowledged."""
        sent = self._unacknowledged.get(getter)
        if sent is not None and sent.number <= number:
            del self._unacknowledged[getter]

    def cancel(self, peer: bytes, number: int) -> bool:
        """Cancel a request; return False if its answer is on its way."""
        sent = self._unacknowledged.get(peer)
        if (sent is not None and sent.number == number) or self._accepted.get(peer, 0) >= number:
            return False
        self._getters.pop(peer, None)
        self._putters.pop(peer, None)
        self._settle(peer, number)   # a repetition may still be on its way
        return True

    def lost(self, peer: bytes) -> None:
        """Forget a peer; the message that it has not acknowledged goes to another one."""
        self._getters.pop(peer, None)
        self._putters.pop(peer, None)
        sent = self._unacknowledged.pop(peer, None)
        if sent is not None:
            self._messages.appendleft(sent.message)
            self._bytes += len(sent.message)

    def deliver(self) -> Delivery | None:
        """Return the next message and the getter to send it to, if there are both."""
        if not self._messages or not self._getters:
            return None
        getter = next(iter(self._getters))
        message = self._messages.popleft()
        self._bytes -= len(message)
        sent = self._unacknowledged[getter] = Delivery(getter, self._getters.pop(getter), message)
        return sent

    def have_room(self) -> list[tuple[bytes, int]]:
        """Return the putters whose message fits, with the number of the request, if a quarter of the queue is free."""
        if not self._putters or (len(self._messages) * 4 > self._max_messages * 3
                                 or (self._messages and self._bytes * 4 > self._max_bytes * 3)):
            return []
        found = [(putter, number) for putter, (number, size) in self._putters.items()
                 if not self._messages or self._bytes + size <= self._max_bytes]
        for putter, _ in found:
            del self._putters[putter]
        return found

    def _settle(self, peer: bytes, number: int) -> None:
        """Ignore further requests of a peer up to this number to put a message."""
        self._accepted[peer] = number
        self._accepted.move_to_end(peer)
        if len(self._accepted) > _REMEMBERED:
            self._accepted.popitem(last=False)
