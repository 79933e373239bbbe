"""The tables of durations, what is added to the events of a session, and the use of devices."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from rp_api.analytics.completion import Event, complete, fix_profiles
from rp_api.analytics.durations import (
    PILOT_DURATIONS,
    PILOT_DURATIONS_DEBUG,
    PILOT_DURATIONS_DEBUG_RU,
    PILOT_DURATIONS_DEBUG_SHORT,
    TASK_DURATIONS_APP,
    TASK_DURATIONS_DEBUG,
    TASK_DURATIONS_DEBUG_RU,
    TASK_DURATIONS_DEFAULT,
)
from rp_api.analytics.resources import (
    cluster_resources,
    get_consumed_resources,
    get_duration,
    get_node_index,
    get_provided_resources,
    get_resource_timelines,
    get_resource_transitions,
)
from rp_api.analytics.session import get_hostmap, get_hostmap_deprecated


def row(time: float, name: str, uid: str = 'task.000000', state: str = '', msg: str = '') -> Event:
    return [time, name, 'comp', 'thread', uid, state, msg, uid.partition('.')[0]]


def of(*steps: tuple[float, str], uid: str = 'task.000000') -> list[Event]:
    """Events by time; those in capitals are states, `cmd` is the command to end a pilot."""
    return [row(time, 'state' if name.isupper() else name, uid, name if name.isupper() else '',
                'cancel_pilot : 0' if name == 'cmd' else '') for time, name in steps]


@dataclass
class Entity:
    """What is used of an entity of radical.analytics."""

    uid: str
    etype: str
    events: list[Event]
    cfg: dict[str, Any] = field(default_factory=dict)

    def timestamps(self, event: Any) -> list[float]:
        wanted = event if isinstance(event, list) else [event]
        return sorted(each[0] for each in self.events for one in wanted if _matches(one, each))

    def ranges(self, event: list[Any]) -> list[list[float]]:
        found: list[list[float]] = []
        start = None
        for each in self.events:
            if start is None:
                start = each[0] if _matches(event[0], each) else None
            elif _matches(event[1], each):
                found.append([start, each[0]])
                start = None
        return found

    @property
    def t_start(self) -> float:
        return float(self.events[0][0])

    @property
    def t_stop(self) -> float:
        return float(self.events[-1][0])


def _matches(wanted: Any, event: Event) -> bool:
    return any(all(value is None or (value in event[key] if key == 6 else value == event[key])
                   for key, value in one.items())
               for one in (wanted if isinstance(wanted, list) else [wanted]))


@dataclass
class Session:
    entities: list[Entity]

    def get(self, etype: str | list[str]) -> list[Entity]:
        return [each for each in self.entities if each.etype in etype]


PILOT = [(0, 'bootstrap_0_start'), (1, 'bootstrap_0_ok'), (2, 'PMGR_ACTIVE'), (8, 'cmd'), (10, 'bootstrap_0_stop')]
LIFE = [(0.0, 'schedule_ok'), (0.1, 'AGENT_EXECUTING'), (0.2, 'task_run_start'), (0.3, 'launch_start'),
        (0.4, 'exec_start'), (0.5, 'rank_start'), (1.5, 'rank_stop'), (1.6, 'exec_stop'), (1.7, 'launch_stop'),
        (1.8, 'task_run_stop'), (2.0, 'unschedule_stop')]


def pilot(cores: int = 4, gpus: int = 0, **details: Any) -> Entity:
    cfg = {'cores': cores, 'gpus': gpus, 'cores_per_node': 2, 'gpus_per_node': 1, 'partitions': {},
           'resource_details': details}
    return Entity('pilot.0000', 'pilot', of(*PILOT, uid='pilot.0000'), cfg)


def task(number: int, start: float, node: int, *cores: int, gpus: tuple[int, ...] = ()) -> Entity:
    uid = f'task.{number:06}'
    slot = {'node_index': node, 'cores': [{'index': core, 'occupation': 1.0} for core in cores],
            'gpus': [{'index': gpu, 'occupation': 1.0} for gpu in gpus]}
    return Entity(uid, 'task', of(*((start + time, name) for time, name in LIFE), uid=uid),
                  {'pilot': 'pilot.0000', 'slots': [slot]})


def seconds(usage: dict[str, dict[str, list[list[float]]]]) -> dict[str, float]:
    return {name: round(sum((stop - start) * (last - first + 1) for boxes in by_uid.values()
                            for start, stop, first, last in boxes), 6) for name, by_uid in usage.items()}


def test_durations_of_devices_follow_each_other() -> None:
    assert list(PILOT_DURATIONS['consume']) == ['boot', 'setup_1', 'idle', 'term', 'agent']
    for table in (TASK_DURATIONS_DEFAULT['consume'], TASK_DURATIONS_APP['consume'], PILOT_DURATIONS['consume']):
        stretches = [table[name] for name in table if name != 'agent']
        starts, stops = [repr(start) for start, _ in stretches], [repr(stop) for _, stop in stretches]
        assert set(starts) ^ set(stops) == {
            repr({1: name, 5: None}) for name in (('schedule_ok', 'unschedule_stop') if 'exec_cmd' in table else
                                                  ('bootstrap_0_start', 'bootstrap_0_stop'))}


def test_tables_have_the_forms_that_programs_use() -> None:
    assert PILOT_DURATIONS['consume']['idle'] == [{1: 'state', 5: 'PMGR_ACTIVE'}, {1: 'cmd', 6: 'cancel_pilot'}]
    assert PILOT_DURATIONS_DEBUG_SHORT['p_agent_terminate'] == [{'MSG': 'cancel_pilot'}, {'EVENT': 'bootstrap_0_stop'}]
    assert PILOT_DURATIONS_DEBUG['p_agent_finalize'] == [
        {1: 'bootstrap_0_stop', 5: None}, [{1: 'state', 5: state} for state in ('DONE', 'CANCELED', 'FAILED')]]
    assert TASK_DURATIONS_DEBUG['t_tmgr_create'] == [
        {1: 'state', 5: 'NEW'}, {1: 'state', 5: 'TMGR_SCHEDULING_PENDING'}]
    for groups, steps in ((PILOT_DURATIONS_DEBUG_RU, PILOT_DURATIONS_DEBUG),
                          (TASK_DURATIONS_DEBUG_RU, TASK_DURATIONS_DEBUG)):
        assert {name for group in groups.values() for name in group} == set(steps)


def test_all_devices_are_accounted_for_once() -> None:
    session = Session([pilot(gpus=2), task(0, 3, 0, 0), task(1, 5.5, 0, 0), task(2, 3, 1, 0, 1, gpus=(0,))])
    assert seconds(get_provided_resources(session)) == {'total': 40}
    used = get_consumed_resources(session)
    spent = seconds(used)
    assert sum(spent.values()) == pytest.approx(40)
    assert spent.items() >= {
        'boot': 4, 'setup_1': 4, 'term': 8, 'exec_cmd': 4.8, 'warm': 3, 'drain': 6.5, 'idle': 6.5, 'agent': 0}.items()
    assert used['exec_cmd']['task.000002'] == [[3.4, 4.6, 2, 3]]
    assert used['idle']['pilot.0000'] == [[5, 5.5, 0, 0], [2, 8, 1, 1]]
    gpus = seconds(get_consumed_resources(session, 'gpu'))
    assert sum(gpus.values()) == pytest.approx(20)


def test_purposes_of_tasks_can_be_chosen() -> None:
    used = get_consumed_resources(Session([pilot(), task(0, 3, 0, 0)]), tdurations=TASK_DURATIONS_APP)
    assert used['exec_cmd']['task.000000'] == [[3.5, 4.5, 0, 0]]
    assert used['init_app']['task.000000'] == [[3.4, 3.5, 0, 0]]


def test_a_task_that_outlives_the_command_keeps_its_devices() -> None:
    used = get_consumed_resources(Session([pilot(cores=2), task(0, 7, 0, 0)]))
    assert used['term']['pilot.0000'] == [[9, 10, 0, 0], [8, 10, 1, 1]]
    assert used['drain']['pilot.0000'] == []


def test_nodes_of_sub_agents_are_used_by_the_agent() -> None:
    session = Session([pilot(agent_node_list=[{'index': 2, 'name': 'c'}])])
    assert get_provided_resources(session)['total']['pilot.0000'] == [[0, 10, 0, 5]]
    used = get_consumed_resources(session)
    assert used['agent']['pilot.0000'] == [[2, 8, 4, 5]]
    assert used['idle']['pilot.0000'] == [[2, 8, 0, 3]]


def test_unknown_kinds_of_devices_are_refused() -> None:
    with pytest.raises(ValueError, match="rtype must be 'cpu' or 'gpu', it is 'disk'"):
        get_provided_resources(Session([]), 'disk')
    with pytest.raises(ValueError, match="rtype must be 'cpu' or 'gpu', it is 'disk'"):
        get_consumed_resources(Session([]), 'disk')


def test_devices_and_nodes() -> None:
    assert cluster_resources([7, 1, 2, 3, 2]) == [[1, 3], [7, 7]]
    assert cluster_resources([]) == []
    nodes = [{'index': 4, 'name': 'a'}, {'index': 9, 'name': 'b'}]
    assert get_node_index(nodes, 9, 8) == get_node_index(nodes, 'b', 8) == [8, 15]
    with pytest.raises(ValueError, match="node_uid 'c' is none of the 2 nodes"):
        get_node_index(nodes, 'c', 8)


def test_duration_of_one_entity() -> None:
    one = task(0, 3, 0, 0)
    assert get_duration(one, TASK_DURATIONS_DEFAULT['consume']['exec_cmd']) == (3.4, 4.6)
    assert get_duration(one, TASK_DURATIONS_APP['consume']['init_app']) == (3.4, 3.5)
    assert get_duration(one, PILOT_DURATIONS['consume']['boot']) == (None, None)


def test_transitions_lead_from_one_purpose_to_the_next() -> None:
    of_pilot, of_task = get_resource_transitions(pilot())
    assert [[after, before] for _, after, before in of_pilot] == [
        ['system', 'boot'], ['boot', 'setup_1'], ['setup_1', 'idle'], ['idle', 'term'], ['term', 'system']]
    assert of_task[0] == [{1: 'schedule_ok', 5: None}, 'idle', 'exec_queue']
    assert of_task[-1][1:] == ['unschedule', 'idle']
    line = get_resource_timelines(task(0, 3, 0, 0), of_task)
    assert [purpose for _, _, purpose in line] == list(TASK_DURATIONS_DEFAULT['consume'])
    assert (line[0][0], line[-1][1]) == (3, 5)
    assert get_resource_timelines(pilot(), of_task) == []


def test_sub_agents_take_free_devices() -> None:
    one = pilot()
    one.events += of((3, 'sub_agent_start'), (7, 'sub_agent_stop'), uid='pilot.0000')
    of_pilot, _ = get_resource_transitions(one)
    assert [[before, after] for _, before, after in of_pilot if 'agent' in (before, after)] == [
        ['idle', 'agent'], ['agent', 'idle']]


def test_hosts_of_pilots() -> None:
    events = [row(0, 'hostname', 'pilot.0000', msg='a'), row(1, 'PMGR_ACTIVE', 'pilot.0000'),
              row(1, 'hostname', 'pilot.0001', msg='b')]
    assert get_hostmap(events) == {'pilot.0000': 'a', 'pilot.0001': 'b'}
    assert get_hostmap_deprecated({'agent_0.prof': events[:2], 'other': []}) == {'pilot.0000': 'a'}


def names(events: list[Event], *wanted: str) -> list[tuple[float, str]]:
    return [(event[0], event[5] or event[1]) for event in events if (event[5] or event[1]) in wanted]


def test_entities_are_new_first() -> None:
    events = [*of((3, 'PMGR_LAUNCHING_PENDING'), uid='pilot.0000'), row(4, 'component_init', 'tmgr.0000')]
    assert [event[5] for event in complete(events, {})] == ['NEW', 'PMGR_LAUNCHING_PENDING', '']


def test_an_agent_without_a_bootstrapper_starts_and_ends_the_job() -> None:
    events = of((1, 'PMGR_LAUNCHING'), (3, 'hostname'), (4, 'PMGR_ACTIVE'), (8, 'CANCELED'), uid='pilot.0000')
    boot = ('bootstrap_0_start', 'bootstrap_0_ok', 'bootstrap_0_stop')
    assert names(complete(events, {'pilot.0000': (2.5, 9)}), *boot) == list(zip((2.5, 3, 9), boot, strict=True))
    recorded = of((1, boot[0]), (2, boot[1]), (4, 'PMGR_ACTIVE'), uid='pilot.0000')
    assert names(complete(recorded, {'pilot.0000': (1, 9)}), *boot) == list(zip((1, 2, 9), boot, strict=True))


def test_traces_with_less_detail_have_all_durations() -> None:
    events = of((0, 'NEW'), (1, 'schedule_ok'), (2, 'AGENT_EXECUTING'), (3, 'task_run_start'), (4, 'rank_start'),
                (5, 'rank_stop'), (6, 'task_run_stop'), (7, 'unschedule_stop'), (8, 'DONE'))
    one = Entity('task.000000', 'task', complete(events, {}))
    assert all(one.ranges(stretch) for stretch in TASK_DURATIONS_DEFAULT['consume'].values())
    assert [event[0] for event in one.events] == sorted(event[0] for event in one.events)
    assert names(one.events, 'launch_start', 'exec_start', 'exec_stop', 'launch_stop') == [
        (3, 'launch_start'), (4, 'exec_start'), (5, 'exec_stop'), (6, 'launch_stop')]


def test_interrupted_steps_end_with_what_is_around_them() -> None:
    events = of((0, 'schedule_ok'), (1, 'task_run_start'), (2, 'exec_start'), (3, 'rank_start'), (5, 'task_run_stop'),
                (8, 'FAILED'))
    stops = ('rank_stop', 'exec_stop', 'unschedule_stop')
    fixed = fix_profiles(events)
    assert fixed is events
    assert sorted(names(fixed, *stops)) == [(5, 'exec_stop'), (5, 'rank_stop'), (8, 'unschedule_stop')]
    assert [event[0] for event in fixed] == sorted(event[0] for event in fixed)


@pytest.mark.parametrize('state', ['DONE', 'AGENT_EXECUTING'])
def test_steps_of_other_tasks_stay_open(state: str) -> None:
    events = of((0, 'schedule_ok'), (1, 'rank_start'), (2, state))
    assert len(fix_profiles(list(events))) == len(events)
