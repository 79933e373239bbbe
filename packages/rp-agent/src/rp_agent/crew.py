"""All instances of one component, as the rest of the pipeline sees them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

from rp_agent.task import AgentTask


class Member(Protocol):
    """An instance, wherever it lives."""

    def put(self, tasks: list[AgentTask]) -> None: ...


AnyMember = TypeVar('AnyMember', bound=Member)


class Crew(Generic[AnyMember]):
    """Deals bulks out to its members in even shares, taking turns: what they are given needs no further choice.

    Of members that died, `leaving` are those whose tasks may still come back. What is put when there is no member
    any more is kept in `stranded`.
    """

    def __init__(self, members: Sequence[AnyMember]) -> None:
        self.members = list(members)
        self.leaving: list[AnyMember] = []
        self.stranded: list[AgentTask] = []
        self._turn = 0

    def put(self, tasks: list[AgentTask]) -> None:
        """Hand tasks to the members."""
        members = self.members
        if not members:
            self.stranded += tasks
            return
        share = -(-len(tasks) // len(members))
        for first in range(0, len(tasks), share or 1):
            self._turn = (self._turn + 1) % len(members)
            members[self._turn].put(tasks[first:first + share])

    def everybody(self) -> list[AnyMember]:
        """All members that may have tasks."""
        return [*self.members, *self.leaving]

    def dismiss(self, member: AnyMember) -> None:
        """Give nothing more to this member."""
        self.members.remove(member)
        self.leaving.append(member)

    def bury(self, member: AnyMember) -> None:
        """Nothing will come from this member any more."""
        self.leaving.remove(member)


def all_of(count: int, done: Callable[[], object]) -> Callable[[], None]:
    """A function that calls `done()` when it is called for the `count`-th time."""
    left = count

    def one() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            done()

    return one
