"""Asynchronous calls of a rank: they run in an event loop while the rank waits, and between its other calls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError
from functools import partial
from typing import Any

import zmq

from rp_raptor.rank.process_end import end_if_forked
from rp_raptor.rank.trace import FLUSH
from rp_raptor.wire.payload import encode_error
from rp_raptor.wire.rank_protocol import TIMEOUT

_READABLE = int(zmq.POLLIN)   # a plain int is much faster


class AsyncCalls:
    """The asynchronous calls in progress, by id; `finished(id, payload)` is called for each that is done."""

    def __init__(self, socket: zmq.Socket[bytes], finished: Callable[[int, bytes], object]) -> None:
        self._socket = socket
        self._finished = finished
        self._loop = asyncio.new_event_loop()
        self._fd = int(socket.getsockopt(zmq.FD))
        self._loop.add_reader(self._fd, self._loop.stop)
        self._calls: dict[int, asyncio.Task[bytes]] = {}
        self._reasons: dict[int, Exception] = {}
        self._news = False
        self._closed = False

    def __len__(self) -> int:
        return len(self._calls)

    def start(self, id: int, call: Coroutine[Any, Any, bytes]) -> None:
        """Start a call, which runs until its first wait."""
        task = self._calls[id] = self._loop.create_task(call)
        task.add_done_callback(partial(self._done, id))
        self.step()

    def step(self) -> None:
        """Run each call that can proceed, once."""
        if not self._calls:
            return
        self._loop.call_soon(self._loop.stop)
        self._loop.run_forever()

    def wait(self, later: Callable[[], object] | None) -> None:
        """Run calls until one is done or a message has arrived; call `later`, if given, if that takes a second."""
        self._news = False
        timer = self._loop.call_later(FLUSH, later) if later else None
        while not self._news and not int(self._socket.getsockopt(zmq.EVENTS)) & _READABLE:
            self._loop.run_forever()
        if timer is not None:
            timer.cancel()

    def complete(self, call: Coroutine[Any, Any, bytes]) -> bytes:
        """Return the result of a call that blocks the rank; other asynchronous calls proceed meanwhile."""
        task = self._loop.create_task(call)
        task.add_done_callback(lambda task: self._loop.stop())
        try:
            while not task.done():
                self._loop.run_forever()
        except BaseException:   # an interruption, between two callbacks
            task.cancel()
            task.add_done_callback(lambda task: task.cancelled() or task.exception())
            raise
        return task.result()

    def cancel(self, id: int, reason: int) -> None:
        """Cancel a call; its result is an error."""
        task = self._calls.get(id)
        if task is not None:
            self._reasons[id] = (TimeoutError('the call took too long') if reason == TIMEOUT
                                 else CancelledError('the call was canceled'))
            task.cancel()

    def close(self) -> None:
        """Cancel all calls, without results."""
        tasks, self._calls = list(self._calls.values()), {}
        self._closed = True
        for task in tasks:
            task.cancel()
        if tasks:
            self._loop.run_until_complete(asyncio.wait(tasks, timeout=1))
        self._loop.remove_reader(self._fd)
        self._loop.close()

    def _done(self, id: int, task: asyncio.Task[bytes]) -> None:
        end_if_forked()
        if self._closed:
            return
        self._news = True
        self._loop.stop()
        error = CancelledError('the call has canceled itself') if task.cancelled() else task.exception()
        reason = self._reasons.pop(id, None)
        del self._calls[id]
        self._finished(id, encode_error(reason or error) if error else task.result())
