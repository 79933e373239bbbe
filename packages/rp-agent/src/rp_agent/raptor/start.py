"""What has to be known to start masters and workers: which program, and whether a description may be run at all."""

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
"""The modes of tasks that a master has the agent run."""


def find_program(description: Description, environment: Mapping[str, str]) -> None:
    """Make the description of a master or worker one that can be started: its program is on the PATH, or here.

    Raises DescriptionError with the sentence that helps if there is none. Tasks with commands to run before are left
    alone, as those may change the PATH. `environment` is what the agent's own environment adds to that of tasks.
    """
    if description['named_env'] == NAMED_ENV:   # where the agent itself runs
        description['named_env'] = ''
        if environment:
            description['environment'] = {**environment, **description['environment']}
    role = _PROGRAMS.get(description['executable'])
    if role is None or description['pre_exec'] or description['pre_launch']:
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
    """The checked description of a task that a master has submitted; DescriptionError or another ValueError says why
    it cannot be run."""
    description = TaskDescription(data)
    description.verify()
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
