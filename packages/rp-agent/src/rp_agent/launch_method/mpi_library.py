"""MPI libraries of programs, from the shared libraries that they need, or from mpi4py.

A program whose library does not match its launcher does not fail: each rank runs as a program of one rank. A helper
thread inspects each program once; path, inode, size and modification time identify it. The library stays unknown if the
program is not known before the task runs: it is in a container, a shell or another script starts it, or its name
depends on the commands of `pre_exec`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from rp_agent.launch_method.system import LaunchSystem
from rp_agent.lookup import LaunchRefused, Programs, find_program
from rp_api.errors import PlatformError
from rp_api.loop.offload import Offload
from rp_api.system.shell_text import has_command

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


_VARIABLES = ('LD_LIBRARY_PATH', 'LD_PRELOAD', 'PYTHONHOME', 'PYTHONPATH', 'MPI4PY_LIBMPI', 'MPI4PY_MPIABI')
"""Variables of a task that affect which libraries are found."""

_PYTHON = re.compile(r'python[\d.]*')

_USES_MPI4PY = re.compile(rb'^\s*(?:from|import)\s+mpi4py\b', re.MULTILINE)

_SEARCHED_BYTES = 1 << 20
"""Bytes of a script that are searched for the import of mpi4py."""

_REMEMBERED = 4096
"""Maximum number of programs in the cache; each task may have its own copy of a program."""

_Identity = tuple[str, int, int, int]


class MpiProgram(NamedTuple):
    """The identity of a program: an executable, or a script and its Python interpreter."""

    executable: _Identity
    script: _Identity | None
    variables: tuple[tuple[str, str], ...]


class MpiPrograms:
    """Cache of the libraries of programs; `environ` is the environment of launchers."""

    def __init__(self, environ: Mapping[str, str], offload: Offload) -> None:
        self._environ = environ
        self._offload = offload
        self._programs = Programs(find_program)
        self._known: dict[MpiProgram, Linked | None] = {}
        self._waiting: dict[MpiProgram, list[Callable[[], object]]] = {}

    def program(self, description: Mapping[str, Any], sandbox: str) -> MpiProgram | None:
        """Return the program of a task; None if it is unknown before the task runs."""
        if description['container']:
            return None
        own = description['environment']
        variables = tuple((name, own[name]) for name in _VARIABLES if name in own)
        prepared = bool(description['pre_exec'] or description['named_env'])
        literal = description['literal_arguments']
        if has_command(description, sandbox) or (not literal and any('$' in value for _, value in variables)):
            return None
        path = self._path(description['executable'], sandbox, fixed=not prepared and 'PATH' not in own)
        executable, script = _identity(path) if path else None, None
        if _PYTHON.fullmatch(os.path.basename(path)):
            arguments = description['arguments']
            script = _identity(os.path.join(sandbox, arguments[0])) if arguments and not prepared else None
            if script is None:
                return None
        return MpiProgram(executable, script, variables) if executable else None

    def linked(self, program: MpiProgram | None) -> Linked | None:
        """Return the library of an inspected program; None if it has none or it is unknown."""
        return None if program is None else self._known.get(program)

    def look(self, program: MpiProgram | None, seen: Callable[[], object]) -> bool:
        """Inspect a new program, then call `seen()` in the loop; return False for a known or unknowable program."""
        if program is None or program in self._known:
            return False
        waiting = self._waiting.setdefault(program, [])
        waiting.append(seen)
        if len(waiting) == 1:
            self._offload(lambda: self._find(program), lambda linked: self._seen(program, linked),
                          lambda error: self._seen(program, None))
        return True

    def _path(self, name: str, sandbox: str, *, fixed: bool) -> str:
        """Return the path of an executable; `fixed` means that the task uses the launcher's PATH."""
        if '/' in name:
            return os.path.join(sandbox, name)
        try:
            return self._programs.find(name, self._environ.get('PATH', os.defpath), sandbox) if fixed else ''
        except LaunchRefused:   # reported when the task starts
            return ''

    def _find(self, program: MpiProgram) -> Linked | None:
        system = LaunchSystem({**self._environ, **dict(program.variables)})
        path = program.executable[0]
        if program.script is None:
            return of_executable(system, path)
        with open(program.script[0], 'rb') as file:
            uses = _USES_MPI4PY.search(file.read(_SEARCHED_BYTES))
        return of_python(system, path) if uses else None

    def _seen(self, program: MpiProgram, linked: Linked | None) -> None:
        if len(self._known) >= _REMEMBERED:
            del self._known[next(iter(self._known))]
        self._known[program] = linked
        for call in self._waiting.pop(program):
            call()


def _identity(path: str) -> _Identity | None:
    """Return the identity of a file; None if it does not exist."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    return path, status.st_ino, status.st_size, status.st_mtime_ns
