"""The virtual clock, and the contract between the client's half of the simulator and a simulated pilot.

A pilot is created by the entry point `pilot` in the group `radical_pilot.simulation`, called with a `PilotPlan`, a
virtual clock and `PilotEvents`. Thus neither half imports the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from pathlib import Path
from typing import Any, Protocol, cast

from rp_api.errors import PlatformError
from rp_api.extensions import installed
from rp_api.simulation.model import Model

GROUP = 'radical_pilot.simulation'
PILOT = 'pilot'


class VirtualClock:
    """Calls functions at virtual times, in seconds from 0; those of the same time in the order of their insertion."""

    def __init__(self) -> None:
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[..., object], tuple[Any, ...]]] = []
        self._count = 0

    def time(self) -> float:
        """Return the current virtual time."""
        return self.now

    def call_at(self, when: float, callback: Callable[..., object], *arguments: Any) -> None:
        """Call a function at a time, or at once if that has passed."""
        self._count += 1
        heappush(self._events, (max(when, self.now), self._count, callback, arguments))

    def call_later(self, delay: float, callback: Callable[..., object], *arguments: Any) -> None:
        """Call a function after a number of seconds."""
        self.call_at(self.now + delay, callback, *arguments)

    def run(self) -> None:
        """Process events until none is left."""
        while self._events:
            self.now, _, callback, arguments = heappop(self._events)
            callback(*arguments)


@dataclass(frozen=True)
class SimulatedTask:
    """A task of a workload: its description as plain data, and the run time of its program in seconds."""

    uid: str
    description: Mapping[str, Any]
    duration: float


@dataclass(frozen=True)
class PilotPlan:
    """The parameters of a simulated pilot; `platform` is a platform definition with the cores and GPUs of a node."""

    uid: str
    nodes: int
    platform: Mapping[str, Any]
    model: Model
    seed: int = 0
    directory: Path | None = None
    """The directory of its traces; None writes none."""
    runtime: int = 0
    """Run time in minutes, counted from when it gets its nodes; 0 for no limit."""


class PilotEvents(Protocol):
    """The events of a simulated pilot; tasks are pairs of uid and final state."""

    def active(self, uid: str) -> None:
        """The pilot of that uid accepts tasks."""

    def done(self, tasks: Sequence[tuple[str, str]]) -> None:
        """These tasks have ended."""

    def unplaced(self, tasks: Sequence[tuple[str, str]]) -> None:
        """These tasks ended without a placement, or because none is possible."""

    def ended(self, uid: str, state: str) -> None:
        """The pilot of that uid has released its nodes; with its final state."""


@dataclass
class Usage:
    """Resources and their use by a pilot, in seconds of virtual time; cores and GPUs are those available to tasks."""

    cores: int = 0
    gpus: int = 0
    started: float = 0.0
    """When it got its nodes."""
    stopped: float = 0.0
    """When it released them."""
    first: float = -1.0
    """When the first task reached its scheduler; -1 without any."""
    last: float = 0.0
    """When the last program ended."""
    core_seconds: float = 0.0
    """Seconds in which programs ran on cores, over all cores."""
    gpu_seconds: float = 0.0
    runs: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Start and end of the program of each task, by uid."""


class SimulatedPilot(Protocol):
    """A pilot in a simulation."""

    usage: Usage

    def start(self) -> None:
        """Start the pilot; the batch system has allocated its nodes."""

    def submit(self, tasks: Sequence[SimulatedTask]) -> None:
        """Accept tasks, once the pilot is active."""

    def stop(self) -> None:
        """End the pilot, unless it has ended."""


MakePilot = Callable[[PilotPlan, VirtualClock, PilotEvents], SimulatedPilot]


def pilot_maker() -> MakePilot:
    """Return the factory of simulated pilots; raise PlatformError if none is installed."""
    point = installed(GROUP).get(PILOT)
    if point is None:
        raise PlatformError('simulations need the agent as well: pip install rp-agent')
    return cast('MakePilot', point.load())
