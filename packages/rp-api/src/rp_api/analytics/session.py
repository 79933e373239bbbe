"""The events and entities of a session, in the form that radical.analytics reads.

A session is found by its directory, or by its uid below the working directory. Events come from all profiles in the
directory (and in reachable sandboxes of pilots); the properties of pilots and tasks come from the hub's database, or
from the profiles if there is none, as in a simulation.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rp_api import states
from rp_api.analytics.completion import Event, complete
from rp_api.coordination import sessions
from rp_api.description.partitions import WHOLE

if TYPE_CHECKING:
    from rp_profiling.read.trace import Trace

PMGR, TMGR = 'pmgr.0000', 'tmgr.0000'
"""The managers of all pilots and tasks, because traces do not record them."""


def get_session_profile(sid: str, src: str | None = None) -> tuple[list[Event], float, dict[str, str]]:
    """Return all events of a session in the order of time: (events, clock accuracy in seconds, host of each pilot).

    An event is time (seconds since the start of the session), event, component, thread, uid, state, message, entity
    type. A transition to a state is an event `state`, and occurs once. Events that durations start or stop at, and that
    the traces lack, are added: see `rp_api.analytics.completion`.
    """
    from rp_profiling.read.session import read_trace

    directory = _directory(sid, src)
    partitions = {each['uid'] for each in sessions.partitions(directory)} if sessions.is_session(directory) else set()
    trace = read_trace(directory)
    rows = list(trace.rows())
    zero = rows[0].time
    ended = {row.uid for row in rows if row.event == 'advance' and row.state in (states.DONE, states.FAILED)}
    found, known = [], set()
    for row in rows:
        event = row.event
        if event == 'advance':
            if (row.uid, row.state) in known or (row.state == states.CANCELED and row.uid in ended):
                continue
            known.add((row.uid, row.state))
            event = 'state'
        uid = row.uid or sid
        kind = 'session' if not row.uid else 'partition' if uid in partitions else uid.partition('.')[0]
        found.append([row.time - zero, event, row.comp, row.thread, uid, row.state, row.msg, kind])
    return complete(found, _spans(trace, zero)), 0.0, get_hostmap(found)


def get_hostmap(profile: Iterable[Event]) -> dict[str, str]:
    """Return the name of the host on which the agent of each pilot ran.

    Args:
        profile: The events of a session, as from `get_session_profile`.
    """
    return {event[4]: event[6] for event in profile if event[1] == 'hostname'}


def get_hostmap_deprecated(profiles: Mapping[str, Iterable[Event]]) -> dict[str, str]:
    """Return the same as `get_hostmap`, from profiles by name, as from `radical.utils.read_profiles`."""
    return get_hostmap(event for profile in profiles.values() for event in profile)


def get_session_json(sid: str, cachedir: str | None = None) -> dict[str, Any]:
    """Return the session, its managers, pilots and tasks as plain data.

    Args:
        sid: The uid of a session below the working directory, or its directory.
        cachedir: A directory in which the data is kept as `<uid>.json`, and looked up first.

    Returns:
        A dict with lists of dicts under `session`, `pmgr`, `tmgr`, `pilot`, `partition` and `task`; pilots have the
        uids of their tasks as `task_ids`.

    Raises:
        FileNotFoundError: There is no such session.
    """
    cache = Path(cachedir) / f'{Path(sid).name}.json' if cachedir else None
    if cache is not None and cache.is_file():
        found: dict[str, Any] = json.loads(cache.read_text())
        return found
    directory = _directory(sid, None)
    pilots, partitions, tasks = ([dict(each) for each in many] for many in _entities(directory))
    for pilot in pilots:
        pilot['description'], pilot['pmgr'] = pilot['record']['description'], pilot['record']['pmgr']
        pilot['task_ids'] = [task['uid'] for task in tasks if task.get('pilot') == pilot['uid']]
    summary = sessions.summary(directory).as_dict() if sessions.is_session(directory) else {'uid': directory.name}
    data = {'session': [summary], 'pmgr': [{'uid': uid} for uid in sorted({pilot['pmgr'] for pilot in pilots})],
            'tmgr': [{'uid': uid} for uid in sorted({task['tmgr'] for task in tasks})], 'pilot': pilots,
            'partition': partitions, 'task': tasks}
    if cache is not None:
        cache.parent.mkdir(parents=True, exist_ok=True)
        cache.write_text(json.dumps(data))
    return data


def get_session_description(sid: str, src: str | None = None) -> dict[str, Any]:
    """Return the pilots and tasks of a session, their hierarchy, and their state models."""
    directory = _directory(sid, src)
    tree = {sid: _node(sid, 'session', {}, {})}
    pilots, partitions, tasks = _entities(directory)
    for pilot in pilots:
        parts = {each['uid']: _size(each) for each in partitions if each['record'][WHOLE] == pilot['uid']}
        _hang(tree, sid, pilot['record']['pmgr'], 'pmgr', _pilot(pilot, parts))
    for partition in partitions:
        tree[partition['uid']] = _node(partition['uid'], 'partition', partition, {})
        _add(tree[partition['record'][WHOLE]], partition['uid'], 'partition')
    for task in tasks:
        _hang(tree, sid, task['tmgr'], 'tmgr', _task(task))
        if task.get('pilot') in tree:
            _add(tree[task['pilot']], task['uid'], tree[task['uid']]['etype'])
    models = {'pilot': states.PILOT, 'partition': states.PILOT, 'task': states.TASK}
    entities = {kind: {'state_model': {name: model.value(name) for name in model.names},
                       'state_values': _state_values(model), 'event_model': {}}
                for kind, model in models.items()}
    entities['session'] = {'state_model': {}, 'state_values': {}, 'event_model': {}}
    return {'entities': entities, 'tree': tree, 'config': {}}


def _entities(directory: Path) -> tuple[Iterable[dict[str, Any]], list[dict[str, Any]], Iterable[dict[str, Any]]]:
    """Return the pilots, partitions and tasks of a session."""
    if sessions.is_session(directory):
        return sessions.pilots(directory), list(sessions.partitions(directory)), sessions.tasks(directory)
    from rp_profiling.read.session import read_trace

    trace = read_trace(directory)
    return pilots(trace), [], tasks(trace)


def _directory(sid: str, src: str | None) -> Path:
    """Return the directory of a session: `src` or `sid` itself, or `sid` below `src`."""
    places = [Path(src), Path(src) / sid] if src else [Path(sid)]
    for place in places:
        if sessions.is_session(place) or any(place.glob('*.prof*')):
            return place
    raise FileNotFoundError(f'there is no session {sid!r} in {" or ".join(map(str, places))}')


def fetch_json(sid: str, tgt: str | None = None, skip_existing: bool = False) -> str:
    """Write what `get_session_json` returns to a file, and return its path.

    Args:
        sid: The uid of a session below the working directory, or its directory.
        tgt: The directory of the file `<uid>.json`; default: the working directory.
        skip_existing: Keep the file if it exists.

    Raises:
        FileNotFoundError: There is no such session.
    """
    directory = _directory(sid, None)
    path = Path(tgt or '').absolute() / f'{directory.name}.json'
    if not (skip_existing and path.exists()):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(get_session_json(str(directory)), indent=2))
    return str(path)


def _spans(trace: Trace, zero: float) -> dict[str, tuple[float, float]]:
    """Return the times of the first and the last event of each pilot's agent."""
    from rp_profiling.read.columns import TICKS

    times, places = trace.columns.time, trace.place_of_source[trace.columns.source]
    found = {}
    for number, place in enumerate(trace.places):
        here = times[places == number] if place else times[:0]
        if len(here):
            found[place] = (int(here.min()) / TICKS - zero, int(here.max()) / TICKS - zero)
    return found


def _state_values(model: states.StateModel) -> dict[int, str | list[str]]:
    """Return the states of a model by value; final states have the same value."""
    found: dict[int, str | list[str]] = {model.value(name): name for name in model.names if name not in states.FINAL}
    return found | {model.value(states.DONE): list(states.FINAL)}


def _node(uid: str, etype: str, cfg: Mapping[str, Any], description: Mapping[str, Any],
          resources: Mapping[str, float] | None = None) -> dict[str, Any]:
    return {'uid': uid, 'etype': etype, 'cfg': dict(cfg), 'resources': dict(resources or {}),
            'description': dict(description), 'has': [], 'children': []}


def _hang(tree: dict[str, dict[str, Any]], sid: str, manager: str, kind: str, node: dict[str, Any]) -> None:
    """Insert an entity below its manager, and the manager below the session."""
    if manager not in tree:
        tree[manager] = _node(manager, kind, {}, {})
        _add(tree[sid], manager, kind)
    tree[node['uid']] = node
    _add(tree[manager], node['uid'], node['etype'])


def _add(parent: dict[str, Any], uid: str, kind: str) -> None:
    parent['children'].append(uid)
    if kind not in parent['has']:
        parent['has'].append(kind)


def _pilot(pilot: Mapping[str, Any], partitions: Mapping[str, Mapping[str, int]]) -> dict[str, Any]:
    details, amounts = pilot.get('resource_details') or {}, _size(pilot)
    cfg = {**pilot, **amounts, 'resource_details': {**details, 'rm_info': details}, 'partitions': partitions}
    return _node(pilot['uid'], 'pilot', cfg, pilot['record']['description'],
                 {'cpu': amounts['cores'], 'gpu': amounts['gpus']})


def _size(pilot: Mapping[str, Any]) -> dict[str, int]:
    """Return the cores and GPUs of a pilot or partition and of each node; 0 if unknown."""
    details = pilot.get('resource_details') or {}
    return {name: details.get(name) or 0 for name in ('cores', 'gpus', 'cores_per_node', 'gpus_per_node')}


def _task(task: Mapping[str, Any]) -> dict[str, Any]:
    description = task['description']
    kinds = {'raptor.master': 'raptor.master', 'raptor.worker': 'raptor.worker'}
    etype = kinds.get(description.get('mode', ''), 'raptor.task' if description.get('raptor_id') else 'task')
    return _node(task['uid'], etype, task, description, _amounts(task.get('slots') or ()))


def _amounts(slots: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Return the number of cores and GPUs of a task."""
    found = {'cpu': 0.0, 'gpu': 0.0}
    for slot in slots:
        for name, key in (('cpu', 'cores'), ('gpu', 'gpus')):
            found[name] += sum(1.0 if device['occupation'] is None else device['occupation'] for device in slot[key])
    return found


def pilots(trace: Trace) -> Iterator[dict[str, Any]]:
    """Yield the pilots whose agents have reported their resources."""
    from rp_profiling.analyse.occupation import Occupation

    for place, resources in Occupation(trace).resources.items():
        amounts = asdict(resources)
        yield {'uid': trace.places[place], 'resource_details': amounts,
               'record': {'pmgr': PMGR, 'description': {'nodes': amounts['nodes']}}}


def tasks(trace: Trace) -> Iterator[dict[str, Any]]:
    """Yield the tasks, each with its last pilot and slots."""
    columns = trace.columns
    had = {int(columns.uid[row]): int(row) for row in trace.rows_of('schedule_ok')}
    for task in map(int, trace.entities('task')):
        known: dict[str, Any] = {'uid': columns.uids[task], 'tmgr': TMGR, 'pilot': '', 'slots': [],
                                 'description': {}}
        if task in had:
            row = had[task]
            known['pilot'] = trace.places[trace.place_of_source[columns.source[row]]]
            known['slots'] = _slots(columns.messages[columns.message[row]])
            known['description'] = {'ranks': len(known['slots'])}
        yield known


def _slots(message: str) -> list[dict[str, Any]]:
    """Return the slots of all ranks, from the short form in traces."""
    from rp_profiling.write.slots import CORE, parse

    found = []
    for word in message.split():
        slot: dict[str, Any] = {'cores': [], 'gpus': []}
        for share in parse(word):
            slot['node_index'] = share.node
            slot['cores' if share.kind == CORE else 'gpus'].append(
                {'index': share.device, 'occupation': share.amount})
        found.append(slot)
    return found
