"""The one event-loop thread of a session: everything that happens in the client happens there.

The engine owns the loop, the connection to the hub, the hub's process, the threads for callbacks and for file
transfers. Managers run code in the loop with `call` (later) and `run` (and wait for it).
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

from rp_api.coordination.embedded import HubClientConnection
from rp_api.coordination.process import HubProcess
from rp_api.errors import CoordinationError
from rp_api.host import pidfd_open
from rp_api.mesh.loop import Loop
from rp_api.mesh.offload import Helpers
from rp_client.callbacks import Dispatcher

_log = logging.getLogger('radical.pilot.engine')

T = TypeVar('T')

PATIENCE = 5.0
"""Seconds that a session waits at its end for files that are being moved."""

RESTARTS = 5
"""How often a hub is started again before the session gives up."""


class Engine:
    """Runs a session's event loop in a thread of its own, and its hub in a process of its own."""

    def __init__(self, session: str, directory: Path, orphan_timeout: float) -> None:
        self.loop = Loop()
        self.dispatcher = Dispatcher(f'{session}.callbacks')
        self.on_broken: list[Callable[[BaseException], None]] = []
        self.on_room: list[Callable[[], None]] = []
        self._broken: BaseException | None = None
        self._asked: set[Future[Any]] = set()
        self.helpers = Helpers(self.loop)
        self._restarts = 0
        self._hub_fd = -1
        self.hub = HubProcess(session, directory, orphan_timeout)
        self.hub.start()
        try:
            self.hub.wait_ready()
        except BaseException:
            self.hub.stop(0)
            self.loop.close()
            raise
        self.connection = HubClientConnection(self.loop, self.hub.address, session)
        self.connection.on_refused = self._refused
        self.connection.on_room = self._room
        self._watch_hub()
        self._thread = threading.Thread(target=self._run, name=f'{session}.engine', daemon=True)
        self._thread.start()

    def call(self, function: Callable[..., object], *args: Any) -> None:
        """Have `function(*args)` called in the loop's thread."""
        self._check()
        self.loop.call_soon(function, *args)

    @property
    def broken(self) -> bool:
        """Whether the event loop has failed."""
        return self._broken is not None

    def run(self, function: Callable[..., T], *args: Any) -> T:
        """The result of `function(*args)`, called in the loop's thread; never call it from there."""
        future: Future[T] = Future()
        self._asked.add(future)
        try:
            self.call(_answer, future, function, args)
            return future.result()
        finally:
            self._asked.discard(future)

    def settle(self, timeout: float) -> None:
        """Wait until the hub has everything that was sent, or `timeout` seconds are over."""
        settled = threading.Event()

        def look() -> None:
            if self.connection.settled:
                settled.set()

        if self._broken is None:
            self.on_room.append(look)
            self.loop.call_soon(look)
            settled.wait(timeout)
            self.on_room.remove(look)

    def close(self) -> None:
        """End hub, threads and loop; bounded in time."""
        self.helpers.close(PATIENCE)
        self.settle(2.0)
        if self._broken is None:
            self.loop.call_soon(self._leave)
        self._thread.join(5.0)
        self.connection.close()   # in case that the loop could not do it any more
        self.hub.stop(2.0)
        self.dispatcher.close(2.0)
        self.loop.close()

    def _leave(self) -> None:
        self._unwatch_hub()
        self.connection.close()
        self.loop.stop()

    def _check(self) -> None:
        if self._broken is not None:
            raise CoordinationError(f'the session cannot go on: {self._broken}') from self._broken

    def _run(self) -> None:
        try:
            self.loop.run()
        except Exception as error:
            _log.exception('the event loop of the session failed')
            self._give_up(error)

    def _give_up(self, error: BaseException) -> None:
        self._broken = error
        for future in list(self._asked):   # nobody is left who could answer
            if not future.done():
                future.set_exception(CoordinationError(f'the session cannot go on: {error}'))
        for callback in self.on_broken:
            callback(error)

    def _room(self) -> None:
        for callback in list(self.on_room):
            callback()

    def _refused(self, reason: str) -> None:
        raise CoordinationError(reason)

    def _watch_hub(self) -> None:
        fd = pidfd_open(self.hub.pid)
        assert fd is not None   # it is our child, and we have not waited for it
        self._hub_fd = fd
        self.loop.add_fd(fd, self._hub_died)

    def _unwatch_hub(self) -> None:
        self.loop.remove_fd(self._hub_fd)
        os.close(self._hub_fd)

    def _hub_died(self) -> None:
        """Start the hub again; it finds everything in its file, and the peers find it."""
        self._unwatch_hub()
        reason = f'the hub of the session died (exit code {self.hub.ended()})'
        while True:
            self._restarts += 1
            if self._restarts > RESTARTS:
                raise CoordinationError(f'{reason}, {self._restarts} times now; its last words: '
                                        f'{self.hub.last_words()}')
            _log.warning('%s and is started again', reason)
            try:
                self.hub.start()
                self.hub.wait_ready()
            except (CoordinationError, OSError) as error:
                reason = f'the hub of the session died: {error}'
            else:
                self._watch_hub()
                return


def _answer(future: Future[T], function: Callable[..., T], args: tuple[Any, ...]) -> None:
    try:
        future.set_result(function(*args))
    except Exception as error:   # the caller gets it, whatever it is
        future.set_exception(error)
