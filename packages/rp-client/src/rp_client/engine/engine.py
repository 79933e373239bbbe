"""The engine of a session: runs its event loop in one thread, in which all work of the client is done.

The engine owns the loop, the coordinator and the connection to it, and the threads for callbacks and file transfers.
Managers run code in the loop with `call` (later), `run` (wait for it) and `ask` (wait for a result that it causes).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress
from typing import Any, TypeVar

from rp_api.coordination.contract import ClientConnection, ClientHandler, Mark
from rp_api.coordination.coordinator import Coordinator
from rp_api.errors import CoordinationError
from rp_api.loop.event_loop import Loop, Timer
from rp_api.loop.offload import Helpers
from rp_api.system.owner_process import OwnerProcess
from rp_client.engine.callbacks import Dispatcher
from rp_client.engine.interrupts import postponed
from rp_client.engine.tracker import Submission, Submissions, Tracker

_log = logging.getLogger('radical.pilot.engine')

T = TypeVar('T')

FILES_TIMEOUT = 5.0
"""Seconds that a closing session waits for file transfers."""

OPENING_S = 10.0
"""Seconds that a new session waits until other applications can attach to it; after that, it does not wait."""

ACKNOWLEDGE_PERIOD = 0.1
"""Seconds between acknowledgements; after a SIGKILL, the states of this time are passed to callbacks again."""


class Engine:
    """The event loop of a session with its thread, its coordinator, and the dispatchers of callbacks.

    Forks of the process cannot use it (`process`). `close` frees everything, however far `open` has come.
    """

    def __init__(self, session: str, coordinator: Coordinator) -> None:
        self.process = OwnerProcess(f'the session {session}')
        self.coordinator = coordinator
        self.loop = Loop()
        self.dispatcher = Dispatcher(f'{session}.callbacks')
        self._of_futures = Dispatcher(f'{session}.futures')   # apart: a callback may wait for a future, or in one
        self.on_broken: list[Callable[[BaseException], None]] = []
        self.on_room: list[Callable[[], None]] = []
        self._broken: BaseException | None = None
        self._asked: set[Future[Any]] = set()
        self.helpers = Helpers(self.loop)
        self._session = session
        self._connected = False
        self._thread: threading.Thread | None = None

    def open(self, handler: ClientHandler, *, fresh: bool = False) -> None:
        """Start the coordinator and the loop's thread; return when other applications can attach to the session.

        Raises `CoordinationError` if the coordinator cannot be started, or a `fresh` session exists already.
        """
        self.coordinator.start()
        if fresh and self.coordinator.attached:
            raise CoordinationError(f'{self._session} is open already: for a new session name another uid, and to '
                                    f'attach to this one, name it: Session(uid={self._session!r})')
        with postponed():
            self._connect(handler)
        with suppress(TimeoutError, CoordinationError):   # the next use of the session raises the error
            self.ask(self._open, OPENING_S)

    def _connect(self, handler: ClientHandler) -> None:
        self.connection = self.coordinator.connect(self.loop)
        self._connected = True
        self.connection.open(handler)
        self.submissions = Submissions(self.loop, self.connection, lambda: self.acknowledger.soon())
        self.acknowledger = Acknowledger(self.loop, self.connection, self.dispatcher, self.submissions)
        self.coordinator.watch(self.loop)
        thread = threading.Thread(target=self._run, name=f'{self._session}.engine', daemon=True)
        thread.start()
        self._thread = thread

    def call(self, function: Callable[..., object], *args: Any) -> None:
        """Call `function(*args)` later in the loop's thread."""
        self.process.check()
        self._check()
        self.loop.call_soon(function, *args)

    def tell(self, function: Callable[..., object], *args: Any) -> None:
        """Call `function(*args)`, which may wait: directly, or on the callback thread when called from the loop."""
        if threading.current_thread() is self._thread and not self._of_futures.ended:
            self._of_futures.call(function, *args)
        else:
            function(*args)

    @property
    def in_callback(self) -> bool:
        """True if the caller is a callback of the application."""
        return self.dispatcher.inside or self._of_futures.inside

    @property
    def broken(self) -> bool:
        """True if the event loop has failed."""
        return self._broken is not None

    @property
    def failure(self) -> BaseException | None:
        """The error that ended the event loop."""
        return self._broken

    def run(self, function: Callable[..., T], *args: Any) -> T:
        """Call `function(*args)` in the loop's thread, and return its result; not to be called from that thread."""
        return self.ask(lambda future: _answer(future, function, args))

    def ask(self, start: Callable[[Future[T]], object], timeout: float | None = None,
            progress: Callable[[], object] = lambda: None) -> T:
        """Call `start(future)` in the loop's thread, and return the result that the future gets; see `run`.

        Raises `TimeoutError` if for `timeout` seconds the future gets no result and `progress()` does not change. The
        work that was started is not stopped.
        """
        future: Future[T] = Future()
        self._asked.add(future)
        try:
            self.call(_begin, future, start)
            while True:
                seen = progress()
                try:
                    return future.result(timeout)
                except FutureTimeout:
                    if future.done() or progress() == seen:
                        raise TimeoutError(f'no answer within {timeout} s') from None
        finally:
            self._asked.discard(future)

    def submit(self, tracker: Tracker, entities: Sequence[Any], start: Callable[[Future[None]], object], timeout: float,
               progress: Callable[[], object] = lambda: None) -> None:
        """Ask as `ask` does, and hold the callbacks of these new entities until the calling method has returned."""
        submission = Submission(tracker, entities)

        def begin(accepted: Future[None]) -> None:
            self.submissions.hold(submission)
            accepted.add_done_callback(lambda _: self.submissions.returns(submission))
            start(accepted)

        try:
            self.ask(start if self.dispatcher.inside else begin, timeout, progress)
        except BaseException:   # it was not accepted, or an interruption came first
            with suppress(CoordinationError):
                self.call(self.submissions.returns, submission)
            raise
        finally:
            submission.returned = time.monotonic()

    def settle(self, timeout: float) -> None:
        """Wait until the coordinator has received everything, for at most `timeout` seconds."""
        if self._broken is None:
            with suppress(TimeoutError, CoordinationError):
                self.ask(self._settled, timeout)

    def _open(self, future: Future[None]) -> None:
        self.coordinator.when_open(lambda: future.set_result(None))

    def _settled(self, future: Future[None]) -> None:
        self.connection.when_settled(lambda: future.set_result(None))

    def _finish(self, timeout: float) -> None:
        """Close the session with the coordinator, within `timeout` seconds; the final message repeats the rest."""
        if self._broken is None:
            with suppress(TimeoutError, CoordinationError):
                self.ask(self._say_goodbye, timeout)

    def _say_goodbye(self, future: Future[None]) -> None:
        self.coordinator.ending()
        self.connection.finish(lambda: future.set_result(None))

    def close(self, *, leave: bool = False) -> None:
        """End connection, threads and loop within a bounded time, and, unless `leave` is set, the coordinator."""
        self.helpers.close(FILES_TIMEOUT)
        if self._thread is not None:
            self._end_thread(self._thread, leave=leave)
        if self._connected:
            self._end_connection(leave)   # in case the loop could not do it
        self.coordinator.stop(2.0, leave=leave)
        self.dispatcher.close(2.0)
        self._of_futures.close(2.0)
        self.loop.close()

    def _end_thread(self, thread: threading.Thread, *, leave: bool) -> None:
        if self._broken is None:
            with suppress(CoordinationError):
                self.run(self.submissions.announce_all)
        if leave:
            self._tell_the_rest(2.0)
            self.settle(2.0)
        else:
            self._finish(3.0)
        if self._broken is None:
            self.loop.call_soon(self._leave, leave)
        thread.join(5.0)

    def _tell_the_rest(self, timeout: float) -> None:
        """Run the queued callbacks and acknowledge them; the next application gets the states that follow."""
        if self._broken is None:
            with suppress(CoordinationError):
                self.run(self.acknowledger.finish)
        self.dispatcher.close(timeout)
        self.dispatcher.drop()

    def _leave(self, leave: bool) -> None:
        self._end_connection(leave)
        self.loop.stop()

    def _end_connection(self, leave: bool) -> None:
        if leave:
            self.connection.detach()
        else:
            self.connection.close()

    def _check(self) -> None:
        if self._broken is not None:
            raise CoordinationError(f'the session cannot go on: {self._broken}') from self._broken

    def _run(self) -> None:
        try:
            self.loop.run()
        except Exception as error:
            expected = isinstance(error, CoordinationError)
            _log.error('the event loop of the session failed: %s', error, exc_info=not expected)
            self._give_up(error)

    def _give_up(self, error: BaseException) -> None:
        self._broken = error
        for future in list(self._asked):   # the loop cannot give them results any more
            if not future.done():
                future.set_exception(CoordinationError(f'the session cannot go on: {error}'))
        for callback in self.on_broken:
            callback(error)
        self.submissions.announce_all()

    def room(self) -> None:
        """Continue what waits for room in the connection; called in the loop's thread."""
        for callback in list(self.on_room):
            callback()


def _begin(future: Future[T], start: Callable[[Future[T]], object]) -> None:
    try:
        start(future)
    except CoordinationError:
        raise
    except Exception as error:   # passed to the caller; the session is not affected
        if future.done():
            raise
        future.set_exception(error)


def _answer(future: Future[T], function: Callable[..., T], args: tuple[Any, ...]) -> None:
    try:
        future.set_result(function(*args))
    except Exception as error:   # passed to the caller
        future.set_exception(error)


class Acknowledger:
    """The acknowledger of all managers of a session; runs in the thread of the engine."""

    def __init__(self, loop: Loop, connection: ClientConnection, dispatcher: Dispatcher,
                 submissions: Submissions) -> None:
        self._loop = loop
        self._connection = connection
        self._dispatcher = dispatcher
        self._submissions = submissions
        self._trackers: list[Tracker] = []
        self._timer: Timer | None = None
        self._under_way = False
        self._last: tuple[Sequence[str], Mark] = [], Mark()

    def follow(self, tracker: Tracker) -> None:
        """Acknowledge the states of another tracker; may be called in any thread."""
        self._trackers.append(tracker)

    def soon(self) -> None:
        """Schedule an acknowledgement, if one is due."""
        if self._timer is None and not self._under_way and self._owners():
            self._timer = self._loop.call_later(ACKNOWLEDGE_PERIOD, self._begin)

    def finish(self) -> None:
        """Acknowledge all queued callbacks when they have run, and accept no more callbacks."""
        if self._timer is not None:
            self._timer.cancel()
        self._send_mark()
        self._dispatcher.end()

    def _owners(self) -> list[str]:
        return [tracker.owner for tracker in self._trackers if tracker.tells]

    def _begin(self) -> None:
        self._timer = None
        self._send_mark()

    def _send_mark(self) -> None:
        """Queue the position up to which all states are announced behind all queued callbacks."""
        news = self._owners(), self._submissions.mark
        if news[0] and news != self._last:
            self._last = news
            self._under_way = True
            self._dispatcher.call(self._loop.call_soon, self._acknowledge, *news)

    def _acknowledge(self, owners: Sequence[str], mark: Mark) -> None:
        self._under_way = False
        self._connection.acknowledge(owners, mark)
        self.soon()
