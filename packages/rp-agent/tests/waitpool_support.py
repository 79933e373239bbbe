"""What the tests of wait pool and reservations share: nodes, and jobs that want room on them."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, NamedTuple

from rp_agent.scheduler.slotcheck import check
from rp_agent.scheduler.slotmap import Placement, Shape, SlotMap
from rp_agent.scheduler.waitpool import WaitPool


class Within(NamedTuple):
    """A shape that is wanted on some of the nodes."""

    shape: Shape
    within: range


@dataclass(eq=False)
class Job:
    """Something that waits; `key` is what it asks for."""

    name: str
    key: Hashable
    priority: int = 0
    ticket: int = -1
    placement: Placement | None = None

    @property
    def shape(self) -> Shape:
        return self.key if isinstance(self.key, Shape) else self.key.shape   # type: ignore[attr-defined]

    def __repr__(self) -> str:
        return self.name


def a_node(index: int, cores: int = 4, gpus: int = 0) -> dict[str, Any]:
    return {'index': index, 'name': f'node{index}', 'lfs': 0, 'mem': 0,
            'cores': [{'index': each, 'occupation': 0.0} for each in range(cores)],
            'gpus': [{'index': each, 'occupation': 0.0} for each in range(gpus)]}


def a_map(nodes: int = 1, cores: int = 4, gpus: int = 0) -> SlotMap:
    return SlotMap([a_node(index, cores, gpus) for index in range(nodes)])


def place(slots: SlotMap, key: Any) -> Placement | None:
    """A placement of what a job asks for."""
    if isinstance(key, Within):
        return slots.place_in(key.shape, key.within.start, key.within.stop)
    return slots.place(key if isinstance(key, Shape) else key.shape)


class Machine:
    """Nodes and a wait pool; counts the tries, and knows who runs."""

    def __init__(self, nodes: int = 1, cores: int = 4, gpus: int = 0) -> None:
        self.slots = a_map(nodes, cores, gpus)
        self.pool: WaitPool[Job] = WaitPool(self.slots)
        self.tried: list[Job] = []
        self.running: list[Job] = []

    def submit(self, *jobs: Job, now: float = 0.0) -> None:
        for job in jobs:
            job.ticket = self.pool.add(job, job.key, job.priority, now)
        self.pool.check()

    def fits(self, job: Job) -> bool:
        self.tried.append(job)
        job.placement = place(self.slots, job.key)
        return job.placement is not None

    def place(self, now: float = 0.0) -> list[Job]:
        self.tried.clear()
        placed = self.pool.place(self.fits, now)
        self.running += placed
        self.check()
        return placed

    def finish(self, *jobs: Job) -> None:
        for job in jobs:
            self.running.remove(job)
            assert job.placement is not None
            self.slots.release(job.placement)
            self.pool.freed(job.placement)

    def check(self) -> None:
        self.pool.check()
        check(self.slots)
