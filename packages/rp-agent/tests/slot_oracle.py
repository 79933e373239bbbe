"""A plain model of the slot map: no index, no bitmaps, nothing remembered; each placement rule in a few lines."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from typing import Any

from rp_agent.scheduler.slotmap import Shape
from rp_api.resources.pool import UNITS, to_units

Record = dict[str, Any]
Domains = Iterable[tuple[Sequence[int], Sequence[int]]]
Part = tuple[int, list[int], dict[int, int], int, int]   # position, cores, units by GPU, mem, lfs


class Node:
    """What is free on one node."""

    def __init__(self, record: Record) -> None:
        self.cores = {core['index'] for core in record['cores'] if core['occupation'] == 0}
        self.gpus = {gpu['index']: UNITS - to_units(gpu['occupation'])
                     for gpu in record['gpus'] if gpu['occupation'] is not None}
        self.mem, self.lfs = record['mem'], record['lfs']
        self.hidden = self.down = False
        self.parts = 0  # of placements that are here
        self.blocked_cores: set[int] = set()
        self.blocked_gpus: set[int] = set()

    def take(self, part: Part) -> None:
        _, cores, gpus, mem, lfs = part
        assert set(cores) <= self.cores
        self.cores -= set(cores)
        for gpu, units in gpus.items():
            self.gpus[gpu] -= units
            assert self.gpus[gpu] >= 0
        self.mem -= mem
        self.lfs -= lfs
        assert self.mem >= 0
        assert self.lfs >= 0
        self.parts += 1

    def give(self, part: Part) -> None:
        _, cores, gpus, mem, lfs = part
        assert not set(cores) & self.cores
        self.cores |= set(cores) - self.blocked_cores
        for gpu, units in gpus.items():
            if gpu not in self.blocked_gpus:
                self.gpus[gpu] += units
                assert self.gpus[gpu] <= UNITS
        self.mem += mem
        self.lfs += lfs
        self.parts -= 1

    def block(self, cores: Iterable[int], gpus: Iterable[int]) -> None:
        self.blocked_cores |= set(cores)
        self.cores -= set(cores)
        self.blocked_gpus |= set(gpus)
        for gpu in gpus:
            self.gpus.pop(gpu, None)

    def choose(self, shape: Shape,
               domains: Sequence[tuple[set[int], set[int]]]) -> tuple[list[int], dict[int, int]] | None:
        """Cores, and units by GPU, for one rank; None if there is no room."""
        if len(self.cores) < shape.cores or self.mem < shape.mem or self.lfs < shape.lfs:
            return None
        everything = self.cores, set(self.gpus)
        anywhere = self._gpus(shape, everything[1])
        if anywhere is None:
            return None
        with_cores = [domain for domain in domains if len(self.cores & domain[0]) >= shape.cores]
        with_both = [domain for domain in with_cores if self._gpus(shape, domain[1]) is not None]
        near = (with_both + with_cores + [everything])[0]
        gpus = self._gpus(shape, near[1])
        return sorted(self.cores & near[0])[:shape.cores], anywhere if gpus is None else gpus

    def _gpus(self, shape: Shape, among: set[int]) -> dict[int, int] | None:
        free = sorted(gpu for gpu, left in self.gpus.items() if gpu in among and left == UNITS)
        if shape.share:
            having = [(left, gpu) for gpu, left in self.gpus.items() if gpu in among and left >= shape.share]
            return {min(having)[1]: shape.share} if having else None
        return dict.fromkeys(free[:shape.gpus], UNITS) if len(free) >= shape.gpus else None

    def room(self, shape: Shape, limit: int) -> int:
        """How many ranks can be taken one after the other."""
        node, count = copy.deepcopy(self), 0
        while count < limit and (chosen := node.choose(shape, [])) is not None:
            node.take((0, *chosen, shape.mem, shape.lfs))
            count += 1
        return count


class Oracle:
    """The nodes, and the rules. A placement is a list of parts."""

    def __init__(self, records: Sequence[Record], domains: Domains = ()) -> None:
        self.index = [record['index'] for record in records]
        self.nodes = [Node(record) for record in records]
        self.empty = copy.deepcopy(self.nodes)
        self.domains = [(set(cores), set(gpus)) for cores, gpus in domains]

    def place(self, shape: Shape, avoid: Sequence[int] = ()) -> list[Part] | None:
        found = [position for position, node in enumerate(self.nodes)
                 if not node.hidden and not node.down and position not in avoid]
        limit = shape.ranks_per_node or shape.ranks
        if limit >= shape.ranks:
            for position in found:
                if self.nodes[position].room(shape, shape.ranks) == shape.ranks:
                    return self._take(shape, {position: shape.ranks})
        if shape.ranks == 1:
            return None
        return self._on_run(shape, found, limit) or self._greedy(shape, found, limit)

    def _on_run(self, shape: Shape, found: list[int], limit: int) -> list[Part] | None:
        most = max([self.empty[position].room(shape, min(limit, shape.ranks))
                    for position, node in enumerate(self.nodes) if not node.down], default=0)
        length = -(-shape.ranks // most) if most else 0
        for first in range(len(self.nodes) - length + 1 if length > 1 else 0):
            run = range(first, first + length)
            if all(position in found and not self.nodes[position].parts for position in run):
                return self._fill(shape, run, limit)
        return None

    def _greedy(self, shape: Shape, found: list[int], limit: int) -> list[Part] | None:
        chosen, missing, left = {}, shape.ranks, list(found)
        while missing:
            rooms = [self.nodes[position].room(shape, min(limit, missing)) for position in left]
            most = max(rooms, default=0)
            if not most:
                return None
            chosen[left.pop(rooms.index(most))] = most
            missing -= most
        return self._take(shape, chosen)

    def place_on(self, shape: Shape, positions: Iterable[int], whole: bool = False) -> list[Part] | None:
        usable = [position for position in dict.fromkeys(positions)
                  if not self.nodes[position].down and not (whole and self.nodes[position].parts)]
        parts = self._fill(shape, usable, shape.ranks_per_node or shape.ranks)
        if parts and whole:
            for position in dict.fromkeys(part[0] for part in parts):
                node = self.nodes[position]
                rest = position, sorted(node.cores), dict(node.gpus), node.mem, node.lfs
                node.take(rest)
                parts.append(rest)
        return parts

    def _fill(self, shape: Shape, positions: Iterable[int], limit: int) -> list[Part] | None:
        """One node after the other as full as it can be; None if they do not hold all ranks."""
        chosen, missing = {}, shape.ranks
        for position in positions:
            count = self.nodes[position].room(shape, min(limit, missing))
            if count:
                chosen[position] = count
                missing -= count
        return None if missing else self._take(shape, chosen)

    def _take(self, shape: Shape, chosen: dict[int, int]) -> list[Part]:
        parts = []
        for position, count in chosen.items():
            for _ in range(count):
                rank = self.nodes[position].choose(shape, self.domains)
                assert rank is not None
                part = position, *rank, shape.mem, shape.lfs
                self.nodes[position].take(part)
                parts.append(part)
        return parts

    def claim(self, parts: list[Part]) -> list[Part] | None:
        before = copy.deepcopy(self.nodes)
        for part in parts:
            node = self.nodes[part[0]]
            free = (not node.down and set(part[1]) <= node.cores and part[3] <= node.mem and part[4] <= node.lfs
                    and all(node.gpus.get(gpu, 0) >= units for gpu, units in part[2].items()))
            if not free:
                self.nodes = before
                return None
            node.take(part)
        return parts

    def possible(self, parts: list[Part]) -> bool:
        """Whether the parts could be had if all were free."""
        empty = copy.copy(self)
        empty.nodes = copy.deepcopy(self.empty)
        return empty.claim(parts) is not None

    def release(self, parts: list[Part]) -> None:
        for part in parts:
            self.nodes[part[0]].give(part)

    def block(self, position: int, cores: Iterable[int], gpus: Iterable[int]) -> None:
        self.nodes[position].block(cores, gpus)
        self.empty[position].block(cores, gpus)

    def most(self, shape: Shape) -> int:
        limit = min(shape.ranks_per_node or shape.ranks, shape.ranks)
        rooms = [empty.room(shape, limit)
                 for node, empty in zip(self.nodes, self.empty, strict=True) if not node.down]
        return min(sum(rooms), shape.ranks)

    def candidates(self, shape: Shape) -> int:
        """How many nodes are the fewest that hold the request when they are empty; 0 if it never fits."""
        limit = min(shape.ranks_per_node or shape.ranks, shape.ranks)
        rooms = sorted([empty.room(shape, limit) for node, empty in zip(self.nodes, self.empty, strict=True)
                        if not node.down and not node.hidden], reverse=True)
        for count in range(len(rooms) + 1):
            if sum(rooms[:count]) >= shape.ranks:
                return count
        return 0

    def slots(self, parts: list[Part], ranks: int) -> list[dict[str, Any]]:
        """Slots as the slot map shows them."""
        return [{'node_index': self.index[position], 'node_name': f'n{self.index[position]}',
                 'cores': [{'index': core, 'occupation': 1.0} for core in sorted(cores)],
                 'gpus': [{'index': gpu, 'occupation': units / UNITS} for gpu, units in sorted(gpus.items())],
                 'mem': mem, 'lfs': lfs, 'version': 1} for position, cores, gpus, mem, lfs in parts[:ranks]]
