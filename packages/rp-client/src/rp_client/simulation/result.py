"""The result of a simulation: durations, utilisation of the platform, and the directory of the traces."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from rp_api import states
from rp_api.simulation.contract import Usage
from rp_profiling.analyse.intervals import union


@dataclass(frozen=True)
class Result:
    """The figures of one simulation, in seconds of virtual time, as the paper on RADICAL-Pilot defines them."""

    nodes: int
    """Nodes of all pilots."""
    pilots: Sequence[Usage]
    ends: Counter[str] = field(default_factory=Counter)
    """Numbers of tasks by final state."""
    directory: Path | None = None
    """The session's directory with traces, if any."""

    @property
    def tasks(self) -> int:
        """Number of tasks."""
        return self.ends.total()

    @property
    def failed(self) -> int:
        """Number of failed tasks."""
        return self.ends[states.FAILED]

    @property
    def undone(self) -> int:
        """Number of tasks that were ended, or never started, because the runtime of their pilot was over."""
        return self.ends[states.CANCELED]

    @property
    def walltime(self) -> float:
        """Seconds from the start of the first pilot to the end of the last one."""
        return max(pilot.stopped for pilot in self.pilots) - min(pilot.started for pilot in self.pilots)

    @property
    def ttx(self) -> float:
        """Seconds from the first task's arrival at an agent's scheduler to the end of the last program."""
        used = [pilot for pilot in self.pilots if pilot.runs]
        return max(pilot.last for pilot in used) - min(pilot.first for pilot in used) if used else 0.0

    @property
    def overhead(self) -> float:
        """Seconds in which pilots had nodes, but no program ran."""
        there = union((pilot.started, pilot.stopped) for pilot in self.pilots)
        ran = union(run for pilot in self.pilots for run in pilot.runs.values())
        return sum(stop - start for start, stop in there) - sum(stop - start for start, stop in ran)

    @property
    def core_utilisation(self) -> float:
        """The share of core-time in which a program ran."""
        return _share(sum(pilot.core_seconds for pilot in self.pilots), self.core_seconds)

    @property
    def gpu_utilisation(self) -> float:
        """The share of GPU-time in which a program ran; 0 without GPUs."""
        return _share(sum(pilot.gpu_seconds for pilot in self.pilots),
                      sum(pilot.gpus * (pilot.stopped - pilot.started) for pilot in self.pilots))

    @property
    def core_seconds(self) -> float:
        """The core-time of all pilots."""
        return sum(pilot.cores * (pilot.stopped - pilot.started) for pilot in self.pilots)

    @property
    def used(self) -> str:
        """The utilisation, and the number of tasks that were not completed, as text."""
        gpus = f' (cores; GPUs {self.gpu_utilisation:.0%})' if any(pilot.gpus for pilot in self.pilots) else ''
        undone = f', {self.undone:,} of {self.tasks:,} tasks left undone' if self.undone else ''
        return f'{self.core_utilisation:.0%} used{gpus}'.replace('%', ' %') + undone

    def __str__(self) -> str:
        failed = f'; {self.failed:,} of {self.tasks:,} tasks fail' if self.failed else ''
        return f'{needs(self)}, {self.used}{failed}'


class Summary(Protocol):
    """The figures that all results have."""

    @property
    def nodes(self) -> int:
        """Nodes of all pilots."""

    @property
    def walltime(self) -> float:
        """Seconds for which the nodes are needed."""

    @property
    def used(self) -> str:
        """The utilisation, as text."""


def needs(result: Summary) -> str:
    """Return the number of nodes and the walltime, as text."""
    return f'needs {_nodes(result.nodes)} for {_time(result.walltime)}'


def compared(result: Summary, others: Iterable[Summary]) -> str:
    """Return a result as a sentence, with the results of other numbers of nodes."""
    rest = ''.join(f'; {_nodes(other.nodes)}: {_time(other.walltime)}, {other.used}' for other in others)
    return f'{result}{rest}'


def _nodes(count: int) -> str:
    return f'{count:,} node{"s" if count != 1 else ""}'


def _time(seconds: float) -> str:
    """Return a duration as text."""
    if seconds < 120:
        return f'{seconds:.0f} s'
    minutes = round(seconds / 60)
    return f'{minutes} min' if minutes < 120 else f'{minutes // 60} h {minutes % 60} min'


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
