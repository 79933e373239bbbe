"""`Policy`: the base class of the scheduling policies; and the shapes of tasks, which say what a rank needs.

A policy decides when and where a task is placed. All policies share the slot map and the wait pool.
`policies.find` loads the policy of a platform; docs/extend/scheduling-policy.md shows how to add one.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from rp_agent.resource_manager.base import Allocation
from rp_agent.scheduler.slotmap import Placement, Shape, SlotMap
from rp_agent.task import AgentTask
from rp_api.errors import ResourceError
from rp_api.resources.pool import UNITS

_VALUES = itemgetter('ranks', 'cores_per_rank', 'gpus_per_rank', 'mem_per_rank', 'lfs_per_rank', 'ranks_per_node')

Item = Any
"""A member of the wait pool: a task, or an object of the policy with the attributes `request` and `ticket`."""


class Bounds(NamedTuple):
    """What an item needs and where it may be placed, to explain why it waits.

    Attributes:
        shape: The ranks.
        positions: The nodes that it is limited to; None for all.
        where: The limit in words that follow "needs 2 cores", such as `on one node`; empty without a limit.
    """

    shape: Shape
    positions: Sequence[int] | None = None
    where: str = ''


class Shapes:
    """Cache of shapes: one shape for all tasks with equal requests, checked against the slot map once."""

    def __init__(self, slots: SlotMap) -> None:
        self._slots = slots
        self._found: dict[tuple[Any, ...], Shape] = {}

    def of(self, description: Mapping[str, Any]) -> Shape:
        """Return the shape of a task description; raise `ResourceError` if it can never be placed."""
        values = _VALUES(description)
        found = self._found.get(values)
        if found is None:
            found = shape_of(description)
            refuse_impossible(self._slots, found)
            self._found[values] = found
        return found

    def forget(self) -> None:
        """Clear the cache, so that shapes are checked against the slot map again."""
        self._found.clear()


class Policy:
    """Places each task as soon as there is room for it, on the nodes that the slot map finds.

    Subclasses override the methods that differ. An item goes through `admit`, `request`, `priority` and `place`; the
    tasks of a placed item go through `release` and `left`. A method that raises `DescriptionError` (the description is
    wrong) or `ResourceError` (the pilot can never provide what it requests) fails the task, with the text as reason.
    Nodes are given by their position in the allocation, from 0.

    Attributes:
        slots: The slot map: free cores, GPUs, memory and storage of all nodes.
        allocation: The nodes of the pilot.
        platform: The platform definition.
        shapes: Cache of the shapes of task descriptions.
        set_aside: Positions of nodes reserved for an item that has waited too long. `place` must not use them. The
            slot map offers them only to `place_on` and `claim`.
    """

    def __init__(self, slots: SlotMap, allocation: Allocation, config: Mapping[str, Any]) -> None:
        """Create the policy of a pilot.

        Args:
            slots: The slot map of all nodes.
            allocation: The nodes of the pilot.
            config: The agent's configuration, with the platform definition as `config['platform']`.

        Raises:
            PlatformError: The platform definition lacks a value that the policy needs.
        """
        self.slots = slots
        self.allocation = allocation
        self.platform: Mapping[str, Any] = config.get('platform') or {}
        self.shapes = Shapes(slots)
        self.set_aside: Collection[int] = ()

    # entering the pool

    def admit(self, task: AgentTask) -> Sequence[Item]:
        """Accept a task.

        Args:
            task: A task that waits for resources.

        Returns:
            The items that enter the wait pool: the task itself, nothing if the policy holds it back, or an object of
            the policy that stands for several tasks.

        Raises:
            DescriptionError: The description of the task is wrong.
            ResourceError: The pilot can never provide what the task requests.
        """
        return (task,)

    def request(self, item: Item) -> Hashable:
        """Return the request of an item. The wait pool treats items with equal requests as interchangeable.

        The request is stored as `item.request`. If it is a `Shape`, or has one as attribute `shape`, the pool does not
        try the item while no node has room for a rank of that shape. A range of positions as attribute `within` limits
        this to these nodes. `request` is called again after `nodes_changed`.

        Args:
            item: An item that enters the pool.

        Returns:
            A hashable request.

        Raises:
            DescriptionError: The description of a task is wrong.
            ResourceError: The nodes that are up can never provide the request.
        """
        return self.shapes.of(item.description)

    def priority(self, item: Item) -> int:
        """Return the priority of an item.

        Args:
            item: An item that enters the pool.

        Returns:
            A number; the pool tries items with higher numbers first.
        """
        priority: int = item.description['priority']
        return priority

    def place(self, item: Item) -> bool:
        """Place an item now, if there is room.

        Args:
            item: An item of the pool.

        Returns:
            True if `placement` of its tasks is set, False if there is no room.

        Raises:
            DescriptionError: The description of a task is wrong.
            ResourceError: The pilot can never provide the request.
        """
        item.placement = placement = self.slots.place(item.request)
        return placement is not None

    def tasks(self, items: list[Item]) -> list[AgentTask]:
        """Return the tasks of items.

        Args:
            items: Items of the pool.

        Returns:
            All tasks that the items stand for.
        """
        return items

    def withdraw(self, task: AgentTask) -> Sequence[Item]:
        """Forget a task that is cancelled or refused before it is placed.

        Args:
            task: A task that waits in the pool or is held back. The item that it belongs to has left the pool.

        Returns:
            The items that enter the pool now, for example the rest of a group of tasks.
        """
        return ()

    # explaining

    def bounds(self, item: Item) -> Bounds:
        """Return what an item needs and where it may be placed.

        Args:
            item: An item of the pool.

        Returns:
            The shape of the item, and the limits besides free resources; users are told what is free within them.
        """
        shape = getattr(item.request, 'shape', item.request)
        return Bounds(shape if isinstance(shape, Shape) else shape_of(item.description))

    def held(self) -> Iterable[tuple[Sequence[AgentTask], str]]:
        """Return the tasks that the policy holds back.

        Returns:
            Groups of tasks that wait for the same, each with a sentence that says for what.
        """
        return ()

    # finished tasks

    def release(self, tasks: Sequence[AgentTask]) -> Sequence[Placement]:
        """Free the resources of placed tasks.

        Args:
            tasks: Tasks that have ended.

        Returns:
            The freed placements.
        """
        placements = [task.placement for task in tasks if task.placement is not None]
        self.slots.release_many(placements)
        return placements

    def left(self, tasks: Sequence[AgentTask]) -> Sequence[Item]:
        """React to released tasks.

        Args:
            tasks: Tasks whose resources were released.

        Returns:
            Items that the policy has held back and that enter the pool now.
        """
        return ()

    # reservations and lost nodes

    def candidates(self, item: Item) -> Sequence[int]:
        """Return the nodes to reserve for an item that waits too long.

        Args:
            item: An item of the pool.

        Returns:
            Positions of nodes that hold the item when they are idle; empty to wait without a reservation.
        """
        return self.slots.candidates(item.request)

    def place_on(self, item: Item, positions: Sequence[int]) -> Placement | None:
        """Place an item on given nodes, if there is room.

        Args:
            item: An item of the pool.
            positions: Positions of the nodes, which may be hidden in the slot map.

        Returns:
            The placement of the item (of its first task, if it stands for several), or None if there is no room yet.
        """
        item.placement = placement = self.slots.place_on(item.request, positions)
        return placement

    def nodes_changed(self, down: Collection[int]) -> None:
        """React to a node that is lost or back. The scheduler then calls `request` again for all waiting items.

        Args:
            down: Positions of all nodes that are down.
        """
        self.shapes.forget()


def shape_of(description: Mapping[str, Any]) -> Shape:
    """Return the shape of a task description."""
    ranks, cores, gpus, mem, lfs, ranks_per_node = _VALUES(description)
    return Shape(ranks, cores, gpus, mem, lfs, ranks_per_node or 0)


def refuse_impossible(slots: SlotMap, shape: Shape) -> None:
    """Raise `ResourceError` if the nodes that are up cannot hold the shape even when they are empty."""
    most = slots.most(shape)
    if most < shape.ranks:
        where = f'the {len(slots)} node(s) of the pilot'
        if most:
            limit = f', at most {shape.ranks_per_node} on a node,' if shape.ranks_per_node else ''
            raise ResourceError(f'{shape.ranks} ranks of {text(shape)}{limit} are requested, {where} hold {most}')
        raise ResourceError(f'none of {where} has {_too_much(slots, shape)} for a rank')


def text(shape: Shape) -> str:
    """Return the resources of a rank of the shape, for messages."""
    return ' and '.join(_parts(shape)) or 'no cores'


def _parts(shape: Shape) -> dict[str, Shape]:
    """Return the resources of a rank by kind: a text, and a shape with this kind only."""
    share = shape.share / UNITS
    parts = {f'{shape.cores} cores': Shape(cores=shape.cores)} if shape.cores else {}
    if shape.gpus or shape.share:
        parts[f'{shape.gpus} GPUs' if shape.gpus else f'{share:g} of a GPU'] = Shape(cores=0, gpus=shape.gpus or share)
    if shape.mem:
        parts[f'{shape.mem} MB mem'] = Shape(cores=0, mem=shape.mem)
    if shape.lfs:
        parts[f'{shape.lfs} MB lfs'] = Shape(cores=0, lfs=shape.lfs)
    return parts


def _too_much(slots: SlotMap, shape: Shape) -> str:
    """Return the resources that no node has, or all of them if each is available on its own."""
    alone = [what for what, part in _parts(shape).items() if not slots.most(part)]
    return ' and '.join(alone) or text(shape)
