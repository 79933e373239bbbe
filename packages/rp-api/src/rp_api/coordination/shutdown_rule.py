"""When a hub without an application ends: the rule, apart from clocks and sockets.

While a client is attached, nothing happens. When it is lost without having said goodbye, what is bound to pilots is
finished; then the hub waits `timeout` seconds for somebody to attach, and has the pilots cancelled if nobody does
(`timeout` 0: at once, without finishing). When the pilots are gone, the hub ends; it does not wait longer than
`CANCEL_TIMEOUT` seconds for pilots that do not answer. A client that has left on purpose (detached) wants its pilots to
go on: none is cancelled, and the hub ends when all have ended.
"""

from __future__ import annotations

CANCEL_TIMEOUT = 30.0
"""Seconds that cancelled pilots have to say goodbye."""


class ShutdownRule:
    """Decides, from what is attached and what is left to do, what an orphaned hub has to do next."""

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self._idle_since: float | None = None
        self._cancelled_at: float | None = None
        self._orphaned = False
        self._detached = False

    @property
    def orphaned(self) -> bool:
        """Whether the client was lost and nobody has attached since."""
        return self._orphaned

    def client_lost(self, *, detached: bool = False) -> None:
        """The client is gone without having closed the session; `detached`: on purpose."""
        self._orphaned = True
        self._detached = detached

    def client_attached(self) -> None:
        """A client is there (again). What was cancelled stays so; should this client get lost, all begins anew."""
        self._orphaned = self._detached = False
        self._idle_since = self._cancelled_at = None

    def next(self, now: float, unfinished: bool | int, pilots: int) -> tuple[str, float | None]:
        """What to do now, one of 'wait', 'cancel', 'end'; and when to ask again at the latest (None: on changes)."""
        if not self._orphaned:
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
