"""Defaults for the descriptions of RAPTOR masters and workers, applied wherever they are submitted."""

from __future__ import annotations

from typing import Any

from rp_api import constants as c
from rp_api.description.task import TaskDescription
from rp_api.errors import DescriptionError
from rp_api.raptor_link import ANY, MASTER_PROGRAM, WORKER_PROGRAM

NAMED_ENV = 'rp'
"""The environment of the agent itself."""


def complete_worker(description: TaskDescription) -> None:
    """Set the worker program as executable, unless the description has one; the worker's master must be set."""
    master = description.raptor_id
    if not master or master == ANY:
        raise DescriptionError(f'TaskDescription.raptor_id is {master!r}, but a worker has one master: set its uid')
    _complete(description, WORKER_PROGRAM,
              [description.raptor_file, description.raptor_class or 'DefaultWorker', master], [master])


def complete(description: TaskDescription) -> None:
    """Complete the description of a master or worker; others are left unchanged."""
    if description.mode == c.RAPTOR_MASTER:
        _complete(description, MASTER_PROGRAM, [description.raptor_file, description.raptor_class or 'Master'], [])
    elif description.mode == c.RAPTOR_WORKER:
        complete_worker(description)


def _complete(description: TaskDescription, program: str, arguments: list[str], of_scripts: list[str]) -> None:
    own = description.executable not in ('', program)
    values: dict[str, Any] = {
        'executable': description.executable or program,
        'arguments': description.arguments or (of_scripts if own else arguments),
        'environment': {'PYTHONUNBUFFERED': '1', **description.environment},
        'named_env': description.named_env or NAMED_ENV}
    for name, value in values.items():
        description[name] = value
