"""Which master gets how many calls, and which gives some back."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest

from rp_api.balancing.shares import requests, shares


@dataclass(eq=False)
class Member:
    """A master with calls."""

    name: str
    ranks: int = 1
    load: int = 0
    free: int = 1000
    asked: int = 0
    exhausted: bool = False


def split(waiting: int, *members: Member) -> dict[str, int]:
    return {member.name: number for member, number in shares(waiting, members)}


def asked(*members: Member) -> dict[str, int]:
    return {member.name: number for member, number in requests(0, members)}


def test_members_get_equally_many_calls_per_rank() -> None:
    assert split(100, Member('a'), Member('b')) == {'a': 50, 'b': 50}
    assert split(100, Member('a', ranks=3), Member('b')) == {'a': 75, 'b': 25}
    assert split(90, Member('a'), Member('b'), Member('c', load=30)) == {'a': 40, 'b': 40, 'c': 10}
    assert split(10, Member('a', load=100), Member('b')) == {'b': 10}
    assert split(1, Member('a', load=1), Member('b')) == {'b': 1}


def test_no_member_gets_more_than_it_accepts() -> None:
    assert split(100, Member('a', free=5), Member('b')) == {'a': 5, 'b': 95}
    assert split(100, Member('a', free=5), Member('b', free=7)) == {'a': 5, 'b': 7}
    assert split(100, Member('a', free=0), Member('b', free=0)) == {}
    assert split(100, Member('a', free=-3), Member('b', free=2)) == {'b': 2}


def test_a_member_without_ranks_gets_calls_only_if_no_member_has_ranks() -> None:
    assert split(100, Member('a', ranks=0), Member('b')) == {'b': 100}
    assert split(100, Member('a', ranks=0), Member('b', free=0)) == {}
    assert split(100, Member('a', ranks=0), Member('b', ranks=0)) == {'a': 50, 'b': 50}


def test_calls_are_given_back_while_ranks_are_idle() -> None:
    assert asked(Member('a', load=100), Member('b')) == {'a': 50}
    assert asked(Member('a', load=100), Member('b', ranks=3)) == {'a': 75}
    assert asked(Member('a', load=2), Member('b')) == {'a': 1}
    assert asked(Member('a', load=11), Member('b', load=9), Member('c')) == {'a': 5}
    assert asked(Member('a', load=3), Member('b', load=3), Member('c', ranks=4)) == {'a': 2, 'b': 2}


def test_a_member_that_has_lost_its_ranks_gives_all_calls_back() -> None:
    lost, busy = Member('a', ranks=0, load=10), Member('b', load=20, free=0)
    assert requests(0, [lost, busy]) == requests(5, [lost, busy]) == [(lost, 10)]
    assert requests(5, [Member('a', load=10), busy, Member('c')]) == []
    assert asked(Member('a', ranks=0, load=10), Member('b', ranks=0)) == {}
    assert asked(Member('a', ranks=0, load=10, asked=10), Member('b')) == {}


@pytest.mark.parametrize('members', [
    [Member('a', load=100), Member('b', free=0)],                # it accepts none
    [Member('a', load=100), Member('b', load=1)],                # its rank has one
    [Member('a', load=1), Member('b')],                          # there is none to give back
    [Member('a', load=100, exhausted=True), Member('b')],
    [Member('a', load=100, asked=1), Member('b')],               # it was asked already
    [Member('a', load=100), Member('b', ranks=0)],
    [],
])
def test_nothing_is_given_back_in_vain(members: list[Member]) -> None:
    assert asked(*members) == {}


@pytest.mark.parametrize('seed', range(50))
def test_no_rank_is_idle_while_calls_wait_anywhere(seed: int) -> None:
    """Calls that wait at a member move until all ranks are busy, and then they stay where they are."""
    chance = random.Random(seed)
    members = [Member(str(number), ranks=chance.randrange(4), free=chance.choice((1, 5, 10**6))) for number in range(5)]
    members.append(Member('last', ranks=2, free=10**6))
    for member in members:
        member.load = chance.choice((0, 0, 3, 1000))
    total, waiting = sum(member.load for member in members), 0
    for _ in range(200):
        moves = shares(waiting, members) if waiting else []
        for member, number in moves:
            assert 0 < number <= member.free
            member.load += number
            member.free -= number
            waiting -= number
        back = requests(waiting, members)
        for member, number in back:
            assert 0 < number <= member.load - member.ranks
            member.load -= number
            member.free += number
            waiting += number
        assert waiting >= 0
        assert waiting + sum(member.load for member in members) == total
        if not moves and not back:
            break
    else:
        pytest.fail('calls move for ever')
    idle = [member for member in members if member.free and member.load < member.ranks]
    assert not idle or not (waiting or any(member.load > member.ranks for member in members))
