"""What a launch method is: it decides which command starts the ranks of a task, without running anything.

A method is made once per agent, by `detect`, which looks for its program. After that it only composes: what `refuses`
and `command` say depends on the job and on what was detected, on nothing else.

All methods place each rank on the node that the scheduler gave it. They bind no rank to cores, as far as the launcher
can be told so: a rank binds itself, because it knows its slot, and launchers count cores in different ways.
"""

from __future__ import annotations

import signal
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from rp_agent.launch_method.mpi_library import Linked
    from rp_agent.launch_method.system import System
    from rp_agent.resource_manager.base import Allocation


@dataclass(frozen=True, slots=True)
class Rank:
    """Where a rank runs. Cores and GPUs are the numbers that the operating system gives to them, else their indices."""

    node: str
    index: int
    """The position of the node in the pilot."""
    cores: tuple[int, ...] = ()
    gpus: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Job:
    """What is to be launched: the ranks of one task, in their order."""

    uid: str
    sandbox: str
    ranks: tuple[Rank, ...]
    cores_per_rank: int = 1
    gpus_per_rank: float = 0.0
    """A fraction if ranks share GPUs."""
    mem_per_rank: int = 0
    """MB; 0 if the task does not say."""
    gpu_type: str = ''
    threading: str = ''
    mpi: bool = False
    variables: tuple[str, ...] = ()
    """Names of variables in the launcher's environment that ranks on other nodes must find in theirs."""
    linked: Linked | None = None
    """The MPI library of the program, if it is known."""
    skip_gpus: bool = False
    """Whether the launcher is not to be told about GPUs (`lm_skip_gpus` of the task's metadata)."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """What else is known about where it belongs: its block of a torus, or the instance of a launcher that stays."""


@dataclass(frozen=True, slots=True)
class Command:
    """How a job is launched."""

    argv: tuple[str, ...]
    """The launcher, its options, and at the end what each rank executes."""
    files: Mapping[str, str] = field(default_factory=dict)
    """The texts of files that must be in the sandbox before, by name."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables that the launcher must have besides those of the task."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What is known of the pilot when its launch methods are looked for.

    Cores are hardware threads if `threads_per_core` is more than 1, and blocked ones are not counted.
    """

    nodes: tuple[str, ...] = ()
    cores_per_node: int = 0
    gpus_per_node: int = 0
    threads_per_core: int = 1
    exclusive: bool = False
    """Whether the batch system is to keep the tasks of a node apart (`system_architecture.exclusive`)."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """What else the resource manager has found out."""
    unlike: tuple[int, ...] = ()
    """Positions of nodes of which the CPUs and GPUs of the agent's host tell nothing, as they have more, or fewer."""
    smaller: tuple[tuple[int, int, int], ...] = ()
    """Positions of nodes that have less than the others, with their numbers of cores and GPUs."""

    @classmethod
    def of(cls, allocation: Allocation, platform: Mapping[str, Any]) -> Setting:
        """The setting of a pilot that has this allocation."""
        architecture = platform.get('system_architecture') or {}
        return cls(allocation.names, allocation.cores_per_node, allocation.gpus_per_node, allocation.threads_per_core,
                   bool(architecture.get('exclusive')), allocation.facts, allocation.unlike,
                   tuple((position, *devices) for position, devices in sorted(allocation.smaller.items())))


@dataclass(frozen=True, slots=True)
class Program:
    """A launcher that was found."""

    path: str
    version: str = ''
    flavour: str = ''

    @property
    def numbers(self) -> tuple[int, ...]:
        """The version as numbers, as far as it has any."""
        parts: list[int] = []
        for part in self.version.split('.'):
            if not part.isdecimal():
                break
            parts.append(int(part))
        return tuple(parts)

    def __str__(self) -> str:
        return ' '.join(filter(None, (self.path, self.flavour, self.version)))


class LaunchMethod(ABC):
    """A way to start ranks."""

    NAME: ClassVar[str]
    PROGRAMS: ClassVar[tuple[str, ...]]
    """Names of the launcher, each tried in turn."""
    RESERVED: ClassVar[tuple[str, ...]] = (
        'RP_*', 'PWD', 'ROCR_VISIBLE_DEVICES', 'CUDA_VISIBLE_DEVICES', 'ZE_AFFINITY_MASK')
    """Patterns of the names of variables that a named environment may not set."""
    CANCEL: ClassVar[tuple[signal.Signals, ...]] = (signal.SIGTERM, signal.SIGKILL)
    """What the launcher is sent, with a pause after each, when its task is cancelled."""
    FORWARDS: ClassVar[bool] = True
    """Whether ranks find the launcher's environment in theirs, on other nodes at least what `Job.variables` names."""
    SHARES_NODES: ClassVar[bool] = True
    """Whether it starts tasks on nodes while sub-agents run there that it has started."""
    SPAWNER: ClassVar[str] = ''
    """The only `agent_spawner` that can use the method; empty if any can."""

    rank_variables: tuple[str, ...] = ()
    """Names of the variable that tells a rank its number; the first that is set counts. None: there is one rank, 0.

    The launcher is to be started without these and `size_variables`: those of an outer launcher would lie.
    """
    size_variables: tuple[str, ...] = ()
    """The same for the number of ranks; empty if the launcher does not tell."""
    mpi: str = ''
    """The kind of MPI libraries that find each other when this method starts them; empty if that is not known."""
    chooses_devices: bool = False
    """Whether the launcher itself chooses the cores and GPUs of a rank: then what the slots say does not hold."""

    def __init__(self, program: Program, setting: Setting, options: Mapping[str, Any] | None = None) -> None:
        self.program = program
        self.setting = setting
        self.options = options or {}
        self.environment: dict[str, str] = {}
        """Variables that the launcher always needs, as those that the platform's `pre_exec` has set."""
        self._arguments = tuple(map(str, self.options.get('arguments', ())))

    @classmethod
    def detect(cls, system: System, setting: Setting, options: Mapping[str, Any] | None = None) -> LaunchMethod:
        """The method as it can be used on this system; `PlatformError` with the reason if it cannot."""
        return cls(Program(system.which(*cls.PROGRAMS)), setting, options)

    def refuses(self, job: Job) -> str:
        """Why the job cannot be launched; empty if it can, as any job if a method does not say otherwise."""
        return ''

    @abstractmethod
    def command(self, job: Job, executable: Sequence[str]) -> Command:
        """How the job is launched, each rank of which runs `executable`; only for jobs that are not refused."""

    def __str__(self) -> str:
        return f'{self.NAME} ({self.program})'


def one_process(job: Job) -> str:
    """What methods say that start one process and know nothing of MPI; empty if the job is content with that."""
    if len(job.ranks) > 1:
        return f'it starts one process, not {len(job.ranks)} ranks'
    return 'it does not start MPI programs' if job.mpi else ''
