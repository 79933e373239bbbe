"""The policy of platforms that launch into virtual machines: each task on the nodes of one of them."""

from __future__ import annotations

from typing import Any

import pytest
from scheduler_support import Bench, a_task

from rp_agent.scheduler.component import find_policy
from rp_agent.scheduler.policies.divided import Divided
from rp_agent.task import AgentTask


def bench(nodes: int = 4, count: int = 2, **values: Any) -> Bench:
    methods = {'order': ['PRTE'], 'PRTE': {'dvm_count': count}}
    return Bench(nodes=nodes, agent_scheduler='CONTINUOUS_DVM', launch_methods=methods, **values)


def test_it_is_the_default_where_tasks_are_launched_into_virtual_machines() -> None:
    assert find_policy({'launch_methods': {'order': ['PRTE', 'SSH']}}) is Divided


def test_no_task_spans_two_machines() -> None:
    found = bench()
    found.put(a_task('a', ranks=6), a_task('b', ranks=6), a_task('waits', ranks=6))
    assert found.nodes_of('a') == [0] * 4 + [1] * 2
    assert found.nodes_of('b') == [2] * 4 + [3] * 2
    assert 'waits' not in found.running()
    found.finish('a')
    assert found.nodes_of('waits') == [0] * 4 + [1] * 2


def test_tasks_go_where_there_is_least_to_do() -> None:
    found = bench()
    found.put(*(a_task(f't{number}') for number in range(4)))
    assert [found.nodes_of(f't{number}')[0] for number in range(4)] == [0, 2, 0, 2]


def test_a_partition_names_a_machine() -> None:
    found = bench()
    found.put(a_task('a', partition=1), a_task('b', partition=1), a_task('none', partition=2))
    assert [found.nodes_of(uid)[0] for uid in ('a', 'b')] == [2, 2]
    assert 'partition is 2, the pilot has 2 virtual machine(s)' in found.reasons()['none']


def test_tasks_for_a_machine_are_not_tried_when_another_one_has_room(monkeypatch: pytest.MonkeyPatch) -> None:
    found = bench()
    found.put(*(a_task(f'r{number}', cores_per_rank=4) for number in range(4)))
    found.put(*(a_task(f'{cores}.{machine}', cores_per_rank=cores, partition=machine)
                for cores in (1, 2, 3) for machine in (0, 1)))
    tried: list[str] = []
    place = Divided.place

    def noted(self: Divided, item: AgentTask) -> bool:
        tried.append(item.uid)
        return place(self, item)

    monkeypatch.setattr(Divided, 'place', noted)
    there = next(f'r{number}' for number in range(4) if found.nodes_of(f'r{number}') == [3])
    found.finish(there)
    assert tried == ['1.1', '2.1']
    assert found.nodes_of('1.1') == found.nodes_of('2.1') == [3]


def test_in_a_partition_of_a_pilot_it_names_nothing() -> None:
    found = bench(config={'partition': 7})
    found.put(a_task('a', partition=7))
    assert found.nodes_of('a') == [0]


def test_what_no_machine_can_hold_is_refused() -> None:
    found = bench()
    found.put(a_task('large', ranks=9))
    assert 'have at most 2 node(s), which hold 8' in found.reasons()['large']


def test_tasks_of_a_lost_machine_go_to_the_others() -> None:
    found = bench()
    found.scheduler.nodes_down([0, 1], 'it is lost')
    found.put(a_task('a'), a_task('b', ranks=8), a_task('there', partition=0))
    assert found.nodes_of('a') == [2]
    assert 'b' not in found.running()
    assert 'there' in found.reasons()
    found.finish('a')
    assert found.nodes_of('b') == [2] * 4 + [3] * 4


def test_tags_still_say_where_a_task_runs() -> None:
    found = bench()
    found.put(a_task('a', tags={'nodes': [3]}), *(a_task(uid, tags={'colocate': 'x'}) for uid in 'bc'))
    assert found.nodes_of('a') == [3]
    assert found.nodes_of('b') == found.nodes_of('c')


def test_a_large_task_is_not_starved() -> None:
    found = bench()
    found.put(*(a_task(f't{number}', cores_per_rank=4) for number in range(4)))
    found.put(a_task('large', ranks=8))
    found.wait(61)
    found.put(a_task('late', cores_per_rank=4))
    for number in range(4):
        found.finish(f't{number}')
    assert set(found.nodes_of('large')) in ({0, 1}, {2, 3})
