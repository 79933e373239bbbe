"""Requests and occupied slots in integer units, the form in which the search handles them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

from rp_api.constants import BUSY, DOWN
from rp_api.errors import ResourceError
from rp_api.resources.pool import UNITS, to_units
from rp_api.resources.slots import RO, RankRequirements, Slot

KINDS = ('cores', 'gpus')
AMOUNTS = ('lfs', 'mem')

Devices = tuple[str, tuple[int, ...], tuple[int, ...]]  # kind, indices, units of each


class SlotConflict(ResourceError, AssertionError):
    """A slot cannot be occupied because a device is not free, or not be released because it is not occupied.

    Also an AssertionError, as in RADICAL-Pilot 1.103.
    """


class Shape(NamedTuple):
    """Rank requirements in units; numbers of devices and amounts may be zero, units may not."""

    n_cores: int
    core_units: int
    n_gpus: int
    gpu_units: int
    lfs: int
    mem: int
    numa: bool

    @classmethod
    def of(cls, rr: RankRequirements) -> Shape:
        return cls(rr['n_cores'], max(1, to_units(rr['core_occupation'])),
                   rr['n_gpus'], max(1, to_units(rr['gpu_occupation'])), rr['lfs'], rr['mem'], rr['numa'])

    def covers(self, other: Shape) -> bool:
        """Return whether this requires at least as much as `other` in every field."""
        return all(mine >= theirs for mine, theirs in zip(self, other, strict=True))


class Claim(NamedTuple):
    """The resources that a slot takes of its node; slots that take the same resources are equal claims."""

    cores: tuple[int, ...]
    core_units: tuple[int, ...]
    gpus: tuple[int, ...]
    gpu_units: tuple[int, ...]
    lfs: int
    mem: int

    @classmethod
    def of(cls, slot: Slot) -> Claim:
        """Return the claim of an untrusted slot; raise SlotConflict if it is invalid on any node."""
        return cls(*_devices(slot['cores'], 'core'), *_devices(slot['gpus'], 'GPU'), slot['lfs'], slot['mem'])

    def devices(self) -> tuple[Devices, Devices]:
        """Return, for each kind of device, the indices and the units of each."""
        return ('cores', self.cores, self.core_units), ('gpus', self.gpus, self.gpu_units)

    def text(self) -> str:
        """Return the device numbers and amounts for messages."""
        parts = [f'{kind} {", ".join(map(str, indices))}' for kind, indices, _ in self.devices() if indices]
        parts += [f'{getattr(self, name)} MB {name}' for name in AMOUNTS if getattr(self, name)]
        return f'[{"; ".join(parts)}]'

    def slot(self, node_index: int, node_name: str) -> Slot:
        """Return the slot of this claim on a node; casts are skipped, because the values are valid."""
        slot = Slot.__new__(Slot)
        dict.update(slot, {
            'cores': _occupations(self.cores, self.core_units),
            'gpus': _occupations(self.gpus, self.gpu_units),
            'lfs': self.lfs, 'mem': self.mem,
            'node_index': node_index, 'node_name': node_name, 'version': 1})
        return slot


class Ledger(dict[Claim, int]):
    """The number of occupied slots of each claim."""

    __slots__ = ()

    def add(self, claim: Claim) -> None:
        self[claim] = self.get(claim, 0) + 1

    def remove(self, claim: Claim) -> None:
        """Remove one slot; raise KeyError if there is none."""
        if self[claim] == 1:
            del self[claim]
        else:
            self[claim] -= 1

    def owned(self, kind: str) -> Counter[int]:
        """Return the units that slots hold of each device of that kind."""
        owned: Counter[int] = Counter()
        for claim, times in self.items():
            for each, indices, units in claim.devices():
                if each == kind:
                    for index, amount in zip(indices, units, strict=True):
                        owned[index] += amount * times
        return owned

    def amount(self, name: str) -> int:
        """Return the MB of storage ('lfs') or memory ('mem') that slots hold."""
        held: int = sum(getattr(claim, name) * times for claim, times in self.items())
        return held


def requirements(rr: RankRequirements | Mapping[str, Any]) -> RankRequirements:
    """Return the requirements, converted from a plain dict if needed."""
    return rr if isinstance(rr, RankRequirements) else RankRequirements(rr)


def _devices(devices: list[RO], kind: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the indices in ascending order, and the units of each."""
    parts: dict[int, float] = {}
    for device in devices:
        if device['occupation'] is DOWN:
            raise SlotConflict(f'a slot cannot hold {kind} {device["index"]} with occupation None (down)')
        parts[device['index']] = device['occupation']
    if len(parts) < len(devices):
        twice = Counter(device['index'] for device in devices).most_common(1)[0][0]
        raise SlotConflict(f'a slot cannot hold {kind} {twice} more than once')
    indices = tuple(sorted(parts))
    return indices, tuple(to_units(parts[index]) for index in indices)


def _occupations(indices: tuple[int, ...], units: tuple[int, ...]) -> list[RO]:
    found = []
    for index, amount in zip(indices, units, strict=True):
        device = RO.__new__(RO)
        dict.update(device, index=index, occupation=BUSY if amount == UNITS else amount / UNITS)
        found.append(device)
    return found
