"""The launch methods ORTE, ORTE_LIB and PRTE: ranks in a distributed virtual machine (DVM) that runs on the nodes.

The executor starts and supervises the DVMs. `dvm_uri` in the details of a job is the address of its DVM.

ORTE_LIB is an alias of ORTE. ORTE is part of Open MPI 2 and 3. Its successor PRRTE is a separate project and part of
Open MPI 5, which has `prterun --dvm` instead of prun, with other spellings of the options.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from rp_agent.launch_method.base import Command, Job, LaunchMethod, Program, Setting
from rp_agent.launch_method.mpi_library import OPEN_MPI
from rp_agent.launch_method.nodes import host_options
from rp_agent.launch_method.system import LaunchSystem

DVM_URI = 'dvm_uri'
"""Key in the details of a job for the URI of its DVM."""

_MESSAGES = ('--pmixmca', 'ptl_base_max_msg_size', '1073741824')
"""Options that raise the message limit of PMIx, which is too low for large jobs."""


class Orte(LaunchMethod):
    """ORTE."""

    NAME: ClassVar[str] = 'ORTE'
    PROGRAMS: ClassVar[tuple[str, ...]] = ('orterun',)
    SERVER: ClassVar[tuple[str, ...]] = ('orte-dvm',)
    """Name of the program that starts a DVM."""
    RESERVED: ClassVar[tuple[str, ...]] = (*LaunchMethod.RESERVED, 'OMPI_*', 'PMIX_*')

    rank_variables: tuple[str, ...] = ('OMPI_COMM_WORLD_RANK', 'PMIX_RANK')
    size_variables: tuple[str, ...] = ('OMPI_COMM_WORLD_SIZE',)
    mpi = OPEN_MPI

    @classmethod
    def detect(cls, system: LaunchSystem, setting: Setting, options: Mapping[str, Any] | None = None) -> LaunchMethod:
        system.which(*cls.SERVER)
        method = cls(cls._program(system), setting, options)
        method.environment.update(system.for_inner_srun)   # srun also starts the DVM
        return method

    @classmethod
    def _program(cls, system: LaunchSystem) -> Program:
        return Program(system.which(*cls.PROGRAMS))

    def refuses(self, job: Job) -> str:
        return '' if job.details.get(DVM_URI) else 'no distributed virtual machine runs on its nodes'

    def command(self, job: Job, executable: Sequence[str]) -> Command:
        files: dict[str, str] = {}
        argv = [self.program.path, '--hnp', job.details[DVM_URI], *_places(job, files), '--map-by', 'seq:OVERSUBSCRIBE',
                '--bind-to', 'none', *_exports(job)]
        return Command((*argv, *self._arguments, *executable), files)


class OrteLib(Orte):
    """ORTE_LIB."""

    NAME: ClassVar[str] = 'ORTE_LIB'


class Prte(Orte):
    """PRTE."""

    NAME: ClassVar[str] = 'PRTE'
    PROGRAMS: ClassVar[tuple[str, ...]] = ('prun', 'prterun')
    SERVER: ClassVar[tuple[str, ...]] = ('prte',)
    RESERVED: ClassVar[tuple[str, ...]] = (*LaunchMethod.RESERVED, 'PMIX_*', 'PRTE_*', 'OMPI_*')

    rank_variables = ('PMIX_RANK',)
    size_variables = ()

    @classmethod
    def _program(cls, system: LaunchSystem) -> Program:
        path = system.which(*cls.PROGRAMS)
        found = re.search(r'\(PRRTE\)\s*v?([\d.]+\w*)', system.ask(path, '--version'))
        flavour = 'prterun' if path.endswith('prterun') else 'prun'
        return Program(path, found[1] if found else '', flavour)

    def command(self, job: Job, executable: Sequence[str]) -> Command:
        files: dict[str, str] = {}
        uri = job.details[DVM_URI]
        if self.program.flavour == 'prun':
            argv = [self.program.path, '--dvm-uri', uri, *_places(job, files), '--map-by', 'seq:OVERSUBSCRIBE',
                    '--bind-to', 'none', *_MESSAGES]
        else:
            argv = [self.program.path, '--dvm', f'uri:{uri}', *_places(job, files), '--mapby', 'seq:OVERSUBSCRIBE',
                    '--bindto', 'none']
        return Command((*argv, *_exports(job), '--wdir', job.sandbox, *self._arguments, *executable), files)


def _places(job: Job, files: dict[str, str]) -> tuple[str, ...]:
    """Return the options that set the number of ranks and the host of each."""
    return '--np', str(len(job.ranks)), *host_options(job, files)


def _exports(job: Job) -> list[str]:
    return [word for name in job.variables for word in ('-x', name)]
