"""MPI libraries of programs that launchers start: a helper thread inspects each program once.

Path, inode, size and modification time identify a program. The library stays unknown if the program is not known before
the task runs: it is in a container, a shell or another script starts it, or its name depends on the commands of
`pre_exec`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from rp_agent.lookup import LaunchRefused, Programs, find_program
from rp_api.loop.offload import Offload
from rp_api.system.shell_text import has_command

if TYPE_CHECKING:
    from rp_agent.launch_method.mpi_library import Linked



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
        from rp_agent.launch_method.mpi_library import of_executable, of_python
        from rp_agent.launch_method.system import LaunchSystem

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
