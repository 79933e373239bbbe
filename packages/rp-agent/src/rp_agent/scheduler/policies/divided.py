"""The policy CONTINUOUS_DVM: all ranks of a task run on nodes of one DVM (virtual machine) of the launch method PRTE.

A task is placed on the machine with the lowest load relative to its size, or on the one that its `partition` names. The
policy is the default for platforms with PRTE among their launch methods.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

from rp_agent.instance_nodes import parts
from rp_agent.resource_manager.base import Allocation
from rp_agent.scheduler.policies.continuous import Continuous, are_neighbours
from rp_agent.scheduler.policy import Bounds, text
from rp_agent.scheduler.slotmap import Placement, Shape, SlotMap
from rp_agent.task import AgentTask
from rp_api.errors import ResourceError


class DividedRequest(NamedTuple):
    """The shape of a task, and the virtual machines that can hold it."""

    shape: Shape
    machines: tuple[int, ...]
    within: range
    """Positions from their first to their last node; nodes outside of it do not matter for the task."""


class Divided(Continuous):
    """Places tasks on the nodes of one virtual machine, as CONTINUOUS does; tags override the choice of the machine."""

    def __init__(self, slots: SlotMap, allocation: Allocation, config: Mapping[str, Any]) -> None:
        super().__init__(slots, allocation, config)
        nodes = len(allocation.names)
        self._parts = parts(self.platform, nodes) or (range(nodes),)
        self._firsts = [part.start for part in self._parts]
        self._named = 'partition' not in config   # in the configuration, it has selected an agent already
        self._sizes = [sum(allocation.devices(position)[0] for position in part) for part in self._parts]
        self._load = [0] * len(self._parts)   # in cores
        self._down: frozenset[int] = frozenset()
        self._requests: dict[tuple[Shape, int | None], DividedRequest] = {}

    def request(self, item: AgentTask) -> Hashable:
        """Return the shape with the machines that can hold it, or the request of CONTINUOUS for a task with tags."""
        request = super().request(item)
        if type(request) is not Shape:
            return request
        wanted = item.description['partition'] if self._named else None
        found = self._requests.get((request, wanted))
        if found is None:
            machines = self._machines(request, wanted)
            within = range(self._parts[machines[0]].start, self._parts[machines[-1]].stop)
            found = self._requests[request, wanted] = DividedRequest(request, machines, within)
        return found

    def place(self, item: AgentTask) -> bool:
        """Place a task, trying machines in the order of their load."""
        request = item.request
        if type(request) is not DividedRequest:
            return super().place(item)
        cores = _cores(request.shape)
        roomy = [machine for machine in request.machines if self._load[machine] + cores <= self._sizes[machine]]
        roomy.sort(key=self._relative_load)
        for machine in roomy:
            part = self._parts[machine]
            placement = self.slots.place_in(request.shape, part.start, part.stop)
            if placement is not None:
                if self._scattered or are_neighbours(placement.nodes()):
                    self._placed(item, placement)
                    return True
                self.slots.release(placement)
        return False

    def release(self, tasks: Sequence[AgentTask]) -> Sequence[Placement]:
        """Free the resources of tasks, and update the load of their machines."""
        for task in tasks:
            if type(task.request) is DividedRequest and task.placement is not None:
                self._load[self._machine_of(task.placement)] -= _cores(task.request.shape)
        return super().release(tasks)

    def bounds(self, item: AgentTask) -> Bounds:
        """Return the nodes of the virtual machines that can hold a task."""
        request = item.request
        if type(request) is not DividedRequest:
            return super().bounds(item)
        positions = [position for machine in request.machines for position in self._parts[machine]]
        return Bounds(request.shape, positions, 'in one virtual machine' if len(self._parts) > 1 else '')

    def candidates(self, item: AgentTask) -> Sequence[int]:
        """Return the first nodes that hold the task on the machine with the lowest load."""
        request = item.request
        if type(request) is not DividedRequest:
            return super().candidates(item)
        machine = min(request.machines, key=self._relative_load)
        up = [position for position in self._parts[machine] if position not in self._down]
        return up[:-(-request.shape.ranks // self._node.most(request.shape))]

    def place_on(self, item: AgentTask, positions: Sequence[int]) -> Placement | None:
        placement = super().place_on(item, positions)
        if placement is not None and type(item.request) is DividedRequest:
            self._placed(item, placement)
        return placement

    def nodes_changed(self, down: Collection[int]) -> None:
        super().nodes_changed(down)
        self._down = frozenset(down)
        self._requests.clear()

    def _machines(self, shape: Shape, wanted: int | None) -> tuple[int, ...]:
        """Return the machines that can hold a shape, limited to `wanted` if it is given."""
        if wanted is not None and not 0 <= wanted < len(self._parts):
            raise ResourceError(f'partition is {wanted}, the pilot has {len(self._parts)} virtual machine(s), numbered '
                                'from 0')
        asked = range(len(self._parts)) if wanted is None else (wanted,)
        most = self._node.most(shape)
        found = tuple(machine for machine in asked if most * self._nodes_up(machine) >= shape.ranks)
        if not found:
            largest = max(map(self._nodes_up, asked))
            raise ResourceError(f'{shape.ranks} ranks of {text(shape)} are requested, and the virtual machine(s) that '
                                f'they could run on have at most {largest} node(s), which hold {most * largest}')
        return found

    def _nodes_up(self, machine: int) -> int:
        part = self._parts[machine]
        return len(part) - sum(position in part for position in self._down)

    def _placed(self, item: AgentTask, placement: Placement) -> None:
        item.placement = placement
        self._load[self._machine_of(placement)] += _cores(item.request.shape)

    def _machine_of(self, placement: Placement) -> int:
        return bisect_right(self._firsts, min(placement.nodes())) - 1

    def _relative_load(self, machine: int) -> float:
        return self._load[machine] / len(self._parts[machine])


def _cores(shape: Shape) -> int:
    return int(shape.ranks * shape.cores)
