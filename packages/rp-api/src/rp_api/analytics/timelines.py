"""The purposes that devices pass through, as transitions between them and as a timeline of one entity."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from rp_api.analytics.durations import PILOT_DURATIONS, TASK_DURATIONS_DEFAULT, Event, Stretch

Transition = list[Any]
"""An event, the purpose of the devices before it, and their purpose after it."""

FREE, AWAY = 'idle', 'system'
"""The purposes of devices without a task, and of those that no pilot has."""


def get_resource_transitions(pilot: Any, task_metrics: Mapping[str, Stretch] | None = None,
                             pilot_metrics: Mapping[str, Stretch] | None = None,
                             ) -> tuple[list[Transition], list[Transition]]:
    """Return the events at which the devices of a pilot, and those of its tasks, change their purpose.

    Together they are a transition map for `get_pilot_series` of radical.analytics: `{'pilot': first, 'task': second}`.

    Args:
        pilot: The pilot, an entity of radical.analytics. Purposes none of whose events it has are left out.
        task_metrics: The purposes of tasks, by default those of `TASK_DURATIONS_DEFAULT['consume']`.
        pilot_metrics: The purposes of pilots, by default those of `PILOT_DURATIONS['consume']`.

    Returns:
        The transitions of pilots and of tasks: `[event, purpose before, purpose after]`.
    """
    tasks = TASK_DURATIONS_DEFAULT['consume'] if task_metrics is None else task_metrics
    pilots = PILOT_DURATIONS['consume'] if pilot_metrics is None else pilot_metrics
    known = {name: stretch for name, stretch in pilots.items()
             if any(pilot.timestamps(event=event) for event in stretch)}
    return _transitions(known), _transitions(tasks)


def get_resource_timelines(task: Any, transitions: list[Transition]) -> list[list[Any]]:
    """Return the purposes of a task's devices over time: `[start, stop, purpose]`, in the order of time.

    Args:
        task: The task, an entity of radical.analytics.
        transitions: The second result of `get_resource_transitions`.

    Returns:
        The timeline; it is empty if the task never had devices.
    """
    moments = [(times[0], number, after) for number, (event, _, after) in enumerate(transitions)
               if (times := task.timestamps(event=event))]
    moments.sort()
    return [[start, stop, purpose] for (start, _, purpose), (stop, _, _) in pairwise(moments)
            if purpose != FREE]


def _transitions(metrics: Mapping[str, Stretch]) -> list[Transition]:
    """Return the transitions between purposes that follow each other; others start and end with free devices."""
    found: list[Transition] = []
    starts, stops = ([_key(stretch[number]) for stretch in metrics.values()] for number in (0, 1))
    names = list(metrics)
    for name, (start, stop) in metrics.items():
        outside = AWAY if FREE in metrics and name in _connected(names, starts, stops) else FREE
        before = next((names[number] for number, key in enumerate(stops) if key == _key(start)), outside)
        found.append([start, before, name])
        if _key(stop) not in starts:
            found.append([stop, name, outside])
    return found


def _connected(names: list[str], starts: list[Any], stops: list[Any]) -> set[str]:
    """Return the purposes before and after `FREE`, which one pilot passes through in order."""
    found, new = set(), {FREE}
    while new:
        found |= new
        met = {key for name in new for key in (starts[names.index(name)], stops[names.index(name)])}
        new = {name for name, *keys in zip(names, starts, stops, strict=True) if met & set(keys)} - found
    return found


def _key(event: Event | list[Event]) -> str:
    """Return a text that only equal events share."""
    return repr([sorted(each.items()) for each in (event if isinstance(event, list) else [event])])
