"""Environment variables of tasks, agents and sub-agents."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from shlex import quote

_NAME = r'[A-Za-z_][A-Za-z0-9_]*'

_OF_A_PROCESS = frozenset((
    'PWD', 'OLDPWD', 'SHLVL', '_', 'HOSTNAME', 'SLURMD_NODENAME', 'SLURM_PROCID', 'SLURM_LOCALID', 'SLURM_NODEID',
    'SLURM_TASK_PID', 'SLURM_GTIDS', 'MPI_LOCALRANKID'))
"""Variables that describe one process; they must not be passed to another one."""

_BEGINS_OF_A_PROCESS = ('SLURM_STEP', 'PMI_', 'PMIX_', 'OMPI_', 'PALS_', 'ALPS_APP_')
"""Prefixes of further such variables."""


def parse(content: bytes) -> dict[str, str]:
    """Return the variables in the content of a file `/proc/<pid>/environ`."""
    entries = (os.fsdecode(entry).partition('=') for entry in content.split(b'\0'))
    return {name: value for name, equals, value in entries if name and equals}


def of_process(pid: int) -> dict[str, str]:
    """Return the environment with which a process was started."""
    with open(f'/proc/{pid}/environ', 'rb') as file:
        return parse(file.read())


def without_virtualenv(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment after deactivation of its virtual environment, if it has one."""
    prefix = environ.get('VIRTUAL_ENV')
    if not prefix:
        return dict(environ)
    removed = ('VIRTUAL_ENV', 'VIRTUAL_ENV_PROMPT', 'PYTHONHOME')
    left = {name: value for name, value in environ.items()
            if name not in removed and not name.startswith('_OLD_VIRTUAL_')}
    if 'PATH' in left:
        entries = left['PATH'].split(os.pathsep)
        left['PATH'] = os.pathsep.join(entry for entry in entries if entry != f'{prefix}/bin')
    return left


def exports(environ: Mapping[str, str]) -> str:
    """Return POSIX shell lines that export the variables, except variables that describe one process."""
    return ''.join(f'export {name}={quote(value)}\n' for name, value in sorted(environ.items()) if _is_shared(name))


def block(environ: Mapping[str, str]) -> str:
    """Return the same variables as NUL-terminated strings, the format of /proc/<pid>/environ."""
    return ''.join(f'{name}={value}\0' for name, value in sorted(environ.items()) if _is_shared(name))


def additions(tasks: Mapping[str, str] | None, own: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that the agent adds to or changes in the tasks' environment; None if both are the same."""
    if tasks is None:
        return {}
    return {name: value for name, value in own.items()
            if value != tasks.get(name) and _is_shared(name) and not name.startswith('RP_')}


def is_of_a_process(name: str) -> bool:
    """Return whether a variable describes one process."""
    return name in _OF_A_PROCESS or name.startswith(_BEGINS_OF_A_PROCESS)


def _is_shared(name: str) -> bool:
    return bool(re.fullmatch(_NAME, name)) and not is_of_a_process(name) and name != 'RP_PILOT_SANDBOX'
