"""Environments: the one that the user's tasks start from, and the one of agents and sub-agents."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from shlex import quote

_NAME = r'[A-Za-z_][A-Za-z0-9_]*'

_OF_A_PROCESS = frozenset((
    'PWD', 'OLDPWD', 'SHLVL', '_', 'HOSTNAME', 'SLURMD_NODENAME', 'SLURM_PROCID', 'SLURM_LOCALID', 'SLURM_NODEID',
    'SLURM_TASK_PID', 'SLURM_GTIDS', 'MPI_LOCALRANKID'))
"""Variables that tell one process where and what it is: those of another one would lie."""

_BEGINS_OF_A_PROCESS = ('SLURM_STEP', 'PMI_', 'PMIX_', 'OMPI_', 'PALS_', 'ALPS_APP_')
"""How the names of others begin that do so."""

_STAGE_0 = ('RP_PILOT_SANDBOX',)


def parse(content: bytes) -> dict[str, str]:
    """The variables in a file `/proc/<pid>/environ`."""
    entries = (os.fsdecode(entry).partition('=') for entry in content.split(b'\0'))
    return {name: value for name, equals, value in entries if name and equals}


def of_process(pid: int) -> dict[str, str]:
    """The environment that a process was started with."""
    with open(f'/proc/{pid}/environ', 'rb') as file:
        return parse(file.read())


def without_virtualenv(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment as it is when its virtual environment, if it has one, is deactivated."""
    prefix = environ.get('VIRTUAL_ENV')
    if not prefix:
        return dict(environ)
    gone = ('VIRTUAL_ENV', 'VIRTUAL_ENV_PROMPT', 'PYTHONHOME')
    left = {name: value for name, value in environ.items()
            if name not in gone and not name.startswith('_OLD_VIRTUAL_')}
    if 'PATH' in left:
        entries = left['PATH'].split(os.pathsep)
        left['PATH'] = os.pathsep.join(entry for entry in entries if entry != f'{prefix}/bin')
    return left


def exports(environ: Mapping[str, str]) -> str:
    """Lines for a POSIX shell that make the environment its own, but for what tells a process about itself."""
    return ''.join(f'export {name}={quote(value)}\n' for name, value in sorted(environ.items()) if _is_shared(name))


def block(environ: Mapping[str, str]) -> str:
    """The same for a program: strings that end with NUL, as in /proc/<pid>/environ."""
    return ''.join(f'{name}={value}\0' for name, value in sorted(environ.items()) if _is_shared(name))


def additions(tasks: Mapping[str, str] | None, own: Mapping[str, str]) -> dict[str, str]:
    """What the agent's own environment has that the tasks' has not, or has otherwise; None: theirs is the agent's."""
    if tasks is None:
        return {}
    return {name: value for name, value in own.items()
            if value != tasks.get(name) and _is_shared(name) and not name.startswith('RP_')}


def is_of_a_process(name: str) -> bool:
    """Whether a variable tells one process where and what it is."""
    return name in _OF_A_PROCESS or name.startswith(_BEGINS_OF_A_PROCESS)


def _is_shared(name: str) -> bool:
    return bool(re.fullmatch(_NAME, name)) and not is_of_a_process(name) and name not in _STAGE_0
