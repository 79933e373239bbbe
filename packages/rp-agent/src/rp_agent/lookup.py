"""Lookup of a task's program, as a shell does it in the task's environment and sandbox."""

from __future__ import annotations

import os
from collections.abc import Callable

from rp_api.errors import PilotError

Find = Callable[[str, str, str], str]


class LaunchRefused(PilotError):
    """A task cannot be started as it is described; the message gives the reason."""


class Programs:
    """A cache of program paths in front of `find`, which needs two system calls for each directory of a search path."""

    def __init__(self, find: Find) -> None:
        self._find = find
        self._known: dict[tuple[str, str], str] = {}
        self._absolute: dict[str, bool] = {}

    def known(self, name: str, search_path: str) -> str | None:
        """Return the cached path of a program; None if there is none or the path depends on the sandbox."""
        return self._known.get((name, search_path))

    def find(self, name: str, search_path: str, sandbox: str) -> str:
        """Return the path of a program, as `find_program` does. A cached path may be outdated."""
        path = self.known(name, search_path)
        if path is not None:
            return path
        path = self._find(name, search_path, sandbox)
        if name.startswith('/') or ('/' not in name and self._is_absolute(search_path)):
            self._known[name, search_path] = path
        return path

    def find_again(self, name: str, search_path: str, sandbox: str) -> str:
        """Return the path of a program from a new search."""
        self._known.pop((name, search_path), None)
        return self.find(name, search_path, sandbox)

    def _is_absolute(self, search_path: str) -> bool:
        """Return whether a search has the same result in all sandboxes."""
        found = self._absolute.get(search_path)
        if found is None:
            found = self._absolute[search_path] = all(map(os.path.isabs, search_path.split(':')))
        return found


def find_program(name: str, search_path: str, sandbox: str) -> str:
    """Return the path of a program.

    Args:
        name: The program. A name with a slash is a path, relative to the sandbox.
        search_path: The directories in which other names are searched, separated by colons, as in PATH.
        sandbox: The directory in which the task starts.

    Raises:
        LaunchRefused: No file of that name can be executed; the message gives the reason.
    """
    if '/' in name:
        path = os.path.join(sandbox, name)
        if _executable(path):
            return path
        raise LaunchRefused(_why_not(path) + not_in_sandbox(name, sandbox))
    found = ''
    for directory in search_path.split(':'):
        path = os.path.join(sandbox, directory, name)
        if _executable(path):
            return path
        found = found or (path if os.path.isfile(path) else '')
    words = ' (it has several words: all but the first are arguments)' if ' ' in name else ''
    raise LaunchRefused(_why_not(found) if found else
                        f'executable not found: {name}{words} (searched PATH {search_path})')


def not_in_sandbox(name: str, sandbox: str) -> str:
    """Return how to run a program with a relative path that does not exist; empty for other programs."""
    if '/' not in name or name.startswith('/') or '$' in name or os.path.lexists(os.path.join(sandbox, name)):
        return ''
    return (f' ({name} was looked for in the sandbox of the task, {sandbox}: set executable to its absolute path, or '
            'copy it into the sandbox with input_staging)')


def _executable(path: str) -> bool:
    return os.access(path, os.X_OK) and os.path.isfile(path)


def _why_not(path: str) -> str:
    if os.path.isdir(path):
        return f'not executable: {path} is a directory'
    if os.path.lexists(path) and not os.path.exists(path):
        return f'executable not found: {path} is a symbolic link to {os.readlink(path)}, which does not exist'
    if os.path.exists(path):
        return f'not executable: {path} (permission to execute is missing)'
    return f'executable not found: {path}'
