"""Calls over several nodes: the managers of a worker with two ranks on one node and three on the other."""

from __future__ import annotations

from array import array
from collections import deque
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import pytest
from dispatch_support import Bench

from rp_raptor.wire.parts import Part
from rp_raptor.wire.payload import decode_result, encode_error, encode_value
from rp_raptor.worker.spanning import GROUP_GRACE

PARTS = (Part((0, 1), 5, 0, 2), Part((2, 3, 4), 5, 1, 2))


class Site:
    """Two managers; what they tell each other arrives when `talk` is called."""

    def __init__(self, path: Path) -> None:
        self.told: deque[tuple[int, int, list[Any]]] = deque()
        self.benches: list[Bench] = []
        for part in PARTS:
            (path / str(part.number)).mkdir()
            self.benches.append(Bench(path / str(part.number), len(part.numbers), mpi=True, part=part,
                                      tell=self._tell(part.number)))
        self.lead, self.other = self.benches
        self.spanning = [bench.dispatcher.spanning for bench in self.benches]
        for spanning in self.spanning:
            spanning.complete({0: 2, 1: 3})

    def _tell(self, sender: int) -> Any:
        return lambda part, message: self.told.append((sender, part, message))

    def talk(self) -> None:
        """Deliver all messages."""
        while self.told:
            sender, part, message = self.told.popleft()
            self.spanning[part].heard(sender, message)

    def messages(self) -> list[list[Any]]:
        """The MPI calls that have arrived at ranks."""
        return [message for bench in self.benches for rank in bench.ranks for message in rank.inbox
                if message[0] == 'mpi']

    def end_job(self, guilty: int) -> None:
        """End the MPI job because of a rank."""
        for bench, part in zip(self.benches, PARTS, strict=True):
            mine = [place for place, number in enumerate(part.numbers) if number == guilty]
            others = [place for place, number in enumerate(part.numbers) if number != guilty]
            bench.dispatcher.gone(mine, others, 'a rank died', [guilty])
            for rank in bench.ranks:
                rank.clear()
                bench.dispatcher.ready(rank.rank)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_a_call_over_all_ranks_has_one_result(site: Site) -> None:
    site.lead.add(7, ranks=5)
    site.talk()
    assert [message[4] for message in site.messages()] == [[0, 1, 2, 3, 4]] * 5
    assert len({message[5] for message in site.messages()}) == 1   # the tag
    for bench, part in zip(site.benches, PARTS, strict=True):
        for rank, number in zip(bench.ranks, part.numbers, strict=True):
            assert rank.take() == 7
            rank.finish(payload=encode_value(number))
    assert not site.lead.results
    site.talk()
    assert decode_result(site.lead.results[7]) == [0, 1, 2, 3, 4]
    assert not site.other.results


def test_ranks_are_reserved_until_all_are_free(site: Site) -> None:
    """Calls that fit on a node run there, by the numbers of the ranks in the worker; the next ones wait in order."""
    site.other.add(1, 2, ranks=3)
    assert [message[4] for message in site.messages()] == [[2, 3, 4]] * 3
    site.lead.add(7, 8, ranks=4)
    site.lead.add(9)
    site.talk()
    assert all(rank.take() is None for rank in site.lead.ranks)   # reserved
    for rank in site.other.ranks:
        assert rank.take() == 1
        rank.finish()
    site.talk()
    assert [rank.take() for rank in site.lead.ranks] == [7, 7]
    assert [rank.take() for rank in site.other.ranks].count(7) == 2
    for rank in (*site.lead.ranks, *site.other.ranks):
        if rank.running:
            rank.finish()
    site.talk()
    assert list(site.lead.results) == [7]
    assert list(site.other.results) == [1]


def test_calls_that_no_worker_can_run_fail(site: Site) -> None:
    site.lead.add(1, ranks=6)
    site.other.add(2, ranks=4)   # goes to the first manager
    for bench, id in ((site.lead, 1), (site.other, 2)):
        with pytest.raises(ValueError, match=r'needs \d ranks'):
            decode_result(bench.results[id])


def test_the_death_of_a_rank_elsewhere_counts(site: Site) -> None:
    site.lead.add(7, ranks=5)
    site.talk()
    assert [rank.take() for bench in site.benches for rank in bench.ranks] == [7] * 5
    site.end_job(guilty=4)
    assert (site.lead.died, site.other.died) == ([7], [])


@pytest.mark.parametrize('started', [True, False])
def test_a_call_runs_again_if_another_rank_has_died(site: Site, started: bool) -> None:
    if not started:
        site.other.add(1)
        assert [rank.take() for rank in site.other.ranks].count(1) == 1
    site.lead.add(7, ranks=4 if started else 5)
    site.talk()
    numbers = set(site.messages()[0][4]) if started else set()
    site.end_job(guilty=next(number for number in (2, 3, 4) if number not in numbers))
    site.talk()
    assert not site.lead.died
    while not site.lead.results:
        for rank in (*site.lead.ranks, *site.other.ranks):
            if rank.take() is not None:
                rank.finish()
        site.talk()
    assert list(site.lead.results) == [7]


def test_a_failure_ends_the_call_although_others_wait(site: Site) -> None:
    site.lead.add(7, ranks=5)
    site.talk()
    ranks = [*site.lead.ranks, *site.other.ranks]
    assert [rank.take() for rank in ranks] == [7] * 5
    ranks[4].finish(payload=encode_error(KeyError('four')))
    site.talk()
    assert not site.lead.results
    site.lead.pass_time(GROUP_GRACE)
    site.talk()
    assert site.lead.killed == [0, 1]
    assert site.other.killed == [0, 1]
    site.end_job(guilty=0)
    with pytest.raises(KeyError, match='four'):
        decode_result(site.lead.results[7])


def test_cancel_before_and_after_the_start(site: Site) -> None:
    site.other.add(1)
    busy = next(rank for rank in site.other.ranks if rank.take() == 1)
    site.lead.add(7, ranks=5)
    site.talk()
    site.lead.dispatcher.cancel(array('Q', [7]))
    site.talk()
    with pytest.raises(CancelledError):
        decode_result(site.lead.results[7])
    busy.finish()
    site.lead.add(8, ranks=5)
    site.talk()
    assert [rank.take() for bench in site.benches for rank in bench.ranks] == [8] * 5
    site.lead.dispatcher.cancel(array('Q', [8]))
    site.talk()
    assert (sorted(site.lead.signals), sorted(site.other.signals)) == ([0, 1], [0, 1, 2])


def test_a_timeout_interrupts_ranks_on_all_nodes(site: Site) -> None:
    site.lead.add(7, ranks=5, timeout=1.0)
    site.talk()
    assert [rank.take() for bench in site.benches for rank in bench.ranks] == [7] * 5
    for bench in site.benches:
        bench.pass_time(1.0)
    assert (sorted(site.lead.signals), sorted(site.other.signals)) == ([0, 1], [0, 1, 2])
    site.end_job(guilty=3)
    with pytest.raises(TimeoutError):
        decode_result(site.lead.results[7])
