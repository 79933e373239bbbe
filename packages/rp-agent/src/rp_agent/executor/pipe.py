"""Pipe writer: writes to a pipe without blocking, and buffers data until the pipe has room."""

from __future__ import annotations

import os
import select

from rp_api.loop.event_loop import Loop


class PipeWriter:
    """The write end of a pipe, which it owns; a negative descriptor is a closed pipe."""

    __slots__ = ('_descriptor', '_loop', '_room', '_unsent')

    def __init__(self, loop: Loop, descriptor: int) -> None:
        self._loop = loop
        self._descriptor = descriptor
        self._unsent = bytearray()
        self._room: select.epoll | None = None
        if descriptor >= 0:
            os.set_blocking(descriptor, False)

    def write(self, data: bytes) -> None:
        """Write data, now or when the pipe has room; it is lost if the pipe is closed or the reader has ended."""
        if self._descriptor >= 0:
            self._unsent += data
            if self._room is None:
                self._write()

    def close(self) -> None:
        """Close the pipe, and drop buffered data."""
        self._stop_waiting_for_room()
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _write(self) -> None:
        try:
            while self._unsent:
                with memoryview(self._unsent) as rest:
                    written = os.write(self._descriptor, rest)
                del self._unsent[:written]
        except BlockingIOError:
            self._wait_for_room()
            return
        except BrokenPipeError:   # the owner of the reader reports its end
            self._unsent.clear()
        self._stop_waiting_for_room()

    def _wait_for_room(self) -> None:
        """Watch for room by an epoll descriptor, because the loop watches descriptors only for reading."""
        if self._room is None:
            self._room = select.epoll()
            self._room.register(self._descriptor, select.EPOLLOUT)
            self._loop.add_fd(self._room.fileno(), self._write)

    def _stop_waiting_for_room(self) -> None:
        if self._room is not None:
            self._loop.remove_fd(self._room.fileno())
            self._room.close()
            self._room = None
