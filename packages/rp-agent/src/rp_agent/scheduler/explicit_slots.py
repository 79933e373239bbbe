"""Explicit slots, chosen by the application: claims all slots of a task from the slot map at once.

The slot map manages whole cores. A core of which a task claims a share is taken from it as a whole, and held here until
its last share is released.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from rp_agent.scheduler.slotmap import Placement, SlotMap
from rp_api.errors import ResourceError
from rp_api.resources import Slot
from rp_api.resources.pool import UNITS, to_units
from rp_profiling.write.slots import short_form

Core = tuple[int, int]
"""Node index and core index."""


class ExplicitRequest(NamedTuple):
    """The slots of a task. Tasks with equal slots have equal requests."""

    slots: tuple[tuple[Any, ...], ...]


class ExplicitPlacement:
    """The resources of a task with explicit slots."""

    def __init__(self, slots: list[dict[str, Any]], whole: Placement, shares: Mapping[Core, int]) -> None:
        self._slots = slots
        self.whole = whole
        """Placement of everything except shared cores."""
        self.shares = shares
        """Units taken of each shared core."""

    def nodes(self) -> list[int]:
        """Return the positions of the nodes, slot by slot."""
        return self.whole.nodes()

    def slots(self) -> list[dict[str, Any]]:
        """Return the slots as plain data."""
        return self._slots

    def cores_of_rank(self, rank: int) -> tuple[int, ...]:
        """Return the core indices of a rank."""
        return tuple(core['index'] for core in self._slots[rank]['cores'])

    def trace(self) -> str:
        """Return the slots in the short form of traces (`rp_profiling.write.slots`)."""
        return short_form(self._slots)


class ExplicitSlots:
    """Claims explicit slots; `names` are the node names by index."""

    def __init__(self, slots: SlotMap, names: Sequence[str]) -> None:
        self._slots = slots
        self._names = names
        self._used: Counter[Core] = Counter()
        """Units taken of each shared core."""
        self._cores: dict[Core, Placement] = {}
        self.down: Collection[int] = ()
        """Positions of lost nodes."""

    def request(self, slots: Sequence[Any], ranks: int) -> ExplicitRequest:
        """Return the request for these slots, one per rank; raise `ResourceError` if it can never be met."""
        wanted = [slot if isinstance(slot, Slot) else Slot(slot) for slot in slots]
        if len(wanted) != ranks:
            raise ResourceError(f'{len(wanted)} slots are given for {ranks} ranks: each rank needs one')
        for slot in wanted:
            self._refuse_strange_node(slot)
        self._refuse_impossible(wanted)
        return ExplicitRequest(tuple(_key(slot) for slot in wanted))

    def refuse_lost(self, request: ExplicitRequest) -> None:
        """Raise `ResourceError` if a node of the slots is lost."""
        for slot in request.slots:
            if slot[0] in self.down:
                raise ResourceError(f'a slot is for node {slot[0]} ({self._names[slot[0]]}), which is lost')

    def place(self, request: ExplicitRequest) -> ExplicitPlacement | None:
        """Return a placement of these slots; take nothing and return None if a part of them is in use."""
        shares = _shares(request)
        claims = [_without_shares(slot) for slot in request.slots]
        new = [core for core in shares if core not in self._cores]
        if any(self._used[core] + units > UNITS for core, units in shares.items()):
            return None
        whole = self._slots.claim(claims + [_core(core) for core in new])
        if whole is None:
            return None
        # a shared core outlives this placement, and therefore has its own
        if new:
            self._slots.release(whole)
            whole = self._claim(claims)
            self._cores.update((core, self._claim([_core(core)])) for core in new)
        self._used.update(shares)
        return ExplicitPlacement([self._plain(slot) for slot in request.slots], whole, shares)

    def release(self, placement: ExplicitPlacement) -> None:
        """Release a placement."""
        self._slots.release(placement.whole)
        for core, units in placement.shares.items():
            self._used[core] -= units
            if not self._used[core]:
                del self._used[core]
                self._slots.release(self._cores.pop(core))

    def check(self) -> None:
        """Verify that each shared core is held, and shared at most once."""
        assert set(self._used) == set(self._cores), 'shared cores are not those that are held'
        assert all(0 < units <= UNITS for units in self._used.values()), 'a shared core is given too often'

    def _claim(self, slots: Iterable[Mapping[str, Any]]) -> Placement:
        placement = self._slots.claim(list(slots))
        assert placement is not None, f'{slots} are not free'
        return placement

    def _refuse_strange_node(self, slot: Slot) -> None:
        index, name = slot['node_index'], slot['node_name']
        if not 0 <= index < len(self._names):
            raise ResourceError(f'a slot is for node {index}, which the pilot does not have: its {len(self._names)} '
                                f'node(s) have the numbers 0 to {len(self._names) - 1}')
        if name and name != self._names[index]:
            raise ResourceError(f'a slot is for node {index} with the name {name!r}, which has the name '
                                f'{self._names[index]!r}')

    def _refuse_impossible(self, wanted: Iterable[Slot]) -> None:
        """Raise `ResourceError` if the slots can never be free together; the slot map checks all but shared cores."""
        request = ExplicitRequest(tuple(_key(slot) for slot in wanted))
        for core, units in _shares(request).items():
            if units > UNITS:
                raise ResourceError(f'core {core[1]} of node {core[0]} cannot give {units / UNITS:g} of itself')
        trial = self._slots.claim([*map(_without_shares, request.slots), *map(_core, _shares(request))])
        if trial is not None:
            self._slots.release(trial)

    def _plain(self, slot: tuple[Any, ...]) -> dict[str, Any]:
        index, cores, gpus, lfs, mem = slot
        return {'node_index': index, 'node_name': self._names[index], 'cores': _plain_devices(cores),
                'gpus': _plain_devices(gpus), 'lfs': lfs, 'mem': mem, 'version': 1}


def _key(slot: Slot) -> tuple[Any, ...]:
    devices = (tuple((device['index'], device['occupation']) for device in slot[kind]) for kind in ('cores', 'gpus'))
    return slot['node_index'], *devices, slot['lfs'], slot['mem']


def _plain_devices(devices: Iterable[tuple[int, float]]) -> list[dict[str, Any]]:
    return [{'index': index, 'occupation': part} for index, part in devices]


def _shares(request: ExplicitRequest) -> dict[Core, int]:
    """Return the units of all cores that are requested in part."""
    units: Counter[Core] = Counter()
    for slot in request.slots:
        for core, part in slot[1]:
            if 0 < part < 1:
                units[slot[0], core] += to_units(part)
    return dict(units)


def _without_shares(slot: tuple[Any, ...]) -> dict[str, Any]:
    index, cores, gpus, lfs, mem = slot
    return {'node_index': index, 'cores': _plain_devices(core for core in cores if not 0 < core[1] < 1),
            'gpus': _plain_devices(gpus), 'lfs': lfs, 'mem': mem}


def _core(core: Core) -> dict[str, Any]:
    return {'node_index': core[0], 'cores': [core[1]], 'gpus': []}
