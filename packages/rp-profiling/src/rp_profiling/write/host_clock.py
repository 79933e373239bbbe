"""What the processes of a host know of its clock, and how they say it in their profiles.

Sessions have a reference: the clock of the host that coordinates them. A process elsewhere measures how far its own one
is ahead of that, and each of its profiles says so. The form is that of RADICAL-Pilot, in which the mode `ntp` stands
for a clock that was compared and `sys` for one that is taken as it is.
"""

from __future__ import annotations

import functools
import os
from time import time_ns
from typing import NamedTuple

from rp_profiling.write.rows import timestamp


class Reading(NamedTuple):
    """How many nanoseconds a clock is `ahead` of the reference, known to within so many."""

    ahead: int
    within: int


class Moment(NamedTuple):
    """One moment on two clocks, in nanoseconds since the epoch; `message` says it in both profiles."""

    message: str
    here: int
    there: int


SAME = Reading(0, 0)
"""Of a host that has the reference itself."""


class HostClock:
    """The clock of this host; until it is read, it is taken as it is."""

    def __init__(self) -> None:
        self._reading: Reading | None = None

    def read(self, reading: Reading) -> Moment | None:
        """Take in what was measured; gives a moment to be recorded if that is news.

        What is less than the error of the measurement is no difference.
        """
        if abs(reading.ahead) <= reading.within:
            reading = Reading(0, reading.within)
        before, self._reading = self._reading or SAME, reading
        if abs(reading.ahead - before.ahead) <= reading.within + before.within:
            return None
        now = time_ns()
        return Moment(self.statement(now), now, now - reading.ahead)

    def reference(self) -> int | None:
        """The time by the reference; None as long as nobody has said how that differs."""
        return None if self._reading is None else time_ns() - self._reading.ahead

    def here(self, reference: int) -> int | None:
        """The time here when it was that time by the reference; None as long as it is not known."""
        return None if self._reading is None else reference + self._reading.ahead

    def statement(self, when: int) -> str:
        """What the profile of a process here says of its clock at that time: host, address, both times, mode."""
        ahead, within = self._reading or SAME
        mode = 'ntp' if within else 'sys'
        return f'{os.uname().nodename}:{_address()}:{timestamp(when)}:{timestamp(when - ahead)}:{mode}'


@functools.cache
def _address() -> str:
    """The IPv4 address that this host has towards other networks, 127.0.0.1 if it has none.

    Connecting a datagram socket only asks the local routing table: nothing is sent and no name is looked up.
    The target is a documentation address (RFC 5737).
    """
    import socket

    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect(('192.0.2.1', 9))
            return str(probe.getsockname()[0])
    except OSError:
        return '127.0.0.1'
