"""Tasks get cores and GPUs that nobody else has, in their turn, or learn at once that they never will."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from scheduler_support import Bench, a_slot, a_task

from rp_agent.task import AgentTask
from rp_api import states
from rp_api.resources import NodeList
from rp_api.wire import codec
from rp_profiling.read.profile import read_profile

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def bench() -> Bench:
    return Bench()


# what the scheduler finds


def test_a_task_gets_slots_and_moves_on(bench: Bench) -> None:
    bench.put(a_task('a', ranks=2, cores_per_rank=2, gpus_per_rank=0.5, mem_per_rank=10))
    task, = bench.placed
    assert bench.advanced == [('a', states.AGENT_SCHEDULING), ('a', states.AGENT_EXECUTING_PENDING)]
    assert task.state == states.AGENT_EXECUTING_PENDING
    assert task.slots == [
        {'node_index': 0, 'node_name': 'localhost', 'version': 1, 'lfs': 0, 'mem': 10,
         'cores': [{'index': index, 'occupation': 1.0} for index in cores], 'gpus': [{'index': 0, 'occupation': 0.5}]}
        for cores in ((0, 1), (2, 3))]
    assert codec.unpack(codec.pack(task.slots)) == task.slots


def test_what_finds_no_room_waits_until_there_is(bench: Bench) -> None:
    bench.put(*(a_task(f't{number}', cores_per_rank=3) for number in range(3)))
    assert bench.running() == ['t0', 't1']
    bench.finish('t0')
    assert bench.running() == ['t1', 't2']
    bench.finish('t1', 't2')
    assert bench.free_cores() == 8


def test_small_tasks_pass_a_large_one_that_has_to_wait(bench: Bench) -> None:
    bench.put(a_task('a', cores_per_rank=3), a_task('large', ranks=8), a_task('small', cores_per_rank=1))
    assert bench.running() == ['a', 'small']
    bench.finish('a', 'small')
    assert bench.running() == ['large']


def test_a_higher_priority_goes_first(bench: Bench) -> None:
    bench.put(a_task('all', ranks=8))
    bench.put(a_task('low', ranks=8), a_task('high', ranks=8, priority=5))
    bench.finish('all')
    assert bench.running() == ['high']


def test_ranks_per_node_is_kept(bench: Bench) -> None:
    bench.put(a_task('a', ranks=2, ranks_per_node=1))
    assert [slot['node_index'] for slot in bench.placed[0].slots or []] == [0, 1]


@pytest.mark.parametrize(('wanted', 'reason'), [
    ({'ranks': 9}, '9 ranks of 1 cores are requested, the 2 node(s) of the pilot hold 8'),
    ({'cores_per_rank': 5}, '5 cores'), ({'gpus_per_rank': 2}, '2 GPUs'),
    ({'mem_per_rank': 1001}, '1001 MB mem'), ({'lfs_per_rank': 101}, '101 MB lfs'),
    ({'ranks': 3, 'ranks_per_node': 1}, 'at most 1 on a node')])
def test_what_can_never_fit_fails_at_once_and_says_why(bench: Bench, wanted: dict[str, Any], reason: str) -> None:
    bench.put(a_task('busy', ranks=8), a_task('waits', ranks=8), a_task('never', **wanted), a_task('waits too'))
    assert bench.running() == ['busy']
    task, = bench.failed
    assert (task.uid, task.target_state, task.state) == ('never', states.FAILED, states.AGENT_SCHEDULING)
    assert task.exception is not None
    assert task.exception.startswith('never can never run on pilot.0000: ')
    assert reason in task.exception
    assert task.exception_detail == 'the pilot has 2 node(s), each with 4 cores, 1 GPUs, 1000 MB mem and 100 MB lfs'
    assert task.slots is None


# cancelled


def test_a_waiting_task_can_be_cancelled(bench: Bench) -> None:
    bench.put(a_task('a', ranks=8), a_task('b', ranks=8), a_task('c', ranks=8))
    bench.scheduler.cancel(['b', 'a', 'nobody'])
    assert [(task.uid, task.target_state) for task in bench.failed] == [('b', states.CANCELED)]
    assert bench.failed[0].exception == 'cancelled while it waited for resources'
    bench.finish('a')
    assert bench.running() == ['c']


def test_a_task_that_comes_cancelled_does_not_wait(bench: Bench) -> None:
    bench.put(a_task('a', ranks=8))
    late = a_task('late', ranks=8)
    late.cancelled = True
    bench.put(late)
    assert [(task.uid, task.target_state) for task in bench.failed] == [('late', states.CANCELED)]
    bench.finish('a')
    assert bench.running() == []


def test_all_that_wait_can_be_cancelled_for_a_reason(bench: Bench) -> None:
    bench.put(a_task('a', ranks=8), a_task('b', ranks=8), a_task('c', slots=[a_slot()]))
    bench.scheduler.cancel_all('pilot.0000 reached its runtime')
    assert [(task.uid, task.exception) for task in bench.failed] == [
        (uid, 'pilot.0000 reached its runtime') for uid in 'bc']
    bench.finish('a')
    assert bench.running() == []
    assert bench.free_cores() == 8


# slots that the application gives


def test_given_slots_are_occupied_and_freed(bench: Bench) -> None:
    bench.put(a_task('a', slots=[a_slot(1, [2, 3], gpus=[0], mem=100)]))
    assert bench.placed[0].slots == [
        {'node_index': 1, 'node_name': 'localhost', 'version': 1, 'lfs': 0, 'mem': 100,
         'cores': [{'index': 2, 'occupation': 1.0}, {'index': 3, 'occupation': 1.0}],
         'gpus': [{'index': 0, 'occupation': 1.0}]}]
    assert bench.free_cores() == 6
    bench.finish('a')
    assert bench.free_cores() == 8
    assert bench.free(1)['mem'] == 1000


def test_given_slots_are_not_given_to_others(bench: Bench) -> None:
    bench.put(a_task('given', slots=[a_slot(0, [1])]), *(a_task(f't{number}') for number in range(8)))
    assert len(bench.running()) == 8
    used = [(slot['node_index'], core['index']) for task in bench.placed for slot in task.slots or []
            for core in slot['cores']]
    assert len(used) == len(set(used)) == 8
    bench.finish('given')
    assert bench.running()[-1] == 't7'
    assert bench.placed[-1].slots == [a_slot(0, [{'index': 1, 'occupation': 1.0}], gpus=[], lfs=0, mem=0,
                                             node_name='localhost', version=1)]


def test_taken_slots_are_waited_for_all_of_them(bench: Bench) -> None:
    bench.put(a_task('first', slots=[a_slot(0, [0])]))
    bench.put(a_task('both', ranks=2, slots=[a_slot(0, [3]), a_slot(0, [0])]))
    assert bench.running() == ['first']
    assert bench.free_cores() == 7, 'nothing is kept while waiting'
    bench.put(a_task('third', slots=[a_slot(0, [3])]))
    assert bench.running() == ['first', 'third']
    bench.finish('first')
    assert bench.running() == ['third']
    bench.finish('third')
    assert bench.running() == ['both']


def test_shares_of_a_core_can_be_given(bench: Bench) -> None:
    half = [a_slot(0, [{'index': 0, 'occupation': 0.5}])]
    bench.put(*(a_task(f't{number}', slots=half) for number in range(3)))
    assert bench.running() == ['t0', 't1']
    bench.finish('t0')
    assert bench.running() == ['t1', 't2']


def test_slots_that_an_application_found_itself_can_be_used(bench: Bench) -> None:
    """The way to place tasks from the application: the node list of the pilot, copied over the wire."""
    theirs = NodeList(codec.unpack(codec.pack({'nodes': bench.allocation.node_list()})))
    slots = theirs.find_slots({'n_cores': 2}, n_slots=3)
    bench.put(a_task('a', ranks=3, slots=slots))
    assert bench.placed[0].slots == [slot.as_dict() for slot in slots or []]


@pytest.mark.parametrize(('slots', 'reason'), [
    ([a_slot(2)], 'node 2, which the pilot does not have'),
    ([a_slot(0, [4])], 'core 4 of node 0 does not exist'),
    ([a_slot(0, [], gpus=[1])], 'GPU 1 of node 0 does not exist'),
    ([a_slot(0, [1], mem=1001)], 'node 0 cannot give 1001 MB mem, it has 1000 MB'),
    ([a_slot(0, [1], node_name='elsewhere')], "'elsewhere'"),
    ([a_slot(0, [1, 1])], 'core 1 more than once'),
    ([a_slot(), a_slot()], '2 slots are given for 1 ranks'),
    ([a_slot(0, ['x'])], 'ResourceOccupation'),
    (['x'], 'Slot'),
    ([{'node': 1}], "'node'")])
def test_given_slots_that_cannot_be_had_fail_the_task_with_a_sentence(
        bench: Bench, slots: list[Any], reason: str) -> None:
    bench.put(a_task('a', slots=slots), a_task('b'))
    task, = bench.failed
    assert (task.uid, task.target_state) == ('a', states.FAILED)
    assert task.exception is not None
    assert task.exception.startswith('a can never run on pilot.0000: ')
    assert reason in task.exception
    assert bench.running() == ['b']
    assert bench.free_cores() == 7


def test_slots_that_exclude_each_other_fail_the_task(bench: Bench) -> None:
    bench.put(a_task('busy', ranks=8))
    bench.put(a_task('a', ranks=2, slots=[a_slot(0, [1]), a_slot(0, [1])]))
    assert [task.uid for task in bench.failed] == ['a']
    bench.put(a_task('b', ranks=2, slots=[a_slot(0, [1]), a_slot(0, [2])]))
    bench.finish('busy')
    assert bench.running() == ['b']


def test_a_core_that_is_blocked_cannot_be_given() -> None:
    bench = Bench(blocked_cores=(1,))
    bench.put(a_task('a', slots=[a_slot(0, [1])]))
    assert 'core 1 of node 0 does not exist, or must not be used' in bench.reasons()['a']


# traces


def test_events_come_in_their_order(tmp_path: Path) -> None:
    profile = tmp_path / 'agent_scheduling.0000.prof'
    bench = Bench(profile=profile)
    bench.put(a_task('a', ranks=8), a_task('b', ranks=8), a_task('c', ranks=8))
    bench.finish('a')
    bench.finish('b')
    bench.scheduler.close()
    events: dict[str, list[str]] = {}
    for row in read_profile(profile):
        events.setdefault(row.uid, []).append(row.state if row.event == 'advance' else row.event)
    begin, end = [states.AGENT_SCHEDULING, 'schedule_try'], ['schedule_ok', states.AGENT_EXECUTING_PENDING]
    freed = ['unschedule_start', 'unschedule_stop']
    assert events['a'] == [*begin, *end, *freed]
    assert events['b'] == [*begin, 'schedule_fail', *end, *freed]
    assert events['c'] == [*begin, 'schedule_fail', *end]


# whatever happens


WANTED = st.fixed_dictionaries({
    'ranks': st.integers(1, 5), 'cores_per_rank': st.integers(1, 5),
    'gpus_per_rank': st.sampled_from([0, 0.3, 0.5, 1, 2]),
    'ranks_per_node': st.none() | st.integers(1, 3), 'mem_per_rank': st.sampled_from([0, 400, 1100]),
    'priority': st.integers(0, 2)})
GIVEN = st.lists(st.builds(a_slot, st.integers(0, 3), st.lists(st.integers(0, 4), max_size=3)), min_size=1, max_size=3)


class NeverTooMuch(RuleBasedStateMachine):
    """Submit, finish and cancel at random: no core has two owners, and nothing waits that could run."""

    def __init__(self) -> None:
        super().__init__()
        self.bench = Bench(nodes=3)
        self.numbers = itertools.count()
        self.tasks: dict[str, AgentTask] = {}

    def submit(self, **description: Any) -> None:
        task = a_task(f't{next(self.numbers)}', **description)
        self.tasks[task.uid] = task
        self.bench.put(task)

    @rule(wanted=WANTED)
    def submit_some(self, wanted: dict[str, Any]) -> None:
        self.submit(**wanted)

    @rule(slots=GIVEN, priority=st.integers(0, 1))
    def submit_placed(self, slots: list[dict[str, Any]], priority: int) -> None:
        self.submit(ranks=len(slots), slots=slots, priority=priority)

    @precondition(lambda self: self.bench.placed)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        self.bench.finish(data.draw(st.sampled_from(self.bench.running())))

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        if self.tasks:
            self.bench.scheduler.cancel([data.draw(st.sampled_from(sorted(self.tasks)))])

    @invariant()
    def never_too_much(self) -> None:
        self.bench.scheduler.check()
        shares: dict[tuple[int, str, int], float] = {}
        memory: dict[int, int] = {}
        for task in self.bench.placed:
            assert len(task.slots or []) == task.description['ranks']
            for slot in task.slots or []:
                node = slot['node_index']
                memory[node] = memory.get(node, 0) + slot['mem']
                for kind in ('cores', 'gpus'):
                    for device in slot[kind]:
                        key = (node, kind, device['index'])
                        shares[key] = shares.get(key, 0) + device['occupation']
        assert all(share <= 1 + 1e-9 for share in shares.values())
        assert all(amount <= 1000 for amount in memory.values())

    @invariant()
    def nothing_is_forgotten(self) -> None:
        """An idle pilot has no waiting tasks: each has run, failed or been cancelled."""
        if not self.bench.placed:
            assert len(self.bench.scheduler._pool) == 0
            assert self.bench.free_cores() == 12

    def teardown(self) -> None:
        while self.bench.placed:
            self.bench.finish(*self.bench.running())
        assert len(self.bench.scheduler._pool) == 0


TestNeverTooMuch = NeverTooMuch.TestCase
TestNeverTooMuch.settings = settings(max_examples=80, stateful_step_count=30, deadline=None)


# workers beside their masters


def _worker(bench: Bench, master: dict[str, Any], worker: dict[str, Any]) -> AgentTask:
    """Return a worker of a running master, after the scheduler has taken it."""
    bench.put(a_task('master', **master))
    task = a_task('worker', **worker)
    task.beside, = bench.placed
    bench.put(task)
    return task


@pytest.mark.parametrize(('nodes', 'master', 'worker', 'words'), [
    (1, {}, {'cores_per_rank': 4}, '1 ranks of 4 cores are requested, and the 1 node(s) of the pilot hold 0 beside its '
                                   'master master, which leaves 3 of 4 cores'),
    (1, {}, {'ranks': 4}, 'hold 3 beside its master master, which leaves 3 of 4 cores'),
    (2, {'ranks': 2, 'cores_per_rank': 4}, {}, 'hold 0 beside its master master, which leaves 0 of 8 cores'),
    (2, {}, {'ranks': 8}, 'hold 7 beside'),
    (2, {}, {'ranks': 2, 'ranks_per_node': 1, 'cores_per_rank': 4}, 'hold 1 beside'),
    (1, {'gpus_per_rank': 1}, {'gpus_per_rank': 1}, 'leaves 3 of 4 cores and 0 of 1 GPUs'),
    (1, {'gpus_per_rank': 0.6}, {'gpus_per_rank': 0.5}, 'leaves 3 of 4 cores and 0.4 of 1 GPUs'),
    (1, {'mem_per_rank': 600}, {'mem_per_rank': 500}, 'leaves 3 of 4 cores and 400 of 1000 MB mem'),
    (1, {'lfs_per_rank': 60}, {'lfs_per_rank': 50}, 'leaves 3 of 4 cores and 40 of 100 MB lfs')])
def test_a_worker_that_needs_the_resources_of_its_master_is_refused(
        nodes: int, master: dict[str, Any], worker: dict[str, Any], words: str) -> None:
    bench = Bench(nodes=nodes)
    task = _worker(bench, master, worker)
    assert (bench.failed, task.target_state) == ([task], states.FAILED)
    assert words in bench.reasons()['worker']


@pytest.mark.parametrize(('nodes', 'master', 'worker'), [
    (1, {}, {'cores_per_rank': 3}), (2, {}, {'cores_per_rank': 4}), (2, {}, {'ranks': 7}),
    (1, {'cores_per_rank': 4}, {'cores_per_rank': 0}), (1, {'gpus_per_rank': 0.5}, {'gpus_per_rank': 0.5}),
    (1, {'mem_per_rank': 600}, {'mem_per_rank': 400})])
def test_a_worker_with_room_beside_its_master_runs(nodes: int, master: dict[str, Any], worker: dict[str, Any]) -> None:
    bench = Bench(nodes=nodes)
    _worker(bench, master, worker)
    assert bench.running() == ['master', 'worker']


def test_a_worker_waits_for_all_but_its_own_master() -> None:
    bench = Bench(nodes=2)
    bench.put(a_task('other.master', cores_per_rank=4))
    bench.put(a_task('master'))
    worker = a_task('worker', cores_per_rank=4)
    worker.beside = bench.placed[1]
    bench.put(worker)
    assert bench.running() == ['other.master', 'master']
    bench.finish('other.master')
    assert bench.running() == ['master', 'worker']


def test_a_worker_that_waits_is_refused_when_its_node_is_lost() -> None:
    bench = Bench(nodes=2)
    bench.put(a_task('first', cores_per_rank=4), a_task('second', cores_per_rank=3), a_task('master'))
    worker = a_task('worker', cores_per_rank=4)
    worker.beside = bench.placed[-1]
    bench.put(worker)
    assert not bench.failed
    bench.scheduler.nodes_down([0], 'it is lost')
    assert 'hold 0 beside its master master' in bench.reasons()['worker']
    bench.scheduler.check()


def test_a_worker_of_a_master_that_has_ended_is_not_refused() -> None:
    bench = Bench(nodes=1)
    bench.put(a_task('master'))
    master, = bench.placed
    master.target_state = states.DONE
    worker = a_task('worker', cores_per_rank=4)
    worker.beside = master
    bench.put(worker)
    bench.finish('master')
    assert bench.running() == ['worker']
