"""Gathers results that come in many small messages, to send them in one."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence

from rp_raptor.wire.batch import Payloads, joined
from rp_raptor.wire.protocol import BULK

MAX_GATHERED_RESULTS = 64
"""Results of a message at most that are gathered; more of them are sent at once."""

MAX_GATHERED_BYTES = 1 << 20
"""Bytes of gathered results at which they are sent."""


class ResultGatherer:
    """Results that were not sent yet; `send(ids, payloads)` gets them."""

    __slots__ = ('_bytes', '_ids', '_payloads', '_send')

    def __init__(self, send: Callable[[array[int], Payloads], object]) -> None:
        self._send = send
        self._ids = array('Q')
        self._payloads: list[Sequence[bytes]] = []
        self._bytes = 0

    def add(self, ids: array[int], payloads: Sequence[bytes]) -> None:
        """Take results; `flush` has to follow."""
        batch = joined([payloads])
        if len(batch) > MAX_GATHERED_RESULTS:
            self._send(ids, batch)
            return
        self._ids += ids
        self._payloads.append(batch)
        self._bytes += batch.size()
        if len(self._ids) >= BULK or self._bytes >= MAX_GATHERED_BYTES:
            self.flush()

    def flush(self) -> None:
        """Send all results."""
        if self._ids:
            ids, payloads = self._ids, joined(self._payloads)
            self._ids, self._payloads, self._bytes = array('Q'), [], 0
            self._send(ids, payloads)
