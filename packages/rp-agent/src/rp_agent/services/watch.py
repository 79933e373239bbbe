"""The watch over one run of an instance: looks until it is ready, and then for as long as it lives.

Looks begin frequent and become rarer, up to the interval of the probe. Once the instance is ready, probes that can tell
so look whether it still is: after several failures in a row it is given up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rp_agent.services.probes import Look, Seen
from rp_api.backoff import backoff
from rp_api.errors import sentence
from rp_api.loop.event_loop import Loop, Timer
from rp_api.loop.offload import Offload

FIRST = 0.05
"""Seconds before the first look."""

ALIVE = 5
"""Intervals between two looks at an instance that is ready."""

FAILURES = 3
"""Failed looks in a row after which an instance that was ready is given up."""


class Watch:
    """Looks at one run of an instance; `stop` ends it."""

    def __init__(self, loop: Loop, offload: Offload, look: Look, probe: Mapping[str, Any], *, limit: float,
                 liveness: bool, ready: Callable[[str], object], given_up: Callable[[str], object]) -> None:
        """Begin to look.

        Args:
            loop: The event loop, in which the callbacks are called.
            offload: Runs the looks.
            look: One look.
            probe: The complete probe, of which the watch uses `interval`.
            limit: Seconds until the instance has to be ready; 0 means no limit.
            liveness: Whether to go on with looks when it is ready.
            ready: Called with the information that the probe has found, or that the instance has reported.
            given_up: Called once at most, with the reason, when it was not ready in time or works no more.
        """
        self._loop = loop
        self._offload = offload
        self._look = look
        self._interval: float = probe['interval']
        self._limit = limit
        self._liveness = liveness
        self._when_ready, self._when_given_up = ready, given_up
        self._first = min(FIRST, self._interval)
        self._looks = 0
        self._ready = False
        self._failures = 0
        self._last = 'no look has ended'
        self._stopped = False
        self._deadline = loop.call_later(limit, self._too_late) if limit > 0 else None
        self._timer: Timer = loop.call_later(self._first, self._begin)

    def signalled(self, text: str) -> None:
        """Take a report of the instance itself that it is ready, with its information; it counts at any time."""
        self._is_ready(text)

    def stop(self) -> None:
        """End the watch; no callback is called any more."""
        self._stopped = True
        self._timer.cancel()
        if self._deadline is not None:
            self._deadline.cancel()

    def _begin(self) -> None:
        self._offload(self._look, self._seen, self._broke)

    def _broke(self, error: BaseException) -> None:
        self._seen(Seen(False, sentence(error)))

    def _seen(self, seen: Seen) -> None:
        if self._stopped or (self._ready and not self._liveness):
            return
        if self._ready:
            self._alive(seen)
        elif seen.good:
            self._is_ready(seen.text)
        else:
            self._last = seen.text
            self._looks += 1
            self._again(backoff(self._looks, self._first, self._interval))

    def _is_ready(self, text: str) -> None:
        self._ready = True
        if self._deadline is not None:
            self._deadline.cancel()
        self._timer.cancel()
        if self._liveness:
            self._again(ALIVE * self._interval)
        self._when_ready(text)

    def _alive(self, seen: Seen) -> None:
        self._failures = 0 if seen.good else self._failures + 1
        if self._failures == FAILURES:
            self._give_up(f'it does not work any more: {seen.text}')
        else:
            self._again(ALIVE * self._interval if seen.good else self._interval)

    def _too_late(self) -> None:
        self._give_up(f'it was not ready within {self._limit:g} s: {self._last}')

    def _give_up(self, reason: str) -> None:
        self.stop()
        self._when_given_up(reason)

    def _again(self, delay: float) -> None:
        self._timer = self._loop.call_later(delay, self._begin)
