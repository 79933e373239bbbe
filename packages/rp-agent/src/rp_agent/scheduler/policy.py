"""What a scheduling policy is: the base of all of them.

A policy decides when a task may be placed, and where. All of them place on the same slot map, and let tasks wait in the
same wait pool. `find` has the one that a platform names; docs/extend/scheduling-policy.md shows how to add one.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Any

from rp_agent.resource_manager.base import Allocation
from rp_agent.scheduler.shapes import Shapes
from rp_agent.scheduler.slotmap import Placement, SlotMap
from rp_agent.task import AgentTask

Item = Any
"""What waits in the pool: a task, or an object of the policy's own that has the attributes `request` and `ticket`."""


class Policy:
    """Places each task as soon as there is room for it, wherever the slot map finds some.

    `slots` is the slot map, `allocation` says what its nodes are, and `config` is the agent's configuration, with the
    definition of the platform as `config['platform']`. A method that cannot go on with a task because of what its
    description says, or because the pilot can never give it what it asks for, raises `DescriptionError` or
    `ResourceError` with the reason, and the task fails with it.
    """

    def __init__(self, slots: SlotMap, allocation: Allocation, config: Mapping[str, Any]) -> None:
        self.slots = slots
        self.allocation = allocation
        self.platform: Mapping[str, Any] = config.get('platform') or {}
        self.shapes = Shapes(slots)
        self.set_aside: Collection[int] = ()
        """Positions of nodes that are kept for an item that has waited too long: `place` does not use them. In the slot
        map they are hidden from all but `place_on` and `claim`."""

    # a task on its way into the pool and out of it

    def admit(self, task: AgentTask) -> Sequence[Item]:
        """A task has come: what may enter the wait pool now, if anything."""
        return (task,)

    def request(self, item: Item) -> Hashable:
        """What the item asks for; items with equal requests are interchangeable.

        It is kept as `item.request`. If it is a `Shape`, or has one as attribute `shape`, no time is lost on trying the
        item while no node has room for that shape; with a range of positions as attribute `within`, no node of these.
        """
        return self.shapes.of(item.description)

    def priority(self, item: Item) -> int:
        """The priority of the item; higher ones are tried first."""
        priority: int = item.description['priority']
        return priority

    def place(self, item: Item) -> bool:
        """Place the item now, which sets `placement` of its tasks; False if there is no room for it."""
        item.placement = placement = self.slots.place(item.request)
        return placement is not None

    def tasks(self, items: list[Item]) -> list[AgentTask]:
        """The tasks that the items stand for."""
        return items

    def withdraw(self, task: AgentTask) -> Sequence[Item]:
        """A task that has not been placed never will be: what may enter the pool, now that it is gone.

        The item that the task was part of is out of the pool, and enters again if it is given here.
        """
        return ()

    # a task that has run

    def release(self, tasks: Sequence[AgentTask]) -> Sequence[Placement]:
        """Free what placed tasks occupy; gives what was freed."""
        placements = [task.placement for task in tasks if task.placement is not None]
        self.slots.release_many(placements)
        return placements

    def left(self, tasks: Sequence[AgentTask]) -> Sequence[Item]:
        """Tasks were released: what may enter the pool because of that."""
        return ()

    # large tasks, and lost nodes

    def candidates(self, item: Item) -> Sequence[int]:
        """The positions of nodes to set aside for an item that waits too long; none if it is to wait on."""
        return self.slots.candidates(item.request)

    def place_on(self, item: Item, positions: Sequence[int]) -> Placement | None:
        """Place the item like `place`, on these nodes."""
        item.placement = placement = self.slots.place_on(item.request, positions)
        return placement

    def nodes_changed(self, down: Collection[int]) -> None:
        """The positions of all nodes that are down, whenever one was lost or came back; `request` is asked again."""
        self.shapes.forget()
