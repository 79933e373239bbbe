"""The free resources of a pilot or partition, as the client knows them: a model of the agent's scheduler.

No I/O and no clocks. A rank never spans nodes. The ranks of a task go on one node if one has room for all of them,
otherwise on several, unless the task must stay on one node. Which nodes the agent really takes does not matter: the
model counts how many tasks can run at once.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from rp_api.resources.pool import UNITS, to_units
from rp_client.scheduler.places import Need

WHOLE = 10 ** 12
"""All tasks of one kind that a place runs at once, as the unit of oversubscription."""


class Node(NamedTuple):
    """The resources of an empty node: usable cores and GPUs, memory and storage in MB."""

    cores: int
    gpus: int = 0
    mem: int = 0
    lfs: int = 0


def nodes_of(details: Mapping[str, Any]) -> list[Node]:
    """Return the nodes in `Pilot.resource_details`, without devices that are blocked or lost."""
    return [Node(_usable(node['cores']), _usable(node['gpus']), node.get('mem') or 0, node.get('lfs') or 0)
            for node in details.get('node_list', ())]


def _usable(devices: Iterable[Mapping[str, Any]]) -> int:
    return sum(device['occupation'] is not None for device in devices)


class _Part(NamedTuple):
    """The ranks of a task on one node, and the GPU of each, or several GPUs for each."""

    node: int
    ranks: int
    gpus: Sequence[int]


class _State:
    """The free resources of one node; `gpus` are the free units of each GPU."""

    __slots__ = ('cores', 'gpus', 'lfs', 'mem')

    def __init__(self, node: Node) -> None:
        self.cores, self.mem, self.lfs = node.cores, node.mem, node.lfs
        self.gpus = [UNITS] * node.gpus

    def holds(self, need: Need, most: int) -> int:
        """Return how many ranks find room, up to `most`."""
        if need.cores:
            most = min(most, self.cores // need.cores)
        if need.mem:
            most = min(most, self.mem // need.mem)
        if need.lfs:
            most = min(most, self.lfs // need.lfs)
        if need.gpus and most > 0:
            if need.gpus >= 1:
                return min(most, self.gpus.count(UNITS) // int(need.gpus))
            share = to_units(need.gpus)
            return min(most, sum(free // share for free in self.gpus))
        return most

    def take(self, need: Need, ranks: int) -> Sequence[int]:
        """Take the resources of ranks for which there is room, and return their GPUs."""
        self._add(need, -ranks)
        if not need.gpus:
            return ()
        if need.gpus >= 1:
            found = [index for index, free in enumerate(self.gpus) if free == UNITS][:ranks * int(need.gpus)]
            for index in found:
                self.gpus[index] = 0
            return found
        share, found = to_units(need.gpus), []
        for _ in range(ranks):   # each on the fullest GPU that has room
            _, index = min((free, index) for index, free in enumerate(self.gpus) if free >= share)
            self.gpus[index] -= share
            found.append(index)
        return found

    def give(self, need: Need, part: _Part) -> None:
        """Give back what `take` took."""
        self._add(need, part.ranks)
        units = UNITS if need.gpus >= 1 else to_units(need.gpus)
        for index in part.gpus:
            self.gpus[index] += units

    def _add(self, need: Need, ranks: int) -> None:
        self.cores += ranks * need.cores
        self.mem += ranks * need.mem
        self.lfs += ranks * need.lfs


class Room:
    """The free resources of a place, and its tasks: those that run, and those that wait in its agent.

    `oversubscription` is a percentage: with 50, half as many tasks as can run at once may wait in the agent.

    A task with equal needs to the one before costs the same, however many nodes there are: for each need, the search
    goes on in `_candidates` where it stopped; nodes that were freed are appended.
    """

    def __init__(self, nodes: Sequence[Node], oversubscription: float = 0.0) -> None:
        self._nodes = [_State(node) for node in nodes]
        self._kinds = Counter(nodes)
        self.cores = sum(node.cores for node in nodes)
        """Cores of the place."""
        self.free_cores = self.cores
        """Cores that no task uses."""
        self._limit = round(oversubscription / 100 * WHOLE)
        self._backlog = 0
        self._running: dict[str, tuple[Need, list[_Part]]] = {}
        self._waiting: dict[Need, OrderedDict[str, None]] = {}   # its first key is found at once, unlike a dict's
        self._needs: dict[str, Need] = {}   # of waiting tasks
        self._capacities: dict[Need, int] = {}
        self._candidates = list(range(len(nodes)))
        self._positions: dict[Need, int] = {}

    @property
    def running(self) -> int:
        """Number of tasks that can run at present."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """Number of tasks that wait in the agent."""
        return len(self._needs)

    @property
    def full(self) -> bool:
        """True if no task that needs a core finds room, or may wait in the agent."""
        return self.free_cores <= 0 and self._backlog + WHOLE // max(1, self.cores) > self._limit

    def capacity(self, need: Need) -> int:
        """Return how many tasks with this need can run at once in the empty place."""
        found = self._capacities.get(need)
        if found is None:
            found = self._capacities[need] = self._count(need)
        return found

    def _count(self, need: Need) -> int:
        ranks = [(_State(node).holds(need, max(node.cores, need.ranks)), count) for node, count in self._kinds.items()]
        limit = need.per_node or need.ranks
        if need.one_node:
            return sum(count * (each // need.ranks) for each, count in ranks) if limit >= need.ranks else 0
        if sum(count * min(each, limit) for each, count in ranks) < need.ranks:
            return 0
        return sum(count * each for each, count in ranks) // need.ranks

    def take(self, uid: str, need: Need) -> bool:
        """Give resources to a task if they are free; return whether they are."""
        parts = self._place(need)
        if parts is None:
            return False
        self._running[uid] = need, parts
        return True

    def queue(self, uid: str, need: Need) -> bool:
        """Accept a task that waits in the agent, within the oversubscription; return whether it was accepted."""
        if self._backlog + self._share(need) > self._limit:
            return False
        self._enqueue(uid, need)
        return True

    def hold(self, uid: str, need: Need) -> None:
        """Accept a task that is bound to the place already, whether there is room or not."""
        if need.counted and self.capacity(need) and not self.take(uid, need):
            self._enqueue(uid, need)

    def give(self, uids: Iterable[str]) -> None:
        """Free the resources of tasks, and give them to tasks that wait in the agent; unknown tasks are ignored."""
        freed = False
        for uid in uids:
            running = self._running.pop(uid, None)
            if running is not None:
                self._free(*running)
                freed = True
            elif uid in self._needs:
                self._dequeue(uid)
        if freed:
            self._promote()

    def check(self) -> None:
        """Raise AssertionError if the free resources contradict the tasks."""
        used = sum(need.ranks * need.cores for need, _ in self._running.values())
        assert self.free_cores == self.cores - used == sum(state.cores for state in self._nodes)
        for state in self._nodes:
            assert min(state.cores, state.mem, state.lfs, *state.gpus, 0) >= 0
            assert max(state.gpus, default=0) <= UNITS
        assert self._backlog == sum(self._share(need) for need in self._needs.values())
        assert {uid: need for need, uids in self._waiting.items() for uid in uids} == self._needs
        assert not self._needs.keys() & self._running.keys()

    def _share(self, need: Need) -> int:
        return WHOLE // self.capacity(need)

    def _enqueue(self, uid: str, need: Need) -> None:
        self._backlog += self._share(need)
        self._waiting.setdefault(need, OrderedDict())[uid] = None
        self._needs[uid] = need

    def _dequeue(self, uid: str) -> None:
        need = self._needs.pop(uid)
        self._backlog -= self._share(need)
        waiting = self._waiting[need]
        del waiting[uid]
        if not waiting:
            del self._waiting[need]

    def _promote(self) -> None:
        """Give free resources to waiting tasks, as the agent does."""
        for need, waiting in list(self._waiting.items()):
            if self.free_cores <= 0:
                break
            while waiting:
                uid = next(iter(waiting))
                if not self.take(uid, need):
                    break
                self._dequeue(uid)

    def _place(self, need: Need) -> list[_Part] | None:
        """Take resources for all ranks of a task, or return None."""
        if need.ranks * need.cores > self.free_cores:
            return None
        node = self._find(need)
        if node is not None:
            return [self._take(node, need, need.ranks)]
        return None if need.one_node or need.ranks == 1 else self._spread(need)

    def _find(self, need: Need) -> int | None:
        """Return a node with room for all ranks."""
        if need.per_node and need.per_node < need.ranks:
            return None
        position, candidates = self._positions.get(need, 0), self._candidates
        while position < len(candidates):
            if self._nodes[candidates[position]].holds(need, need.ranks) >= need.ranks:
                self._positions[need] = position
                return candidates[position]
            position += 1
        self._positions[need] = position
        return None

    def _spread(self, need: Need) -> list[_Part] | None:
        """Take resources on several nodes, those with the most room first, or return None."""
        limit = need.per_node or need.ranks
        rooms = [(state.holds(need, limit), index) for index, state in enumerate(self._nodes)]
        if sum(room for room, _ in rooms) < need.ranks:
            return None
        parts, missing = [], need.ranks
        for room, index in sorted(rooms, key=lambda found: (-found[0], found[1])):
            parts.append(self._take(index, need, min(room, missing)))
            missing -= parts[-1].ranks
            if not missing:
                break
        return parts

    def _take(self, node: int, need: Need, ranks: int) -> _Part:
        self.free_cores -= ranks * need.cores
        return _Part(node, ranks, self._nodes[node].take(need, ranks))

    def _free(self, need: Need, parts: Iterable[_Part]) -> None:
        for part in parts:
            self.free_cores += part.ranks * need.cores
            self._nodes[part.node].give(need, part)
            self._candidates.append(part.node)
        if len(self._candidates) > 2 * len(self._nodes) + 64:
            self._candidates = list(range(len(self._nodes)))
            self._positions.clear()
