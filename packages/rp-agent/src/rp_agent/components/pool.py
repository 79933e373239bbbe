"""Instance pools: all instances of one component behind one interface."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

from rp_agent.components.names import ANYWHERE
from rp_agent.task import AgentTask


class Member(Protocol):
    """An instance of a component, in this process or another one."""

    def put(self, tasks: list[AgentTask]) -> None: ...


AnyMember = TypeVar('AnyMember', bound=Member)


class InstancePool(Generic[AnyMember]):
    """A pool of instances, among which tasks are distributed evenly and in turns.

    Members in `on_nodes` are bound to one node each, and receive the placed tasks that are on that node only. The
    others receive the tasks on other nodes or on several, and tasks for which `central` is true.

    `leaving` are members that died and whose tasks may still return. Tasks that arrive when no member is left are kept
    in `unassigned`.
    """

    def __init__(self, members: Sequence[AnyMember], on_nodes: Mapping[int, AnyMember] | None = None,
                 central: Callable[[AgentTask], bool] = lambda task: False) -> None:
        self.members = list(members)
        self.leaving: list[AnyMember] = []
        self.unassigned: list[AgentTask] = []
        self.spread: dict[str, AgentTask] = {}
        """Tasks on several nodes, from `put` until `left`, if members are bound to nodes."""
        self._turn = 0
        self._on_nodes = dict(on_nodes or {})
        self._by_node = bool(on_nodes)
        self._central = central

    def put(self, tasks: list[AgentTask]) -> None:
        """Distribute tasks to the members."""
        if not self._by_node:
            self._share(tasks)
            return
        bulks: dict[int, list[AgentTask]] = {}
        for task in tasks:
            node = self._node(task)
            bulks.setdefault(node if node in self._on_nodes else ANYWHERE, []).append(task)
        for node, bulk in bulks.items():
            if node == ANYWHERE:
                self._share(bulk)
            else:
                self._on_nodes[node].put(bulk)

    def _share(self, tasks: list[AgentTask]) -> None:
        """Distribute tasks to the members that are not bound to nodes."""
        members = self.members
        if not members:
            self.unassigned += tasks
            return
        share = -(-len(tasks) // len(members))
        for first in range(0, len(tasks), share or 1):
            self._turn = (self._turn + 1) % len(members)
            members[self._turn].put(tasks[first:first + share])

    def _node(self, task: AgentTask) -> int:
        """Return the position of the node whose member gets a task; ANYWHERE for the other members."""
        nodes = task.placement.nodes()
        if len(nodes) == 1 and not self._central(task):
            return int(nodes[0])
        self.spread[task.uid] = task
        return ANYWHERE

    def all_members(self) -> list[AnyMember]:
        """Return all members that may have tasks."""
        return [*self.members, *self.leaving, *self._on_nodes.values()]

    @property
    def lost(self) -> bool:
        """True if no member is left for tasks that need not go to a certain node."""
        return not self.members and not self.leaving

    def that_have(self, tasks: Sequence[AgentTask]) -> list[AnyMember]:
        """Return the members that may have these tasks."""
        placements = [task.placement for task in tasks if task.placement is not None] if self._on_nodes else []
        nodes = {node for placement in placements for node in placement.nodes()}
        return [*self.members, *self.leaving, *(self._on_nodes[node] for node in nodes if node in self._on_nodes)]

    def on_node(self, position: int) -> AnyMember | None:
        """Return the member that is bound to the node at this position."""
        return self._on_nodes.get(position)

    def left(self, tasks: Iterable[AgentTask]) -> None:
        """Forget tasks that have left their member."""
        for task in tasks if self.spread else ():
            self.spread.pop(task.uid, None)

    def dismiss(self, member: AnyMember) -> None:
        """Stop giving tasks to a member that has died."""
        node = next((node for node, each in self._on_nodes.items() if each is member), ANYWHERE)
        if node == ANYWHERE:
            self.members.remove(member)
        else:
            del self._on_nodes[node]
        self.leaving.append(member)

    def remove(self, member: AnyMember) -> None:
        """Forget a member; no task returns from it any more."""
        self.leaving.remove(member)


def all_of(count: int, done: Callable[[], object]) -> Callable[[], None]:
    """Return a function that calls `done()` when it is called for the `count`-th time."""
    left = count

    def one() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            done()

    return one
