"""The registry of task schedulers: the built-in ones, and entry points `radical_pilot.task_schedulers`."""

from __future__ import annotations

from typing import cast

from rp_api import extensions
from rp_api.constants import SCHEDULER_BACKFILLING, SCHEDULER_ROUND_ROBIN
from rp_api.errors import PlatformError
from rp_client.scheduler.base import TaskScheduler

GROUP = 'radical_pilot.task_schedulers'

_OWN = {SCHEDULER_ROUND_ROBIN: 'rp_client.scheduler.round_robin:RoundRobin',
        SCHEDULER_BACKFILLING: 'rp_client.scheduler.backfilling:Backfilling'}


def find(name: str) -> type[TaskScheduler]:
    """Return the class of the task scheduler of that name; raise `ValueError`, with all names, if it is unknown."""
    try:
        return cast('type[TaskScheduler]', extensions.find(GROUP, name, _OWN, f'scheduler {name!r}'))
    except PlatformError as error:
        raise ValueError(str(error)) from None
