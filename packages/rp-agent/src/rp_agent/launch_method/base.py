"""Base class of launch methods, and the records that they work with.

A launch method decides which command starts the ranks of a task; it runs nothing itself. The agent creates each method
once, by `detect`, which looks for the launcher's program. After that, the results of `refuses` and `command` depend
only on the job and on the detected program.

Every method places each rank on the node that the scheduler chose, and turns off the launcher's core binding where the
launcher has an option for it: a rank binds itself, because launchers count cores in different ways.
"""

from __future__ import annotations

import signal
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from rp_agent.launch_method.mpi_library import Linked
    from rp_agent.launch_method.system import LaunchSystem
    from rp_agent.resource_manager.base import Allocation


@dataclass(frozen=True, slots=True)
class Rank:
    """The placement of a rank."""

    node: str
    """Name of the node."""
    index: int
    """Position of the node in the pilot, from 0."""
    cores: tuple[int, ...] = ()
    """Numbers of its cores in the operating system, or else their indices; empty if they are unknown."""
    gpus: tuple[int, ...] = ()
    """Numbers of its GPUs, in the same form."""


@dataclass(frozen=True, slots=True)
class Job:
    """The ranks of one task, as a launch method sees them."""

    uid: str
    """Identifier of the task."""
    sandbox: str
    """Absolute path of the task's sandbox."""
    ranks: tuple[Rank, ...]
    """The ranks in their order, at least one."""
    cores_per_rank: int = 1
    """Number of cores of each rank; hardware threads where `Setting.threads_per_core` is more than 1."""
    gpus_per_rank: float = 0.0
    """Number of GPUs of each rank; a fraction if ranks share GPUs."""
    mem_per_rank: int = 0
    """Memory of each rank in MB; 0 if the task sets no limit."""
    gpu_type: str = ''
    """`gpu_type` of the task description, such as `CUDA`."""
    threading: str = ''
    """`threading_type` of the task description, such as `OpenMP`."""
    mpi: bool = False
    """True if the ranks are those of an MPI program."""
    variables: tuple[str, ...] = ()
    """Names of variables that the launcher must pass from its own environment to ranks on other nodes."""
    linked: Linked | None = None
    """The MPI library of the program; None if it is unknown."""
    skip_gpus: bool = False
    """True if the launcher gets no options about GPUs (`lm_skip_gpus` of the task's metadata)."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """Additional placement data: the block of a torus, or the address of a DVM or a Flux instance."""


@dataclass(frozen=True, slots=True)
class Command:
    """The command that launches a job."""

    argv: tuple[str, ...]
    """The launcher, its options, and the command line that each rank executes."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Files that the agent writes into the sandbox before the launch: their texts by name."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables that the launcher needs in addition to those of the task."""


@dataclass(frozen=True, slots=True)
class Setting:
    """The resources of the pilot for which launch methods are detected.

    Cores are hardware threads if `threads_per_core` is more than 1. Blocked cores and GPUs are not counted.
    """

    nodes: tuple[str, ...] = ()
    """Names of the nodes."""
    cores_per_node: int = 0
    """Number of cores of each node."""
    gpus_per_node: int = 0
    """Number of GPUs of each node."""
    threads_per_core: int = 1
    """Number of hardware threads of each core that tasks use."""
    exclusive: bool = False
    """True if the batch system separates the tasks of a node (`system_architecture.exclusive`)."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """Additional facts from the resource manager, by name."""
    unlike: tuple[int, ...] = ()
    """Positions of nodes whose CPUs and GPUs differ from those of the agent's host."""
    smaller: tuple[tuple[int, int, int], ...] = ()
    """Nodes that have less than the others: position, number of cores, number of GPUs."""

    @classmethod
    def of(cls, allocation: Allocation, platform: Mapping[str, Any]) -> Setting:
        """Return the setting of a pilot with this allocation on this platform."""
        architecture = platform.get('system_architecture') or {}
        return cls(allocation.names, allocation.cores_per_node, allocation.gpus_per_node, allocation.threads_per_core,
                   bool(architecture.get('exclusive')), allocation.facts, allocation.unlike,
                   tuple((position, *devices) for position, devices in sorted(allocation.smaller.items())))


@dataclass(frozen=True, slots=True)
class Program:
    """A detected launcher."""

    path: str
    """Absolute path of the program."""
    version: str = ''
    """Version as the program prints it; empty if it prints none."""
    flavour: str = ''
    """Implementation behind a shared program name, such as `Open MPI` for `mpirun`."""

    @property
    def numbers(self) -> tuple[int, ...]:
        """The leading numeric components of the version, such as `(4, 1)` for `4.1.rc2`."""
        return tuple(map(int, takewhile(str.isdecimal, self.version.split('.'))))

    def __str__(self) -> str:
        """Return path, flavour and version, separated by spaces."""
        return ' '.join(filter(None, (self.path, self.flavour, self.version)))


class LaunchMethod(ABC):
    """A way to start the ranks of a task: the base class of launch methods.

    A subclass sets `NAME` and `PROGRAMS`, implements `command`, and overrides `detect` and `refuses` if the inherited
    ones do not fit. An entry point of the group `radical_pilot.launch_methods` makes it available under its name.
    """

    NAME: ClassVar[str]
    """Name of the method in platform definitions, in upper case."""
    PROGRAMS: ClassVar[tuple[str, ...]]
    """Names of the launcher's program; the first that is found in PATH is used."""
    RESERVED: ClassVar[tuple[str, ...]] = (
        'RP_*', 'PWD', 'ROCR_VISIBLE_DEVICES', 'CUDA_VISIBLE_DEVICES', 'ZE_AFFINITY_MASK')
    """Patterns of variable names that a named environment must not set."""
    CANCEL: ClassVar[tuple[signal.Signals, ...]] = (signal.SIGTERM, signal.SIGKILL)
    """Signals that cancel the launcher, sent in this order with a pause after each."""
    FORWARDS: ClassVar[bool] = True
    """True if ranks inherit the launcher's environment, on other nodes at least the variables in `Job.variables`."""
    SHARES_NODES: ClassVar[bool] = True
    """True if the launcher starts tasks on nodes on which it runs sub-agents."""
    SPAWNER: ClassVar[str] = ''
    """The only `agent_spawner` that can use the method; empty if all can."""

    rank_variables: tuple[str, ...] = ()
    """Names of variables that hold the number of a rank; the first that is set counts.

    If empty, the job has one rank, 0. The agent removes these variables and `size_variables` from the launcher's
    environment, because an outer launcher may have set them.
    """
    size_variables: tuple[str, ...] = ()
    """Names of variables that hold the number of ranks; empty if the launcher sets none."""
    mpi: str = ''
    """Kind of MPI library (`Open MPI` or `MPICH`) that the launcher supports; empty if it is unknown."""
    asks_library: bool = False
    """True if the command depends on the MPI library of the program, `Job.linked`."""
    chooses_devices: bool = False
    """True if the launcher chooses the cores and GPUs of each rank itself, in place of those in its slot."""

    def __init__(self, program: Program, setting: Setting, options: Mapping[str, Any] | None = None) -> None:
        """Create the method for a detected program.

        Args:
            program: The launcher.
            setting: The resources of the pilot.
            options: `options` of the method in the platform definition; `arguments` is a list of launcher options.
        """
        self.program = program
        self.setting = setting
        self.options = options or {}
        self.label = self.NAME.lower()
        """Name for files of the method, different from those of `others`."""
        self.others: tuple[LaunchMethod, ...] = ()
        """The same method with launchers of other MPI libraries, for programs that use these."""
        self.environment: dict[str, str] = {}
        """Variables that the launcher always needs, such as those that the platform's `pre_exec` sets."""
        self._arguments = tuple(map(str, self.options.get('arguments', ())))

    @classmethod
    def detect(cls, system: LaunchSystem, setting: Setting, options: Mapping[str, Any] | None = None) -> LaunchMethod:
        """Look for the launcher on the agent's host. The agent calls it once.

        The inherited method accepts the first of `PROGRAMS` that is in PATH.

        Args:
            system: The agent's host; `which` finds programs, `ask` returns the output of one.
            setting: The resources of the pilot.
            options: `options` of the method in the platform definition.

        Returns:
            The method for the program that was found.

        Raises:
            PlatformError: The launcher is missing or cannot be used; the text names the reason.
        """
        return cls(Program(system.which(*cls.PROGRAMS)), setting, options)

    def refuses(self, job: Job) -> str:
        """Return the reason why the method cannot launch a job. The inherited method accepts all jobs.

        Args:
            job: The ranks of a task, with their slots.

        Returns:
            A clause such as `it starts one process, not 4 ranks`; empty if the method can launch the job.
        """
        return ''

    @abstractmethod
    def command(self, job: Job, executable: Sequence[str]) -> Command:
        """Return the command that launches a job.

        Args:
            job: The ranks of a task; `refuses` has accepted it.
            executable: The command line that each rank executes, program first.

        Returns:
            The command line, with the files and variables that the launcher needs.
        """

    def __str__(self) -> str:
        """Return the name of the method, and its program if it has one."""
        return f'{self.NAME} ({self.program})' if self.program.path else self.NAME


def one_process(job: Job) -> str:
    """Return why a launcher of single processes without MPI cannot start the job; empty if it can."""
    if len(job.ranks) > 1:
        return f'it starts one process, not {len(job.ranks)} ranks'
    return 'it does not start MPI programs' if job.mpi else ''
