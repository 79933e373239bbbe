"""Checks of an agent's configuration (`agent_config` of platforms) that clients make at the submission of pilots, too.

blowup_factor       {stage: N}    N-1 clones are made of each task that enters the stage; default 1
drop_clones         {stage: 0}    1 (default): clones are removed at the stage, before new ones are made; 0: they stay
number_of_workers   {worker: count}
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from rp_api.errors import DescriptionError

MAX_INSTANCES = 1024
"""Most instances of a component, and largest product of all factors: the number of tasks that one task becomes."""

LEAVING = 'update_queue'
"""The stage at which tasks leave the agent."""

CLONING = (('Agent', 'stagein_queue', 'StageinWorker'), ('schedule_queue', 'Scheduler'),
           ('execution_queue', 'ExecWorker'), ('stageout_queue', 'StageoutWorker'))
"""The stages at which clones can be made, by component: input staging, scheduling, execution and output staging."""

UPDATE_WORKER = 'UpdateWorker'
WORKERS = ('StageinWorker', 'ExecWorker', 'StageoutWorker', UPDATE_WORKER)

_WATCHING = ('watch_queue', 'Watcher')
_LAST = (LEAVING, UPDATE_WORKER)

STAGES = (*(stage for stages in CLONING[:3] for stage in stages), *_WATCHING, *CLONING[3], *_LAST)
"""All stages, in the order in which tasks pass through them."""


def check(settings: Mapping[str, Any]) -> None:
    """Raise DescriptionError for numbers of clones and workers that an agent does not accept."""
    clone_numbers(settings)
    worker_counts(settings)


def clone_numbers(settings: Mapping[str, Any]) -> tuple[dict[str, int], dict[str, int]]:
    """Return `blowup_factor` and `drop_clones` of a configuration; raise DescriptionError if they are invalid."""
    factors = _stages('blowup_factor', settings.get('blowup_factor', {}), 1, MAX_INSTANCES)
    drops = _stages('drop_clones', settings.get('drop_clones', {}), 0, 1)
    for stage in (*_WATCHING, *_LAST):
        if factors.get(stage, 1) != 1:
            why = 'clones do not pass this stage' if stage in _LAST else 'a running task cannot be cloned'
            raise wrong(f'blowup_factor.{stage}', factors[stage], f'1: {why}')
    if not drops.get(LEAVING, 1):
        raise wrong(f'drop_clones.{LEAVING}', 0, '1: clones do not leave the agent')
    if prod(factors.values()) > MAX_INSTANCES:
        raise DescriptionError(f'agent configuration: blowup_factor makes {prod(factors.values())} tasks of one, '
                               f'allowed: at most {MAX_INSTANCES}')
    return factors, drops


def worker_counts(settings: Mapping[str, Any]) -> dict[str, int]:
    """Return `number_of_workers` of a configuration, without the UpdateWorker; raise DescriptionError if invalid."""
    workers = mapping('number_of_workers', settings.get('number_of_workers', {}))
    check_keys('number_of_workers.', workers, WORKERS)
    counts = {name: checked_count(f'number_of_workers.{name}', value, 1) for name, value in workers.items()}
    if counts.pop(UPDATE_WORKER, 1) != 1:
        raise wrong(f'number_of_workers.{UPDATE_WORKER}', workers[UPDATE_WORKER], '1: updates are sent in order')
    return counts


def check_keys(where: str, values: Mapping[str, Any], allowed: tuple[str, ...]) -> None:
    """Raise DescriptionError if a mapping in an agent's configuration has other keys than these."""
    for key in values:
        if key not in allowed:
            raise DescriptionError(f'agent configuration: {where}{key} is not known, allowed are: {", ".join(allowed)}')


def mapping(where: str, value: Any) -> Mapping[str, Any]:
    """Return a value of an agent's configuration; raise DescriptionError if it is not a mapping."""
    if not isinstance(value, Mapping):
        raise wrong(where, value, 'a dict')
    return value


def checked_count(where: str, value: Any, least: int) -> int:
    """Return a number of instances in an agent's configuration; raise DescriptionError if it is not valid."""
    if type(value) is not int or not least <= value <= MAX_INSTANCES:
        raise wrong(where, value, f'a whole number from {least} to {MAX_INSTANCES}')
    return value


def wrong(where: str, value: Any, allowed: str) -> DescriptionError:
    """Return the error for a value in an agent's configuration."""
    return DescriptionError(f'agent configuration: {where} is {value!r}, allowed: {allowed}')


def _stages(name: str, values: Any, least: int, most: int) -> dict[str, int]:
    check_keys(f'{name}.', mapping(name, values), STAGES)
    for stage, value in values.items():
        if type(value) is not int or not least <= value <= most:
            more = '; an application would wait for ever for a dropped task' if value in (0, 2) else ''
            raise wrong(f'{name}.{stage}', value, f'a whole number from {least} to {most}{more}')
    return dict(values)
