"""Which rank gets which calls: the dispatcher of a worker, without processes."""

from __future__ import annotations

from array import array
from pathlib import Path
from random import Random

import pytest
from dispatch_support import RESULT, Bench

from rp_raptor.wire.payload import decode_result, encode_error

LEARNED = 3000   # calls after which bulks are as large as they become


def quick(bench: Bench, count: int = LEARNED, first: int = 10_000) -> None:
    """Let the dispatcher see that calls are short."""
    for id in range(first, first + count, 100):
        bench.add(*range(id, id + 100))
        while any(rank.take() is not None for rank in bench.ranks):
            for rank in bench.ranks:
                if rank.take() is not None:
                    rank.finish(1e-6)
    bench.results.clear()


def test_the_first_calls_are_dealt_out_one_by_one(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ranks=2)
    bench.add(1, 2, 3, 4, 5)
    sent = [[list(message[2]) for message in rank.inbox] for rank in bench.ranks]
    assert sent == [[[1], [3], [5]], [[2], [4]]]


def test_bulks_grow_with_short_calls_and_are_shared(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ranks=2)
    quick(bench)
    bench.add(*range(2000))
    assert [[len(message[2]) for message in rank.inbox] for rank in bench.ranks] == [[512, 488]] * 2


def test_credit_covers_a_tenth_of_a_second(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ranks=2)
    assert bench.credit == 100
    bench.add(*range(100))
    for rank in bench.ranks:
        rank.take()
        rank.finish(1.0)
    assert bench.credit == 100   # two per rank are enough now, and there are more


def test_credit_is_asked_for_again_when_calls_are_done(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ranks=1)
    bench.add(1, 2)
    bench.ranks[0].take()
    bench.ranks[0].finish(1.0)
    bench.credit = 0
    bench.dispatcher.drop()   # the master is a new one
    assert bench.credit == 2


def test_calls_behind_a_long_one_are_taken_back_for_an_idle_rank(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ranks=2)
    quick(bench)
    bench.add(*range(10))
    slow, fast = bench.ranks
    assert slow.take() == 0
    while fast.take() is not None:
        fast.finish(1e-6)
    bench.pass_time(0.02)
    while fast.take() is not None:
        fast.finish(1e-6)
    assert sorted(bench.results) == list(range(1, 10))
    slow.finish(0.02)
    assert slow.take() is None
    assert len(bench.results) == 10


def test_a_rank_that_has_results_is_asked_for_them(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ranks=1)
    quick(bench)
    bench.add(*range(10))
    rank = bench.ranks[0]
    rank.take()
    rank.running = None   # done, but the result waits for others
    rank.take()
    bench.pass_time(0.02)
    assert bench.signals == [0]
    assert bench.marked(0) == 0


def test_calls_are_given_back_last_ones_first(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ranks=1)
    bench.add(*range(6))
    assert bench.ranks[0].take() == 0
    bench.dispatcher.give_back(2)
    assert bench.returned == [4, 5]
    bench.dispatcher.give_back(10)
    assert sorted(bench.returned) == [1, 2, 3, 4, 5]
    bench.ranks[0].finish()
    assert bench.ranks[0].take() is None


def test_only_the_running_call_dies_with_its_rank(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ranks=1)
    quick(bench)
    bench.add(*range(10))
    rank = bench.ranks[0]
    rank.take()
    rank.running = None   # its result is lost with the rank
    rank.take()
    bench.dispatcher.gone([0], [], 'it died')
    rank.clear()
    assert bench.died == [1]
    bench.dispatcher.ready(0)
    while rank.take() is not None:
        rank.finish()
    assert sorted(bench.results) == [0, *range(2, 10)]


def test_parked_calls_die_with_their_rank_and_leave_room(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ranks=1)
    bench.add(1, 2, 3)
    rank = bench.ranks[0]
    rank.take()
    rank.park()
    assert rank.take() == 2
    bench.dispatcher.gone([0], [], 'it died')
    assert sorted(bench.died) == [1, 2]


def test_calls_wait_for_tasks_as_long_as_enough_ranks_are_left_to_run_them(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ranks=4, mpi=True)
    dispatcher = bench.dispatcher
    bench.add(1, 2, 3, 4)
    for rank in bench.ranks:
        rank.take()
    assert dispatcher.wait(0, {'ranks': 2}) == ''
    assert 'with this call, 2 of the 4 ranks' in dispatcher.wait(1, {'ranks': 3})
    assert dispatcher.wait(1, {}) == ''
    assert 'one needs 2 ranks' in dispatcher.wait(2, {})
    dispatcher.go_on(0)
    assert dispatcher.wait(2, {}) == ''
    assert dispatcher.wait(3, {}) == ''
    assert dispatcher.wait(0, {}) != ''
    assert dispatcher.runs_alone({'cores': 1})
    assert not dispatcher.runs_alone({'ranks': 2})
    assert not dispatcher.runs_alone({'timeout': 1.0})


def test_a_call_that_others_wait_for_overtakes_one_that_needs_ranks_which_wait(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ranks=3, mpi=True)
    one, two, three = bench.ranks
    bench.add(1)
    assert one.take() == 1
    bench.add(2, ranks=3)
    assert bench.dispatcher.wait(0, {'ranks': 2}) == ''
    bench.add(3, ranks=2)
    assert (two.take(), three.take()) == (3, 3)
    two.finish()
    three.finish()
    bench.dispatcher.go_on(0)
    one.finish()
    assert [rank.take() for rank in bench.ranks] == [2, 2, 2]


def test_a_timeout_starts_with_the_call(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ranks=1)
    bench.add(1)
    bench.add(2, timeout=1.0)
    rank = bench.ranks[0]
    rank.take()
    bench.pass_time(5.0)
    rank.finish()
    assert rank.take() == 2
    assert rank.running
    bench.pass_time(0.9)
    assert not bench.signals
    bench.pass_time(0.2)
    assert (bench.signals, bench.marked(0)) == ([0], rank.running[0])
    bench.pass_time(1.8)
    assert not bench.killed
    bench.pass_time(0.2)
    assert bench.killed == [0]
    bench.dispatcher.gone([0], [], 'killed')
    with pytest.raises(TimeoutError, match='longer than 1 s'):
        decode_result(bench.results[2])
    assert not bench.died


def test_a_call_that_is_taken_after_its_deadline_is_interrupted_then(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ranks=1)
    bench.add(1, timeout=1.0)
    rank = bench.ranks[0]
    bench.pass_time(1.01)   # a rank that has no time on a busy machine
    assert bench.signals == [0]
    assert rank.take() == 1
    assert rank.running
    bench.pass_time(0.5)
    assert (bench.signals, bench.marked(0)) == ([0, 0], rank.running[0])
    rank.finish()
    bench.pass_time(5.0)
    assert (bench.signals, bench.killed) == ([0, 0], [])


def test_a_call_that_is_parked_after_the_signal_is_given_up_all_the_same(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ranks=1)
    bench.add(1, timeout=1.0)
    bench.ranks[0].take()
    bench.pass_time(1.1)
    bench.ranks[0].inbox.clear()
    bench.ranks[0].park()
    assert [message[0] for message in bench.ranks[0].inbox] == ['cancel']


def test_a_call_that_ends_in_time_is_left_alone(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ranks=1)
    bench.add(1, timeout=1.0)
    bench.ranks[0].take()
    bench.ranks[0].finish()
    bench.pass_time(10.0)
    assert (bench.signals, bench.killed) == ([], [])


def test_calls_of_several_ranks_wait_for_them_and_hold_only_them(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ranks=3, mpi=True)
    bench.add(1, 2, 3)
    for rank in bench.ranks:
        rank.take()
    bench.add(4, ranks=2)
    bench.add(5, 6, 7)
    one, two, three = bench.ranks
    three.finish(0.01)
    assert three.take() == 5
    one.finish()
    assert one.take() is None   # kept free
    two.finish()
    assert (one.take(), two.take()) == (4, 4)
    one.finish()
    bench.pass_time(0.03)   # the third one is in a call, and has two more
    assert one.take() == 6
    two.finish()
    assert decode_result(bench.results[4]) == [None, None]


def test_the_others_of_a_group_are_killed_if_they_do_not_follow_one_that_failed(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ranks=2, mpi=True)
    bench.add(1, ranks=2)
    one, two = bench.ranks
    one.take()
    two.take()
    two.finish(payload=encode_error(KeyError('k')))
    bench.pass_time(9.0)
    assert not bench.killed
    bench.pass_time(2.0)
    assert bench.killed == [0]
    bench.dispatcher.gone([0], [1], 'killed')
    with pytest.raises(KeyError):
        decode_result(bench.results[1])
    assert not bench.died


def test_a_job_that_dies_gives_innocent_calls_again(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ranks=4, mpi=True)
    bench.add(1, 2, ranks=2)
    for rank in bench.ranks:
        rank.take()
    bench.dispatcher.gone([2], [0, 1, 3], 'one died')
    for rank in bench.ranks:
        rank.clear()
        bench.dispatcher.ready(rank.rank)
    assert len(bench.died) == 1
    for rank in bench.ranks:
        if rank.take() is not None:
            rank.finish()
    assert len(bench.results) == 1
    assert sorted(bench.left()) == [1, 2]


@pytest.mark.parametrize(('attributes', 'words'), [
    ({'ranks': 2}, 'has no MPI'), ({'cores': 5}, 'needs 3 ranks with 2 cores each, and this worker has 2'),
    ({'gpus': 1}, 'needs 1 GPUs, and this worker has 0')])
def test_what_a_worker_cannot_run_fails(tmp_path: Path, attributes: dict[str, int], words: str) -> None:
    bench = Bench(tmp_path, cores=2)
    bench.add(1, **attributes)
    with pytest.raises(ValueError, match=words):
        decode_result(bench.results[1])


def test_cores_of_several_ranks_are_theirs(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ranks=2, cores=2, devices=[['0'], ['1']])
    bench.add(1, cores=3)
    bench.add(2)
    one, two = bench.ranks
    assert [message[0] for message in one.inbox] == ['alone']
    assert one.inbox[0][4] == ['0', '1']
    assert one.take() == 1
    assert two.take() is None
    one.finish()
    assert {one.take(), two.take()} == {None, 2}


@pytest.mark.parametrize('seed', range(30))
def test_every_call_leaves_once_whatever_happens(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    bench = Bench(tmp_path, ranks=1 + seed % 4, mpi=seed % 3 > 0)
    added = 0
    for _ in range(150):
        added += a_step(bench, random, added)
    for rank in bench.ranks:
        while rank.parked:
            rank.end_parked()
    for _ in range(5 * added):
        bench.pass_time(0.01)
        for rank in bench.ranks:
            if rank.take() is not None:
                rank.finish(1e-5)
    assert sorted(bench.left()) == list(range(added))
    assert all(queue.empty for queue in bench.dispatcher.queues)


def a_step(bench: Bench, random: Random, added: int) -> int:
    """Something happens; gives how many calls have come."""
    rank = random.choice(bench.ranks)
    kind = random.randrange(12)
    if kind == 0:
        count = random.randrange(1, 30)
        if random.random() < 0.3:
            bench.add(*range(added, added + count), ranks=random.randrange(1, len(bench.ranks) + 1))
        else:
            bench.add(*range(added, added + count))
        return count
    if kind == 1:
        bench.dispatcher.give_back(random.randrange(5))
    elif kind == 2 and added:
        bench.dispatcher.cancel(array('Q', [random.randrange(added)]))
    elif kind == 3 and random.random() < 0.2:
        others = bench.ranks if bench.dispatcher._resources.mpi else [rank]
        bench.dispatcher.gone([rank.rank], [other.rank for other in others if other is not rank], 'it died')
        for other in others:
            other.clear()
            bench.dispatcher.ready(other.rank)
    elif kind == 4:
        bench.pass_time(random.choice([0.001, 0.01, 0.1]))
    elif kind == 5 and rank.running and not rank.running[2]:
        rank.park()
    elif kind == 6 and rank.parked:
        rank.end_parked()
    elif rank.take() is not None and random.random() < 0.7:
        rank.finish(random.choice([1e-6, 1e-3]), RESULT)
    return 0
