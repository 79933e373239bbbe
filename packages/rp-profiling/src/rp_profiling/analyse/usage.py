"""Requested against used resources, by kind of task, and failed tasks by cause.

The traces do not have these: tasks are rows from the records of the session, mappings with `uid`, `program`, `state`,
`cause` and `reason` of a failure, `cached`, `ranks`, what all ranks together have requested, `cores`, `gpus`,
`requested_memory` (bytes) and `timeout` (seconds), and what they have used, `duration` and `cpu` (seconds), `memory`
(bytes), `gpu` (0 to 1). None stands for what is not known, or was not requested.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

MEASURED_S = 1.0
"""Seconds that tasks of a kind have to run together before a number of cores is suggested."""

_GB, _MB = 1 << 30, 1 << 20   # as descriptions count


@dataclass
class TaskKind:
    """What tasks of one program and shape have requested and used.

    Attributes:
        program: Name of the program or function.
        ranks: Ranks of each task.
        cores: Cores of all ranks.
        gpus: GPUs of all ranks.
        memory: Requested bytes of all ranks; 0 for none.
        timeout: The longest time limit in seconds; 0 for none.
        tasks: Number of tasks.
        causes: Number of failed tasks by cause.
        longest: The longest duration in seconds; None if it is not known.
        seconds: The sum of all durations.
        peak: The largest memory of a task in bytes; None if it is not known.
    """

    program: str
    ranks: int
    cores: int
    gpus: float
    memory: int
    timeout: float = 0.0
    tasks: int = 0
    causes: dict[str, int] = field(default_factory=dict)
    longest: float | None = None
    seconds: float = 0.0
    peak: int | None = None
    _cpu: list[float] = field(default_factory=lambda: [0.0, 0.0])   # CPU time, and duration of these tasks
    _gpu: list[float] = field(default_factory=lambda: [0.0, 0.0])

    def __str__(self) -> str:
        each = max(1, self.cores // self.ranks)
        parts = [f'{self.ranks} ranks of {_count(each, "core")}' if self.ranks > 1 else _count(self.cores, 'core')]
        if self.gpus:
            parts.append(_count(self.gpus, 'GPU'))
        return f'{self.program}, {", ".join(parts)}'

    @property
    def failed(self) -> int:
        """The number of failed tasks."""
        return sum(self.causes.values())

    @property
    def cores_used(self) -> float | None:
        """The cores that tasks that are DONE have kept busy; None if it is not known."""
        return self._cpu[0] / self._cpu[1] if self._cpu[1] else None

    @property
    def gpu_use(self) -> float | None:
        """The mean utilisation of the GPUs, 0 to 1; None if it is not known."""
        return self._gpu[0] / self._gpu[1] if self._gpu[1] else None

    def add(self, row: Mapping[str, Any]) -> None:
        """Count a task."""
        self.tasks += 1
        self.timeout = max(self.timeout, row['timeout'] or 0.0)
        if row['state'] == 'FAILED':
            cause = row['cause'] or ''
            self.causes[cause] = self.causes.get(cause, 0) + 1
        duration = row['duration']
        if row['cached'] or duration is None:
            return
        self.seconds += duration
        self.longest = max(self.longest or 0.0, duration)
        if row['memory'] is not None:
            self.peak = max(self.peak or 0, row['memory'])
        if row['state'] == 'DONE':
            for total, used in ((self._cpu, row['cpu']), (self._gpu, row['gpu'] and row['gpu'] * duration)):
                if used is not None:
                    total[0] += used
                    total[1] += duration

    def suggestions(self) -> list[str]:
        """Return in words what to request instead; empty if the requests fit what was used."""
        return [text for text in (self._on_cores(), self._on_memory(), self._on_time(), self._on_gpus()) if text]

    def _on_cores(self) -> str:
        used = self.cores_used
        if used is None or self._cpu[1] < MEASURED_S:
            return ''
        requested, each = self.cores // self.ranks, used / self.ranks
        unit = ' per rank' if self.ranks > 1 else ''
        better = max(1, math.ceil(each - 0.25))
        asks = f'asks for {_count(requested, "core")}{unit}, uses {each:.1f}: request {better}'
        if requested > 1 and each <= requested / 2:
            return f'{asks}, or have it use more threads (OMP_NUM_THREADS)'
        return f'{asks}, or limit its threads (OMP_NUM_THREADS)' if each > 1.25 * requested else ''

    def _on_memory(self) -> str:
        unit = ' per rank' if self.ranks > 1 else ''
        if short := self.causes.get('memory'):
            return f'{short} needed more memory than they may have: request more (mem_per_rank)'
        if not self.memory or self.peak is None:
            return ''
        asks = (f'asks for {shown_bytes(self.memory / self.ranks)} of memory{unit}, uses '
                f'{shown_bytes(self.peak / self.ranks)}')
        better = shown_bytes(1.25 * self.peak / self.ranks)
        return f'{asks}: request {better}' if self.peak > self.memory or self.peak <= self.memory / 2 else ''

    def _on_time(self) -> str:
        if late := self.causes.get('timeout'):
            return f'{late} reached the time limit of {self.timeout:g} s: set a longer one'
        if self.timeout and self.longest and self.longest > 0.9 * self.timeout:
            return f'the longest took {100 * self.longest / self.timeout:.0f} % of the time limit: set a longer one'
        return ''

    def _on_gpus(self) -> str:
        use = self.gpu_use
        if not self.gpus or use is None or use > 0.5:
            return ''
        return f'uses {100 * use:.0f} % of its GPUs: request fewer, or a share of one (gpus_per_rank below 1)'


@dataclass
class Failures:
    """Failed tasks of one program and cause: their number, and the uid and reason of the first one."""

    program: str
    cause: str
    uid: str
    reason: str
    tasks: int = 0

    def __str__(self) -> str:
        return f'{self.tasks} x {self.cause} in {self.program}, such as {self.uid}: {self.reason}'


@dataclass(frozen=True)
class Usage:
    """The kinds of tasks, those that held most core-seconds first, and failures, the most frequent ones first."""

    kinds: list[TaskKind]
    failures: list[Failures]


def usage_of(rows: Iterable[Mapping[str, Any]]) -> Usage:
    """Return what tasks have requested and used, and why some have failed."""
    kinds: dict[tuple[Any, ...], TaskKind] = {}
    failures: dict[tuple[str, str], Failures] = {}
    for row in rows:
        shape = (row['program'] or '', row['ranks'], row['cores'], row['gpus'], row['requested_memory'] or 0)
        kind = kinds.get(shape)
        if kind is None:
            kind = kinds[shape] = TaskKind(*shape)
        kind.add(row)
        if row['state'] == 'FAILED':
            key = kind.program, row['cause'] or ''
            if key not in failures:
                failures[key] = Failures(*key, row['uid'], ' '.join((row['reason'] or '').split()))
            failures[key].tasks += 1
    return Usage(sorted(kinds.values(), key=lambda kind: (-kind.cores * kind.seconds, -kind.tasks)),
                 sorted(failures.values(), key=lambda failure: -failure.tasks))


def shown_bytes(size: float) -> str:
    """Return a size as descriptions write it: a GB is 1024 MB."""
    return f'{size / _GB:.1f} GB' if size >= _GB else f'{max(1, math.ceil(size / _MB))} MB'


def _count(number: float, name: str) -> str:
    return f'{number:g} {name}' + ('' if number == 1 else 's')
