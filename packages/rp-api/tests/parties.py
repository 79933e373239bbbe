"""Who takes part in a session in tests of coordination: a connection in a loop of its own, and waits with a deadline.

The conformance suite in `tests/conformance` uses it too.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from rp_api.coordination.contract import Handler
from rp_api.loop.event_loop import Loop

TIMEOUT = 40.0

T = TypeVar('T')


class Party(Handler):
    """A loop in a thread, with one connection; what comes in is kept, and can be waited for.

    `news`: what kinds of things happened; `order`: uids and names of commands; `lost`: why the connection was lost.
    """

    def __init__(self) -> None:
        self.loop = Loop()
        self.news: list[str] = []
        self.order: list[str] = []
        self.lost: list[str] = []
        self.connection: Any = None
        self._changed = threading.Condition()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.loop.run()
        except Exception as error:
            self._error = error
            self.note('the loop failed')

    def do(self, function: Callable[..., T], *args: Any) -> T:
        """The result of a call in the loop's thread."""
        future: Future[T] = Future()

        def call() -> None:
            try:
                future.set_result(function(*args))
            except Exception as error:
                future.set_exception(error)

        self.loop.call_soon(call)
        return future.result(TIMEOUT)

    def note(self, news: str) -> None:
        """Remember that something happened, and look whether somebody waits for it."""
        with self._changed:
            self.news.append(news)
            self._changed.notify_all()

    def until(self, reached: Callable[[], object]) -> None:
        """Wait until this is so; it is looked at whenever something happens, and now and then, as not all is told."""
        deadline = time.monotonic() + TIMEOUT
        with self._changed:
            while not (self._error or reached()):
                if time.monotonic() > deadline:
                    raise AssertionError(f'waited in vain; seen: {self.news[-20:]} {self.order[-20:]} {self.lost[-3:]}')
                self._changed.wait(0.1)
        if self._error:
            raise self._error

    def until_news(self, news: str) -> None:
        """Wait until this has happened."""
        self.until(lambda: news in self.news)

    def until_refused(self) -> str:
        """Wait until the connection is refused; gives the reason."""
        self.until(lambda: any(news.startswith('refused') for news in self.news))
        return next(news for news in self.news if news.startswith('refused'))

    def until_settled(self) -> None:
        """Wait until everything is accepted that was sent."""
        settled = threading.Event()

        def accepted() -> None:
            settled.set()
            self.note('settled')

        self.do(self.connection.when_settled, accepted)
        self.until(settled.is_set)

    def until_stopped(self) -> None:
        """Wait until the loop has ended, which was told to."""
        self._thread.join(TIMEOUT)
        assert not self._thread.is_alive()

    def attach(self, connection: Any) -> None:
        """Keep what a connection reports."""
        self.connection = connection
        connection.open(self)

    def on_lost(self, how: str) -> None:
        self.lost.append(how)
        self.note('lost')

    def on_found(self) -> None:
        self.note('found')

    def on_refused(self, reason: str) -> None:
        self.note(f'refused: {reason}')

    def on_room(self) -> None:
        self.note('room')

    def block(self) -> Callable[[], None]:
        """Keep the loop from doing anything until the result is called."""
        free = threading.Event()
        self.loop.call_soon(free.wait, TIMEOUT)
        return free.set

    def close(self) -> None:
        """Say goodbye and end the thread."""
        if self._thread.is_alive():
            if self.connection is not None:
                self.do(self.connection.close)
            self.loop.stop()
            self._thread.join(TIMEOUT)
        self.loop.close()
        assert not self._thread.is_alive()
