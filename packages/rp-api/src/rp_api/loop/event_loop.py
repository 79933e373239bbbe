"""The event loop: one thread that waits on file descriptors, ZeroMQ sockets and deadlines, and never polls.

Rules: callbacks run one after the other in the thread that called `run()`; they must not block. Only `call_soon` and
`stop` may be called from other threads. An exception that leaves a callback ends `run()` and is raised from it: a
broken component ends loudly instead of limping on.
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

_LONGEST = 3600.0
"""Seconds of the longest wait in one go; also what makes an endless deadline harmless."""

_READABLE = int(zmq.POLLIN)   # a plain number, which is much faster

_MANY = 1024
"""Timers from which on it is worth while to look for cancelled ones, which otherwise stay until they are due."""


class Timer:
    """A callback that is due at a deadline (seconds of the monotonic clock); equal deadlines keep their order."""

    __slots__ = ('args', 'callback', 'deadline', 'number')

    def __init__(self, deadline: float, number: int, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
        self.deadline = deadline
        self.number = number
        self.callback: Callable[..., object] | None = callback
        self.args = args

    def __lt__(self, other: Timer) -> bool:
        return (self.deadline, self.number) < (other.deadline, other.number)

    def cancel(self) -> None:
        """Make sure that the callback will not be called any more; harmless when it was called already."""
        self.callback = None
        self.args = ()


class Loop:
    """An event loop over file descriptors (epoll), ZeroMQ sockets and timers."""

    def __init__(self) -> None:
        self._ready: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._timers: list[Timer] = []
        self._timers_made = 0
        self._tidy_at = _MANY
        self._fds: dict[int, Callable[[], object]] = {}
        self._sockets: dict[zmq.Socket[Any], int] = {}   # with the descriptor that announces news
        self._asked: dict[zmq.Socket[Any], Callable[[], object]] = {}   # those that may have news
        self._alone: set[zmq.Socket[Any]] = set()   # those that only their callbacks use
        self._epoll = select.epoll()
        self._wakeup = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        # so that nobody writes to the number of a closed descriptor; a signal handler may come in between
        self._wakeup_lock = threading.RLock()
        self._epoll.register(self._wakeup, select.EPOLLIN)
        self._fds[self._wakeup] = self._drain_wakeup
        self._thread: int | None = None
        self._stopping = False

    def call_soon(self, callback: Callable[..., object], *args: Any) -> None:
        """Have `callback(*args)` called in the loop's thread, after what was asked for before; thread-safe."""
        self._ready.append((callback, args))
        if self._thread != threading.get_ident():
            self._wake()

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any) -> Timer:
        """Have `callback(*args)` called in `delay` seconds; gives a timer that can be cancelled."""
        return self.call_at(time.monotonic() + delay, callback, *args)

    def call_at(self, deadline: float, callback: Callable[..., object], *args: Any) -> Timer:
        """Have `callback(*args)` called when the monotonic clock reaches `deadline`."""
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

        `alone` promises that nothing but the callback ever uses the socket, which then costs nothing as long as it
        has no news.
        """
        fd = int(socket.getsockopt(zmq.FD))
        self.add_fd(fd, lambda: self._asked.setdefault(socket, callback))
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
        """Run callbacks until `stop()` is called, or return at once if it was called before."""
        self._thread = threading.get_ident()
        try:
            while not self._stopping:
                self._run_ready()
                if not self._stopping:
                    self._wait()
        finally:
            self._thread = None

    def stop(self) -> None:
        """Let `run()` return after the callback that is running; thread-safe."""
        self._stopping = True
        self._wake()

    def close(self) -> None:
        """Free the loop's own descriptors; the loop cannot be used any more."""
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
        # only what is there now: callbacks that ask for more must not keep the sockets waiting
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
        self._tidy_at = max(_MANY, 2 * len(self._timers))

    def _timeout(self) -> float | None:
        """Seconds until something is due; None if nothing is."""
        if self._ready:
            return 0
        while self._timers and self._timers[0].callback is None:
            heapq.heappop(self._timers)
        if not self._timers:
            return None
        return max(0.0, min(_LONGEST, self._timers[0].deadline - time.monotonic()))

    def _wait(self) -> None:
        """Wait for the next event, and run the callbacks of all that have come."""
        if not self._asked:
            self._run_fds(self._timeout())
            return
        # a descriptor of ZeroMQ announces news once, also to those who only send: the socket itself has to be asked
        readable, silent = [], []
        for socket, callback in self._asked.items():
            if int(socket.getsockopt(zmq.EVENTS)) & _READABLE:
                readable.append((socket, callback))
            elif socket in self._alone:
                silent.append(socket)
        for socket in silent:
            del self._asked[socket]
        self._run_fds(0 if readable else self._timeout())
        for socket, callback in readable:
            if self._stopping:
                return
            if socket in self._sockets:
                callback()

    def _run_fds(self, timeout: float | None) -> None:
        due = []   # filled without a function of its own: mostly there is one
        for fd, _ in self._epoll.poll(timeout):
            due.append((fd, self._fds.get(fd)))
        for fd, callback in due:
            # a callback may have closed a descriptor that is next, and another one may have got its number
            if callback is not None and self._fds.get(fd) is callback:
                callback()
                if self._stopping:
                    return
