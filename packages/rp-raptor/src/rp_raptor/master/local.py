"""Calls made by a master's own code, through the interface that applications use."""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rp_api.loop.event_loop import Loop
from rp_raptor.client.caller import Definitions, Failed, Intake, Results
from rp_raptor.master.router import CallRouter
from rp_raptor.master.sources import CallSource
from rp_raptor.objects.reference import Owned
from rp_raptor.wire.batch import Payloads


class LocalCaller(Intake):
    """Makes calls in the master itself, as `rp_raptor.client.caller.Caller` does for an application.

    Results and failures are reported in the loop's thread. Public methods up to `end` may be called from any thread.
    """

    def __init__(self, loop: Loop, router: CallRouter, deal_soon: Callable[[], object], on_results: Results,
                 on_failed: Failed, attributes: Mapping[str, Any] | None,
                 closed: Callable[[LocalCaller], object]) -> None:
        super().__init__(loop, on_results, on_failed, attributes, os.getcwd())
        self._closed = closed
        self._router = router
        self._deal_soon = deal_soon
        self._source: CallSource | None = None
        loop.call_soon(self._open)

    def close(self) -> None:
        """Drop all calls without a result."""
        if not self.process.here:
            return
        self._loop.call_soon(self._close)

    def end(self, reason: str) -> None:
        """Fail all calls without a result, and those still to come."""
        numbers = self._stop(reason)
        if numbers:
            self._on_failed(numbers, reason)

    # called by the router

    def started(self, ids: array[int]) -> None:
        """Ignore the start of calls."""

    def results(self, ids: array[int], payloads: Sequence[bytes]) -> None:
        """Report results."""
        self._on_results(ids, payloads)

    # in the loop

    def _open(self) -> None:
        self._source = self._router.open(self)

    def _take(self, definitions: Definitions, numbers: array[int], payloads: Payloads) -> None:
        if self._source is None:
            return
        for fid, blob in definitions:
            self._router.define(self._source, fid, blob)
        if numbers:
            attributes = dict.fromkeys(numbers, self._attributes) if self._attributes else None
            self._router.calls(self._source, numbers, payloads, attributes)
            self._deal_soon()

    def _show(self, owned: Owned) -> None:
        """Do nothing: the master knows the objects of its process."""

    def _drop(self, numbers: list[int]) -> None:
        if self._source is not None:
            self._router.cancel(self._source, numbers)

    def _close(self) -> None:
        if self._source is not None:
            self._router.close(self._source)
            self._source = None
            self._closed(self)
        self.store.close()
