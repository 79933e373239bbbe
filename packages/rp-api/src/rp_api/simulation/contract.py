"""What the client's half of the simulator and a simulated pilot expect of each other.

A pilot is made by the entry point `pilot` of the group `radical_pilot.simulation`, called with a `PilotPlan`, a virtual
clock and `PilotEvents`. So neither half imports the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, cast

from rp_api.errors import PlatformError
from rp_api.extensions import installed
from rp_api.simulation.clock import VirtualClock
from rp_api.simulation.model import Model

GROUP = 'radical_pilot.simulation'
PILOT = 'pilot'


@dataclass(frozen=True)
class SimulatedTask:
    """A task of a workload: its description as plain data, and how many seconds its program runs."""

    uid: str
    description: Mapping[str, Any]
    duration: float


@dataclass(frozen=True)
class PilotPlan:
    """What a simulated pilot is: `platform` is a platform definition, with the numbers of cores and GPUs of a node."""

    uid: str
    nodes: int
    platform: Mapping[str, Any]
    model: Model
    seed: int = 0
    directory: Path | None = None
    """Where its traces are written; None for none."""
    runtime: int = 0
    """Minutes from when it has its nodes until its time is over; 0 for no limit."""


@dataclass(frozen=True)
class PilotEvents:
    """What a simulated pilot calls."""

    active: Callable[[str], object]
    """The pilot of that uid takes tasks."""
    done: Callable[[Sequence[tuple[str, str]]], object]
    """These tasks have ended: pairs of uid and final state."""
    unplaced: Callable[[Sequence[tuple[str, str]]], object]
    """The same of tasks that ended because they were not, or can never be, placed."""
    ended: Callable[[str, str], object]
    """The pilot of that uid has given its nodes back; its final state."""


@dataclass
class Usage:
    """What a pilot had and what was made of it, in seconds of virtual time; cores and GPUs are those tasks may use."""

    cores: int = 0
    gpus: int = 0
    started: float = 0.0
    """When its nodes were there."""
    stopped: float = 0.0
    """When it has given them back."""
    first: float = -1.0
    """When the first task was at its scheduler; -1 without any."""
    last: float = 0.0
    """When the last program ended."""
    core_seconds: float = 0.0
    """In which a program ran on a core."""
    gpu_seconds: float = 0.0
    runs: dict[str, tuple[float, float]] = field(default_factory=dict)
    """When the program of each task began and ended, by its uid."""


class SimulatedPilot(Protocol):
    """A pilot in a simulation."""

    usage: Usage

    def start(self) -> None:
        """The batch system gives the pilot its nodes."""

    def submit(self, tasks: Sequence[SimulatedTask]) -> None:
        """Take tasks, once the pilot is active."""

    def stop(self) -> None:
        """The pilot is told to end, unless it has ended by itself."""


MakePilot = Callable[[PilotPlan, VirtualClock, PilotEvents], SimulatedPilot]


def pilot_maker() -> MakePilot:
    """What makes simulated pilots; PlatformError if nothing is installed that does."""
    point = installed(GROUP).get(PILOT)
    if point is None:
        raise PlatformError('simulations need the agent as well: pip install rp-agent')
    return cast('MakePilot', point.load())
