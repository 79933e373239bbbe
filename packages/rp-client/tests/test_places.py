"""Tasks go to the partition that they ask for, or to the one that has the least to do for its size."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rp_client.scheduler.places import Load, Need, Place, Places

PILOT = 'pilot.0000'


class Tasks(dict[str, Need]):
    """What tasks need, and where they are sent."""

    def __init__(self) -> None:
        super().__init__()
        self.places = Places(self.__getitem__)

    def divide(self, *places: Place, ended: tuple[int, ...] = ()) -> None:
        self.places.update(PILOT, {f'p{place.number}': place for place in places}, ended)

    def choose(self, need: Need = Need(), uid: str = '') -> str:  # noqa: B008
        uid = uid or f'task.{len(self)}'
        self[uid] = need
        return self.places.choose(PILOT, uid)


@pytest.fixture
def tasks() -> Tasks:
    return Tasks()


def a_place(number: int, cores: int = 4, gpus: int = 0, mem: int = 1000) -> Place:
    return Place(number, cores, gpus, cores, gpus, mem, mem)


def test_pilots_that_are_not_divided_take_everything(tasks: Tasks) -> None:
    """And nobody looks at the task."""
    assert tasks.places.choose('other', 'unknown') == 'other'
    assert not tasks.places.divided('other')


def test_a_divided_pilot_without_partitions_takes_nothing(tasks: Tasks) -> None:
    tasks.divide()
    assert tasks.places.divided(PILOT)
    assert tasks.choose() == ''


def test_tasks_are_shared_out_by_size(tasks: Tasks) -> None:
    tasks.divide(a_place(0, 2), a_place(1, 6))
    assert Counter(tasks.choose() for _ in range(80)) == {'p0': 20, 'p1': 60}


def test_the_one_that_is_asked_for(tasks: Tasks) -> None:
    tasks.divide(a_place(0), a_place(1))
    assert [tasks.choose(Need(partition=1)) for _ in range(3)] == ['p1'] * 3
    assert tasks.choose(Need(partition=2)) == ''
    assert [tasks.choose() for _ in range(3)] == ['p0'] * 3


def test_only_where_there_is_room(tasks: Tasks) -> None:
    tasks.divide(a_place(0, 2), a_place(1, 4, 1), Place(2, 8, 0, 2, 0, 1000, 4000))
    assert tasks.choose(Need(cores=4)) == 'p1'
    assert tasks.choose(Need(ranks=8)) == 'p2'
    assert tasks.choose(Need(gpus=0.5)) == 'p1'
    assert tasks.choose(Need(ranks=4, mem=400)) == 'p2'
    assert tasks.choose(Need(ranks=2, mem=600, gpus=1)) == 'p2'   # which is the largest, and whose agent refuses it
    assert tasks.choose(Need(gpus=1.0)) == 'p1'
    assert tasks.choose(Need(cores=100)) == 'p2'   # whose agent refuses it


def test_what_has_ended_does_not_count(tasks: Tasks) -> None:
    tasks.divide(a_place(0), a_place(1))
    first = [tasks.choose(uid=uid) for uid in 'abcd']
    assert first == ['p0', 'p1', 'p0', 'p1']
    tasks.places.left(['a', 'c', 'nobody'])
    assert [tasks.choose() for _ in range(2)] == ['p0', 'p0']
    tasks['e'] = Need(ranks=4)
    tasks.places.bound('e', 'p1')   # as it was when the session was taken over
    assert [tasks.choose() for _ in range(4)] == ['p0'] * 4


def test_partitions_come_and_go(tasks: Tasks) -> None:
    tasks.divide(a_place(0), a_place(1))
    assert tasks.places.has('p1')
    tasks.divide(a_place(0), ended=(1,))
    assert not tasks.places.has('p1')
    assert {tasks.choose() for _ in range(4)} == {'p0'}


def test_tasks_that_ask_for_one_that_has_ended(tasks: Tasks) -> None:
    tasks.divide(a_place(0), ended=(1,))
    tasks |= {'any': Need(), 'gone': Need(partition=1), 'to come': Need(partition=2)}
    lost = tasks.places.lost
    assert [lost(uid, [PILOT]) for uid in ('any', 'to come', 'gone')] == [None, None, (PILOT, 1)]
    assert lost('gone', [PILOT, 'not divided']) is None
    assert lost('gone', []) is None


@given(st.lists(st.tuples(st.sampled_from(range(6)), st.integers(1, 3), st.booleans()), max_size=40))
def test_load_is_that_of_the_tasks_that_are_there(steps: list[tuple[int, int, bool]]) -> None:
    tasks = Tasks()
    tasks.divide(a_place(0, 3), a_place(1, 5))
    there: dict[str, tuple[str, int]] = {}
    for number, ranks, comes in steps:
        uid = f'{number}'
        if comes:
            there[uid] = tasks.choose(Need(ranks=ranks), uid), ranks
        else:
            tasks.places.left([uid])
            there.pop(uid, None)
        for place in ('p0', 'p1'):
            assert tasks.places._loads.get(place, Load()).cores == sum(
                ranks for where, ranks in there.values() if where == place)
