"""Places of tasks in pilots: the pilot itself, or one of its partitions.

No I/O and no clocks. Tasks that request a partition get it; the others go to the partition with the least relative load
among those that they fit in. A task that fits in none goes to the largest, whose agent fails it with a reason.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from math import ceil
from typing import NamedTuple


class Need(NamedTuple):
    """The resources that a task requests."""

    partition: int | None = None
    ranks: int = 1
    cores: int = 1
    """For each rank."""
    gpus: float = 0.0
    """For each rank: part of a GPU, or a number of GPUs."""
    mem: int = 0
    """MB for each rank."""
    lfs: int = 0
    """MB of storage for each rank."""
    per_node: int = 0
    """Ranks on a node at most; 0 for no limit."""
    one_node: bool = False
    """True if all ranks must be on the same node."""
    priority: int = 0
    counted: bool = True
    """False for tasks that run inside of others, or that their agent holds back until other tasks arrive."""


class Place(NamedTuple):
    """The number and size of a partition that can take tasks."""

    number: int
    cores: int
    gpus: int
    cores_per_node: int
    gpus_per_node: int
    mem_per_node: int
    """MB of memory."""
    mem: int
    """MB of memory on all nodes."""

    def fits(self, need: Need) -> bool:
        """Return whether a task fits in the empty partition, as far as these numbers show."""
        return (need.ranks * need.cores <= self.cores and need.ranks * need.gpus <= self.gpus
                and need.cores <= self.cores_per_node and ceil(need.gpus) <= self.gpus_per_node
                and need.ranks * need.mem <= self.mem and need.mem <= self.mem_per_node)


class Load(NamedTuple):
    """Cores and GPUs of the tasks that are bound to a partition."""

    cores: float = 0.0
    gpus: float = 0.0


class Places:
    """The partitions of pilots, and the load that is bound to them; `need` returns the needs of a task by uid."""

    def __init__(self, need: Callable[[str], Need]) -> None:
        self._need = need
        self._places: dict[str, dict[str, Place]] = {}   # of divided pilots
        self._partitions: set[str] = set()
        self._ended: dict[str, frozenset[int]] = {}
        self._loads: dict[str, Load] = {}
        self._tasks: dict[str, tuple[str, Load]] = {}

    def update(self, pilot: str, places: Mapping[str, Place], ended: Iterable[int]) -> None:
        """Set the partitions of a pilot, by uid, and the numbers of those that have ended."""
        self._partitions.difference_update(self._places.get(pilot, ()))
        self._partitions.update(places)
        self._places[pilot] = dict(places)
        self._ended[pilot] = frozenset(ended)

    def forget(self, pilot: str) -> None:
        """Place no more tasks in the partitions of a pilot."""
        self.update(pilot, {}, self._ended.get(pilot, ()))

    def divided(self, pilot: str) -> bool:
        """Return whether the pilot has partitions."""
        return pilot in self._places

    def has(self, partition: str) -> bool:
        """Return whether a partition can take tasks."""
        return partition in self._partitions

    def choose(self, pilot: str, uid: str) -> str:
        """Return the place of a task in a pilot or partition: its uid, or that of a partition; empty if there is none.

        The load of the partition then includes the task.
        """
        places = self._places.get(pilot)
        if places is None:
            if pilot in self._partitions:
                self.bound(uid, pilot)
            return pilot
        if not places:
            return ''
        need = self._need(uid)
        wanted = [(partition, place) for partition, place in places.items()
                  if need.partition in (None, place.number)]
        fitting = [found for found in wanted if found[1].fits(need)]
        if not wanted:
            return ''
        if fitting:
            partition, _ = min(fitting, key=lambda found: (self._share(found[0], found[1], need), found[1].number))
        else:
            partition, _ = max(wanted, key=lambda found: (found[1].cores, -found[1].number))
        self.bound(uid, partition, need)
        return partition

    def bound(self, uid: str, partition: str, need: Need | None = None) -> None:
        """Add a task to the load of a partition."""
        need = need or self._need(uid)
        load = Load(need.ranks * need.cores, need.ranks * need.gpus)
        self.left([uid])
        self._tasks[uid] = partition, load
        self._add(partition, load.cores, load.gpus)

    def __len__(self) -> int:
        """Return the number of tasks in the loads."""
        return len(self._tasks)

    def left(self, uids: Iterable[str]) -> None:
        """Remove tasks from the loads; unknown ones are ignored."""
        for uid in uids:
            partition, load = self._tasks.pop(uid, ('', Load()))
            if partition:
                self._add(partition, -load.cores, -load.gpus)

    def lost(self, uid: str, pilots: Collection[str]) -> tuple[str, int] | None:
        """Return a pilot and the requested partition, if it has ended in all of the pilots that the task may go to."""
        if not any(self._ended.values()):
            return None
        wanted = self._need(uid).partition
        if wanted is None or not all(wanted in self._ended.get(pilot, ()) for pilot in pilots):
            return None
        return next(((pilot, wanted) for pilot in pilots), None)

    def _share(self, partition: str, place: Place, need: Need) -> float:
        """Return the used share of a partition with the task in it."""
        load = self._loads.get(partition, Load())
        cores = (load.cores + need.ranks * need.cores) / place.cores
        return max(cores, (load.gpus + need.ranks * need.gpus) / place.gpus) if need.gpus else cores

    def _add(self, partition: str, cores: float, gpus: float) -> None:
        load = self._loads.get(partition, Load())
        self._loads[partition] = Load(load.cores + cores, load.gpus + gpus)
