"""Channels between two managers of a worker, over pipes that may be lost and replaced: carriers, or ZeroMQ.

A channel carries numbered messages, each with a kind, bytes and perhaps open files. A sender keeps a message until the
other side has acknowledged it, and sends it again over the next pipe. So each message arrives once, in order.

The first message over a pipe is `HELLO`, from both sides, with the number of the last message that has arrived. A pipe
is used when that of the other side has come; until then, the one before is. `AFTER` then has the number of the message
before the next one. `RECEIVED` acknowledges messages. These kinds have no numbers themselves.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Callable, Sequence
from typing import Protocol

from rp_api.loop.event_loop import Loop, Timer
from rp_api.system.shared_directory import shared_memory
from rp_api.transport.resend import ResendQueue

HELLO, RECEIVED, AFTER = range(3)
"""Kinds of messages of the channel itself."""

FIRST_KIND = 3
"""The first kind that users of a channel may take."""

_NUMBER = struct.Struct('=Q')
_OFTEN = 16                    # messages after which an acknowledgement is sent at once
_ACKNOWLEDGE_INTERVAL_S = 0.1  # and seconds otherwise


class OpenFile:
    """A descriptor that is closed with this object."""

    __slots__ = ('fd',)

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __del__(self) -> None:
        os.close(self.fd)


def new_file(size: int = 0) -> OpenFile:
    """Return a new file of this size in memory, without a name."""
    file = OpenFile(os.open(shared_memory(), os.O_RDWR | os.O_TMPFILE | os.O_CLOEXEC, 0o600))
    os.ftruncate(file.fd, size)
    return file


def link(file: OpenFile, path: str) -> None:
    """Give a file a name."""
    # without a directory, Python calls link(), which does not follow links
    os.link(f'/proc/self/fd/{file.fd}', path, src_dir_fd=file.fd, follow_symlinks=True)


def file_with(data: bytes) -> OpenFile:
    """Return a new file with this content."""
    file, view = new_file(), memoryview(data)
    while view:
        view = view[os.write(file.fd, view):]
    return file


def content_of(file: OpenFile) -> bytes:
    """Return the content of a file."""
    size = os.fstat(file.fd).st_size
    if not size:
        return b''
    with mmap.mmap(file.fd, size, access=mmap.ACCESS_READ) as content:
        return content[:]


class Pipe(Protocol):
    """A way to the other side, which keeps the order of messages until it is lost."""

    def write(self, kind: int, data: bytes, files: Sequence[OpenFile]) -> None:
        """Send a message."""

    def flush(self) -> None:
        """Wait until messages are on their way, for a limited time."""

    def close(self) -> None:
        """Close the pipe; it is used no more."""


class End(Protocol):
    """What a pipe calls."""

    def take(self, kind: int, data: bytes, files: list[OpenFile]) -> None:
        """Handle a message."""

    def lost(self) -> None:
        """Handle the loss of the pipe."""


Heard = Callable[[int, bytes, list[OpenFile]], object]


class Channel:
    """One end of a channel.

    `heard(kind, data, files)` is called with each message, `changed()` when a pipe is ready, or all are lost.
    """

    def __init__(self, loop: Loop, heard: Heard, changed: Callable[[], object]) -> None:
        self._loop = loop
        self._heard = heard
        self._changed = changed
        self._sent = ResendQueue[tuple[int, bytes, Sequence[OpenFile]]]()
        self._received = self._told = 0
        self._used: PipeEnd | None = None
        self._next: PipeEnd | None = None   # until the other side says hello
        self._acknowledge: Timer | None = None

    @property
    def pipe(self) -> Pipe | None:
        """The pipe to the other side, if there is one."""
        return self._used.pipe if self._used is not None else None

    def attach(self, open_pipe: Callable[[PipeEnd], Pipe], *, yields: bool = False) -> PipeEnd | None:
        """Use another pipe, when the other side uses it, too; one that `yields` only if no other is to be used."""
        if self._next is not None:
            if yields:
                return None
            self._next.pipe.close()
        end = self._next = PipeEnd(self, open_pipe)
        end.pipe.write(HELLO, _NUMBER.pack(self._received), ())
        return end

    def detach(self) -> None:
        """Close all pipes."""
        for end in (self._next, self._used):
            if end is not None:
                end.pipe.close()
                self.lost(end)

    def send(self, kind: int, data: bytes = b'', files: Sequence[OpenFile] = ()) -> None:
        """Send a message."""
        self._sent.add((kind, data, files))
        if self._used is not None:
            self._used.pipe.write(kind, data, files)

    def flush(self) -> None:
        """Wait until messages are on their way, for a limited time."""
        if self._used is not None:
            self._used.pipe.flush()

    def take(self, end: PipeEnd, kind: int, data: bytes, files: list[OpenFile]) -> None:
        """Handle what has arrived over a pipe."""
        if kind == HELLO:
            if end is self._next:
                self._use(end, _NUMBER.unpack(data)[0])
        elif end is not self._used:
            return
        elif kind == AFTER:
            end.arrived = _NUMBER.unpack(data)[0]
        elif kind == RECEIVED:
            self._sent.acknowledge(_NUMBER.unpack(data)[0])
        else:
            end.arrived += 1
            if end.arrived > self._received:   # else it has come over the pipe before, too
                self._received += 1
                self._acknowledge_soon(at_once=bool(files))
                self._heard(kind, data, files)

    def lost(self, end: PipeEnd) -> None:
        """Handle the loss of a pipe."""
        if end is self._next:
            self._next = None
        elif end is self._used:
            self._used = None
            if self._acknowledge is not None:
                self._acknowledge.cancel()
                self._acknowledge = None
            self._changed()

    def _use(self, end: PipeEnd, there: int) -> None:
        before, self._used, self._next = self._used, end, None
        if before is not None:
            before.pipe.close()
        self._sent.acknowledge(there)
        end.pipe.write(AFTER, _NUMBER.pack(self._sent.sent - len(self._sent)), ())
        for message in self._sent:
            end.pipe.write(*message)
        self._changed()

    def _acknowledge_soon(self, at_once: bool) -> None:
        if at_once or self._received - self._told >= _OFTEN:
            self._tell()
        elif self._acknowledge is None:
            self._acknowledge = self._loop.call_later(_ACKNOWLEDGE_INTERVAL_S, self._tell)

    def _tell(self) -> None:
        if self._acknowledge is not None:
            self._acknowledge.cancel()
            self._acknowledge = None
        self._told = self._received
        if self._used is not None:
            self._used.pipe.write(RECEIVED, _NUMBER.pack(self._received), ())


class PipeEnd:
    """The end of a pipe of a channel; `arrived` is the number of the last message that has arrived over it."""

    def __init__(self, channel: Channel, open_pipe: Callable[[PipeEnd], Pipe]) -> None:
        self._channel = channel
        self.arrived = 0
        self.pipe = open_pipe(self)

    def take(self, kind: int, data: bytes, files: list[OpenFile]) -> None:
        """Handle a message."""
        self._channel.take(self, kind, data, files)

    def lost(self) -> None:
        """Handle the loss of the pipe."""
        self._channel.lost(self)
