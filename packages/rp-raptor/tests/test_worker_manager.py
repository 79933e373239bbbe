"""The manager of a worker, between a scripted master and stand-ins for ranks, all of them real processes."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from worker_support import DEADLINE, a_worker, decoded

from rp_raptor.wire.payload import decode_result


def test_calls_come_back_with_their_results(tmp_path: Path) -> None:
    with a_worker(tmp_path) as worker:
        worker.master.wait(lambda: worker.master.credit >= 4, 'credit')
        worker.master.calls({id: ['echo', id] for id in range(1000)})
        results = worker.master.wait_results(*range(1000))
        assert [decoded(result) for result in results] == [[id] for id in range(1000)]
        assert worker.stop() == 0
        assert worker.master.said[0][0] == 'worker'
        assert worker.master.said[0][1][0] == 'worker.0000'
        assert worker.errors == ''


def test_functions_reach_ranks_that_come_later(tmp_path: Path) -> None:
    fid = b'f' * 16
    with a_worker(tmp_path, ranks=1) as worker:
        master = worker.master
        master.send('define', fid, b'blob')
        master.calls({1: ['function', fid], 2: ['die', signal.SIGKILL], 3: ['function', fid]})
        assert master.wait_results(1, 3) == [b'blob', b'blob']
        assert list(master.died) == [2]
        master.send('forget', fid)
        master.calls({4: ['function', fid]})
        assert master.wait_results(4) == [b'none']


@pytest.mark.parametrize(('call', 'words'), [
    (['die', signal.SIGSEGV], 'was killed by SIGSEGV'),
    (['once', '/dev/null/none', 3], ''),
])
def test_a_rank_that_dies_takes_only_its_running_call_with_it(tmp_path: Path, call: list[object], words: str) -> None:
    with a_worker(tmp_path) as worker:
        master = worker.master
        calls: dict[int, list[object]] = {id: ['echo', id] for id in range(100)}
        calls[50] = call if words else ['once', str(tmp_path / 'once'), 3]
        master.calls(calls)
        master.wait_results(*(set(range(100)) - {50}))
        master.wait(lambda: master.died, 'death')
        assert list(master.died) == [50]
        assert (words or 'ended with exit code 3') in master.died[50]
        master.wait(lambda: list(master.ranks.values()) == ['ACTIVE'] * 2, 'the rank is back')


def test_no_call_waits_behind_a_long_one(tmp_path: Path) -> None:
    with a_worker(tmp_path) as worker:
        master = worker.master
        master.calls({id: ['echo', id] for id in range(2000)})   # from here on, bulks are large
        master.wait_results(*range(2000))
        calls: dict[int, list[object]] = {id: ['echo', id] for id in range(2000, 2400)}
        calls[2100] = ['wait', str(tmp_path / 'go')]
        master.calls(calls)
        master.wait_results(*(set(calls) - {2100}))
        assert 2100 not in master.results
        (tmp_path / 'go').touch()
        assert master.wait_results(2100) == [b'waited']


def test_calls_end_at_their_timeout(tmp_path: Path) -> None:
    with a_worker(tmp_path) as worker:
        master = worker.master
        master.calls({5: ['park']}, {5: {'timeout': 0.05}})
        five, = master.wait_results(5)
        calls: dict[int, list[Any]] = {
            1: ['wait', str(tmp_path / 'never')], 2: ['echo', 2], 3: ['ignore'], 4: ['echo', 4]}
        master.calls(calls, {1: {'timeout': 0.05}, 2: {'timeout': 20}, 3: {'timeout': 0.05}})
        one, two, three, four = master.wait_results(1, 2, 3, 4)
        assert (one, five) == (b'TimeoutError', b'canceled 0')
        assert (decoded(two), decoded(four)) == ([2], [4])
        with pytest.raises(TimeoutError, match=r'longer than 0\.05 s'):
            decode_result(three)
        assert not master.died


def test_calls_are_canceled_wherever_they_are(tmp_path: Path) -> None:
    with a_worker(tmp_path, ranks=1) as worker:
        master = worker.master
        echoes = {n: ['echo', n] for n in range(3, 20)}
        master.calls({1: ['park'], 2: ['wait', str(tmp_path / 'never')], **echoes})
        master.send('cancel', b''.join(n.to_bytes(8, 'little') for n in (1, 2, 3, 10, 99)))
        master.wait_results(1, 2, 3, *range(4, 20))
        for id in (3, 10):
            with pytest.raises(Exception, match='canceled'):
                decode_result(master.results[id])
        assert decoded(master.results[11]) == [11]
        assert 99 not in master.results


def test_calls_are_given_back(tmp_path: Path) -> None:
    with a_worker(tmp_path, ranks=1) as worker:
        master = worker.master
        master.calls({1: ['wait', str(tmp_path / 'go')], **{n: ['echo', n] for n in range(2, 10)}})
        master.send('give_back', 3)
        master.wait(lambda: len(master.returned) == 3, 'calls given back')
        master.send('give_back', 100)
        (tmp_path / 'go').touch()
        master.wait(lambda: len(master.results) + len(master.returned) == 9, 'all calls')
        assert not set(master.returned) & set(master.results)


def test_described_tasks_of_ranks_go_to_the_master(tmp_path: Path) -> None:
    with a_worker(tmp_path, ranks=1) as worker:
        master = worker.master
        master.calls({7: ['run', 'date']})
        master.wait(lambda: any(operation == 'run' for operation, _ in master.said), 'run')
        number, description, _ = next(arguments for operation, arguments in master.said if operation == 'run')
        assert decoded(description) == ['date']
        master.send('ran', number, b'Dresult')
        assert master.wait_results(7) == [b'Dresult']


def test_ranks_have_their_gpus(tmp_path: Path) -> None:
    slots = '[{"node": "n", "cores": [0], "gpus": [0]}, {"node": "n", "cores": [1], "gpus": [3]}]'
    with a_worker(tmp_path, RP_RAPTOR_SLOTS=slots, CUDA_VISIBLE_DEVICES='0,3') as worker:
        master = worker.master
        master.calls({id: ['who'] for id in range(20)})
        seen = {tuple(decoded(result)[::2]) for result in master.wait_results(*range(20))}
        assert seen <= {(0, '0'), (1, '3')}
        master.calls({100: ['x'], 101: ['x'], 102: ['x']}, {100: {'gpus': 2}, 101: {'gpus': 3}, 102: {'ranks': 2}})
        both, *impossible = master.wait_results(100, 101, 102)
        assert decoded(both) == ['alone', 0, ['0', '3']]
        for result, words in zip(impossible, ['this worker has 2', 'no MPI'], strict=True):
            with pytest.raises(ValueError, match=words):
                decode_result(result)


def test_a_worker_whose_ranks_cannot_start_ends(tmp_path: Path) -> None:
    with a_worker(tmp_path, ready=False, STANDIN_FAILS='4') as worker:
        assert worker.process.wait(DEADLINE) == 1
        assert 'ended with exit code 4, 3 times before it has taken a call' in worker.errors


def test_a_worker_ends_with_its_master(tmp_path: Path) -> None:
    with a_worker(tmp_path) as worker:
        worker.master.send('refused', 'the name is taken')
        assert worker.process.wait(DEADLINE) == 1
        assert 'the name is taken' in worker.errors


def test_a_worker_that_is_terminated_says_so_and_leaves_nothing(tmp_path: Path) -> None:
    with a_worker(tmp_path) as worker:
        worker.master.calls({1: ['who'], 2: ['ignore'], 3: ['ignore']})
        pid = decoded(worker.master.wait_results(1)[0])[1]
        worker.process.send_signal(signal.SIGTERM)
        worker.process.wait(DEADLINE)
        worker.master.wait(lambda: worker.master.said[-1][0] == 'bye', 'bye')
        assert not os.path.exists(f'/proc/{pid}')


