"""The policy CONTINUOUS_COLO: bags of tasks that run at the same time on the same node.

The tag `colocate` of a task is a dict with `bag` (any text) and `size` (number of tasks in the bag). A bag waits until
all its tasks have arrived, and is then placed on one node as a whole. A task that is cancelled before leaves its bag,
which then has a smaller size. Tasks without the tag are placed as by CONTINUOUS.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Any

from rp_agent.scheduler.policies.continuous import Continuous, on_same_node, place_all, place_on_same_node
from rp_agent.scheduler.policy import Bounds, shape_of
from rp_agent.scheduler.slotmap import Placement
from rp_agent.task import AgentTask
from rp_api.errors import ResourceError


class Bag:
    """Tasks for one node; complete with `size` tasks."""

    def __init__(self, name: str, size: int) -> None:
        self.name = name
        self.size = size
        self.members: dict[str, AgentTask] = {}
        self.request: Any = None
        self._ticket = -1

    @property
    def ticket(self) -> int:
        """Ticket of the bag in the wait pool, which all its tasks share."""
        return self._ticket

    @ticket.setter
    def ticket(self, ticket: int) -> None:
        self._ticket = ticket
        for task in self.members.values():
            task.ticket = ticket

    @property
    def complete(self) -> bool:
        """True if all tasks have arrived."""
        return 0 < len(self.members) == self.size


class Colo(Continuous):
    """Places bags of tasks."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._bags: dict[str, Bag] = {}
        """Bags that are not placed, by name."""
        self._bag_of: dict[str, Bag] = {}

    def admit(self, task: AgentTask) -> Sequence[AgentTask | Bag]:
        """Return the bag of the task if it is complete now."""
        tag = _tag(task)
        if tag is None:
            return (task,)
        name, size = tag
        bag = self._bags.setdefault(name, Bag(name, size))
        if bag.complete:
            raise ResourceError(f'the bag {name!r} has its {bag.size} task(s) already')
        bag.members[task.uid] = task
        self._bag_of[task.uid] = bag
        return (bag,) if bag.complete else ()

    def request(self, item: AgentTask | Bag) -> Hashable:
        """Return the total request of the bag's tasks."""
        if not isinstance(item, Bag):
            return super().request(item)
        try:
            request = on_same_node([shape_of(task.description) for task in item.members.values()], self._node)
            if not self.slots.most(request.shape):
                raise ResourceError('no node that could hold the bag is left')
        except ResourceError:
            self._forget(item)
            raise
        return request

    def priority(self, item: AgentTask | Bag) -> int:
        """Return the highest priority of the bag's tasks."""
        members = item.members.values() if isinstance(item, Bag) else (item,)
        return max(int(task.description['priority']) for task in members)

    def place(self, item: AgentTask | Bag) -> bool:
        """Place all tasks of a bag, or none."""
        if not isinstance(item, Bag):
            return super().place(item)
        return self._placed(item, place_on_same_node(self.slots, item.request)) is not None

    def tasks(self, items: list[Any]) -> list[AgentTask]:
        """Return the tasks of bags and single tasks."""
        return [task for item in items for task in (item.members.values() if isinstance(item, Bag) else (item,))]

    def withdraw(self, task: AgentTask) -> Sequence[Bag]:
        """Return the rest of the bag if it is complete now."""
        bag = self._bag_of.pop(task.uid, None)
        if bag is None:
            return ()
        del bag.members[task.uid]
        bag.size -= 1
        if not bag.size:
            del self._bags[bag.name]
        return (bag,) if bag.complete else ()

    def bounds(self, item: AgentTask | Bag) -> Bounds:
        """Return the total of a bag, which has to be on one node."""
        if not isinstance(item, Bag):
            return super().bounds(item)
        return Bounds(item.request.shape, None, f'on one node for the bag {item.name}')

    def held(self) -> Iterator[tuple[Sequence[AgentTask], str]]:
        """Yield the tasks of bags that are not complete."""
        for bag in self._bags.values():
            if bag.members and not bag.complete:
                missing = bag.size - len(bag.members)
                yield list(bag.members.values()), (f'waits for {missing} more task{"s" * (missing > 1)} of the bag '
                                                   f'{bag.name}, which has {bag.size}')

    def candidates(self, item: AgentTask | Bag) -> Sequence[int]:
        """Return the node that can hold all tasks of the bag."""
        return self.slots.candidates(item.request.shape) if isinstance(item, Bag) else super().candidates(item)

    def place_on(self, item: AgentTask | Bag, positions: Sequence[int]) -> Placement | None:
        """Place all tasks of a bag on this node, or none."""
        if not isinstance(item, Bag):
            return super().place_on(item, positions)
        position, = positions
        return self._placed(item, place_all(self.slots, item.request.parts, position))

    def _placed(self, bag: Bag, placements: list[Placement] | None) -> Placement | None:
        if placements is None:
            return None
        for task, placement in zip(bag.members.values(), placements, strict=True):
            task.placement = placement
        self._forget(bag)
        return placements[0]

    def _forget(self, bag: Bag) -> None:
        """Remove a bag that is placed or refused, so that its name can be used again."""
        del self._bags[bag.name]
        for uid in bag.members:
            del self._bag_of[uid]


def _tag(task: AgentTask) -> tuple[str, int] | None:
    value = task.description['tags'].get('colocate')
    if value is None:
        return None
    size = value['size'] if isinstance(value, dict) and set(value) == {'bag', 'size'} else 0
    if isinstance(size, int) and size >= 1:
        return str(value['bag']), size
    raise ResourceError("the tag colocate must be a dict like {'bag': 'name', 'size': 1}, with size from 1, "
                        f'not {value!r}')
