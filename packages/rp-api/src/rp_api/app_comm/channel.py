"""Channels as tasks use them: `AppQueue`, `AppPublisher` and `AppSubscriber`; see `protocol` for the messages."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import zmq

from rp_api import units
from rp_api.app_comm.protocol import DATA, FROM_QUEUE, HELLO, channels_file, is_queue
from rp_api.errors import CoordinationError
from rp_api.system import limits, private
from rp_api.transport.access import Access
from rp_api.transport.keys import make_client
from rp_api.wire import codec, form

REPEAT = 5.0
"""Seconds without an answer after which a request is repeated, and the end of the pilot is noticed."""

CANCEL_TIMEOUT = 5.0
"""Seconds to wait for the answer to `cancel`."""

SUBSCRIBE_TIMEOUT = 60.0
"""Seconds until a subscriber is connected."""

LINGER = 10.0
"""Seconds at the end for published messages to be sent."""


class _Channel:
    """One side of a channel: a socket that is connected to the broker of the pilot."""

    def __init__(self, name: str, side: str, kind: int, sandbox: str | None) -> None:
        self.name = name
        directory = sandbox or os.environ.get('RP_PILOT_SANDBOX')
        if not directory:
            raise CoordinationError(f'the channel {name} belongs to a pilot: use it in a task, or name the sandbox of '
                                    'the pilot')
        self._file = channels_file(directory)
        self._access = self._read(side)
        limits.require_threads(f'the channel {name}', limits.OF_ZEROMQ)
        self._context: zmq.Context[Any] = zmq.Context()
        self._socket: zmq.Socket[bytes] = self._context.socket(kind)
        make_client(self._socket, self._access.keys, self._access.server_key)
        self._socket.linger = 0
        self._prepare()
        self._socket.connect(self._access.address)

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave the channel; may be called again."""
        if not self._socket.closed:
            self._socket.close()
            self._context.term()

    def _prepare(self) -> None:
        """Set options of the socket."""

    def _read(self, side: str) -> Access:
        try:
            channels = json.loads(private.read_file(self._file))
        except FileNotFoundError:
            raise CoordinationError(f'{self._file} does not exist: the pilot has no channels, or has ended') from None
        if self.name not in channels:
            raise CoordinationError(f'the pilot has no channel {self.name!r}, but {", ".join(channels)}: '
                                    'see PilotDescription.app_comm')
        return Access.read(channels[self.name][side])

    def _wait(self, events: int, until: float | None) -> bool:
        """Return whether the socket became ready before the deadline; at most `REPEAT` seconds are waited.

        Raises CoordinationError if the channel was closed with its pilot.
        """
        left = REPEAT if until is None else min(REPEAT, until - time.monotonic())
        if self._socket.poll(max(0, int(left * 1000)), events):
            return True
        if left >= REPEAT and not os.path.exists(self._file):
            raise CoordinationError(f'the channel {self.name} was closed: its pilot has ended')
        return False


class AppQueue(_Channel):
    """A queue between tasks: any number of them put messages, and each message goes to one that gets it.

    Use it in one thread. Messages are plain data: None, bool, numbers, text, bytes, lists, and dicts of these.

    Args:
        name: Name of the channel, as in `PilotDescription.app_comm`; it ends in `_queue`.
        sandbox: Path of the pilot's sandbox, for programs that are not tasks of the pilot; they need to reach its
            files and nodes. Default: `$RP_PILOT_SANDBOX`.

    Raises:
        ValueError: The name does not end in `_queue`.
        RuntimeError: The pilot has no such channel, or has ended.
    """

    def __init__(self, name: str, sandbox: str | None = None) -> None:
        if not is_queue(name):
            raise ValueError(f'a queue is needed, whose name ends in "_queue", not {name!r}')
        self._number = 0
        super().__init__(name, 'in', zmq.DEALER, sandbox)

    def put(self, message: Any, timeout: units.Time | None = None) -> None:
        """Put a message into the queue, and wait until the queue has it; a full queue has it when there is room.

        Args:
            message: Plain data.
            timeout: Seconds to wait at most; default: as long as the pilot lives.

        Raises:
            TimeoutError: The queue did not have room in time, and has not taken the message.
            TypeError: The message is not plain data.
            RuntimeError: The pilot has ended.
        """
        self._ask('put', timeout, codec.pack(message))

    def get(self, timeout: units.Time | None = None) -> Any:
        """Remove the oldest message from the queue and return it; wait for one if the queue is empty.

        Args:
            timeout: Seconds to wait at most; default: as long as the pilot lives.

        Returns:
            The message. No other `get` returns it.

        Raises:
            TimeoutError: No message came in time.
            RuntimeError: The pilot has ended.
        """
        return codec.unpack(self._ask('get', timeout))

    def close(self) -> None:
        """Leave the queue; may be called again."""
        if not self._socket.closed:
            self._socket.linger = 1000
            with suppress(zmq.ZMQError):
                self._say('bye')
        super().close()

    def _prepare(self) -> None:
        self._socket.setsockopt(zmq.IDENTITY, os.urandom(16))   # stays the same when it reconnects

    def _ask(self, operation: str, timeout: units.Time | None, *frames: bytes) -> bytes:
        """Send a request, and return the message of its answer."""
        self._number += 1
        timeout = units.limit(timeout)
        until = None if timeout is None else time.monotonic() + timeout
        cancelled = False
        self._say(operation, *frames)
        while True:
            if self._wait(zmq.POLLIN, until):
                answer, message = self._answer()
                if answer == 'room' and not cancelled:
                    self._say(operation, *frames)
                elif answer == 'message':
                    self._say('got')
                if answer in ('ok', 'message'):
                    return message
                if answer != 'cancelled':
                    continue
            elif until is None or time.monotonic() < until:
                self._say(operation, *frames)
                continue
            elif not cancelled:   # the answer may be on its way
                cancelled = True
                until = time.monotonic() + CANCEL_TIMEOUT
                self._say('cancel')
                continue
            raise TimeoutError(f'{operation} at {self.name}: nothing for {timeout} s')

    def _answer(self) -> tuple[str, bytes]:
        """Return the operation and the message of an answer to the present request; empty for others."""
        header, *frames = self._socket.recv_multipart()
        operation, (number,) = form.parse(header, FROM_QUEUE, 'the broker')
        return (operation, b''.join(frames)) if number == self._number else ('', b'')

    def _say(self, operation: str, *frames: bytes) -> None:
        with suppress(zmq.Again):   # it is repeated
            self._socket.send_multipart([codec.pack([operation, self._number]), *frames], zmq.NOBLOCK)


class AppPublisher(_Channel):
    """A publisher: sends messages to all tasks that have subscribed to their topic at that time.

    Use it in one thread.

    Args:
        name: Name of the channel, as in `PilotDescription.app_comm`; it ends in `_pubsub`.
        sandbox: Path of the pilot's sandbox, see `AppQueue`.

    Raises:
        ValueError: The name does not end in `_pubsub`.
        RuntimeError: The pilot has no such channel, or has ended.
    """

    def __init__(self, name: str, sandbox: str | None = None) -> None:
        super().__init__(_pubsub(name), 'in', zmq.PUSH, sandbox)

    def publish(self, message: Any, topic: str = '', timeout: units.Time | None = None) -> None:
        """Publish a message.

        Args:
            message: Plain data, see `AppQueue`.
            topic: The topic.
            timeout: Seconds to wait at most for the connection, or while the broker is busy; default: as long as the
                pilot lives.

        Raises:
            TimeoutError: The message could not be sent in time.
            TypeError: The message is not plain data.
            RuntimeError: The pilot has ended.
        """
        frames = [DATA + topic.encode(), codec.pack(message)]
        timeout = units.limit(timeout)
        until = None if timeout is None else time.monotonic() + timeout
        while not self._wait(zmq.POLLOUT, until):
            if until is not None and time.monotonic() >= until:
                raise TimeoutError(f'nothing can be published at {self.name} for {timeout} s')
        self._socket.send_multipart(frames)

    def _prepare(self) -> None:
        self._socket.linger = int(LINGER * 1000)
        self._socket.immediate = True


class AppSubscriber(_Channel):
    """A subscriber: gets what is published from now on. Use it in one thread.

    A subscriber that is too slow loses messages: 4096 wait for it.

    Args:
        name: Name of the channel, as in `PilotDescription.app_comm`; it ends in `_pubsub`.
        topics: Topics, or how they begin; default: all.
        sandbox: Path of the pilot's sandbox, see `AppQueue`.

    Raises:
        ValueError: The name does not end in `_pubsub`.
        RuntimeError: The pilot has no such channel, or has ended.
        TimeoutError: The channel cannot be reached within a minute.
    """

    def __init__(self, name: str, topics: str | Iterable[str] = '', sandbox: str | None = None) -> None:
        self._topics = [topics] if isinstance(topics, str) else list(topics)
        self._waiting: list[list[bytes]] = []
        self._hello = HELLO + os.urandom(8)
        super().__init__(_pubsub(name), 'out', zmq.SUB, sandbox)
        try:
            self._until_subscribed()
        except BaseException:
            self.close()
            raise

    def get(self, timeout: units.Time | None = None) -> tuple[str, Any]:
        """Return the next message that was published, and wait for it.

        Args:
            timeout: Seconds to wait at most; default: as long as the pilot lives.

        Returns:
            The topic and the message.

        Raises:
            TimeoutError: No message came in time.
            RuntimeError: The pilot has ended.
        """
        topic, message = self._waiting.pop(0) if self._waiting else self._receive(timeout)
        return topic.removeprefix(DATA).decode(), codec.unpack(message)

    def _prepare(self) -> None:
        for topic in self._topics:
            self._socket.subscribe(DATA + topic.encode())
        self._socket.subscribe(self._hello)   # last: the answer means that all are in effect

    def _until_subscribed(self) -> None:
        while (frames := self._receive(SUBSCRIBE_TIMEOUT))[0] != self._hello:
            self._waiting.append(frames)
        self._socket.unsubscribe(self._hello)

    def _receive(self, timeout: units.Time | None) -> list[bytes]:
        timeout = units.limit(timeout)
        until = None if timeout is None else time.monotonic() + timeout
        while not self._wait(zmq.POLLIN, until):
            if until is not None and time.monotonic() >= until:
                raise TimeoutError(f'{self.name}: nothing for {timeout} s')
        return self._socket.recv_multipart()


def _pubsub(name: str) -> str:
    if not name.endswith('_pubsub'):
        raise ValueError(f'a publish/subscribe channel is needed, whose name ends in "_pubsub", not {name!r}')
    return name
