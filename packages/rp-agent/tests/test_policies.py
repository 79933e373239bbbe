"""Each policy places tasks where it says, lets them wait when it must, and says why when it refuses one."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from scheduler_support import Bench, a_slot, a_task

from rp_agent.resource_manager.base import Allocation
from rp_agent.scheduler import component, policy
from rp_agent.scheduler.component import find_policy
from rp_agent.scheduler.policies.continuous import Continuous
from rp_agent.scheduler.policies.jsrun import JsrunPolicy
from rp_agent.scheduler.policies.torus import Grid, Torus
from rp_agent.scheduler.slotmap import SlotMap
from rp_agent.task import BLOCK, RANKS_PER_SLOT
from rp_api import states
from rp_api.errors import PlatformError
from rp_api.failures.kinds import DESCRIPTION, NODE

# which policy it is


@pytest.mark.parametrize('name', ['CONTINUOUS', 'CONTINUOUS_COLO', 'CONTINUOUS_DVM', 'CONTINUOUS_JSRUN',
                                  'CONTINUOUS_ORDERED', 'CONTINUOUS_RECONFIG', 'FLUX', 'HOMBRE', 'NOOP', 'TAGGED',
                                  'TORUS'])
def test_each_name_is_a_policy(name: str) -> None:
    assert issubclass(find_policy({'agent_scheduler': name}), policy.Policy)


def test_the_default_is_continuous() -> None:
    assert find_policy({}) is Continuous
    assert find_policy({'agent_scheduler': 'CONTINUOUS', 'launch_methods': {'order': ['FORK']}}) is Continuous


def test_jsrun_brings_its_own_policy() -> None:
    assert find_policy({'agent_scheduler': 'CONTINUOUS', 'launch_methods': {'order': ['JSRUN', 'FORK']}}) is JsrunPolicy


def test_an_unknown_name_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(PlatformError, match=r"'FIFO' of the platform is unknown, installed are CONTINUOUS, CONT"):
        find_policy({'agent_scheduler': 'FIFO'})


# CONTINUOUS


def test_ranks_go_on_the_first_node_that_holds_them_all() -> None:
    bench = Bench(nodes=3)
    bench.put(a_task('three', ranks=3), a_task('two', ranks=2), a_task('one'))
    assert bench.nodes_of('three') == [0, 0, 0]
    assert bench.nodes_of('two') == [1, 1]
    assert bench.nodes_of('one') == [0]


def test_mpi_ranks_spread_over_neighbours() -> None:
    bench = Bench(nodes=4)
    bench.put(a_task('a', cores_per_rank=2), a_task('b', ranks=8))
    assert bench.nodes_of('b') == [1] * 4 + [2] * 4


def test_threads_stay_in_one_numa_domain() -> None:
    bench = Bench(nodes=1, domains=(((0, 1), (0,)), ((2, 3), ())))
    bench.put(a_task('one'), a_task('two', cores_per_rank=2))
    assert bench.cores_of('one') == [[0]]
    assert bench.cores_of('two') == [[2, 3]]


def test_blocked_cores_are_not_used() -> None:
    bench = Bench(nodes=1, cores=2, blocked_cores=(0, 2))
    bench.put(a_task('a', ranks=2), a_task('b', ranks=3))
    assert bench.cores_of('a') == [[1], [3]]
    assert 'can never run' in bench.reasons()['b']


def test_ranks_that_are_not_mpi_stay_on_one_node() -> None:
    bench = Bench(nodes=2)
    bench.put(a_task('a', ranks=3), a_task('b', ranks=2, use_mpi=False), a_task('c', ranks=3, use_mpi=False),
              a_task('d', ranks=3))
    assert bench.nodes_of('b') == [1, 1]
    assert bench.running() == ['a', 'b', 'd']
    assert bench.nodes_of('d') == [1, 1, 0], 'MPI ranks do not mind'
    bench.finish('a')
    assert bench.nodes_of('c') == [0, 0, 0]
    bench.put(a_task('never', ranks=5, use_mpi=False))
    assert 'have to be on one node' in bench.reasons()['never']


def test_nodes_of_a_task_are_neighbours_where_the_platform_is_not_scattered() -> None:
    for scattered, placed in (True, [0, 0, 0, 0, 2, 2, 2, 2]), (False, None):
        bench = Bench(nodes=3, scattered=scattered)
        bench.put(a_task('left', ranks=4), a_task('middle', ranks=4), a_task('right', ranks=4))
        bench.finish('left', 'right')
        bench.put(a_task('b', ranks=8))
        assert ('b' in bench.running()) == scattered
        if placed:
            assert bench.nodes_of('b') == placed
        bench.finish('middle')
        assert 'b' in bench.running()


def test_without_neighbours_that_are_up_a_task_fails() -> None:
    bench = Bench(nodes=3, scattered=False)
    bench.put(a_task('a', ranks=12), a_task('b', ranks=8), a_task('c', ranks=4))
    bench.scheduler.nodes_down([1], 'it is lost')
    assert list(bench.failed[0].uid) == ['b']
    assert 'no neighbouring nodes are left' in bench.reasons()['b']
    bench.finish('a')
    assert bench.running() == ['c']


# tags


def test_tasks_with_the_same_tag_run_on_the_same_nodes() -> None:
    bench = Bench(nodes=3)
    bench.put(a_task('first', ranks=8, tags={'colocate': 'x'}))
    assert bench.nodes_of('first') == [0] * 4 + [1] * 4
    bench.put(a_task('second', tags={'colocate': 'x'}), a_task('other'))
    assert bench.nodes_of('other') == [2]
    assert bench.running() == ['first', 'other'], 'it waits for its nodes'
    bench.finish('first')
    assert bench.nodes_of('second') == [0]
    bench.put(a_task('third', ranks=7, tags={'colocate': 'x'}))
    assert bench.nodes_of('third') == [0] * 3 + [1] * 4


@pytest.mark.parametrize('value', [1, 'text', ['a', 'list'], {'a': ['dict']}])
def test_a_tag_may_be_anything(value: Any) -> None:
    bench = Bench(nodes=2)
    bench.put(a_task('a', ranks=3, tags={'colocate': value}), a_task('b', ranks=3, tags={'colocate': value}))
    assert bench.running() == ['a']


def test_a_task_that_its_tag_binds_to_too_few_nodes_fails() -> None:
    bench = Bench(nodes=2)
    bench.put(a_task('a', tags={'colocate': 'x'}), a_task('b', ranks=5, tags={'colocate': 'x'}))
    assert "colocate 'x' binds it to the node(s) 0, which cannot hold 5 rank(s) of 1 cores" in bench.reasons()['b']


def test_exclusive_tags_have_nodes_of_their_own_as_long_as_there_are_any() -> None:
    bench = Bench(nodes=2)
    bench.put(*(a_task(uid, tags={'colocate': uid, 'exclusive': True}) for uid in 'abc'))
    assert [bench.nodes_of(uid) for uid in 'abc'] == [[0], [1], [0]]


def test_an_exclusive_tag_waits_for_a_node_of_its_own() -> None:
    bench = Bench(nodes=2)
    bench.put(a_task('a', tags={'colocate': 'a', 'exclusive': True}), a_task('busy', ranks=4))
    assert bench.nodes_of('busy') == [1] * 4
    bench.put(a_task('b', tags={'colocate': 'b', 'exclusive': True}))
    assert bench.running() == ['a', 'busy']
    bench.finish('busy')
    assert bench.nodes_of('b') == [1]


def test_tasks_can_be_pinned_to_nodes() -> None:
    bench = Bench(agent_scheduler='TAGGED', names=['n0', 'n1', 'n2'])
    bench.put(a_task('number', tags={'nodes': [1]}), a_task('name', ranks=2, tags={'nodes': ['n2', 'n0']}),
              a_task('both', ranks=7, tags={'nodes': ['n1', 0]}))
    assert bench.nodes_of('number') == [1]
    assert bench.nodes_of('name') == [2, 2]
    assert bench.nodes_of('both') == [1] * 3 + [0] * 4


@pytest.mark.parametrize(('tags', 'reason'), [
    ({'nodes': ['n9']}, "names the node 'n9', which the pilot does not have"),
    ({'nodes': [3]}, 'names the node 3, which the pilot does not have'),
    ({'nodes': 'n1'}, "must be a list of indices or names of nodes, not 'n1'"),
    ({'nodes': []}, 'must be a list'),
    ({'nodes': [1], 'colocate': 1}, 'use one of them'),
    ({'nodes': [1]}, 'nodes pins it to the node(s) 1, which cannot hold 5 rank(s)')])
def test_tags_that_cannot_be_followed_fail_the_task(tags: dict[str, Any], reason: str) -> None:
    bench = Bench(names=['n0', 'n1', 'n2'])
    bench.put(a_task('a', ranks=5, tags=tags))
    assert reason in bench.reasons()['a']


def test_other_tags_do_not_matter() -> None:
    bench = Bench()
    bench.put(a_task('a', tags={'exclusive': True}), a_task('b', tags={'anything': 1}))
    assert bench.running() == ['a', 'b']


# CONTINUOUS_JSRUN


@pytest.mark.parametrize(('ranks', 'gpus', 'sets', 'each', 'of_gpus'), [
    (6, 0.5, 3, 2, 1), (4, 0.25, 1, 4, 1), (3, 0.5, 1, 3, 2), (4, 0.75, 1, 4, 3), (2, 1, 2, None, 1),
    (2, 0, 2, None, 0), (10, 0.1, 1, 10, 1)])
def test_ranks_that_share_gpus_are_resource_sets(ranks: int, gpus: float, sets: int, each: int | None,
                                                 of_gpus: int) -> None:
    bench = Bench(nodes=1, cores=20, gpus=3, agent_scheduler='CONTINUOUS_JSRUN')
    bench.put(a_task('a', ranks=ranks, gpus_per_rank=gpus, cores_per_rank=2, mem_per_rank=10))
    slots = bench.slots_of('a')
    assert [len(slot['gpus']) for slot in slots] == [of_gpus] * sets
    assert [len(slot['cores']) for slot in slots] == [2 * (each or 1)] * sets
    assert [slot['mem'] for slot in slots] == [10 * (each or 1)] * sets
    assert bench.placed[0].extra.get(RANKS_PER_SLOT) == each


def test_resource_sets_keep_the_limit_of_ranks_on_a_node() -> None:
    bench = Bench(nodes=3, cores=20, gpus=3, agent_scheduler='CONTINUOUS_JSRUN')
    bench.put(a_task('a', ranks=6, gpus_per_rank=0.5, ranks_per_node=5),
              a_task('b', ranks=6, gpus_per_rank=0.5, ranks_per_node=1))
    assert bench.nodes_of('a') == [0, 0, 1]
    assert 'ranks_per_node is 1, but 2 ranks share the 1 GPU(s)' in bench.reasons()['b']


# CONTINUOUS_COLO


def bag(name: str, size: int) -> dict[str, Any]:
    return {'colocate': {'bag': name, 'size': size}}


@pytest.fixture
def colo() -> Bench:
    return Bench(nodes=2, agent_scheduler='CONTINUOUS_COLO')


def test_a_bag_waits_for_all_its_tasks(colo: Bench) -> None:
    colo.put(a_task('a', tags=bag('x', 3)), a_task('single'), a_task('b', ranks=2, tags=bag('x', 3)))
    assert colo.running() == ['single']
    colo.put(a_task('c', tags=bag('x', 3)))
    assert colo.running() == ['single', 'a', 'b', 'c']
    assert [colo.nodes_of(uid) for uid in 'abc'] == [[1], [1, 1], [1]], 'the other node has no room for all of them'


def test_a_bag_is_placed_whole_or_not_at_all(colo: Bench) -> None:
    colo.put(a_task('one'), a_task('two', ranks=4), a_task('a', ranks=2, tags=bag('x', 2)))
    colo.finish('one')
    colo.put(a_task('three'), a_task('b', ranks=2, tags=bag('x', 2)))
    assert colo.running() == ['two', 'three']
    colo.finish('three')
    assert colo.nodes_of('a') + colo.nodes_of('b') == [0] * 4


def test_shares_of_gpus_in_a_bag_are_placed_exactly() -> None:
    bench = Bench(nodes=2, gpus=2, agent_scheduler='CONTINUOUS_COLO')
    bench.put(a_task('one', gpus_per_rank=0.6), a_task('two', gpus_per_rank=0.6))
    assert bench.nodes_of('one') + bench.nodes_of('two') == [0, 0]
    bench.put(*(a_task(uid, gpus_per_rank=0.7, tags=bag('x', 2)) for uid in 'ab'))
    assert bench.nodes_of('a') + bench.nodes_of('b') == [1, 1]
    bench.put(*(a_task(uid, gpus_per_rank=0.6, tags=bag('y', 3)) for uid in 'cde'))
    assert [bench.reasons()[uid].split(': ')[1][:7] for uid in 'cde'] == ['3 ranks'] * 3


def test_a_bag_that_no_node_holds_fails(colo: Bench) -> None:
    colo.put(*(a_task(uid, ranks=3, tags=bag('x', 2)) for uid in 'ab'))
    assert colo.reasons()['a'] == ('a can never run on pilot.0000: 6 ranks that take 6 cores together have to be on '
                                   'one node, and no node of the pilot holds them')
    assert set(colo.reasons()) == {'a', 'b'}
    colo.put(*(a_task(uid, tags=bag('x', 2)) for uid in 'cd'))
    assert colo.running() == ['c', 'd'], 'the name can be used again'


def test_a_cancelled_task_leaves_its_bag(colo: Bench) -> None:
    colo.put(*(a_task(uid, tags=bag('x', 3)) for uid in 'ab'))
    colo.cancel('a')
    assert colo.running() == []
    colo.put(a_task('c', tags=bag('x', 3)))
    assert colo.running() == ['b', 'c']


def test_a_bag_may_be_complete_because_a_task_is_cancelled(colo: Bench) -> None:
    colo.put(*(a_task(uid, tags=bag('x', 3)) for uid in 'ab'))
    late = a_task('c', tags=bag('x', 3))
    late.cancelled = True
    colo.put(late)
    assert colo.running() == [], 'it never was in the bag'
    colo.put(a_task('d', tags=bag('x', 3)))
    assert colo.running() == ['a', 'b', 'd']


def test_a_bag_that_waits_is_smaller_after_a_cancel(colo: Bench) -> None:
    colo.put(a_task('busy', ranks=3), a_task('more', ranks=3))
    colo.put(*(a_task(uid, tags=bag('x', 2)) for uid in 'ab'))
    assert colo.running() == ['busy', 'more']
    colo.cancel('a')
    assert colo.running() == ['busy', 'more', 'b']
    colo.put(*(a_task(uid, ranks=2, tags=bag('y', 2)) for uid in 'cd'))
    colo.cancel('c', 'd')
    colo.finish()
    assert colo.free_cores() == 8


@pytest.mark.parametrize('tag', [{'bag': 'x'}, {'bag': 'x', 'size': 0}, 'x'])
def test_a_tag_that_is_no_bag_fails_the_task(colo: Bench, tag: Any) -> None:
    colo.put(a_task('a', tags={'colocate': tag}))
    assert "must be a dict like {'bag': 'name', 'size': 1}" in colo.reasons()['a']


def test_a_bag_takes_no_more_tasks_than_it_was_said_to_have(colo: Bench) -> None:
    colo.put(a_task('all', ranks=8), *(a_task(uid, tags=bag('x', 2)) for uid in 'abc'))
    assert "the bag 'x' has its 2 task(s) already" in colo.reasons()['c']


# CONTINUOUS_ORDERED


def order(number: int, size: int, ns: str = 'x') -> dict[str, Any]:
    return {'order': {'ns': ns, 'order': number, 'size': size}}


@pytest.fixture
def ordered() -> Bench:
    return Bench(nodes=2, agent_scheduler='CONTINUOUS_ORDERED')


def test_a_bag_starts_when_the_one_before_it_has_ended(ordered: Bench) -> None:
    ordered.put(a_task('c', tags=order(1, 1)), a_task('a', tags=order(0, 2)), a_task('d', tags=order(2, 1)),
                a_task('free'))
    assert ordered.running() == ['a', 'free']
    ordered.finish('a')
    assert ordered.running() == ['free'], 'the second task of the first bag is still to come'
    ordered.put(a_task('b', tags=order(0, 2)), a_task('other', tags=order(0, 1, 'y')))
    ordered.finish('b')
    assert ordered.running() == ['free', 'other', 'c']
    ordered.finish('c')
    assert ordered.running() == ['free', 'other', 'd']


def test_tasks_that_fail_or_are_cancelled_have_ended_too(ordered: Bench) -> None:
    late = a_task('late', tags=order(0, 3))
    late.cancelled = True
    ordered.put(a_task('never', ranks=9, tags=order(0, 3)), a_task('next', tags=order(1, 2)),
                a_task('dropped', tags=order(1, 2)), a_task('last', tags=order(2, 1)), late)
    assert ordered.running() == []
    ordered.cancel('dropped')
    ordered.put(a_task('all', tags=order(0, 3)))
    ordered.finish('all')
    assert ordered.running() == ['next']
    ordered.finish('next')
    assert ordered.running() == ['last']


def test_tasks_that_wait_for_others_are_counted(ordered: Bench) -> None:
    """Those that only wait for room are not among them."""
    ordered.put(*(a_task(f't{number}', ranks=8, tags=order(number // 4, 4)) for number in range(12)))
    assert (ordered.running(), ordered.scheduler.held_back) == (['t0'], 8)
    ordered.finish('t0')
    assert ordered.scheduler.held_back == 8
    for uid in ('t1', 't2', 't3'):
        ordered.finish(uid)
    assert (ordered.running(), ordered.scheduler.held_back) == (['t4'], 4)


def test_all_held_tasks_can_be_cancelled(ordered: Bench) -> None:
    ordered.put(*(a_task(f't{number}', ranks=8, tags=order(number // 2, 2)) for number in range(8)))
    ordered.scheduler.cancel_all('the end')
    assert ordered.running() == ['t0']
    assert {task.uid: task.exception for task in ordered.failed} == {f't{number}': 'the end' for number in range(1, 8)}
    ordered.scheduler.check()


@pytest.mark.parametrize('tag', ['x', {'ns': 'x'}, {'ns': 'x', 'order': -1, 'size': 1},
                                 {'ns': 'x', 'order': 0, 'size': 0}])
def test_a_tag_that_is_no_order_fails_the_task(ordered: Bench, tag: Any) -> None:
    ordered.put(a_task('a', tags={'order': tag}))
    assert "must be a dict like {'ns': 'name', 'order': 0, 'size': 1}" in ordered.reasons()['a']


# CONTINUOUS_RECONFIG


def test_a_file_says_how_large_tasks_are(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = {'reconfig_src': 'sizes.json', 'pilot_sandbox': str(tmp_path)}
    bench = Bench(nodes=2, agent_scheduler='CONTINUOUS_RECONFIG', config=config)
    sizes = tmp_path / 'sizes.json'

    def cores(uid: str) -> list[int]:
        bench.put(a_task(uid, ranks=3))
        task = bench.placed[-1]
        found = [len(cores) for cores in bench.cores_of(uid)]
        assert (task.description['ranks'], task.description['cores_per_rank']) == (len(found), found[0])
        bench.finish()
        return found

    def say(text: str) -> None:
        sizes.with_suffix('.new').write_text(text)
        os.replace(sizes.with_suffix('.new'), sizes)

    assert cores('missing') == [1, 1, 1]
    say(json.dumps({'ranks': 2, 'cores_per_rank': 4}))
    assert cores('both') == [4, 4]
    say(json.dumps({'ranks': 1}))
    assert cores('one') == [1]
    assert not caplog.records
    for broken in '{"ranks"', '{"ranks": 0}', '{"cores": 1}', '[]':
        say(broken)
        assert cores(broken) == [1], 'what it said before'
        assert str(sizes) in caplog.text
        caplog.clear()
    sizes.unlink()
    assert cores('missing again') == [1, 1, 1]


# HOMBRE


def test_all_tasks_of_hombre_are_alike() -> None:
    bench = Bench(nodes=2, agent_scheduler='HOMBRE')
    bench.put(*(a_task(f't{number}', cores_per_rank=2) for number in range(5)), a_task('other'))
    assert bench.running() == ['t0', 't1', 't2', 't3']
    assert [bench.cores_of(uid) for uid in ('t0', 't1')] == [[[0, 1]], [[2, 3]]]
    assert bench.reasons() == {'other': 'other can never run on pilot.0000: the scheduler HOMBRE takes only tasks that '
                                        'are all alike: the first one requests 1 rank(s) of 2 cores, this one requests '
                                        '1 rank(s) of 1 cores'}
    bench.finish('t1')
    assert bench.cores_of('t4') == [[2, 3]]


# NOOP


def test_noop_passes_everything_on() -> None:
    bench = Bench(nodes=1, agent_scheduler='NOOP')
    bench.put(a_task('a', ranks=1000), a_task('b', cores_per_rank=1000))
    assert bench.running() == ['a', 'b']
    assert [task.slots for task in bench.placed] == [None, None]
    bench.finish()
    assert bench.free_cores() == 4


# TORUS


def torus(*extents: int, **more: Any) -> Bench:
    nodes = 1
    for extent in extents:
        nodes *= extent
    return Bench(nodes=nodes, agent_scheduler='TORUS', system_architecture={'torus': list(extents)},
                 names=[f'n{number}' for number in range(nodes)], **more)


def block(bench: Bench, uid: str) -> tuple[Any, Any]:
    task, = (task for task in bench.placed if task.uid == uid)
    return task.extra[BLOCK]['corner'], task.extra[BLOCK]['shape']


def test_a_task_gets_a_compact_block() -> None:
    bench = torus(4, 4)
    bench.put(a_task('one'), a_task('four', ranks=16), a_task('three', ranks=12), a_task('two', ranks=8))
    assert block(bench, 'one') == ((0, 0), (1, 1))
    assert block(bench, 'four') == ((0, 2), (2, 2))
    assert bench.nodes_of('four') == [node for node in (2, 3, 6, 7) for _ in range(4)]
    assert block(bench, 'three') == ((2, 0), (2, 2))
    assert block(bench, 'two') == ((1, 0), (1, 2))
    assert bench.placed[1].extra[BLOCK]['corner_node'] == 'n2'


def test_a_block_is_taken_whole() -> None:
    bench = torus(2, 2)
    bench.put(a_task('three', ranks=9), a_task('one'))
    assert bench.running() == ['three']
    assert bench.free_cores() == 0
    bench.finish('three')
    assert bench.running() == ['one']
    bench.finish('one')
    assert bench.free_cores() == 16


def test_wrapping_around_makes_a_line_compact() -> None:
    def shapes(nodes: int, *extents: int) -> set[tuple[int, ...]]:
        return {block.shape for block in Grid(extents).blocks(nodes)}

    assert shapes(4, 4, 4) == {(2, 2)}, 'a ring of four has as short a way, but a longer side'
    assert shapes(8, 4, 8) == {(4, 2)}, 'a ring of four times two has a shorter way than two times four of a line'
    assert shapes(5, 4, 4) == {(2, 4), (4, 2)}, 'turned as well, and rounded up'
    assert shapes(17, 4, 4, 4, 8, 2) == shapes(32, 4, 4, 4, 8, 2)


@pytest.mark.parametrize('extents', [(3,), (4, 6), (2, 3, 4), (4, 4, 4, 8, 2)])
def test_blocks_cover_the_torus_without_overlap(extents: tuple[int, ...]) -> None:
    grid = Grid(extents)
    for nodes in range(1, grid.nodes + 1):
        by_shape: dict[Any, list[int]] = {}
        for each in grid.blocks(nodes):
            assert len(each.nodes) >= nodes
            assert all(first % part == 0 for first, part in zip(each.corner, each.shape, strict=True))
            by_shape.setdefault(each.shape, []).extend(each.nodes)
        assert all(sorted(covered) == list(range(grid.nodes)) for covered in by_shape.values())
        if nodes > 40:
            break


def test_without_any_node_tasks_wait_for_the_end_of_the_pilot() -> None:
    bench = Bench(nodes=2)
    bench.put(a_task('all', ranks=8), a_task('before'), a_task('cancelled', slots=[a_slot(1)]))
    bench.scheduler.nodes_down([0], 'it is lost')
    bench.scheduler.nodes_down([1], 'it is lost')
    bench.put(a_task('after'))
    bench.finish('all')
    bench.cancel('cancelled')
    assert bench.running() == []
    assert [(task.uid, task.target_state) for task in bench.failed] == [('cancelled', states.CANCELED)]
    bench.scheduler.node_up(1)
    assert bench.running() == ['before', 'after']


def test_a_block_with_a_lost_node_is_not_used() -> None:
    bench = torus(2, 2)
    bench.scheduler.nodes_down([0], 'it is lost')
    bench.put(a_task('two', ranks=8), a_task('four', ranks=16))
    assert 3 in bench.nodes_of('two')
    assert 0 not in bench.nodes_of('two')
    assert 'has a node that is down' in bench.reasons()['four'] or '12' in bench.reasons()['four']


@pytest.mark.parametrize(('value', 'reason'), [
    (None, 'needs the shape of the torus'), ([], 'list of extents'), ([2, 'x'], 'list of extents'),
    ([2, 4], '2x4, which are 8 nodes, but the pilot has 4')])
def test_a_torus_must_be_that_of_the_nodes(value: Any, reason: str) -> None:
    allocation = Allocation(('n',) * 4, 1, 0, 0, 0)
    platform = {'system_architecture': {'torus': value}} if value is not None else {}
    with pytest.raises(PlatformError, match=reason):
        Torus(SlotMap(allocation.node_list()), allocation, {'platform': platform})


# large tasks are not starved, whatever the policy


def churn(bench: Bench, large: Any, small: Any, rounds: int = 40) -> bool:
    """Two small tasks, one of which always runs, keep a large one out; whether it runs before the end."""
    bench.put(small('s0'), small('s1'), large)
    for number in range(2, rounds):
        bench.wait(component.RESERVATION_DELAY / 10)
        bench.put(small(f's{number}'))
        bench.finish(next(uid for uid in bench.running() if uid.startswith('s')))
        if large.uid in bench.running():
            return True
    return False


@pytest.mark.parametrize(('policy_name', 'wanted'), [
    ('CONTINUOUS', {'ranks': 8}), ('CONTINUOUS', {'ranks': 4, 'use_mpi': False}),
    ('CONTINUOUS', {'ranks': 4, 'tags': {'nodes': [0]}}), ('CONTINUOUS', {'ranks': 8, 'tags': {'colocate': 1}}),
    ('CONTINUOUS_JSRUN', {'ranks': 2, 'gpus_per_rank': 0.5, 'cores_per_rank': 2}),
    ('CONTINUOUS_COLO', {'ranks': 4, 'tags': bag('x', 1)}), ('CONTINUOUS_ORDERED', {'ranks': 8, 'tags': order(0, 1)})])
def test_a_large_task_gets_its_turn(policy_name: str, wanted: dict[str, Any]) -> None:
    bench = Bench(nodes=2, agent_scheduler=policy_name)
    assert churn(bench, a_task('large', **wanted), lambda uid: a_task(uid, ranks=3, use_mpi=False))
    bench.finish()
    while bench.placed:
        bench.finish()
    assert bench.free_cores() == 8


def test_a_large_block_gets_its_turn() -> None:
    bench = torus(2, 2)
    assert churn(bench, a_task('large', ranks=16), lambda uid: a_task(uid, ranks=1))


def test_a_scattered_large_task_gets_neighbours() -> None:
    bench = Bench(nodes=3, scattered=False)
    assert churn(bench, a_task('large', ranks=8), lambda uid: a_task(uid, ranks=3, use_mpi=False))


# nodes are lost


def test_what_a_lost_node_leaves_without_a_place_fails_and_the_rest_goes_on() -> None:
    bench = Bench(nodes=2)
    bench.put(a_task('all', ranks=8), a_task('pinned', tags={'nodes': [1]}), a_task('large', ranks=5), a_task('small'),
              a_task('given', slots=[a_slot(1)]))
    bench.scheduler.nodes_down([1], 'it is lost')
    assert set(bench.reasons()) == {'pinned', 'large', 'given'}
    assert all(task.target_state == states.FAILED for task in bench.failed)
    assert {reason.rpartition('; ')[2] for reason in bench.reasons().values()} == {
        'out of use: localhost (it is lost)'}
    assert {(task.error or {})['kind'] for task in bench.failed} == {NODE}
    bench.finish('all')
    assert bench.running() == ['small']
    bench.put(a_task('never', ranks=9), a_task('wrong', slots=[a_slot(0, [9])]))
    assert [(task.error or {})['kind'] for task in bench.failed[-2:]] == [DESCRIPTION] * 2
    assert not any('out of use' in bench.reasons()[uid] for uid in ('never', 'wrong'))
    bench.scheduler.node_up(1)
    bench.put(a_task('given again', slots=[a_slot(1)]), a_task('again', ranks=6))
    assert bench.running() == ['small', 'given again', 'again']
