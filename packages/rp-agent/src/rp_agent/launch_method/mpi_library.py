"""MPI library of a program: from the shared libraries that it needs, or from mpi4py.

A program whose library does not match its launcher does not fail: each rank runs as a program of one rank.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from rp_agent.launch_method.system import LaunchSystem
from rp_api.errors import PlatformError

OPEN_MPI, MPICH = 'Open MPI', 'MPICH'
"""Kinds of MPI libraries; a launcher of one kind connects the ranks of programs of the same kind only."""

_LIBRARIES = ((OPEN_MPI, re.compile(r'libmpi\w*\.so\.[24]0|libopen-(?:rte|pal)\.so\S*')),
              (MPICH, re.compile(r'libmpi\w*\.so\.12')))
_PMIX = re.compile(r'libpmix\.so')
_NAMES = ((OPEN_MPI, re.compile('Open MPI|IBM Spectrum MPI')),
          (MPICH, re.compile(r'MPICH|MVAPICH|Intel\(R\) MPI')))

VERSION = '''\
import mpi4py
mpi4py.rc.initialize = False
from mpi4py import MPI
print(MPI.Get_library_version())'''
"""Python code that prints the version of mpi4py's MPI library without initializing it."""


@dataclass(frozen=True, slots=True)
class Linked:
    """An MPI library that a program uses."""

    program: str
    """The program, for messages."""
    kind: str
    """`OPEN_MPI` or `MPICH`."""
    library: str
    """File name or version of the library."""


def of_executable(system: LaunchSystem, path: str) -> Linked | None:
    """Return the library that an executable is linked with, directly or indirectly; None if it is unknown."""
    try:
        needed = [line.split()[0] for line in system.ask(system.which('ldd'), path).splitlines() if line.strip()]
    except PlatformError:   # a script, a static executable, or a host without `ldd`
        return None
    found = {kind: name for kind, pattern in _LIBRARIES for name in reversed(needed) if pattern.fullmatch(name)}
    if len(found) != 1 or (MPICH in found and any(map(_PMIX.match, needed))):   # MPICH with PMIx fits both
        return None
    kind, name = found.popitem()
    return Linked(path, kind, name)


def of_python(system: LaunchSystem, path: str) -> Linked | None:
    """Return the library that mpi4py uses in a Python interpreter; None if it is unknown."""
    try:
        version = system.ask(path, '-c', VERSION).partition('\n')[0]
    except PlatformError:
        return None
    kind = next((kind for kind, pattern in _NAMES if pattern.search(version)), '')
    return Linked(f'mpi4py of {path}', kind, ' '.join(version.partition(',')[0].split())) if kind else None
