"""Session data for radical.analytics, which calls `radical.pilot.utils`: events, entities and resources.

A session is found by its directory, or by its uid below the working directory. Events come from all profiles in the
directory (and in reachable sandboxes of pilots); the properties of pilots and tasks come from the hub's database, or
from the profiles if there is none, as in a simulation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rp_api import states, trace_entities
from rp_api.coordination import sessions
from rp_api.partitions import WHOLE

Event = dict[int, str]
"""An event of radical.analytics: key 1 is its name, key 5 its state."""

Table = dict[str, list[Event]]
Box = list[float]
"""Start and end time, first and last device."""

_NAME, _STATE = 1, 5


def _event(name: str) -> Event:
    """Return an event, or the transition to a state for names in capitals."""
    return {_NAME: 'state', _STATE: name} if name.isupper() else {_NAME: name}


def _table(**stretches: str) -> Table:
    return {name: [_event(each) for each in stretch.split()] for name, stretch in stretches.items()}


PILOT_DURATIONS_DEBUG = _table(
    p_pmgr_create='NEW PMGR_LAUNCHING_PENDING', p_pmgr_launching='PMGR_LAUNCHING PMGR_ACTIVE_PENDING',
    p_pmgr_queue='PMGR_ACTIVE_PENDING bootstrap_0_start', p_agent_ve_setup='ve_setup_start ve_setup_stop',
    p_agent_ve_activate='ve_activate_start ve_activate_stop', p_agent_boot='hostname PMGR_ACTIVE',
    p_agent_runtime='PMGR_ACTIVE CANCELED', p_bootstrap='bootstrap_0_start bootstrap_0_stop')
PILOT_DURATIONS_DEBUG_SHORT = {name: PILOT_DURATIONS_DEBUG[name] for name in ('p_agent_boot', 'p_agent_runtime')}
TASK_DURATIONS_DEBUG = _table(
    t_tmgr_create='NEW TMGR_SCHEDULING_PENDING', t_tmgr_schedule='TMGR_SCHEDULING TMGR_STAGING_INPUT_PENDING',
    t_tmgr_stage_in='TMGR_STAGING_INPUT AGENT_STAGING_INPUT_PENDING',
    t_agent_stage_in='AGENT_STAGING_INPUT AGENT_SCHEDULING_PENDING',
    t_agent_schedule='AGENT_SCHEDULING AGENT_EXECUTING_PENDING', t_agent_exec_queue='schedule_ok AGENT_EXECUTING',
    t_agent_prepare='AGENT_EXECUTING rank_start', t_agent_cmd='rank_start rank_stop',
    t_agent_collect='rank_stop task_run_stop', t_agent_unschedule='unschedule_start unschedule_stop',
    t_agent_stage_out='AGENT_STAGING_OUTPUT TMGR_STAGING_OUTPUT_PENDING')
TASK_DURATIONS_DEBUG_SHORT = {name: TASK_DURATIONS_DEBUG[name] for name in ('t_agent_schedule', 't_agent_cmd')}

PILOT_DURATIONS = {
    'provide': _table(total='PMGR_ACTIVE CANCELED'),
    'consume': _table(boot='hostname PMGR_ACTIVE'),
}
TASK_DURATIONS_DEFAULT = {'consume': _table(
    exec_queue='schedule_ok AGENT_EXECUTING', exec_prep='AGENT_EXECUTING rank_start', exec_cmd='rank_start rank_stop',
    term_rp='rank_stop task_run_stop', unschedule='task_run_stop unschedule_stop')}
TASK_DURATIONS_APP = {'consume': TASK_DURATIONS_DEFAULT['consume'] | _table(
    init_app='rank_start app_start', exec_cmd='app_start app_stop', term_app='app_stop rank_stop')}


def get_session_profile(sid: str, src: str | None = None) -> tuple[list[list[Any]], float, dict[str, str]]:
    """Return all events of a session in the order of time: (rows, clock accuracy in seconds, host of each pilot).

    A row is time (seconds since the start of the session), event, component, thread, uid, state, message, entity type.
    A transition to a state is an event `state`, and occurs once.
    """
    from rp_profiling.read.trace import read_trace

    directory = _directory(sid, src)
    partitions = {each['uid'] for each in sessions.partitions(directory)} if sessions.is_session(directory) else set()
    rows = list(read_trace(directory).rows())
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
    hosts = {row.uid: row.msg for row in rows if row.event == 'hostname'}
    return found, 0.0, hosts


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
    models = {'pilot': states.PILOT, 'partition': states.PILOT, 'task': states.TASK}
    entities = {kind: {'state_model': {name: model.value(name) for name in model.names},
                       'state_values': {model.value(name): name for name in model.names}, 'event_model': {}}
                for kind, model in models.items()}
    entities['session'] = {'state_model': {}, 'state_values': {}, 'event_model': {}}
    return {'entities': entities, 'tree': tree, 'config': {}}


def get_provided_resources(session: Any, rtype: str = 'cpu') -> dict[str, dict[str, list[Box]]]:
    """Return when each pilot of a session of radical.analytics had which cores (`cpu`) or GPUs (`gpu`)."""
    found: dict[str, dict[str, list[Box]]] = {name: {} for name in PILOT_DURATIONS['provide']}
    for pilot in session.get(etype='pilot'):
        amount = pilot.cfg['cores' if rtype == 'cpu' else 'gpus']
        for name, stretch in PILOT_DURATIONS['provide'].items():
            spans = pilot.ranges(event=stretch) or [[pilot.t_start, pilot.t_stop]]
            found[name][pilot.uid] = [[*span, 0, amount - 1] for span in spans if amount]
    return found


def get_consumed_resources(session: Any, rtype: str = 'cpu', tdurations: Mapping[str, Any] | None = None,
                           ) -> dict[str, dict[str, list[Box]]]:
    """Return how each core or GPU was used over time in a session of radical.analytics, by purpose and entity."""
    table = (tdurations or TASK_DURATIONS_DEFAULT).get('consume', {})
    found: dict[str, dict[str, list[Box]]] = {name: {} for name in (*PILOT_DURATIONS['consume'], *table)}
    for pilot in session.get(etype='pilot'):
        amount = pilot.cfg['cores' if rtype == 'cpu' else 'gpus']
        for name, stretch in PILOT_DURATIONS['consume'].items():
            found[name][pilot.uid] = [[*span, 0, amount - 1] for span in pilot.ranges(event=stretch) if amount]
    places = dict(_places(session.get(etype='pilot'), 'cores' if rtype == 'cpu' else 'gpus'))
    for task in session.get(etype='task'):
        devices = list(_devices(task.cfg, rtype, places))
        for name, stretch in table.items():
            spans = task.ranges(event=stretch)
            found[name][task.uid] = [[*span, first, last] for span in spans for first, last in devices]
    return found


def _places(pilots: Iterable[Any], kind: str) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield, for pilots and partitions, the index of the first device in the whole pilot, and the devices per node.

    Partitions number their devices from 0 and do not record their location: they are assumed to be adjacent.
    """
    for pilot in pilots:
        yield pilot.uid, (0, pilot.cfg[f'{kind}_per_node'])
        first = 0
        for uid, amounts in pilot.cfg['partitions'].items():
            yield uid, (first, amounts[f'{kind}_per_node'])
            first += amounts[kind]


def _devices(cfg: Mapping[str, Any], rtype: str, places: Mapping[str, tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the devices of a task, numbered over all nodes of its pilot, as ranges (first, last)."""
    start, per_node = places.get(cfg.get('pilot') or '', (0, 0))
    numbers = sorted({start + slot['node_index'] * per_node + device['index'] for slot in cfg.get('slots') or ()
                      for device in slot['cores' if rtype == 'cpu' else 'gpus']})
    first = None
    for index, number in enumerate(numbers):
        first = number if first is None else first
        if index + 1 == len(numbers) or numbers[index + 1] != number + 1:
            yield first, number
            first = None


def _entities(directory: Path) -> tuple[Iterable[dict[str, Any]], list[dict[str, Any]], Iterable[dict[str, Any]]]:
    """Return the pilots, partitions and tasks of a session."""
    if sessions.is_session(directory):
        return sessions.pilots(directory), list(sessions.partitions(directory)), sessions.tasks(directory)
    from rp_profiling.read.trace import read_trace

    trace = read_trace(directory)
    return trace_entities.pilots(trace), [], trace_entities.tasks(trace)


def _directory(sid: str, src: str | None) -> Path:
    """Return the directory of a session: `src` or `sid` itself, or `sid` below `src`."""
    places = [Path(src), Path(src) / sid] if src else [Path(sid)]
    for place in places:
        if sessions.is_session(place) or any(place.glob('*.prof*')):
            return place
    raise FileNotFoundError(f'there is no session {sid!r} in {" or ".join(map(str, places))}')


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
