"""Shares of calls among masters: who gets those that wait, and who gives back some that have not started.

Calls go where they begin first: each member gets so many that all have equally many per rank, but none gets more than
it accepts. When none waits, and ranks of a member are idle, the member with the most calls beyond its ranks gives some
back. A member without ranks has calls only while no member has ranks, as its first worker may still be starting.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar


class Member(Protocol):
    """A master as the rule sees it; the units are calls, or tasks."""

    @property
    def load(self) -> int:
        """The number of calls that it has."""

    @property
    def ranks(self) -> int:
        """The number of calls that it can run at a time."""

    @property
    def free(self) -> int:
        """The number of calls that it accepts now."""

    @property
    def asked(self) -> int:
        """The number of calls that it was asked to give back and has not answered for."""

    @property
    def exhausted(self) -> bool:
        """True if it had no calls to give back when it was asked last, and nothing has changed since."""


AnyMember = TypeVar('AnyMember', bound=Member)


def shares(waiting: int, members: Sequence[AnyMember]) -> list[tuple[AnyMember, int]]:
    """Return the members that get waiting calls, and how many; not all of them if some accept less than their share."""
    equipped = any(member.ranks for member in members)
    able = [member for member in members if member.free > 0 and (member.ranks or not equipped)]
    able.sort(key=_load_per_rank, reverse=True)   # members above the level leave the others to share what is there
    calls = waiting + sum(member.load for member in able)
    ranks = sum(_weight(member) for member in able)
    found = []
    for member in able:
        level = -(-calls * _weight(member) // ranks)
        share = min(waiting, member.free, max(0, level - member.load))
        if share:
            found.append((member, share))
        calls -= member.load + share
        ranks -= _weight(member)
        waiting -= share
    return found


def requests(waiting: int, members: Sequence[AnyMember]) -> list[tuple[AnyMember, int]]:
    """Return the members that have to give calls back, and how many: to idle ranks, unless calls wait for these."""
    able = [member for member in members if not member.asked and not member.exhausted]
    if any(member.ranks for member in members):
        lost = [(member, member.load) for member in able if member.load and not member.ranks]
        if waiting or lost:
            return lost
    return _for_idle_ranks(able, members) if not waiting else []


def _for_idle_ranks(able: list[AnyMember], members: Sequence[AnyMember]) -> list[tuple[AnyMember, int]]:
    idle = [member for member in members if member.free > 0 and member.load < member.ranks]
    lacking = sum(min(member.free, member.ranks - member.load) for member in idle)
    lacking -= sum(member.asked for member in members)
    able.sort(key=_surplus, reverse=True)
    found = []
    for member in able:
        surplus = _surplus(member)
        if lacking <= 0 or surplus <= 0:
            break
        calls = member.load + sum(each.load for each in idle)
        ranks = member.ranks + sum(each.ranks for each in idle)
        number = min(surplus, max(lacking, member.load - -(-calls * member.ranks // ranks)))
        found.append((member, number))
        lacking -= number
    return found


def _weight(member: Member) -> int:
    return member.ranks or 1


def _load_per_rank(member: Member) -> float:
    return member.load / _weight(member)


def _surplus(member: Member) -> int:
    return member.load - member.ranks
