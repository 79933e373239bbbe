"""The names of version 0 and of the first design documents, as deprecated aliases.

Using one warns (DeprecationWarning) and gives what has the new name. `radical.pilot` looks names up here that it does
not have; classes with renamed methods inherit from `OldMethods`. Old attributes of descriptions are in their classes,
and the state names of 2015 in `rp_api.states.OLD_DEFINES`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rp_api.description.renamed import warn_renamed

NAMES: Mapping[str, str] = {
    'UnitManager': 'TaskManager',
    'ComputeUnit': 'Task',
    'ComputeUnitDescription': 'TaskDescription',
    'ComputePilot': 'Pilot',
    'ComputePilotDescription': 'PilotDescription',
    'UMGR_SCHEDULING_PENDING': 'TMGR_SCHEDULING_PENDING',
    'UMGR_SCHEDULING': 'TMGR_SCHEDULING',
    'UMGR_STAGING_INPUT_PENDING': 'TMGR_STAGING_INPUT_PENDING',
    'UMGR_STAGING_INPUT': 'TMGR_STAGING_INPUT',
    'UMGR_STAGING_OUTPUT_PENDING': 'TMGR_STAGING_OUTPUT_PENDING',
    'UMGR_STAGING_OUTPUT': 'TMGR_STAGING_OUTPUT',
    'UNIT_STATE': 'TASK_STATE',
    'SCHED_DEFAULT': 'SCHEDULER_DEFAULT',
    'SCHED_ROUND_ROBIN': 'SCHEDULER_ROUND_ROBIN',
    'SCHED_BACKFILLING': 'SCHEDULER_BACKFILLING',
    # for a single pilot, to which round robin binds all tasks as well
    'SCHED_DIRECT': 'SCHEDULER_ROUND_ROBIN',
    'SCHED_DIRECT_SUBMISSION': 'SCHEDULER_ROUND_ROBIN',
    'SCHEDULER_DIRECT_SUBMISSION': 'SCHEDULER_ROUND_ROBIN',
}
"""Names of the module `radical.pilot`."""

METHODS: Mapping[str, str] = {
    'submit_units': 'submit_tasks',
    'wait_units': 'wait_tasks',
    'cancel_units': 'cancel_tasks',
    'get_units': 'get_tasks',
    'list_units': 'list_tasks',
    'get_unit_managers': 'get_task_managers',
    'list_unit_managers': 'list_task_managers',
}
"""Names of methods."""


class OldMethods:
    """Gives instances of a class the old names of its methods. Type checkers do not see them."""

    __slots__ = ()

    if not TYPE_CHECKING:
        def __getattr__(self, name: str) -> Any:
            """Warn, and return the method that has the new name."""
            new, kind = METHODS.get(name, ''), type(self)
            if not hasattr(kind, new):
                raise AttributeError(f'{kind.__name__!r} object has no attribute {name!r}', name=name, obj=self)
            warn_renamed(f'{kind.__name__}.{name}', new)
            return getattr(self, new)


def present_name(name: str) -> str | None:
    """Return the present name of what the module `radical.pilot` had under this name, and warn; None if nothing."""
    new = NAMES.get(name)
    if new is not None:
        warn_renamed(f'radical.pilot.{name}', new)
    return new
