"""What the descriptions of RAPTOR masters and workers need not say, filled in wherever they are submitted."""

from __future__ import annotations

from typing import Any

from rp_api import constants as c
from rp_api.description.task import TaskDescription
from rp_api.errors import DescriptionError
from rp_api.raptor_link import ANY, MASTER_PROGRAM, WORKER_PROGRAM

NAMED_ENV = 'rp'
"""The environment that the agent itself runs in."""


def complete_master(description: TaskDescription) -> None:
    """Have the description run the program for masters, unless it names one of its own."""
    _complete(description, MASTER_PROGRAM, [description.raptor_file, description.raptor_class or 'Master'], [])


def complete_worker(description: TaskDescription) -> None:
    """Have the description run the program for workers, unless it names one of its own; it must name its master."""
    master = description.raptor_id
    if not master or master == ANY:
        raise DescriptionError(f'TaskDescription.raptor_id is {master!r}, but a worker has one master: set its uid')
    _complete(description, WORKER_PROGRAM,
              [description.raptor_file, description.raptor_class or 'DefaultWorker', master], [master])


def complete(description: TaskDescription) -> None:
    """Complete the description of a master or of a worker, and no other one."""
    if description.mode == c.RAPTOR_MASTER:
        complete_master(description)
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
