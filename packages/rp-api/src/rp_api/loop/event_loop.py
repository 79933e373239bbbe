"""The event loop: one thread that waits for file descriptors, ZeroMQ sockets and deadlines, without polling.

Rules: callbacks run one after the other in the thread that called `run()`; they must not block. Only `call_soon` and
`stop` may be called from other threads. An exception in a callback ends `run()` and is raised from it, so that a broken
component ends instead of continuing in an undefined state.
"""

from __future__ import annotations

import heapq
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import zmq

_MAX_WAIT_S = 3600.0
"""Seconds of the longest single wait; this also limits an infinite deadline."""

_READABLE = int(zmq.POLLIN)   # a plain number is much faster than the enum

_MIN_TIMERS_TO_TIDY = 1024
"""Number of timers above which cancelled ones are removed; otherwise they stay until they are due."""


def is_readable(socket: zmq.Socket[Any]) -> bool:
    """Return whether a message can be received: this is cheaper than the exception of an attempt that fails."""
    return bool(int(socket.getsockopt(zmq.EVENTS)) & _READABLE)


class Timer:
    """A callback with a deadline (seconds of the monotonic clock); equal deadlines keep their order."""

    __slots__ = ('args', 'callback', 'deadline', 'number')

    def __init__(self, deadline: float, number: int, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
        self.deadline = deadline
        self.number = number
        self.callback: Callable[..., object] | None = callback
        self.args = args

    def __lt__(self, other: Timer) -> bool:
        return (self.deadline, self.number) < (other.deadline, other.number)

    def cancel(self) -> None:
        """Prevent the call of the callback, if it was not called yet."""
        self.callback = None
        self.args = ()


class Loop:
    """An event loop over file descriptors (epoll), ZeroMQ sockets and timers."""

    def __init__(self) -> None:
        self._ready: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._timers: list[Timer] = []
        self._timers_made = 0
        self._tidy_at = _MIN_TIMERS_TO_TIDY
        self._fds: dict[int, Callable[[], object]] = {}
        self._sockets: dict[zmq.Socket[Any], int] = {}   # with the descriptor that signals events
        self._asked: dict[zmq.Socket[Any], Callable[[], object]] = {}   # sockets that may have events
        self._alone: set[zmq.Socket[Any]] = set()   # sockets that only their callbacks use
        self._epoll = select.epoll()
        self._wakeup = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        # prevents writing to a closed descriptor; reentrant, because a signal handler may interrupt the holder
        self._wakeup_lock = threading.RLock()
        self._epoll.register(self._wakeup, select.EPOLLIN)
        self._fds[self._wakeup] = self._drain_wakeup
        self._thread: int | None = None
        self._stopping = False

    def call_soon(self, callback: Callable[..., object], *args: Any) -> None:
        """Schedule `callback(*args)` in the loop's thread, after all scheduled before; thread-safe."""
        self._ready.append((callback, args))
        if self._thread != threading.get_ident():
            self._wake()

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any) -> Timer:
        """Schedule `callback(*args)` in `delay` seconds, and return a timer that can be cancelled."""
        return self.call_at(time.monotonic() + delay, callback, *args)

    def call_at(self, deadline: float, callback: Callable[..., object], *args: Any) -> Timer:
        """Schedule `callback(*args)` for the time `deadline` of the monotonic clock, and return its timer."""
        timer = Timer(deadline, self._timers_made, callback, args)
        self._timers_made += 1
        if len(self._timers) >= self._tidy_at:
            self._drop_cancelled()
        heapq.heappush(self._timers, timer)
        return timer

    def add_fd(self, fd: int, callback: Callable[[], object]) -> None:
        """Call `callback()` whenever the file descriptor is readable (or closed by the other side)."""
        self._epoll.register(fd, select.EPOLLIN)
        self._fds[fd] = callback

    def remove_fd(self, fd: int) -> None:
        """Stop watching the file descriptor; unknown ones are ignored."""
        if self._fds.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def add_socket(self, socket: zmq.Socket[Any], callback: Callable[[], object], *, alone: bool = False) -> None:
        """Call `callback()` whenever the ZeroMQ socket has a message to receive.

        `alone` means that only the callback uses the socket, which is then not checked until it signals an event.
        """
        fd = int(socket.getsockopt(zmq.FD))
        self.add_fd(fd, lambda: self._signalled(socket, callback))
        self._sockets[socket] = fd
        self._asked[socket] = callback
        if alone:
            self._alone.add(socket)

    def remove_socket(self, socket: zmq.Socket[Any]) -> None:
        """Stop watching the socket; unknown ones are ignored."""
        self.remove_fd(self._sockets.pop(socket, -1))
        self._asked.pop(socket, None)
        self._alone.discard(socket)

    def run(self) -> None:
        """Run callbacks until `stop()` is called; return at once if it was called before."""
        self._thread = threading.get_ident()
        try:
            while not self._stopping:
                self._run_ready()
                if not self._stopping:
                    self._wait()
            self._stopping = False   # it can run again
        finally:
            self._thread = None

    def stop(self) -> None:
        """Make `run()` return after the current callback; thread-safe."""
        self._stopping = True
        self._wake()

    def close(self) -> None:
        """Close the loop's own descriptors; the loop cannot be used any more."""
        if self._epoll.closed:
            return
        self._fds.clear()
        self._sockets.clear()
        self._asked.clear()
        self._alone.clear()
        self._timers.clear()
        self._ready.clear()
        with self._wakeup_lock:
            self._epoll.close()
            os.close(self._wakeup)

    def _wake(self) -> None:
        with self._wakeup_lock:
            if not self._epoll.closed:
                os.eventfd_write(self._wakeup, 1)

    def _drain_wakeup(self) -> None:
        os.eventfd_read(self._wakeup)

    def _run_ready(self) -> None:
        self._run_timers()
        # only those scheduled so far: callbacks that schedule more must not delay the sockets
        for _ in range(len(self._ready)):
            if self._stopping:
                return
            callback, args = self._ready.popleft()
            callback(*args)

    def _run_timers(self) -> None:
        timers = self._timers
        if not timers:
            return
        now, new = time.monotonic(), self._timers_made
        while timers and timers[0].deadline <= now and timers[0].number < new and not self._stopping:
            timer = heapq.heappop(timers)
            if timer.callback is not None:
                timer.callback(*timer.args)

    def _drop_cancelled(self) -> None:
        self._timers[:] = [timer for timer in self._timers if timer.callback is not None]
        heapq.heapify(self._timers)
        self._tidy_at = max(_MIN_TIMERS_TO_TIDY, 2 * len(self._timers))

    def _timeout(self) -> float | None:
        """Return the seconds until the next callback is due; None if there is none."""
        if self._ready:
            return 0
        while self._timers and self._timers[0].callback is None:
            heapq.heappop(self._timers)
        if not self._timers:
            return None
        return max(0.0, min(_MAX_WAIT_S, self._timers[0].deadline - time.monotonic()))

    def _signalled(self, socket: zmq.Socket[Any], callback: Callable[[], object]) -> None:
        self._asked[socket] = callback
        if is_readable(socket):
            callback()

    def _wait(self) -> None:
        """Wait for the next event, and run the callbacks of all events."""
        if not self._asked:
            self._run_fds(self._timeout())
            return
        # the descriptor signals an event only once, and sending resets it: the socket itself must be checked
        readable, silent = [], []
        for socket, callback in self._asked.items():
            if is_readable(socket):
                readable.append((socket, callback))
            elif socket in self._alone:
                silent.append(socket)
        for socket in silent:
            del self._asked[socket]
        self._run_fds(0 if readable else self._timeout())
        for socket, callback in readable:
            if self._stopping:
                return
            # it may have been read meanwhile, when its descriptor announced something else, such as a peer that leaves
            if socket in self._sockets and is_readable(socket):
                callback()

    def _run_fds(self, timeout: float | None) -> None:
        due = []   # a loop, because there is mostly one
        for fd, _ in self._epoll.poll(timeout):
            due.append((fd, self._fds.get(fd)))
        for fd, callback in due:
            # an earlier callback may have closed the descriptor, and its number may be in use again
            if callback is not None and self._fds.get(fd) is callback:
                callback()
                if self._stopping:
                    return
