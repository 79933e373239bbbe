"""Start of masters and workers: finds their program, and checks the descriptions that masters submit."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from typing import Any

from rp_agent.task import Description
from rp_api import constants as c
from rp_api import distributions
from rp_api.description.container import BINDS, merged
from rp_api.description.task import AFTER, TaskDescription
from rp_api.errors import DescriptionError
from rp_api.raptor_defaults import NAMED_ENV, complete
from rp_api.raptor_link import PROGRAMS
from rp_api.staging.directive import expand
from rp_api.system.shell_text import escaped

SUBMITTED = (c.TASK_EXECUTABLE, c.RAPTOR_WORKER)
"""The modes of tasks that a master may submit."""


def find_program(description: Description, environment: Mapping[str, str]) -> None:
    """Set the program of a master or worker: the one on the PATH, or else that of this environment.

    Tasks with another environment, or with commands to run before, are left unchanged, as these may change the PATH.
    `environment` has the variables that the agent's environment adds to that of tasks. In a container, it is always the
    program of this environment, whose directories are mounted. Raises DescriptionError, with the command that installs
    it, if it is missing.
    """
    if description['named_env'] == NAMED_ENV:   # where the agent itself runs
        description['named_env'] = ''
        if environment:
            added = environment if description['literal_arguments'] else {
                name: escaped(value) for name, value in environment.items()}
            description['environment'] = {**added, **description['environment']}
    role = PROGRAMS.get(description['executable'])
    if role is None:
        return
    if description['container']:
        description['container'] = merged({BINDS: _installation()}, description['container'])
    elif (description['named_env'] or description['pre_exec'] or description['pre_launch']
            or _is_found(description)):
        return
    missing = distributions.missing('rp-raptor')
    if missing:
        raise DescriptionError(missing)
    description['arguments'] = ['-m', 'rp_raptor.cli', role, *description['arguments']]
    description['executable'] = sys.executable


def _is_found(description: Description) -> bool:
    path = description['environment'].get('PATH') or os.environ.get('PATH')
    return shutil.which(description['executable'], path=path) is not None


def _installation() -> list[str]:
    """Return the directories of this Python and its packages, except those of the system, which an image has itself."""
    found: list[str] = []
    for path in (sys.prefix, sys.base_prefix, *sys.path):
        if os.path.isdir(path) and not any(f'{path}/'.startswith(f'{known}/') for known in ('/usr', *found)):
            found.append(path)
    return found


def submitted(data: Mapping[str, Any], master: str) -> dict[str, Any]:
    """Return the checked description of a task that a master submits; raise ValueError if it is invalid."""
    description = TaskDescription(data)
    description.check()
    mode = description.mode
    if mode not in SUBMITTED:
        raise DescriptionError(f'TaskDescription.mode is {mode!r}, but a master can have the agent run only '
                               f'{" and ".join(map(repr, SUBMITTED))}')
    if dict.get(description, AFTER):
        raise DescriptionError(f'TaskDescription.after is {description[AFTER]!r}, but a master cannot submit tasks '
                               'that depend on others: leave it unset')
    if mode == c.RAPTOR_WORKER:
        description.raptor_id = master
    complete(description)
    sparse = description.sparse()
    for name in ('input_staging', 'output_staging'):
        if sparse.get(name):
            sparse[name] = expand(sparse[name])
    return sparse
