"""The MPI library of a program: from the shared libraries that it needs, or from what mpi4py says.

A program that finds another library than that of its launcher does not fail: each of its ranks is the only one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from rp_agent.launch_method.system import System
from rp_api.errors import PlatformError

OPEN_MPI, MPICH = 'Open MPI', 'MPICH'
"""Kinds of libraries: those of a kind find each other when a launcher of that kind starts them."""

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
"""A program that tells the MPI of a Python, without starting it."""


@dataclass(frozen=True, slots=True)
class Linked:
    """An MPI library that a program uses: what uses it, its kind, and its name."""

    program: str
    kind: str
    library: str


def of_executable(system: System, path: str) -> Linked | None:
    """The library that an executable is linked with, perhaps through others; None if it is not known."""
    try:
        needed = [line.split()[0] for line in system.ask(system.which('ldd'), path).splitlines() if line.strip()]
    except PlatformError:   # it is a script, or linked statically, or there is no `ldd`
        return None
    found = {kind: name for kind, pattern in _LIBRARIES for name in reversed(needed) if pattern.fullmatch(name)}
    if len(found) != 1 or (MPICH in found and any(map(_PMIX.match, needed))):   # MPICH with PMIx fits both
        return None
    kind, name = found.popitem()
    return Linked(path, kind, name)


def of_python(system: System, path: str) -> Linked | None:
    """The library that mpi4py uses in a Python; None if it is not known."""
    try:
        said = system.ask(path, '-c', VERSION).partition('\n')[0]
    except PlatformError:
        return None
    kind = next((kind for kind, pattern in _NAMES if pattern.search(said)), '')
    return Linked(f'mpi4py of {path}', kind, ' '.join(said.partition(',')[0].split())) if kind else None
