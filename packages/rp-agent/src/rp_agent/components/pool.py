"""All instances of one component, as the rest of the pipeline sees them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

from rp_agent.components.names import ANYWHERE
from rp_agent.task import AgentTask


class Member(Protocol):
    """An instance, wherever it lives."""

    def put(self, tasks: list[AgentTask]) -> None: ...


AnyMember = TypeVar('AnyMember', bound=Member)


class InstancePool(Generic[AnyMember]):
    """Deals bulks out to its members in even shares, taking turns: what they are given needs no further choice.

    Of members that died, `leaving` are those whose tasks may still come back. What is put when there is no member
    any more is kept in `unassigned`.
    """

    def __init__(self, members: Sequence[AnyMember]) -> None:
        self.members = list(members)
        self.leaving: list[AnyMember] = []
        self.unassigned: list[AgentTask] = []
        self.spread: dict[str, AgentTask] = {}
        """Tasks on several nodes, from when they are put until `left`, where members have nodes of their own."""
        self._turn = 0

    def put(self, tasks: list[AgentTask]) -> None:
        """Hand tasks to the members."""
        members = self.members
        if not members:
            self.unassigned += tasks
            return
        share = -(-len(tasks) // len(members))
        for first in range(0, len(tasks), share or 1):
            self._turn = (self._turn + 1) % len(members)
            members[self._turn].put(tasks[first:first + share])

    def all_members(self) -> list[AnyMember]:
        """All members that may have tasks."""
        return [*self.members, *self.leaving]

    def that_have(self, tasks: Sequence[AgentTask]) -> list[AnyMember]:
        """The members that may have these tasks."""
        return self.all_members()

    def on_node(self, position: int) -> AnyMember | None:
        """The member that has the node at this position for its own."""
        return None

    def left(self, tasks: Iterable[AgentTask]) -> None:
        """Tasks are with no member any more."""
        for task in tasks if self.spread else ():
            self.spread.pop(task.uid, None)

    def dismiss(self, member: AnyMember) -> None:
        """Give nothing more to this member."""
        self.members.remove(member)
        self.leaving.append(member)

    def remove(self, member: AnyMember) -> None:
        """Nothing will come from this member any more."""
        self.leaving.remove(member)


class NodePool(InstancePool[AnyMember]):
    """A pool of which some members have a node of their own: they are given what lies on that node alone.

    The others are given the rest: what lies on other nodes, or on several, and tasks that are `central`.
    """

    def __init__(self, members: Sequence[AnyMember], on_nodes: Mapping[int, AnyMember],
                 central: Callable[[AgentTask], bool] | None = None) -> None:
        super().__init__(members)
        self._on_nodes = dict(on_nodes)
        self._central = central

    def put(self, tasks: list[AgentTask]) -> None:
        """Hand tasks, which are placed, to the members."""
        bulks: dict[int, list[AgentTask]] = {}
        for task in tasks:
            node = self._node(task)
            bulks.setdefault(node if node in self._on_nodes else ANYWHERE, []).append(task)
        for node, bulk in bulks.items():
            if node == ANYWHERE:
                super().put(bulk)
            else:
                self._on_nodes[node].put(bulk)

    def that_have(self, tasks: Sequence[AgentTask]) -> list[AnyMember]:
        """The members that may have these tasks."""
        nodes = {node for task in tasks if task.placement is not None for node in task.placement.nodes()}
        return [*super().all_members(), *(self._on_nodes[node] for node in nodes if node in self._on_nodes)]

    def on_node(self, position: int) -> AnyMember | None:
        return self._on_nodes.get(position)

    def all_members(self) -> list[AnyMember]:
        return [*super().all_members(), *self._on_nodes.values()]

    def dismiss(self, member: AnyMember) -> None:
        for node, each in self._on_nodes.items():
            if each is member:
                del self._on_nodes[node]
                self.leaving.append(member)
                return
        super().dismiss(member)

    def _node(self, task: AgentTask) -> int:
        """The position of the only node that a task is on, whose member is to have it."""
        nodes = task.placement.nodes()
        if len(nodes) == 1 and (self._central is None or not self._central(task)):
            return int(nodes[0])
        self.spread[task.uid] = task
        return ANYWHERE


def all_of(count: int, done: Callable[[], object]) -> Callable[[], None]:
    """A function that calls `done()` when it is called for the `count`-th time."""
    left = count

    def one() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            done()

    return one
