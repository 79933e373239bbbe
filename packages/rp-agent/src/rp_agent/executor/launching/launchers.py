"""The launch methods of a pilot, as executors use them: looked for when the first task needs one, in a helper thread.

To look for them takes seconds, as launchers are asked for their versions; most pilots never need one.
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
from rp_agent.task import AgentTask
from rp_api.constants import RAPTOR_WORKER
from rp_api.logger import logger
from rp_api.loop.offload import Offload
from rp_api.system import private

if TYPE_CHECKING:
    from rp_agent.executor.launching.mpi_programs import MpiPrograms
    from rp_agent.launch_method.base import Job, LaunchMethod
    from rp_agent.launch_method.find import Methods
    from rp_agent.launch_method.mpi_library import Linked

VISIBLE_GPUS = {'CUDA': 'CUDA_VISIBLE_DEVICES', 'ROCm': 'ROCR_VISIBLE_DEVICES', 'Intel': 'ZE_AFFINITY_MASK'}
"""Variables that tell a rank which GPUs are its own, by `gpu_type`."""

_OF_A_RANK = (
    r'PMI_.*|PMIX_(RANK|NAMESPACE|ID|SERVER.*|SECURITY.*|GDS.*|HOSTNAME|VERSION|BFROP.*)|OMPI_(COMM|UNIVERSE|MCA_(ess|orte)).*|'
    r'MPI_(RANK|LOCAL.*)|HYDI_.*|HYDRA_(HOST|LAUNCH|PROXY).*|PALS_RANKID|ALPS_APP_PE|MPT_MPI_RANK')
"""Variables of a rank of an MPI program; a launcher that finds them takes itself for one."""


def is_mpi(task: AgentTask) -> bool:
    """Whether the ranks are MPI processes that somebody has to bring together; a RAPTOR worker does that itself."""
    description = task.description
    wanted = description['use_mpi']
    return (description['ranks'] > 1 if wanted is None else bool(wanted)) and description['mode'] != RAPTOR_WORKER


def needs_launcher(task: AgentTask, launchers: Launchers | None) -> bool:
    """Whether a task is one for a launch method: it is MPI, or has ranks on other hosts than this one."""
    if launchers is None:
        return False
    return is_mpi(task) or (launchers.spans_hosts
                            and not all(launchers.is_here(slot['node_index']) for slot in task.slots or ()))


class RankEnvironment(NamedTuple):
    """Files with the user's environment, for ranks to which the launcher does not hand it on."""

    script: str
    """A shell script that sets it."""
    block: str
    """The same for `rp-rank`."""


class Launchers:
    """What can start ranks that the agent cannot start itself.

    `setting` are the fields of `rp_agent.launch_method.base.Setting`, `environ` is the environment of the user, in
    which launchers are looked for and start. `sandbox` is that of the pilot. `here` are the positions of the nodes that
    are the host of this process, None if all of them are.
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
        self._programs: MpiPrograms | None = None   # of no use if no method is known to be for some MPI
        self._waiting: list[Callable[[], object]] = []
        self._variables: dict[str, Variables] = {}
        self._files: dict[str, RankEnvironment] = {}
        self._here = None if here is None else frozenset(here)
        self._unlike = frozenset(setting.get('unlike', ()))
        self.spans_hosts = here is not None
        """Whether the pilot has nodes on other hosts."""
        self.rank_program = ''
        """The path of what starts a rank without a shell, as all nodes see it; empty if there is none."""

    @cached_property
    def _environ(self) -> dict[str, str]:
        return {name: value for name, value in self._user.items() if not re.fullmatch(_OF_A_RANK, name)}

    @property
    def known(self) -> bool:
        """Whether the methods were looked for."""
        return self._methods is not None

    def look(self, found: Callable[[], object]) -> None:
        """Look for the methods; `found()` is called in the loop when they are known."""
        self._waiting.append(found)
        if len(self._waiting) == 1:
            self._offload(self._detect, self._detected, self._undetected)

    def choose(self, job: Job) -> LaunchMethod:
        """The method for a job, once they are known; raises LaunchRefused, with what each of them says."""
        from rp_agent.launch_method.find import choose

        assert self._methods is not None, 'nobody has looked for launch methods'
        return choose(job, self._methods)

    def look_at(self, task: AgentTask, seen: Callable[[], object]) -> bool:
        """Look at the program of a task, and call `seen()` in the loop then; False if that is not needed."""
        programs = self._programs_of(task)
        return programs is not None and programs.look(programs.program(task.description, task.sandbox), seen)

    def linked(self, task: AgentTask) -> Linked | None:
        """The MPI library of a task's program, as far as it was looked at."""
        programs = self._programs_of(task)
        return None if programs is None else programs.linked(programs.program(task.description, task.sandbox))

    def _programs_of(self, task: AgentTask) -> MpiPrograms | None:
        """What knows the MPI of programs, for tasks where it matters."""
        return self._programs if task.description['ranks'] > 1 and is_mpi(task) else None

    def preferred(self, names: Collection[str]) -> LaunchMethod | None:
        """The first of the methods that can be used, if it has one of these names; None if it has not, or not yet."""
        found = self._methods.found if self._methods is not None else ()
        return found[0] if found and found[0].NAME in names else None

    def give_up(self, name: str, reason: str) -> None:
        """Do without the method of that name, which was found, for this reason."""
        from rp_agent.launch_method.find import Methods

        assert self._methods is not None
        logger(LOG).error('launch method %s cannot be used: %s', name, reason)
        self._methods = Methods(tuple(method for method in self._methods.found if name != method.NAME),
                                {**self._methods.missing, name: reason})

    def environment(self, method: LaunchMethod) -> dict[str, str]:
        """The environment that programs of a method start in."""
        return {**self._environ, **method.environment}

    def is_here(self, position: int) -> bool:
        """Whether the node at this position is the host that this process runs on."""
        return self._here is None or position in self._here

    def is_alike(self, position: int) -> bool:
        """Whether the node at this position has as many cores and GPUs as this host."""
        return position not in self._unlike

    def variables(self, method: LaunchMethod, shared: Mapping[str, str]) -> Variables:
        """The environment that a launcher is started in: what all tasks share, and what the method asks for."""
        found = self._variables.get(method.NAME)
        if found is None:
            gone = {*method.rank_variables, *method.size_variables}
            kept = {name: value for name, value in shared.items()
                    if name not in gone and not re.fullmatch(_OF_A_RANK, name)}
            found = self._variables[method.NAME] = Variables({**kept, **method.environment})
        return found

    def rank_environment(self, method: LaunchMethod) -> RankEnvironment:
        """The environment of ranks that are started by this method, whose own variables it leaves alone."""
        found = self._files.get(method.NAME)
        if found is None:
            from fnmatch import fnmatchcase

            stem = os.path.join(self._sandbox, 'env', f'lm_{method.NAME.lower()}')
            found = RankEnvironment(f'{stem}.sh', f'{stem}.env')
            shared = {name: value for name, value in {**self._environ, **method.environment}.items()
                      if not any(fnmatchcase(name, pattern) for pattern in method.RESERVED)}
            _write(found.script, exports(shared))
            _write(found.block, block(shared))
            self._files[method.NAME] = found
        return found

    def _detect(self) -> tuple[Methods, str]:
        from rp_agent.executor.launching import rank_program

        return self._methods_here(), rank_program.installed(self._sandbox)

    def _methods_here(self) -> Methods:
        from rp_agent.launch_method.base import Setting
        from rp_agent.launch_method.find import detect
        from rp_agent.launch_method.system import System

        setting = Setting(**{**self.setting, 'nodes': tuple(self.setting.get('nodes', ()))})
        return detect({'launch_methods': self._order}, setting, System(self._environ))

    def _undetected(self, error: BaseException) -> None:
        """Whatever a method of others does, only tasks that need one suffer from it."""
        from rp_agent.launch_method.find import Methods

        logger(LOG).error('the launch methods cannot be looked for', exc_info=error)
        self._detected((Methods((), {'all': repr(error)}), ''))

    def _detected(self, found: tuple[Methods, str]) -> None:
        methods, self.rank_program = found
        self._methods = methods
        kind = next((method for method in methods.found if method.mpi), None)
        if kind is not None:
            from rp_agent.executor.launching.mpi_programs import MpiPrograms

            self._programs = MpiPrograms(self.environment(kind), self._offload)
        for method in methods.found:
            logger(LOG).info('launch method %s', method)
        for name, reason in methods.missing.items():
            logger(LOG).info('launch method %s cannot be used: %s', name, reason)
        if not self.rank_program:
            logger(LOG).info('ranks are started by shell scripts, as no program can be executed in %s', self._sandbox)
        waiting, self._waiting = self._waiting, []
        for call in waiting:
            call()


def _write(path: str, text: str) -> None:
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        private.write_file(path, text.encode(errors='surrogateescape'))
    except OSError as error:
        error.filename = path   # which that of a write that fails lacks
        raise LaunchRefused(f'cannot write {path}: {error.strerror}') from error
