"""Requested against used resources, by kind of task, and failed tasks by cause.

The traces do not have these: tasks are rows from the records of the session, mappings with `uid`, `program`, `state`,
`cause` and `reason` of a failure, `cached`, `ranks`, what all ranks together have requested, `cores`, `gpus`,
`requested_memory` (bytes) and `timeout` (seconds), and what they have used, `duration` and `cpu` (seconds), `memory`
(bytes), `gpu` (0 to 1). None stands for what is not known, or was not requested.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

MEASURED_S = 1.0
"""Seconds that tasks of a kind have to run together before a number of cores is suggested."""

_GB, _MB = 1 << 30, 1 << 20   # as descriptions count


class TaskKind:
    """What tasks of one program and shape have requested and used, all ranks together, in seconds and bytes.

    Attributes:
        memory: The requested memory; 0 for none.
        timeout: The longest time limit; 0 for none.
        causes: The number of failed tasks by cause.
        longest, peak: The longest duration and the largest memory of a task; 0 if they are not known.
        seconds: The sum of all durations.
    """

    def __init__(self, program: str, ranks: int, cores: int, gpus: float, memory: int) -> None:
        self.program, self.ranks, self.cores, self.gpus, self.memory = program, ranks, cores, gpus, memory
        self._unit = ' per rank' if ranks > 1 else ''
        self.tasks = 0
        self.causes: Counter[str] = Counter()
        self.timeout = self.longest = self.seconds = 0.0
        self.peak = 0
        self._used: dict[str, tuple[float, float]] = {}   # sums of CPU and GPU time, and the seconds they were measured

    def __str__(self) -> str:
        each = _count(self.cores // self.ranks, 'core')
        shape = f'{self.ranks} ranks of {each}' if self.ranks > 1 else each
        return f'{self.program}, {shape}' + (f', {_count(self.gpus, "GPU")}' if self.gpus else '')

    def add(self, row: Mapping[str, Any]) -> None:
        """Count a task."""
        self.tasks += 1
        self.timeout = max(self.timeout, row['timeout'] or 0.0)
        if row['state'] == 'FAILED':
            self.causes[row['cause'] or ''] += 1
        duration = row['duration']
        if row['cached'] or duration is None:
            return
        self.seconds += duration
        self.longest = max(self.longest, duration)
        self.peak = max(self.peak, row['memory'] or 0)
        for name, factor in (('cpu', 1.0), ('gpu', duration)) if row['state'] == 'DONE' else ():
            if row[name] is not None:
                used, measured = self._used.get(name, (0.0, 0.0))
                self._used[name] = used + factor * row[name], measured + duration

    def mean(self, name: str) -> float | None:
        """Return the cores in use (`cpu`), or the utilisation of GPUs (`gpu`), of DONE tasks; None if unknown."""
        used, measured = self._used.get(name, (0.0, 0.0))
        return used / measured if measured else None

    def suggestions(self) -> list[str]:
        """Return in words what to request instead; empty if the requests fit what was used."""
        return [text for text in (self._on_cores(), self._on_memory(), self._on_time(), self._on_gpus()) if text]

    def _on_cores(self) -> str:
        used = self.mean('cpu')
        if used is None or self._used['cpu'][1] < MEASURED_S:
            return ''
        requested, each = self.cores // self.ranks, used / self.ranks
        asks = (f'asks for {_count(requested, "core")}{self._unit}, uses {each:.1f}: request '
                f'{max(1, math.ceil(each - 0.25))}, or')
        if requested > 1 and each <= requested / 2:
            return f'{asks} have it use more threads (OMP_NUM_THREADS)'
        return f'{asks} limit its threads (OMP_NUM_THREADS)' if each > 1.25 * requested else ''

    def _on_memory(self) -> str:
        if short := self.causes['failed.memory']:
            return f'{short} needed more memory than they may have: request more (mem_per_rank)'
        if not self.memory or not self.peak or self.memory / 2 < self.peak <= self.memory:
            return ''
        requested, used = self.memory / self.ranks, self.peak / self.ranks
        return (f'asks for {shown_bytes(requested)} of memory{self._unit}, uses {shown_bytes(used)}: request '
                f'{shown_bytes(1.25 * used)}')

    def _on_time(self) -> str:
        if late := self.causes['failed.timeout']:
            return f'{late} reached the time limit of {self.timeout:g} s: set a longer one'
        if not self.timeout or self.longest <= 0.9 * self.timeout:
            return ''
        return f'the longest took {100 * self.longest / self.timeout:.0f} % of the time limit: set a longer one'

    def _on_gpus(self) -> str:
        use = self.mean('gpu')
        if not self.gpus or use is None or use > 0.5:
            return ''
        return f'uses {100 * use:.0f} % of its GPUs: request fewer, or a share of one (gpus_per_rank below 1)'


class Failures(NamedTuple):
    """Failed tasks of one program and cause, with the uid and reason of the first one."""

    tasks: int
    cause: str
    program: str
    uid: str
    reason: str

    def __str__(self) -> str:
        return f'{self.tasks} x {self.cause} in {self.program}, such as {self.uid}: {self.reason}'


class Usage(NamedTuple):
    """The kinds of tasks, those that held most core-seconds first, and failures, the most frequent ones first."""

    kinds: list[TaskKind]
    failures: list[Failures]


def usage_of(rows: Iterable[Mapping[str, Any]]) -> Usage:
    """Return what tasks have requested and used, and why some have failed."""
    kinds: dict[tuple[Any, ...], TaskKind] = {}
    failures: dict[tuple[str, str], Failures] = {}
    for row in rows:
        shape = (row['program'] or '', row['ranks'], row['cores'], row['gpus'], row['requested_memory'] or 0)
        if shape not in kinds:
            kinds[shape] = TaskKind(*shape)
        kinds[shape].add(row)
        if row['state'] == 'FAILED':
            which = row['cause'] or '', shape[0]
            first = failures.get(which) or Failures(0, *which, row['uid'], ' '.join((row['reason'] or '').split()))
            failures[which] = first._replace(tasks=first.tasks + 1)
    return Usage(sorted(kinds.values(), key=lambda kind: (-kind.cores * kind.seconds, -kind.tasks)),
                 sorted(failures.values(), key=lambda each: -each.tasks))


def shown_bytes(size: float) -> str:
    """Return a size as descriptions write it: a GB is 1024 MB."""
    return f'{size / _GB:.1f} GB' if size >= _GB else f'{max(1, math.ceil(size / _MB))} MB'


def _count(number: float, name: str) -> str:
    return f'{number:g} {name}' + ('' if number == 1 else 's')
