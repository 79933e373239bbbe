"""Which worker gets which call, and that each call has one result whatever happens."""

from __future__ import annotations

import random
from array import array
from collections.abc import Sequence
from concurrent.futures import CancelledError
from functools import partial
from typing import Any

import pytest

from rp_raptor.errors import CallLost
from rp_raptor.master.router import WORKER_TIMEOUT, CallRouter
from rp_raptor.master.sources import CallSource
from rp_raptor.master.worker_pool import PooledWorker
from rp_raptor.wire.payload import decode_result, encode_value
from rp_raptor.wire.protocol import BULK


class Asker:
    """A source that remembers its results."""

    def __init__(self, router: CallRouter) -> None:
        self.values: dict[int, Any] = {}
        self.begun: list[int] = []
        self.router = router
        self.source: CallSource = router.open(self)

    def started(self, ids: Sequence[int]) -> None:
        self.begun += ids

    def results(self, ids: Sequence[int], payloads: Sequence[bytes]) -> None:
        assert len(ids) == len(payloads)
        for number, payload in zip(ids, payloads, strict=True):
            assert number not in self.values
            try:
                self.values[number] = decode_result(payload)
            except Exception as error:
                self.values[number] = error

    def call(self, *ids: int, **attributes: Any) -> None:
        self.router.calls(self.source, array('Q', ids), [b'call %d' % number for number in ids],
                          dict.fromkeys(ids, attributes) if attributes else None)
        self.router.deal()


class Site:
    """A router with workers, and what it has told them."""

    def __init__(self, retries: int = 1) -> None:
        self.router = CallRouter(self._send, retries)
        self.said: dict[str, list[list[Any]]] = {}
        self.asker = Asker(self.router)

    def add(self, uid: str, credit: int = 0, ranks: int = 1, mpi: bool = False) -> PooledWorker:
        worker = PooledWorker(uid.encode(), uid, ranks, mpi)
        self.said[uid] = []
        self.router.attach(worker)
        self.credit(worker, credit)
        return worker

    def credit(self, worker: PooledWorker, count: int) -> None:
        self.router.credit(worker, count)
        self.router.deal()

    def answer(self, worker: PooledWorker, *ids: int) -> None:
        self.router.results(worker, array('Q', ids), [encode_value(number & 0xffff) for number in ids])
        self.router.deal()

    def lose(self, worker: PooledWorker, *, died: bool = True) -> None:
        self.router.detach(worker, f'{worker.uid} is lost', died=died)
        self.router.deal()

    def told(self, uid: str, operation: str) -> list[list[Any]]:
        return [message[1:] for message in self.said[uid] if message[0] == operation]

    def _send(self, address: bytes, message: list[Any]) -> None:
        self.said[address.decode()].append(message)


@pytest.fixture
def site() -> Site:
    return Site()


def held(worker: PooledWorker) -> list[int]:
    """The source's own numbers of the calls that a worker has."""
    return sorted(number & 0xffffffff for number in worker.calls)


def test_calls_wait_until_a_worker_asks_for_them(site: Site) -> None:
    site.asker.call(1, 2, 3)
    worker = site.add('w')
    assert not worker.calls
    site.credit(worker, 2)
    assert held(worker) == [1, 2]
    assert site.asker.begun == [1, 2]
    site.answer(worker, *worker.calls)
    assert site.asker.values == {1: 1, 2: 2}
    assert site.router.waiting == 1
    site.credit(worker, 5)
    assert held(worker) == [3]
    assert worker.free == 4
    assert site.router.pool.capacity == 5


def test_payloads_and_attributes_travel_as_they_are(site: Site) -> None:
    worker = site.add('w', 10)
    site.asker.call(5, timeout=3)
    site.asker.call(6)
    (ids, payloads, attributes), (_, _, nothing) = site.told('w', 'calls')
    assert list(payloads) == [b'call 5']
    assert attributes == {ids[0]: {'timeout': 3}}
    assert nothing is None
    site.answer(worker, *worker.calls)
    assert not site.asker.source.attributes


def test_calls_are_shared_out(site: Site) -> None:
    workers = [site.add(f'w{number}', 100) for number in range(4)]
    site.asker.call(*range(40))
    assert [len(worker.calls) for worker in workers] == [10] * 4
    site.answer(workers[2], *workers[2].calls)
    site.asker.call(99)
    assert held(workers[2]) == [99]   # the idle one gets it


def test_very_short_calls_are_not_spread_thin(site: Site) -> None:
    """Workers of long calls have credit for few calls, those of short ones for many."""
    short = [site.add(f's{number}', 4 * 16 * 20, ranks=4) for number in range(3)]
    site.asker.call(*range(30))
    assert [len(worker.calls) for worker in short] == [20, 10, 0]
    for worker in short:
        site.lose(worker, died=False)
    long = [site.add(f'l{number}', 8, ranks=4) for number in range(3)]
    assert [len(worker.calls) for worker in long] == [8, 8, 8]


def test_sources_take_turns(site: Site) -> None:
    other = Asker(site.router)
    site.asker.call(*range(3 * BULK))
    other.call(7)
    worker = site.add('w', BULK + 1)
    assert len(worker.calls) == BULK + 1
    assert other.begun == [7]


def test_large_calls_travel_alone(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr('rp_raptor.master.router.ALONE_BYTES', 10)
    site.asker.call(1, 2, 3)
    worker = site.add('w', 3)
    assert [ids[0] & 0xff for ids, _, _ in site.told('w', 'calls')] == [1, 2, 3]
    assert held(worker) == [1, 2, 3]


def test_calls_of_a_dead_worker_are_repeated_once(site: Site) -> None:
    first, second = site.add('w1', 2), site.add('w2')
    site.asker.call(1, 2)
    site.lose(first)
    assert site.router.waiting == 2
    site.credit(second, 1)
    assert held(second) == [1]
    site.router.died(second, list(second.calls), 'rank 0 of w2 was killed by SIGSEGV')
    assert isinstance(site.asker.values[1], CallLost)
    assert 'SIGSEGV' in str(site.asker.values[1])
    site.credit(second, 1)
    site.answer(second, *second.calls)
    assert site.asker.values[2] == 2


def test_retries_can_be_switched_off() -> None:
    site = Site(retries=0)
    worker = site.add('w', 1)
    site.asker.call(1)
    site.lose(worker)
    assert isinstance(site.asker.values[1], CallLost)


def test_calls_of_a_worker_that_says_goodbye_are_not_counted(site: Site) -> None:
    for number in range(5):
        worker = site.add(f'w{number}', 1)
        if not number:
            site.asker.call(1)
        assert held(worker) == [1]
        site.lose(worker, died=False)
    assert site.router.waiting == 1


def test_late_results_are_dropped(site: Site) -> None:
    first, second = site.add('w1', 1), site.add('w2')
    site.asker.call(1)
    (number,) = first.calls
    site.lose(first)
    site.answer(first, number)
    assert not site.asker.values
    site.credit(second, 1)
    site.answer(second, number, number, 77)
    site.answer(second, number)
    assert site.asker.values == {1: 1}


def test_results_for_several_sources_in_one_message(site: Site) -> None:
    other = Asker(site.router)
    worker = site.add('w', 10)
    site.asker.call(1, 2)
    other.call(1, 3)
    site.answer(worker, *worker.calls)
    assert site.asker.values == {1: 1, 2: 2}
    assert other.values == {1: 1, 3: 3}


def test_cancelling(site: Site) -> None:
    worker = site.add('w', 2)
    site.asker.call(1, 2, 3, 4)
    site.router.cancel(site.asker.source, [1, 3, 17])
    assert list(site.asker.values) == [3]
    assert isinstance(site.asker.values[3], CancelledError)
    assert [number & 0xff for (ids,) in site.told('w', 'cancel') for number in ids] == [1]
    site.answer(worker, *worker.calls)   # its answer counts, whatever that is
    assert site.asker.values[1] == 1
    site.credit(worker, 5)
    assert held(worker) == [4]


def test_a_source_that_closes_leaves_nothing(site: Site) -> None:
    other = Asker(site.router)
    site.router.define(other.source, b'f' * 16, b'code')
    worker = site.add('w', 2, ranks=4, mpi=True)
    other.call(1, 2, 3, ranks=2)
    other.call(4)
    site.asker.call(9)
    site.router.close(other.source)
    assert site.told('w', 'forget') == [[b'f' * 16]]
    assert len(site.told('w', 'cancel')) == 1
    site.credit(worker, 10)
    assert site.asker.begun == [9]
    site.lose(worker)
    assert site.router.waiting == 1
    assert not other.values


def test_functions_are_told_to_all_workers_once(site: Site) -> None:
    other = Asker(site.router)
    site.add('w1')
    for source in (site.asker.source, other.source, other.source):
        site.router.define(source, b'f' * 16, b'code')
    site.add('w2')
    assert site.told('w1', 'define') == site.told('w2', 'define') == [[b'f' * 16, b'code']]
    site.router.close(other.source)
    assert not site.told('w1', 'forget')


def test_idle_ranks_get_what_others_have_too_much_of(site: Site) -> None:
    rich = site.add('rich', 8, ranks=2)
    site.asker.call(*range(8))
    poor = site.add('poor', 4, ranks=2)
    ((count,),) = site.told('rich', 'give_back')
    assert count == 3   # half of what its ranks do not run
    back = list(rich.calls)[-count:]
    site.router.returned(rich, back)
    site.router.deal()
    assert held(poor) == [5, 6, 7]
    assert rich.asked == 0


def test_who_had_nothing_to_give_back_is_left_alone(site: Site) -> None:
    rich = site.add('rich', 4)
    site.asker.call(1, 2, 3)
    poor = site.add('poor', 1)
    assert len(site.told('rich', 'give_back')) == 1
    site.router.returned(rich, [])
    site.credit(poor, 1)
    assert len(site.told('rich', 'give_back')) == 1
    site.asker.call(4, 5, 6)
    site.answer(poor, *poor.calls)
    site.credit(poor, 1)
    assert len(site.told('rich', 'give_back')) == 2


def test_a_source_takes_back_calls_that_wait(site: Site) -> None:
    back: list[list[int]] = []
    site.add('w', 2)
    site.asker.call(*range(6))
    site.router.give_back(site.asker.source, 3, lambda ids: back.append(list(ids)))
    assert back == [[3, 4, 5]]
    assert (site.router.waiting, site.asker.source.open) == (1, 3)


def test_a_source_takes_back_calls_that_workers_have_not_started(site: Site) -> None:
    back: list[list[int]] = []
    other = Asker(site.router)
    one, two = site.add('w1', 6), site.add('w2', 3)
    site.asker.call(*range(8))
    other.call(0)
    site.router.give_back(site.asker.source, 6, lambda ids: back.append(list(ids)))
    assert site.told('w1', 'give_back') + site.told('w2', 'give_back') == [[5], [1]]
    site.router.returned(two, list(two.calls)[-1:])
    assert not back
    site.router.returned(one, list(one.calls)[1:])
    assert [len(ids) for ids in back] == [5]
    assert site.asker.source.open == len(one.calls) + len(two.calls) == 3
    assert site.router.waiting == 1   # the call of the other source is sent again


def test_a_source_that_takes_back_calls_always_gets_an_answer(site: Site) -> None:
    back: list[list[int]] = []
    def ask() -> None:
        site.router.give_back(site.asker.source, 5, lambda ids: back.append(list(ids)))
    ask()
    assert back == [[]]
    worker = site.add('w', 9)
    site.asker.call(1)
    ask()
    assert back == [[], []]   # it runs
    site.asker.call(2, 3)
    ask()
    site.lose(worker)
    assert back == [[], [], []]   # these were with a worker that has died: they are tried again here
    assert site.router.waiting == 3
    last = site.add('last', 3)
    ask()
    site.router.close(site.asker.source)
    site.router.returned(last, [])
    assert len(back) == 3


def test_calls_over_several_ranks_are_taken_back(site: Site) -> None:
    back: list[list[int]] = []
    site.add('w', 1, ranks=2, mpi=True)
    site.asker.call(1, 2, 3, 4, ranks=2)
    site.router.give_back(site.asker.source, 2, lambda ids: back.append(list(ids)))
    assert back == [[3, 4]]
    assert len(site.asker.source.attributes) == 2
    assert (site.router.pool.ranks_for(1), site.router.pool.ranks_for(2), site.router.pool.ranks_for(3)) == (2, 1, 0)


def test_calls_over_several_ranks_need_a_worker_with_mpi(site: Site) -> None:
    small, plain = site.add('small', 9, ranks=2, mpi=True), site.add('plain', 9, ranks=8)
    site.asker.call(1, ranks=4)
    site.asker.call(2, ranks=2)
    assert (held(small), held(plain)) == ([2], [])
    big = site.add('big', 9, ranks=4, mpi=True)
    assert held(big) == [1]
    site.router.returned(big, list(big.calls))
    assert site.router.waiting == 1
    site.credit(big, 1)
    assert held(big) == [1]


def test_calls_that_nobody_can_run_fail_after_a_while(site: Site) -> None:
    site.add('w', 9, ranks=2, mpi=True)
    site.asker.call(1, ranks=4)
    site.router.check(100)
    site.router.pool.expect('later', 4)
    site.router.check(100 + WORKER_TIMEOUT)
    site.router.pool.lost('later', '')
    site.router.check(100 + 2 * WORKER_TIMEOUT)
    assert not site.asker.values
    site.router.check(100 + 3 * WORKER_TIMEOUT)
    assert '4 ranks' in str(site.asker.values[1])
    assert 'has 2' in str(site.asker.values[1])


def test_calls_wait_for_workers_as_long_as_none_has_failed(site: Site) -> None:
    worker = site.add('w')
    site.asker.call(1)
    site.lose(worker, died=False)
    site.router.check(0)
    site.router.check(1000)
    assert not site.asker.values
    site.router.pool.lost('w2', 'worker w2 is FAILED: no such class')
    site.router.check(1000)
    site.router.check(1000 + WORKER_TIMEOUT)
    assert 'no such class' in str(site.asker.values[1])
    assert isinstance(site.asker.values[1], CallLost)


def test_calls_fail_at_once_if_no_worker_has_ever_been_ready(site: Site) -> None:
    site.asker.call(1)
    site.router.pool.expect('later', 2)
    site.router.pool.lost('w', 'worker w is FAILED: no such class')
    site.router.check(0)
    assert not site.asker.values
    site.router.pool.lost('later', 'worker later is FAILED: no such class either')
    site.router.check(0)
    assert 'no such class either' in str(site.asker.values[1])


def test_calls_that_wait_for_workers_say_so(site: Site) -> None:
    router = site.router
    assert router.shortage() == ''
    site.asker.call(1)
    assert router.shortage() == 'workers (there is none, and none is expected)'
    router.pool.expect('w', 2)
    assert router.shortage() == ''
    router.pool.lost('w', 'worker w is FAILED: it can never run')
    assert router.shortage() == 'workers (no worker is left: worker w is FAILED: it can never run)'
    site.add('plain', 1, ranks=4)
    site.asker.call(2, ranks=3)
    assert router.shortage() == 'workers (no worker can run a call over 3 ranks: none of them uses MPI)'
    site.add('small', 1, ranks=2, mpi=True)
    assert router.shortage() == 'workers (no worker can run a call over 3 ranks: the largest one has 2)'
    site.add('large', 1, ranks=3, mpi=True)
    assert router.shortage() == ''


def test_everything_can_be_failed_at_once(site: Site) -> None:
    worker = site.add('w', 1, ranks=2, mpi=True)
    site.asker.call(1, 2)
    site.asker.call(3, ranks=3)
    site.router.fail_all('the master has ended')
    assert sorted(site.asker.values) == [1, 2, 3]
    assert not worker.calls
    assert site.asker.source.open == 0


def _note(back: list[tuple[Asker, list[int]]], asker: Asker, ids: Sequence[int]) -> None:
    back.append((asker, list(ids)))


@pytest.mark.parametrize('seed', range(20))
def test_each_call_has_one_result_whatever_happens(seed: int) -> None:
    chance = random.Random(seed)
    site = Site()
    askers = [site.asker, Asker(site.router), Asker(site.router)]
    workers: list[PooledWorker] = []
    made = [0, 0, 0]
    back: list[tuple[Asker, list[int]]] = []
    for step in range(400):
        which = chance.randrange(3)
        ranks = {'ranks': 2} if chance.random() < 0.2 else {}
        event = chance.randrange(10) if workers else 0
        worker = chance.choice(workers) if workers else None
        mine = chance.sample(list(worker.calls), chance.randint(0, len(worker.calls))) if worker else []
        if event == 0 and len(workers) < 4:
            workers.append(site.add(f'w{step}', chance.randrange(20), ranks=2, mpi=chance.random() < 0.5))
        elif event == 1:
            number = chance.randrange(20)
            askers[which].call(*range(made[which], made[which] + number), **ranks)
            made[which] += number
        elif event == 2 and worker:
            site.credit(worker, chance.randrange(20))
        elif event in (3, 4) and worker:
            site.answer(worker, *mine, 12345)
        elif event == 5 and worker:
            site.router.returned(worker, mine)
        elif event == 6 and worker:
            site.router.died(worker, mine, 'a rank has died')
        elif event == 7 and worker and chance.random() < 0.3:
            workers.remove(worker)
            site.lose(worker, died=chance.random() < 0.5)
        elif event == 8 and made[which]:
            site.router.cancel(askers[which].source, chance.choices(range(made[which]), k=5))
        elif event == 9:
            asker = askers[which]
            site.router.give_back(asker.source, chance.randrange(20), partial(_note, back, asker))
        while back:   # another master would get them
            asker, ids = back.pop()
            asker.call(*ids)
        site.router.deal()
        held_by_all = sum(len(worker.calls) for worker in workers)
        assert sum(asker.source.open for asker in askers) == site.router.waiting + held_by_all
        assert all(worker.free >= 0 for worker in workers)
    last = site.add('last', 10**6, ranks=2, mpi=True)
    for worker in workers:
        site.lose(worker, died=False)
    for asker, ids in back:
        asker.call(*ids)
    site.answer(last, *last.calls)
    assert [sorted(asker.values) for asker in askers] == [list(range(number)) for number in made]
    assert not any(asker.source.open or asker.source.attributes for asker in askers)
    assert not site.router._deaths
