"""The launch methods ORTE, ORTE_LIB and PRTE: ranks in a distributed virtual machine (DVM) that runs on the nodes.

Somebody else starts and watches DVMs. The job says, as `dvm_uri` of its details, which of them it goes to.

ORTE_LIB was the same through a library; here it is another name of ORTE. ORTE is found in Open MPI 2 and 3, and PRRTE,
which came of it, by itself and in Open MPI 5, whose `prterun --dvm` stands in for prun, and spells options otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from rp_agent.launch_method.base import Command, Job, LaunchMethod, Program, Setting
from rp_agent.launch_method.mpi_library import OPEN_MPI
from rp_agent.launch_method.nodes import host_options
from rp_agent.launch_method.system import System

DVM_URI = 'dvm_uri'
"""Where in the details of a job the URI of its DVM stands."""

_MESSAGES = ('--pmixmca', 'ptl_base_max_msg_size', '1073741824')
"""PMIx refuses messages of large jobs otherwise."""


class Orte(LaunchMethod):
    """ORTE."""

    NAME: ClassVar[str] = 'ORTE'
    PROGRAMS: ClassVar[tuple[str, ...]] = ('orterun',)
    SERVER: ClassVar[tuple[str, ...]] = ('orte-dvm',)
    """The program that a DVM is started with."""
    RESERVED: ClassVar[tuple[str, ...]] = (*LaunchMethod.RESERVED, 'OMPI_*', 'PMIX_*')

    rank_variables: tuple[str, ...] = ('OMPI_COMM_WORLD_RANK', 'PMIX_RANK')
    size_variables: tuple[str, ...] = ('OMPI_COMM_WORLD_SIZE',)
    mpi = OPEN_MPI

    @classmethod
    def detect(cls, system: System, setting: Setting, options: Mapping[str, Any] | None = None) -> LaunchMethod:
        system.which(*cls.SERVER)
        method = cls(cls._program(system), setting, options)
        method.environment.update(system.for_inner_srun)   # which starts the DVM as well
        return method

    @classmethod
    def _program(cls, system: System) -> Program:
        return Program(system.which(*cls.PROGRAMS))

    def refuses(self, job: Job) -> str:
        return '' if job.details.get(DVM_URI) else 'there is no distributed virtual machine for it'

    def command(self, job: Job, executable: Sequence[str]) -> Command:
        files: dict[str, str] = {}
        argv = [*self._to(job.details[DVM_URI]), *_places(job, files), '--map-by', 'seq:OVERSUBSCRIBE',
                '--bind-to', 'none', *_exports(job)]
        return Command((*argv, *self._arguments, *executable), files)

    def _to(self, uri: str) -> list[str]:
        return [self.program.path, '--hnp', uri]


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
    def _program(cls, system: System) -> Program:
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
    """The number of ranks, and a host for each."""
    return '--np', str(len(job.ranks)), *host_options(job, files)


def _exports(job: Job) -> list[str]:
    return [word for name in job.variables for word in ('-x', name)]
