"""The use of cores and GPUs over time, of sessions that radical.analytics has read.

A box says that some devices were used for one purpose: `[start, stop, first device, last device]`, in seconds. The
devices of a pilot are numbered over its nodes; those of the nodes that it reserves for sub-agents follow. Each device
is used for one purpose at a time, unless tasks share it. The changes of purpose are also there as transitions, and as
the timeline of one task.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from rp_api.analytics.durations import EVENT, MSG, PILOT_DURATIONS, STATE, TASK_DURATIONS_DEFAULT, Event, Stretch
from rp_profiling.analyse.intervals import union

Box = list[float]
"""Start and end time, first and last device."""

Usage = dict[str, dict[str, list[Box]]]
"""By purpose and uid, the boxes."""

Transition = list[Any]
"""An event, the purpose of the devices before it, and their purpose after it."""

FREE, AWAY = 'idle', 'system'
"""The purposes of devices without a task, and of those that no pilot has."""

Spans = Sequence[tuple[float, float]]

_KINDS = {'cpu': 'cores', 'gpu': 'gpus'}


def get_provided_resources(session: Any, rtype: str = 'cpu') -> Usage:
    """Return when each pilot of a session of radical.analytics had which devices.

    Args:
        session: The session.
        rtype: The devices: `cpu` for cores, `gpu` for GPUs.

    Returns:
        By `total`, and by the uid of the pilot, its boxes.

    Raises:
        ValueError: `rtype` is neither of these.
    """
    kind = _kind(rtype)
    found: Usage = {name: {} for name in PILOT_DURATIONS['provide']}
    for pilot in session.get(etype='pilot'):
        amount = _amount(pilot, kind) + len(_agent_devices(pilot, kind))
        for name, stretch in PILOT_DURATIONS['provide'].items():
            spans = pilot.ranges(event=stretch) or [[pilot.t_start, pilot.t_stop]]
            found[name][pilot.uid] = [[*span, 0, amount - 1] for span in spans if amount]
    return found


def get_consumed_resources(session: Any, rtype: str = 'cpu', tdurations: Mapping[str, Any] | None = None) -> Usage:
    """Return how each device was used over time in a session of radical.analytics, by purpose and entity.

    The purposes of pilots are those of `PILOT_DURATIONS['consume']`, where the time in which a device of an active
    pilot is free is divided: `warm` before the first task on it, `drain` after the last one, and `idle` between tasks,
    or all the time without a task.

    Args:
        session: The session.
        rtype: The devices: `cpu` for cores, `gpu` for GPUs.
        tdurations: The purposes of tasks, by default `TASK_DURATIONS_DEFAULT`.

    Returns:
        For each purpose, by the uid of the pilot or task, its boxes.

    Raises:
        ValueError: `rtype` is neither of these.
    """
    kind = _kind(rtype)
    table: Mapping[str, Stretch] = (tdurations or TASK_DURATIONS_DEFAULT)['consume']
    found: Usage = {name: {} for name in (*PILOT_DURATIONS['consume'], 'warm', 'drain', *table)}
    pilots = session.get(etype='pilot')
    places = dict(_places(pilots, kind))
    busy: dict[str, dict[int, list[tuple[float, float]]]] = {pilot.uid: {} for pilot in pilots}
    for task in session.get(etype=['task', 'raptor.master', 'raptor.worker']):
        owner, devices = places.get(task.cfg.get('pilot') or '', ('', 0, 0))[0], _devices(task.cfg, kind, places)
        taken: list[tuple[float, float]] = []
        for name, stretch in table.items():
            spans = list(_without(task.ranges(event=stretch), taken))
            taken += spans
            found[name][task.uid] = [[*span, *part] for span in spans for part in cluster_resources(devices)]
        if owner:
            spans = task.ranges(event=[{EVENT: 'schedule_ok'}, {EVENT: 'unschedule_stop'}])
            for device in devices:
                busy[owner].setdefault(device, []).extend((start, stop) for start, stop in spans)
    for pilot in pilots:
        for name, boxes in _of_pilot(pilot, kind, busy[pilot.uid]).items():
            found[name][pilot.uid] = boxes
    return found


def get_duration(thing: Any, dur: Stretch) -> tuple[float, float] | tuple[None, None]:
    """Return the first start and the last stop of a duration of an entity of radical.analytics.

    Args:
        thing: The pilot or task.
        dur: The duration, from one of the tables.

    Returns:
        The two times, or two times None if one of the events did not happen.
    """
    starts, stops = (thing.timestamps(event=_events(each)) for each in dur)
    return (starts[0], stops[-1]) if starts and stops else (None, None)


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


def cluster_resources(resources: Iterable[int]) -> list[list[int]]:
    """Return the ranges, `[first, last]`, of adjacent device numbers."""
    found: list[list[int]] = []
    for number in sorted(set(resources)):
        if found and found[-1][1] + 1 == number:
            found[-1][1] = number
        else:
            found.append([number, number])
    return found


def get_node_index(node_list: Sequence[Any], node_uid: int | str, pn: int) -> list[int]:
    """Return the numbers of the first and the last device of a node.

    Args:
        node_list: The nodes of a pilot, as in its resource details.
        node_uid: The index or the name of the node.
        pn: How many devices each node has.

    Raises:
        ValueError: There is no such node.
    """
    for position, node in enumerate(node_list):
        if node_uid in (node['index'], node['name']):
            return [position * pn, position * pn + pn - 1]
    raise ValueError(f'node_uid {node_uid!r} is none of the {len(node_list)} nodes in node_list')


def _kind(rtype: str) -> str:
    if rtype not in _KINDS:
        raise ValueError(f"rtype must be 'cpu' or 'gpu', it is {rtype!r}")
    return _KINDS[rtype]


def _amount(pilot: Any, kind: str) -> int:
    amount: int = pilot.cfg[kind]
    return amount


def _agent_devices(pilot: Any, kind: str) -> range:
    """Return the numbers of the devices on nodes that are reserved for sub-agents."""
    first = _amount(pilot, kind)
    nodes = pilot.cfg['resource_details'].get('agent_node_list') or ()
    return range(first, first + len(nodes) * pilot.cfg[f'{kind}_per_node'])


def _events(event: Any) -> list[dict[int, Any]]:
    return event if isinstance(event, list) else [event]


def _of_pilot(pilot: Any, kind: str, busy: Mapping[int, Spans]) -> dict[str, list[Box]]:
    """Return the boxes of a pilot by purpose; `busy` has the times at which tasks had each device."""
    found: dict[str, list[Box]] = {name: [] for name in (*PILOT_DURATIONS['consume'], 'warm', 'drain')}
    for purpose, devices, spans in _purposes(pilot, kind, busy):
        found[purpose] += [[*span, *part] for span in spans if span[1] > span[0] for part in cluster_resources(devices)]
    return found


def _purposes(pilot: Any, kind: str, busy: Mapping[int, Spans]) -> Iterator[tuple[str, Iterable[int], Spans]]:
    """Yield purposes, the devices that have it at the same times, and these times."""
    agents = _agent_devices(pilot, kind)
    own = range(_amount(pilot, kind))
    for name in ('boot', 'setup_1'):
        yield name, [*own, *agents], pilot.ranges(event=PILOT_DURATIONS['consume'][name])
    active = pilot.timestamps(event={EVENT: 'state', STATE: 'PMGR_ACTIVE'})
    if not active:
        return
    stop = max(pilot.timestamps(event={EVENT: 'bootstrap_0_stop'}), default=pilot.t_stop)
    told = min([*pilot.timestamps(event={EVENT: 'cmd', MSG: 'cancel_pilot'}), stop])
    yield 'agent', agents, [(active[0], told)]
    yield 'term', agents, [(told, stop)]
    alike: dict[tuple[tuple[float, float], ...], list[int]] = {}
    for device in own:
        alike.setdefault(tuple(union(busy.get(device, ()))), []).append(device)
    for spans, devices in alike.items():
        last = min(max(told, spans[-1][1]), stop) if spans else told
        yield 'term', devices, [(last, stop)]
        if spans:
            yield 'warm', devices, [(active[0], spans[0][0])]
            yield 'drain', devices, [(spans[-1][1], told)]
            yield 'idle', devices, [(one[1], other[0]) for one, other in pairwise(spans)]
        else:
            yield 'idle', devices, [(active[0], told)]


def _without(spans: Spans, taken: Spans) -> Iterator[tuple[float, float]]:
    """Yield the times of `spans` that are not taken: when some ranks have ended, others still run."""
    for first, last in spans:
        for start, stop in sorted(taken):
            if first < stop and start < last:
                if first < start:
                    yield first, start
                first = max(first, stop)
        if first < last:
            yield first, last


def _places(pilots: Iterable[Any], kind: str) -> Iterator[tuple[str, tuple[str, int, int]]]:
    """Yield, for pilots and partitions, the pilot, the number of the first device in it, and the devices per node.

    Partitions number their devices from 0 and do not record their location: they are assumed to be adjacent.
    """
    for pilot in pilots:
        yield pilot.uid, (pilot.uid, 0, pilot.cfg[f'{kind}_per_node'])
        first = 0
        for uid, amounts in pilot.cfg['partitions'].items():
            yield uid, (pilot.uid, first, amounts[f'{kind}_per_node'])
            first += amounts[kind]


def _devices(cfg: Mapping[str, Any], kind: str, places: Mapping[str, tuple[str, int, int]]) -> list[int]:
    """Return the numbers of the devices of a task in its pilot."""
    _, start, per_node = places.get(cfg.get('pilot') or '', ('', 0, 0))
    return sorted({start + slot['node_index'] * per_node + device['index'] for slot in cfg.get('slots') or ()
                   for device in slot[kind]})


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
