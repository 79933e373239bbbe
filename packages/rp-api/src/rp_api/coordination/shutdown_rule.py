"""The rule for the end of a hub without an application, independent of clocks and sockets.

While a client is attached, nothing happens. When it is lost without a goodbye, tasks that are bound to pilots are
finished, unless they wait for what only an application can bring, as an agent says of all that it has left; then the
hub waits `timeout` seconds for a client to attach, and otherwise has the pilots cancelled (`timeout` 0: at once,
without finishing tasks). When the pilots have ended, the hub ends; it waits at most `CANCEL_TIMEOUT` seconds for
pilots that do not answer. If the client has detached, no pilots are cancelled, and the hub ends when all of them have
ended.
"""

from __future__ import annotations

CANCEL_TIMEOUT = 30.0
"""Seconds to wait for cancelled pilots to say goodbye."""


class ShutdownRule:
    """Decides on the next step of an orphaned hub, based on attached clients and remaining work."""

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self._idle_since: float | None = None
        self._cancelled_at: float | None = None
        self.orphaned = False
        """True if the client was lost and none has attached since."""
        self._detached = False

    def client_lost(self, *, detached: bool = False) -> None:
        """Record the loss of the client without closing the session; `detached` if that was on purpose."""
        self.orphaned = True
        self._detached = detached

    def client_attached(self) -> None:
        """Record that a client has attached; cancelled pilots stay cancelled."""
        self.orphaned = self._detached = False
        self._idle_since = self._cancelled_at = None

    def next(self, now: float, unfinished: bool | int, pilots: int) -> tuple[str, float | None]:
        """Return the next step ('wait', 'cancel' or 'end'), and when to ask again (None: only after changes)."""
        if not self.orphaned:
            return 'wait', None
        if self._detached:
            return ('wait' if pilots else 'end'), None
        if self._cancelled_at is not None:
            return self._after_cancel(now, pilots)
        if unfinished and self.timeout > 0:
            self._idle_since = None
            return 'wait', None
        if self._idle_since is None:
            self._idle_since = now
        deadline = self._idle_since + self.timeout
        if now < deadline:
            return 'wait', deadline
        self._cancelled_at = now
        return ('cancel', now + CANCEL_TIMEOUT) if pilots else ('end', None)

    def _after_cancel(self, now: float, pilots: int) -> tuple[str, float | None]:
        assert self._cancelled_at is not None
        deadline = self._cancelled_at + CANCEL_TIMEOUT
        return ('end', None) if not pilots or now >= deadline else ('wait', deadline)
