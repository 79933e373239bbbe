"""What a simulation has found: how long it takes, what of the platform is used, and where the traces are."""

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
    """The figures of one simulation, in seconds of virtual time; as the paper on RADICAL-Pilot defines them."""

    nodes: int
    """Of all pilots together."""
    pilots: Sequence[Usage]
    ends: Counter[str] = field(default_factory=Counter)
    """How many tasks ended in which state."""
    directory: Path | None = None
    """That of the session, if there are traces."""

    @property
    def tasks(self) -> int:
        """How many tasks there were."""
        return self.ends.total()

    @property
    def failed(self) -> int:
        """How many tasks failed."""
        return self.ends[states.FAILED]

    @property
    def undone(self) -> int:
        """How many tasks were ended, or never begun, because the time of their pilot was over."""
        return self.ends[states.CANCELED]

    @property
    def walltime(self) -> float:
        """From when the first pilot gets its nodes until the last one gives them back."""
        return max(pilot.stopped for pilot in self.pilots) - min(pilot.started for pilot in self.pilots)

    @property
    def ttx(self) -> float:
        """From when the first task is at the scheduler of an agent until the last program has ended."""
        used = [pilot for pilot in self.pilots if pilot.runs]
        return max(pilot.last for pilot in used) - min(pilot.first for pilot in used) if used else 0.0

    @property
    def overhead(self) -> float:
        """How long there were nodes, and no program ran."""
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
        """The core-time that there was."""
        return sum(pilot.cores * (pilot.stopped - pilot.started) for pilot in self.pilots)

    @property
    def used(self) -> str:
        """How much was used, and how many tasks the time was too short for, in words."""
        gpus = f' (cores; GPUs {self.gpu_utilisation:.0%})' if any(pilot.gpus for pilot in self.pilots) else ''
        undone = f', {self.undone:,} of {self.tasks:,} tasks left undone' if self.undone else ''
        return f'{self.core_utilisation:.0%} used{gpus}'.replace('%', ' %') + undone

    def __str__(self) -> str:
        failed = f'; {self.failed:,} of {self.tasks:,} tasks fail' if self.failed else ''
        return f'{needs(self)}, {self.used}{failed}'


class Summary(Protocol):
    """What any simulation tells of itself."""

    @property
    def nodes(self) -> int:
        """Of all pilots together."""

    @property
    def walltime(self) -> float:
        """How long they are needed."""

    @property
    def used(self) -> str:
        """How much was used, in words."""


def needs(result: Summary) -> str:
    """How many nodes for how long, in words."""
    return f'needs {_nodes(result.nodes)} for {_time(result.walltime)}'


def compared(result: Summary, others: Iterable[Summary]) -> str:
    """A result in a sentence, with what other numbers of nodes would give."""
    rest = ''.join(f'; {_nodes(other.nodes)}: {_time(other.walltime)}, {other.used}' for other in others)
    return f'{result}{rest}'


def _nodes(count: int) -> str:
    return f'{count:,} node{"s" if count != 1 else ""}'


def _time(seconds: float) -> str:
    """A length of time, as people say it."""
    if seconds < 120:
        return f'{seconds:.0f} s'
    minutes = round(seconds / 60)
    return f'{minutes} min' if minutes < 120 else f'{minutes // 60} h {minutes % 60} min'


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
