"""Deferred calls, at most once per turn of the loop."""

from __future__ import annotations

from collections.abc import Callable

from rp_api.loop.event_loop import Loop


class Soon:
    """Calls a function in the next turn of the loop, once for any number of requests; thread-safe."""

    __slots__ = ('_due', '_function', '_loop')

    def __init__(self, loop: Loop, function: Callable[[], object]) -> None:
        self._loop = loop
        self._function = function
        self._due = False

    def __call__(self) -> None:
        if not self._due:
            self._due = True
            self._loop.call_soon(self._run)

    def _run(self) -> None:
        self._due = False   # before the call, so that requests during the call are not lost
        self._function()
