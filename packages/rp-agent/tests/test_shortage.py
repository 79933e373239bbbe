"""What users are told about tasks that wait for a place: needs, what is free, holders, and who is ahead."""

from __future__ import annotations

from typing import Any

import pytest
from scheduler_support import Bench, a_slot, a_task

from rp_agent.pipeline import waiting
from rp_agent.pipeline.waiting import WaitingReport
from rp_agent.scheduler import component
from rp_agent.scheduler.shortage import MAX_ENTRIES
from rp_api.constants import RAPTOR_MASTER, RAPTOR_WORKER, TASK_SERVICE
from rp_api.loop.event_loop import Loop


def told(bench: Bench) -> dict[str, dict[str, Any]]:
    """What is told, by the first task of each requirement."""
    return {entry['first']: entry for entry in bench.scheduler.shortages({task.uid: task for task in bench.placed})}


def sentences(bench: Bench) -> dict[str, str]:
    return {uid: str(entry['sentence']) for uid, entry in told(bench).items()}


@pytest.mark.parametrize(('holder', 'waits', 'sentence'), [
    ({'cores_per_rank': 4}, {}, 'needs 1 core, none is free'),
    ({'cores_per_rank': 3}, {'cores_per_rank': 2}, 'needs 2 cores on one node, at most 1 is free'),
    ({'gpus_per_rank': 1}, {'gpus_per_rank': 2}, 'needs 2 GPUs on one node, at most 1 is free'),
    ({'gpus_per_rank': 1.0, 'ranks': 2}, {'gpus_per_rank': 0.5}, 'needs 0.5 of a GPU on one node, none is free'),
    ({'mem_per_rank': 700}, {'mem_per_rank': 400}, 'needs 400 MB of memory on one node, at most 300 is free'),
    ({'lfs_per_rank': 70}, {'lfs_per_rank': 40}, 'needs 40 MB of local storage on one node, at most 30 is free'),
    ({'cores_per_rank': 3, 'gpus_per_rank': 2}, {'cores_per_rank': 2, 'gpus_per_rank': 1},
     'needs 2 cores and 1 GPU on one node, at most 1 core and 0 GPUs are free'),
    ({'cores_per_rank': 3}, {'ranks': 2, 'cores_per_rank': 1}, 'needs 2 ranks with 1 core each, there is room for 1'),
    ({'cores_per_rank': 3}, {'ranks': 2, 'cores_per_rank': 2},
     'needs 2 ranks with 2 cores each, there is room for none: at most 1 core free on one node'),
    ({'cores_per_rank': 3}, {'ranks': 2, 'use_mpi': False}, 'needs 2 cores on one node, at most 1 is free')])
def test_one_node(holder: dict[str, Any], waits: dict[str, Any], sentence: str) -> None:
    bench = Bench(nodes=1, gpus=2)
    bench.put(a_task('holder', **holder))
    bench.put(*(a_task(f'w{number}', **waits) for number in range(3)))
    entry = told(bench)['w0']
    assert (entry['sentence'], entry['count'], entry['holders']) == (sentence, 3, ['holder'])
    assert entry['needs'] == {'cores_per_rank': 1, **{
        name: value for name, value in waits.items() if name != 'use_mpi'}, **(
        {'use_mpi': False} if 'use_mpi' in waits else {})}
    bench.finish()
    assert 'w0' not in told(bench)


def test_nothing_is_told_if_nothing_waits() -> None:
    bench = Bench(nodes=1)
    bench.put(a_task('t'))
    assert told(bench) == {}


def test_what_is_free_on_different_nodes_is_not_free_together() -> None:
    bench = Bench(nodes=2, gpus=1, names=['a', 'b'])
    bench.put(a_task('gpu', gpus_per_rank=1, tags={'nodes': ['a']}), a_task('cores', cores_per_rank=3,
                                                                            tags={'nodes': ['b']}))
    bench.put(a_task('w', cores_per_rank=2, gpus_per_rank=1))
    assert sentences(bench) == {'w': 'needs 2 cores and 1 GPU on one node, and no node has all of it free'}


def test_different_nodes_and_lost_ones() -> None:
    bench = Bench(nodes=2, names=['a', 'b'])
    bench.put(a_task('x', cores_per_rank=3, tags={'nodes': ['a']}))
    bench.scheduler.nodes_down([1], 'it is gone')
    bench.put(a_task('w', cores_per_rank=2))
    assert sentences(bench) == {'w': 'needs 2 cores on one node, at most 1 is free'}


def test_tags() -> None:
    bench = Bench(nodes=2, names=['a', 'b'])
    bench.put(a_task('x', cores_per_rank=4, tags={'nodes': ['a']}),
              a_task('y', cores_per_rank=2, tags={'nodes': ['b']}))
    bench.put(a_task('pinned', tags={'nodes': ['a']}),
              a_task('other', cores_per_rank=3, tags={'colocate': 'v'}))
    found = told(bench)
    assert found['pinned']['sentence'] == 'needs 1 core on a, to which its tag nodes binds it, none is free'
    assert found['pinned']['holders'] == ['x']
    assert found['other']['sentence'] == 'needs 3 cores on one node, at most 2 are free'
    bench.put(a_task('first', tags={'colocate': 'w'}), a_task('second', cores_per_rank=2, tags={'colocate': 'w'}))
    assert told(bench)['second']['sentence'] == (
        'needs 2 cores on b, to which its tag colocate binds it, at most 1 is free')


def test_explicit_slots_and_who_has_them() -> None:
    bench = Bench(nodes=2, names=['a', 'b'])
    bench.put(a_task('x', slots=[a_slot(1, [0, 1])], cores_per_rank=2), a_task('y', slots=[a_slot(1, [2])]))
    bench.put(a_task('w', slots=[a_slot(1, [1, 2])], cores_per_rank=2))
    assert told(bench)['w']['sentence'] == 'needs its slots on b, which x, y hold'
    assert told(bench)['w']['holders'] == ['x', 'y']


@pytest.mark.parametrize(('modes', 'who'), [
    ([TASK_SERVICE, TASK_SERVICE], 'services'), ([RAPTOR_MASTER, RAPTOR_WORKER], 'RAPTOR masters and workers'),
    ([TASK_SERVICE, RAPTOR_MASTER], 'services, RAPTOR masters and workers'), ([TASK_SERVICE, 'task.executable'], '')])
def test_what_is_held_until_its_holders_are_stopped(modes: list[str], who: str) -> None:
    bench = Bench(nodes=1, cores=2)
    bench.put(*(a_task(f'h{number}', mode=mode) for number, mode in enumerate(modes)), a_task('w'))
    entry = told(bench)['w']
    held = f'; {who} hold both cores until they end' if who else ''
    assert entry['sentence'] == f'needs 1 core, none is free{held}'
    assert ('remedy' in entry) == bool(who)


def test_nodes_that_are_kept_free_for_another_task() -> None:
    bench = Bench(nodes=1, names=['a'])
    bench.put(a_task('x', cores_per_rank=3), a_task('big', cores_per_rank=4))
    bench.put(a_task('small', cores_per_rank=2))
    bench.wait(component.RESERVATION_DELAY + 1)
    found = told(bench)
    assert found['big']['sentence'] == 'needs 4 cores, and a is kept free for it until the tasks there have ended'
    assert found['small']['sentence'] == (
        'needs 2 cores on one node, none is free; a is kept free for big, which has waited longer')
    assert found['small']['ahead'] == ['big']


def test_bags_and_sequences_and_blocks() -> None:
    bench = Bench(nodes=1, agent_scheduler='CONTINUOUS_COLO')
    bench.put(a_task('a', tags={'colocate': {'bag': 'm', 'size': 3}}), a_task('h', cores_per_rank=3))
    assert sentences(bench) == {'a': 'waits for 2 more tasks of the bag m, which has 3'}
    bench.put(*(a_task(uid, tags={'colocate': {'bag': 'm', 'size': 3}}) for uid in 'bc'))
    entry = told(bench)['a']
    assert (entry['count'], entry['sentence']) == (3, 'needs 3 cores on one node for the bag m, at most 1 is free')
    bench = Bench(nodes=1, agent_scheduler='CONTINUOUS_ORDERED')
    bench.put(*(a_task(str(order), tags={'order': {'ns': 's', 'order': order, 'size': 1}}) for order in range(2)))
    assert sentences(bench) == {'1': 'waits for bag 0 of s, which has to end before bag 1'}
    bench = Bench(nodes=4, agent_scheduler='TORUS', system_architecture={'torus': [2, 2]})
    bench.put(a_task('x'), a_task('w', ranks=16))
    assert sentences(bench) == {'w': 'needs 16 ranks with 1 core each in a block of 4 idle nodes of the torus, there '
                                'is room for 12'}


def test_a_policy_that_does_not_say_what_its_items_need(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(nodes=1)

    def fail(item: Any) -> None:
        raise AttributeError('no shape')

    bench.put(a_task('x', cores_per_rank=4), a_task('w', cores_per_rank=2))
    monkeypatch.setattr(bench.scheduler._policy, 'bounds', fail)
    assert sentences(bench) == {
        'w': "needs 2 cores, and the policy Continuous has not placed it (AttributeError('no shape'))"}


def test_only_the_foremost_requirements_are_told() -> None:
    bench = Bench(nodes=1, cores=2 * MAX_ENTRIES)
    bench.put(a_task('holder', cores_per_rank=2 * MAX_ENTRIES))
    bench.put(*(a_task(f'w{cores}', cores_per_rank=cores) for cores in range(1, 2 * MAX_ENTRIES)))
    assert [entry['first'] for entry in bench.scheduler.shortages({})] == [f'w{n}' for n in range(1, MAX_ENTRIES + 1)]


def test_a_report_is_sent_when_something_is_new_and_seldom_for_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, 'INTERVAL_S', 0.01)
    monkeypatch.setattr(waiting, 'QUIET_INTERVAL_S', 0.5)
    loop, entries, sent = Loop(), list[dict[str, Any]](), list[list[int]]()
    report = WaitingReport(loop, lambda: list(entries), lambda: sent.append([each['count'] for each in report.entries]),
                           1)

    def look(*found: tuple[str, int]) -> None:
        entries[:] = [{'needs': {}, 'sentence': sentence, 'count': count} for sentence, count in found]
        report.note()
        loop.call_later(0.1, loop.stop)
        loop.run()

    look()
    assert sent == []
    look(('a', 1))
    look(('a', 1))
    look(('a', 2))   # is told with what comes next
    look(('a', 3), ('b', 1))
    assert sent == [[1], [3, 1]]
    look()
    assert sent == [[1], [3, 1], []]
