"""Finding a task's program, as a shell would in the task's environment and sandbox."""

from __future__ import annotations

import os

from rp_api.errors import PilotError


class LaunchRefused(PilotError):
    """A task cannot be started as it is described; the text says why."""


def find_program(name: str, search_path: str, sandbox: str) -> str:
    """The path of the program `name`; raises LaunchRefused if there is none that can be executed.

    A name with a slash is a path, relative to the sandbox; others are looked for in the directories of `search_path`,
    which are separated by colons.
    """
    if '/' in name:
        path = os.path.join(sandbox, name)
        if _executable(path):
            return path
        raise LaunchRefused(_why_not(path))
    found = ''
    for directory in search_path.split(':'):
        path = os.path.join(sandbox, directory, name)
        if _executable(path):
            return path
        found = found or (path if os.path.isfile(path) else '')
    raise LaunchRefused(_why_not(found) if found else f'executable not found: {name} (searched PATH {search_path})')


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
