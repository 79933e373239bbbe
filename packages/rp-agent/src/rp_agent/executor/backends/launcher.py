"""Base class of launchers that stay: how to start an instance, and how to interpret its output."""

from __future__ import annotations

import signal
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple


class InstanceNode(NamedTuple):
    """A node of the pilot, with the numbers of its cores and GPUs for tasks."""

    name: str
    cores: int
    gpus: int = 0


def nodes_of(setting: Mapping[str, Any]) -> tuple[InstanceNode, ...]:
    """Return the nodes of a pilot, from the fields of `rp_agent.launch_method.base.Setting`."""
    smaller = {position: devices for position, *devices in setting.get('smaller', ())}
    alike = setting['cores_per_node'], setting.get('gpus_per_node', 0)
    return tuple(InstanceNode(name, *smaller.get(position, alike)) for position, name in enumerate(setting['nodes']))


@dataclass(frozen=True, slots=True)
class Startup:
    """The start of an instance: a command, texts of files by their names in the pilot sandbox, and variables."""

    argv: tuple[str, ...]
    files: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)


class InstanceLauncher(ABC):
    """A launcher that stays; an object has no state, as it serves all instances."""

    NAME: ClassVar[str]

    SECONDS_TO_START: ClassVar[float] = 60.0
    """Seconds after which an instance that is not ready has failed."""

    SECONDS_TO_STOP: ClassVar[float] = 10.0
    """Seconds after which an instance that was asked to end is killed."""

    STOP_SIGNAL: ClassVar[int] = signal.SIGTERM
    """Signal that ends an instance; 0 if it ends with its runner."""

    USES_TMPDIR: ClassVar[bool] = False
    """True if instances leave files in TMPDIR: each gets its own, which it creates on each of its nodes."""

    SEGMENTS: ClassVar[str] = ''
    """Prefix of the names of shared memory segments that a killed instance leaves; empty if it leaves none."""

    @abstractmethod
    def startup(self, number: int, nodes: Sequence[InstanceNode]) -> Startup:
        """Return the command, files and variables that start instance `number` on these nodes."""

    @abstractmethod
    def address(self, line: str) -> str:
        """Return the address of the instance if this line of its output contains it, else an empty string."""

    @abstractmethod
    def is_ready(self, line: str) -> bool:
        """Return whether this line of output means that the instance can run tasks; its address is already known."""
