"""Launch methods of a pilot, as executors use them: detected in a helper thread when the first task needs one.

Detection takes seconds, because launchers are run to print their versions; most pilots never need one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from rp_agent.bootstrap.environment import block, exports
from rp_agent.executor.processes.launch import Variables
from rp_agent.logs import LOG
from rp_agent.lookup import LaunchRefused
from rp_agent.task import JOB_SLOTS, AgentTask
from rp_api.constants import RAPTOR_WORKER
from rp_api.logger import logger
from rp_api.loop.offload import Offload
from rp_api.system import private

if TYPE_CHECKING:
    from rp_agent.launch_method.base import Job, LaunchMethod
    from rp_agent.launch_method.find import Methods
    from rp_agent.launch_method.mpi_library import Linked, MpiPrograms

_INPUTS = re.compile(
    r'SRUN_.*|SLURM_(ACCOUNT|ACCTG_FREQ|BCAST.*|BURST_BUFFER|CLUSTER_CONSTRAINT|COMPRESS|CONSTRAINT|CORE_SPEC|CPU_BIND.*|'
    r'CPU_FREQ_REQ|CPUS_PER_GPU|DEBUG.*|DELAY_BOOT|DEPENDENCY|DISABLE_STATUS|DIST.*|EPILOG|EXACT|EXCLUSIVE|'
    r'EXIT_(ERROR|IMMEDIATE)|EXPORT_ENV|EXTERNAL_LAUNCHER|GPU_(BIND|FREQ)|GPUS|GPUS_PER_.*|GRES.*|HINT|HOSTFILE|IMMEDIATE|'
    r'KILL_BAD_EXIT|LABELIO|MEM_BIND.*|MEM_PER_.*|NO_KILL|NTASKS_PER_.*|OOM_KILL_STEP|OPEN_MODE|OVERCOMMIT|OVERLAP|'
    r'PARTITION|POWER|PROFILE|PROLOG|QOS|REMOTE_CWD|REQ_SWITCH|RESERVATION|RESV_PORTS|SEND_LIBS|SIGNAL|SPREAD_JOB|'
    r'SRUN_REDUCE_TASK_EXIT_MSG|STD(ERR|IN|OUT)MODE|STEP_(GRES|KILLED_MSG_NODE_ID)|TASK_(EPILOG|PROLOG)|TEST_EXEC|'
    r'THREAD_SPEC|THREADS|THREADS_PER_CORE|TIMELIMIT|TRES_.*|UNBUFFEREDIO|USE_MIN_NODES|WAIT|WAIT4SWITCH|WCKEY|WORKING_DIR)|'
    r'SLURMD_DEBUG|OMPI_MCA_(rmaps|hwloc_base_binding).*|PRTE_MCA_(rmaps|hwloc_default_binding).*|'
    r'HYDRA_(BINDING|MAPPING|MEMBIND|PREPEND|RMK|USERSIZE).*|MPIEXEC_(TIMEOUT|PREFIX).*|'
    r'PALS_(CPU_BIND|DEPTH|EXCLUDE|GPU_BIND|HOST|LABEL|LINE_BUFFER|MEM_BIND|PPN|RLIMITS).*')
"""Pattern of variables that act as options of a launcher. Slurm sets some of them for a job, users others."""

_OF_A_RANK = (
    r'PMI_.*|PMIX_(RANK|NAMESPACE|ID|SERVER.*|SECURITY.*|GDS.*|HOSTNAME|VERSION|BFROP.*)|OMPI_(COMM|UNIVERSE|MCA_(ess|orte)).*|'
    r'MPI_(RANK|LOCAL.*)|HYDI_.*|HYDRA_(HOST|LAUNCH|PROXY).*|PALS_RANKID|ALPS_APP_PE|MPT_MPI_RANK')
"""Pattern of variables of an MPI rank; a launcher that finds them in its environment acts as a rank itself."""


def without_inputs(environ: Mapping[str, str]) -> dict[str, str]:
    """Return an environment for launchers, without variables that act as options, which the launch methods give."""
    return {name: value for name, value in environ.items() if not _INPUTS.fullmatch(name)}


def is_mpi(task: AgentTask) -> bool:
    """Return whether the ranks are MPI processes that a launcher connects; a RAPTOR worker connects its own."""
    description = task.description
    wanted = description['use_mpi']
    return (description['ranks'] > 1 if wanted is None else bool(wanted)) and description['mode'] != RAPTOR_WORKER


def leads_job(task: AgentTask) -> bool:
    """Return whether a task is the manager that starts the MPI job of a RAPTOR worker on several nodes."""
    return JOB_SLOTS in task.extra


def needs_launcher(task: AgentTask, launchers: Launchers | None) -> bool:
    """Return whether a task needs a launch method: it is MPI, or has ranks on other hosts."""
    if launchers is None:
        return False
    return is_mpi(task) or (launchers.spans_hosts
                            and not all(launchers.is_here(slot['node_index']) for slot in task.slots or ()))


class RankEnvironment(NamedTuple):
    """Paths of files with the user's environment, for ranks that the launcher does not pass it to."""

    script: str
    """A shell script that sets it."""
    block: str
    """The same, in the form of `rp-rank`."""


class Launchers:
    """The launch methods that start ranks which the agent cannot start itself.

    `setting` are the fields of `rp_agent.launch_method.base.Setting`. Launchers are detected and started in the user's
    environment, `environ`. `sandbox` is that of the pilot. `here` are the positions of the nodes on this host, None if
    all of them are.
    """

    def __init__(self, platform: Mapping[str, Any], setting: Mapping[str, Any], environ: Mapping[str, str],
                 sandbox: str, offload: Offload, here: Collection[int] | None = None) -> None:
        self.platform = platform
        self.setting = setting
        self._order = platform.get('launch_methods') or {'order': []}
        self._user = environ
        self._sandbox = sandbox
        self._offload = offload
        self._methods: Methods | None = None
        self._programs: MpiPrograms | None = None   # None if the MPI library of no method is known
        self._waiting: list[Callable[[], object]] = []
        self._variables: dict[str, Variables] = {}
        self._files: dict[str, RankEnvironment] = {}
        self._here = None if here is None else frozenset(here)
        self._unlike = frozenset(setting.get('unlike', ()))
        self.spans_hosts = here is not None
        """True if the pilot has nodes on other hosts."""
        self.rank_program = ''
        """Path of `rp-rank` on all nodes; empty if it is not installed."""

    @cached_property
    def _environ(self) -> dict[str, str]:
        return {name: value for name, value in self._user.items() if not re.fullmatch(_OF_A_RANK, name)}

    @property
    def known(self) -> bool:
        """True once the methods have been detected."""
        return self._methods is not None

    def look(self, found: Callable[[], object]) -> None:
        """Detect the methods, then call `found()` in the loop."""
        self._waiting.append(found)
        if len(self._waiting) == 1:
            self._offload(self._detect, self._detected, self._undetected)

    def choose(self, job: Job) -> LaunchMethod:
        """Return the method for a job; raise LaunchRefused, with the reason of each, if none can launch it."""
        from rp_agent.launch_method.find import choose

        assert self._methods is not None, 'launch methods have not been detected'
        return choose(job, self._methods)

    def look_at(self, task: AgentTask, seen: Callable[[], object]) -> bool:
        """Inspect the program of a task, then call `seen()` in the loop; return False if that is not needed."""
        programs = self._programs_of(task)
        return programs is not None and programs.look(programs.program(task.description, task.sandbox), seen)

    def linked(self, task: AgentTask) -> Linked | None:
        """Return the MPI library of a task's program; None if it is unknown or was not inspected."""
        programs = self._programs_of(task)
        return None if programs is None else programs.linked(programs.program(task.description, task.sandbox))

    def _programs_of(self, task: AgentTask) -> MpiPrograms | None:
        return self._programs if task.description['ranks'] > 1 and is_mpi(task) else None

    def preferred(self, names: Collection[str]) -> LaunchMethod | None:
        """Return the first usable method if it has one of these names; otherwise, or before detection, None."""
        found = self._methods.found if self._methods is not None else ()
        return found[0] if found and found[0].NAME in names else None

    def give_up(self, name: str, reason: str) -> None:
        """Move a detected method to the unusable ones, for this reason."""
        from rp_agent.launch_method.find import Methods

        assert self._methods is not None
        logger(LOG).error('launch method %s cannot be used: %s', name, reason)
        self._methods = Methods(tuple(method for method in self._methods.found if name != method.NAME),
                                {**self._methods.missing, name: reason})

    def environment(self, method: LaunchMethod) -> dict[str, str]:
        """Return the environment in which programs of a method start."""
        return {**without_inputs(self._environ), **method.environment}

    def is_here(self, position: int) -> bool:
        """Return whether the node at this position is this host."""
        return self._here is None or position in self._here

    def is_alike(self, position: int) -> bool:
        """Return whether the node at this position has as many cores and GPUs as this host."""
        return position not in self._unlike

    def variables(self, method: LaunchMethod, shared: Mapping[str, str]) -> Variables:
        """Return the environment of a launcher: variables that all tasks share, and those that the method needs."""
        found = self._variables.get(method.label)
        if found is None:
            removed = {*method.rank_variables, *method.size_variables}
            kept = {name: value for name, value in without_inputs(shared).items()
                    if name not in removed and not re.fullmatch(_OF_A_RANK, name)}
            found = self._variables[method.label] = Variables({**kept, **method.environment})
        return found

    def rank_environment(self, method: LaunchMethod) -> RankEnvironment:
        """Write the environment for ranks of this method, without the variables that the method reserves."""
        found = self._files.get(method.label)
        if found is None:
            from fnmatch import fnmatchcase

            stem = os.path.join(self._sandbox, 'env', f'lm_{method.label}')
            found = RankEnvironment(f'{stem}.sh', f'{stem}.env')
            shared = {name: value for name, value in {**self._environ, **method.environment}.items()
                      if not any(fnmatchcase(name, pattern) for pattern in method.RESERVED)}
            _write(found.script, exports(shared))
            _write(found.block, block(shared))
            self._files[method.label] = found
        return found

    def _detect(self) -> tuple[Methods, str]:
        from rp_agent.executor.launching import rank_program
        from rp_agent.launch_method.base import Setting
        from rp_agent.launch_method.find import detect
        from rp_agent.launch_method.system import LaunchSystem

        setting = Setting(**{**self.setting, 'nodes': tuple(self.setting.get('nodes', ()))})
        system = LaunchSystem(self._environ, shell=self.platform.get('shell', ''))
        return detect({'launch_methods': self._order}, setting, system), rank_program.installed(self._sandbox)

    def _undetected(self, error: BaseException) -> None:
        """Continue without methods: an error in a plugin's method fails only tasks that need a launcher."""
        from rp_agent.launch_method.find import Methods

        logger(LOG).error('the launch methods cannot be detected', exc_info=error)
        self._detected((Methods((), {'all': repr(error)}), ''))

    def _detected(self, found: tuple[Methods, str]) -> None:
        methods, self.rank_program = found
        self._methods = methods
        kind = next((method for method in methods.found if method.mpi or method.asks_library), None)
        if kind is not None:
            from rp_agent.launch_method.mpi_library import MpiPrograms

            self._programs = MpiPrograms(self.environment(kind), self._offload)
        for method in methods.found:
            logger(LOG).info('launch method %s', method)
        for name, reason in methods.missing.items():
            logger(LOG).info('launch method %s cannot be used: %s', name, reason)
        if not self.rank_program:
            logger(LOG).info('shell scripts start the ranks, because programs in %s cannot be executed', self._sandbox)
        waiting, self._waiting = self._waiting, []
        for call in waiting:
            call()


def _write(path: str, text: str) -> None:
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        private.write_file(path, text.encode(errors='surrogateescape'))
    except OSError as error:
        error.filename = path   # errors of a write have no path
        raise LaunchRefused(f'cannot write {path}: {error.strerror}') from error
