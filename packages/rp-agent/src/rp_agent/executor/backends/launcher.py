"""What the supervisor knows of a launcher that stays: how an instance is started, and what its output means."""

from __future__ import annotations

import signal
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple


class Node(NamedTuple):
    """A node of the pilot, and what tasks may use of it."""

    name: str
    cores: int
    gpus: int = 0


def nodes_of(setting: Mapping[str, Any]) -> tuple[Node, ...]:
    """The nodes of a pilot of which these are the fields of `rp_agent.launch_method.base.Setting`."""
    smaller = {position: devices for position, *devices in setting.get('smaller', ())}
    alike = setting['cores_per_node'], setting.get('gpus_per_node', 0)
    return tuple(Node(name, *smaller.get(position, alike)) for position, name in enumerate(setting['nodes']))


@dataclass(frozen=True, slots=True)
class Startup:
    """What starts an instance: a command, files that it needs by their names in the pilot sandbox, and variables."""

    argv: tuple[str, ...]
    files: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)


class InstanceLauncher(ABC):
    """How the instances of a launcher are started and understood; without state, as one serves all instances."""

    NAME: ClassVar[str]

    SECONDS_TO_START: ClassVar[float] = 60.0
    """After which an instance that is not ready has failed."""

    SECONDS_TO_STOP: ClassVar[float] = 10.0
    """After which an instance that was asked to end is killed."""

    STOP_SIGNAL: ClassVar[int] = signal.SIGTERM
    """What makes an instance end; 0 if it ends by itself when its runner does."""

    USES_TMPDIR: ClassVar[bool] = False
    """Whether an instance leaves files in TMPDIR: it gets one of its own, which is made on each of its nodes."""

    SEGMENTS: ClassVar[str] = ''
    """How the names of the segments of shared memory begin that one leaves which is killed; empty if there are none."""

    @abstractmethod
    def startup(self, number: int, nodes: Sequence[Node]) -> Startup:
        """What starts instance number `number` on these nodes."""

    @abstractmethod
    def address(self, line: str) -> str:
        """The address of the instance, if this line of its output tells it; else nothing."""

    @abstractmethod
    def is_ready(self, line: str) -> bool:
        """Whether this line of its output says that it can run tasks; only asked for when the address is known."""
