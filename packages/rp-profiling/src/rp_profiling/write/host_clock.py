"""The clock of a host: its offset from the session's reference, and its statement in profiles.

The reference of a session is the clock of the host that coordinates it. Processes on other hosts measure the offset of
their clock from it, and each of their profiles states it. The format is that of RADICAL-Pilot, in which the mode `ntp`
marks a clock that was compared and `sys` one that was not.
"""

from __future__ import annotations

import functools
import os
from time import time_ns
from typing import NamedTuple

from rp_profiling.write.rows import timestamp


class Reading(NamedTuple):
    """The nanoseconds by which a clock is `ahead` of the reference, with the error of the measurement."""

    ahead: int
    within: int


class Moment(NamedTuple):
    """One moment on two clocks, in nanoseconds since the epoch; `message` identifies it in both profiles."""

    message: str
    here: int
    there: int


SAME = Reading(0, 0)
"""The reading of a host whose clock is the reference."""


class HostClock:
    """The clock of this host; without a reading it counts as the reference."""

    def __init__(self) -> None:
        self._reading: Reading | None = None

    def read(self, reading: Reading) -> Moment | None:
        """Set the reading, and return a moment to be recorded if it differs from the previous one.

        An offset below the error of the measurement counts as none.
        """
        if abs(reading.ahead) <= reading.within:
            reading = Reading(0, reading.within)
        before, self._reading = self._reading or SAME, reading
        if abs(reading.ahead - before.ahead) <= reading.within + before.within:
            return None
        now = time_ns()
        return Moment(self.statement(now), now, now - reading.ahead)

    def reference(self) -> int | None:
        """Return the time by the reference; None without a reading."""
        return None if self._reading is None else time_ns() - self._reading.ahead

    def here(self, reference: int) -> int | None:
        """Return the time by this clock for a time by the reference; None without a reading."""
        return None if self._reading is None else reference + self._reading.ahead

    def statement(self, when: int) -> str:
        """Return the statement of a profile on this clock at that time: host, address, both times, mode."""
        ahead, within = self._reading or SAME
        mode = 'ntp' if within else 'sys'
        return f'{os.uname().nodename}:{_address()}:{timestamp(when)}:{timestamp(when - ahead)}:{mode}'


@functools.cache
def _address() -> str:
    """Return the IPv4 address of this host towards other networks, 127.0.0.1 without one.

    Connecting a datagram socket only reads the local routing table: nothing is sent and no name is resolved. The target
    is a documentation address (RFC 5737).
    """
    import socket

    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect(('192.0.2.1', 9))
            return str(probe.getsockname()[0])
    except OSError:
        return '127.0.0.1'
