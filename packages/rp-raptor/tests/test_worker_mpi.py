"""A worker whose ranks are an MPI job, with the MPI that is installed here."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from worker_support import a_worker, decoded

from rp_raptor.wire.payload import decode_result


def test_ranks_of_a_job_take_calls_and_are_stopped(tmp_path: Path) -> None:
    with a_worker(tmp_path, ranks=3, mpi=True) as worker:
        master = worker.master
        assert master.said[0][1][4]['mpi'] is True
        master.calls({id: ['who'] for id in range(100)})
        ranks = {decoded(result)[0] for result in master.wait_results(*range(100))}
        assert ranks <= {0, 1, 2}
        assert worker.stop() == 0


def test_calls_of_several_ranks_have_one_result(tmp_path: Path) -> None:
    with a_worker(tmp_path, ranks=3, mpi=True) as worker:
        master = worker.master
        calls: dict[int, list[object]] = {id: ['echo', id] for id in range(50)}
        calls |= {id: ['value', id] for id in range(50, 60)} | {60: ['value', 60]}
        master.calls(calls, {id: {'ranks': 2 + id % 2} for id in range(50, 60)} | {60: {'ranks': 4}})
        master.wait_results(*calls)
        results = {id: decode_result(master.results[id]) for id in range(50, 60)}
        assert results == {id: [id] * (2 + id % 2) for id in range(50, 60)}
        with pytest.raises(ValueError, match='needs 4 ranks'):
            decode_result(master.results[60])


def test_ranks_of_a_group_talk_to_each_other(tmp_path: Path) -> None:
    with a_worker(tmp_path, ranks=3, mpi=True) as worker:
        master = worker.master
        calls: dict[int, list[object]] = {id: ['sum'] for id in range(10)}
        master.calls(calls, {id: {'ranks': 3 if id else 2} for id in calls})
        results = [decode_result(result) for result in master.wait_results(*calls)]
        assert results[1:] == [[[3, 3]] * 3] * 9
        assert results[0][0] == results[0][1]


def test_a_call_of_which_one_rank_fails_fails(tmp_path: Path) -> None:
    with a_worker(tmp_path, ranks=2, mpi=True) as worker:
        master = worker.master
        master.calls({1: ['value_or_error', 0]}, {1: {'ranks': 2}})
        with pytest.raises(ValueError, match='rank 0'):
            decode_result(master.wait_results(1)[0])


def test_a_job_that_lost_a_rank_is_started_again(tmp_path: Path) -> None:
    with a_worker(tmp_path, ranks=2, mpi=True) as worker:
        master = worker.master
        master.calls({1: ['wait', str(tmp_path / 'go')], 2: ['die', signal.SIGKILL], 3: ['echo', 3]})
        master.wait(lambda: master.died, 'death')
        assert set(master.died) == {2}
        (tmp_path / 'go').touch()
        assert master.wait_results(1, 3)[0] == b'waited'
        master.wait(lambda: list(master.ranks.values()) == ['ACTIVE'] * 2, 'the ranks are back')


def test_a_call_of_several_ranks_ends_at_its_timeout(tmp_path: Path) -> None:
    with a_worker(tmp_path, ranks=2, mpi=True) as worker:
        master = worker.master
        master.calls({1: ['ignore'], 2: ['echo', 2]}, {1: {'ranks': 2, 'timeout': 0.1}})
        with pytest.raises(TimeoutError, match=r'longer than 0\.1 s'):
            decode_result(master.wait_results(1)[0])
        assert decoded(master.wait_results(2)[0]) == [2]
        assert not master.died
