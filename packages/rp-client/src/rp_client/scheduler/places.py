"""Where in a pilot a task goes: to its agent, or, if it is divided, to that of one of its partitions.

No I/O, no clock: values in, values out. Tasks that ask for a partition get that one; the others go to the one that has
the least to do for its size, of those in which they fit. What fits nowhere goes to the largest, whose agent says why.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from math import ceil
from typing import NamedTuple


class Need(NamedTuple):
    """What a task asks for."""

    partition: int | None = None
    ranks: int = 1
    cores: int = 1
    """For each rank."""
    gpus: float = 0.0
    """For each rank."""


class Place(NamedTuple):
    """A partition that can take tasks, and how large it is."""

    number: int
    cores: int
    gpus: int
    cores_per_node: int
    gpus_per_node: int

    def fits(self, need: Need) -> bool:
        """Whether there is room for a task when nothing else runs, as far as that follows from these numbers."""
        return (need.ranks * need.cores <= self.cores and need.ranks * need.gpus <= self.gpus
                and need.cores <= self.cores_per_node and ceil(need.gpus) <= self.gpus_per_node)


class Load(NamedTuple):
    """Cores and GPUs of the tasks that are bound to a partition."""

    cores: float = 0.0
    gpus: float = 0.0


class Places:
    """The partitions of pilots, and what is bound to them; `need` tells what the task of a uid asks for."""

    def __init__(self, need: Callable[[str], Need]) -> None:
        self._need = need
        self._places: dict[str, dict[str, Place]] = {}   # of divided pilots
        self._partitions: set[str] = set()
        self._ended: dict[str, frozenset[int]] = {}
        self._loads: dict[str, Load] = {}
        self._tasks: dict[str, tuple[str, Load]] = {}

    def update(self, pilot: str, places: Mapping[str, Place], ended: Iterable[int]) -> None:
        """A divided pilot has these partitions now, by uid; those with these numbers have ended."""
        self._partitions.difference_update(self._places.get(pilot, ()))
        self._partitions.update(places)
        self._places[pilot] = dict(places)
        self._ended[pilot] = frozenset(ended)

    def forget(self, pilot: str) -> None:
        """Nothing goes to the partitions of a pilot any more."""
        self.update(pilot, {}, self._ended.get(pilot, ()))

    def divided(self, pilot: str) -> bool:
        """Whether the pilot is known to have partitions."""
        return pilot in self._places

    def has(self, partition: str) -> bool:
        """Whether a partition can take tasks."""
        return partition in self._partitions

    def choose(self, pilot: str, uid: str) -> str:
        """The pilot itself, or the partition that the task goes to from now on; empty if none can take it now.

        What was chosen may be a partition already.
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
        """Count a task that is bound to a partition."""
        need = need or self._need(uid)
        load = Load(need.ranks * need.cores, need.ranks * need.gpus)
        self.left([uid])
        self._tasks[uid] = partition, load
        self._add(partition, load.cores, load.gpus)

    def __len__(self) -> int:
        """How many tasks are counted."""
        return len(self._tasks)

    def left(self, uids: Iterable[str]) -> None:
        """Do not count these tasks any more; those that were not counted are ignored."""
        for uid in uids:
            partition, load = self._tasks.pop(uid, ('', Load()))
            if partition:
                self._add(partition, -load.cores, -load.gpus)

    def lost(self, uid: str, pilots: Collection[str]) -> tuple[str, int] | None:
        """A pilot and its partition that has ended, if the task asks for such a one, and none of the pilots, to which
        it may go, can have another one of that number.
        """
        if not any(self._ended.values()):
            return None
        wanted = self._need(uid).partition
        if wanted is None or not all(wanted in self._ended.get(pilot, ()) for pilot in pilots):
            return None
        return next(((pilot, wanted) for pilot in pilots), None)

    def _share(self, partition: str, place: Place, need: Need) -> float:
        """How full a partition is with the task."""
        load = self._loads.get(partition, Load())
        cores = (load.cores + need.ranks * need.cores) / place.cores
        return max(cores, (load.gpus + need.ranks * need.gpus) / place.gpus) if need.gpus else cores

    def _add(self, partition: str, cores: float, gpus: float) -> None:
        load = self._loads.get(partition, Load())
        self._loads[partition] = Load(load.cores + cores, load.gpus + gpus)
