"""Times and usage of a task: what applications see, and the record of a run that an agent sends.

The record is short, and of the same size for all tasks, since the hub writes equally long information of many tasks in
one statement.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeGuard

from rp_api.task_info.slots import SLOTS, whole_slots

RECORD = 'ran'
"""The key in the info of a task for the record of its last run."""

USAGE = 'usage'
"""The key in the info of a task for what is known of its usage besides the record."""

_LAYOUT = struct.Struct('<d5f')
_MOST_SWITCHES = 1 << 31


class TaskTimes(NamedTuple):
    """When a task was submitted, got its resources, started and ended, in seconds since the epoch.

    All but `submitted` are those of the last attempt, on the clock of the agent that ran it. What is not known, or has
    not happened, is None.
    """

    submitted: float | None = None
    placed: float | None = None
    started: float | None = None
    ended: float | None = None

    @property
    def duration(self) -> float | None:
        """The seconds that the processes of the last attempt ran; None before they have ended."""
        return None if self.started is None or self.ended is None else self.ended - self.started

    @property
    def waiting(self) -> float | None:
        """The seconds from the submission to the start of the last attempt; None before it has started."""
        return None if self.submitted is None or self.started is None else self.started - self.submitted

    def as_dict(self) -> dict[str, float | None]:
        """Return the times as plain data, with `duration` and `waiting`."""
        return {**self._asdict(), 'duration': self.duration, 'waiting': self.waiting}


class TaskUsage(NamedTuple):
    """The resources that the last attempt of a task has used. What is not known is None.

    Time, bytes and switches are those of the processes that the agent or a launcher started, and of their descendants
    that were waited for. They are summed over ranks.

    Attributes:
        cpu: CPU time in seconds, `user` + `system`.
        user: CPU time of the programs, in seconds.
        system: CPU time of the kernel on their behalf, in seconds.
        memory: Peak of the resident memory in bytes. It is sampled, so that short peaks may be missed, and unknown for
            tasks that run less than two seconds. Ranks that a launcher starts have that of their largest process.
        read: Bytes that system calls have read, from files, pipes and sockets; unknown for short tasks, as `memory`.
        written: Bytes that system calls have written.
        switches: Context switches.
        gpu: Mean utilisation of the GPUs of the task, from 0 to 1.
        gpu_memory: Peak of the memory in use on these GPUs, in bytes.
    """

    cpu: float | None = None
    user: float | None = None
    system: float | None = None
    memory: int | None = None
    read: int | None = None
    written: int | None = None
    switches: int | None = None
    gpu: float | None = None
    gpu_memory: int | None = None

    def as_dict(self) -> dict[str, float | int | None]:
        """Return the usage as plain data."""
        return self._asdict()


def packed_run(placed: float | None, started: float = math.nan, ended: float = math.nan, user: float = math.nan,
               system: float = math.nan, switches: float = math.nan) -> bytes:
    """Return the record of a run; NaN stands for what is not known."""
    if placed is None:   # the start is minus infinity for a task whose placement is not known
        return _LAYOUT.pack(started, -math.inf, ended - started, user, system, switches)
    return _LAYOUT.pack(placed, started - placed, ended - started, user, system, switches)


def times_of(info: Mapping[str, Any], submitted: float | None = None) -> TaskTimes:
    """Return the times in the info of a task."""
    record = info.get(RECORD)
    if not _is_record(record):
        return TaskTimes(submitted)
    first, wait, duration, *_ = _LAYOUT.unpack(record)
    placed, started = (None, first) if wait == -math.inf else (first, first + wait)
    return TaskTimes(submitted, _known(placed), _known(started), _known(started + duration))


def usage_of(info: Mapping[str, Any]) -> TaskUsage:
    """Return the usage in the info of a task."""
    record, more = info.get(RECORD), info.get(USAGE)
    found = {name: more[name] for name in TaskUsage._fields if name in more} if isinstance(more, dict) else {}
    if _is_record(record):
        *_, user, system, switches = _LAYOUT.unpack(record)
        if not math.isnan(user + system):
            found |= {'cpu': round(user + system, 6), 'user': round(user, 6), 'system': round(system, 6)}
        if 0 <= switches < _MOST_SWITCHES:
            found['switches'] = int(switches)
    return TaskUsage(**found)


def expanded(info: dict[str, Any]) -> dict[str, Any]:
    """Return the info of a task with whole slots, and `times` (placed, started, ended) and `usage` for the record."""
    if SLOTS in info:
        info = {**info, SLOTS: whole_slots(info[SLOTS])}
    if RECORD not in info and USAGE not in info:
        return info
    usage = {name: value for name, value in usage_of(info)._asdict().items() if value is not None}
    found = {name: value for name, value in info.items() if name not in (RECORD, USAGE)}
    found['times'] = list(times_of(info)[1:])
    return {**found, USAGE: usage} if usage else found


def _is_record(value: Any) -> TypeGuard[bytes]:
    """Return whether a value that an agent has sent is a record."""
    return isinstance(value, bytes) and len(value) == _LAYOUT.size


def _known(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else value
