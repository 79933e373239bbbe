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
from rp_api.description.task import TaskDescription
from rp_api.errors import DescriptionError
from rp_api.raptor_defaults import NAMED_ENV, complete
from rp_api.raptor_link import MASTER_PROGRAM, WORKER_PROGRAM
from rp_api.staging.directive import expand

_PROGRAMS = {MASTER_PROGRAM: 'master', WORKER_PROGRAM: 'worker'}

SUBMITTED = (c.TASK_EXECUTABLE, c.RAPTOR_WORKER)
"""The modes of tasks that a master may submit."""


def find_program(description: Description, environment: Mapping[str, str]) -> None:
    """Set the program of a master or worker: the one on the PATH, or else that of this environment.

    Tasks with another environment, or with commands to run before, are left unchanged, as these may change the PATH.
    `environment` has the variables that the agent's environment adds to that of tasks. Raises DescriptionError, with
    the command that installs it, if the program is missing.
    """
    if description['named_env'] == NAMED_ENV:   # where the agent itself runs
        description['named_env'] = ''
        if environment:
            description['environment'] = {**environment, **description['environment']}
    role = _PROGRAMS.get(description['executable'])
    if role is None or description['named_env'] or description['pre_exec'] or description['pre_launch']:
        return
    path = description['environment'].get('PATH') or os.environ.get('PATH')
    if shutil.which(description['executable'], path=path):
        return
    missing = distributions.missing('rp-raptor')
    if missing:
        raise DescriptionError(missing)
    description['arguments'] = ['-m', 'rp_raptor.cli', role, *description['arguments']]
    description['executable'] = sys.executable


def submitted(data: Mapping[str, Any], master: str) -> dict[str, Any]:
    """Return the checked description of a task that a master submits; raise ValueError if it is invalid."""
    description = TaskDescription(data)
    description.check()
    mode = description.mode
    if mode not in SUBMITTED:
        raise DescriptionError(f'TaskDescription.mode is {mode!r}, but a master can have the agent run only '
                               f'{" and ".join(map(repr, SUBMITTED))}')
    if mode == c.RAPTOR_WORKER:
        description.raptor_id = master
    complete(description)
    sparse = description.sparse()
    for name in ('input_staging', 'output_staging'):
        if sparse.get(name):
            sparse[name] = expand(sparse[name])
    return sparse
