"""A node: the occupation of its cores, GPUs, storage and memory, and the slots that hold them.

A node keeps a ledger of its occupied slots. A slot that is released twice is rejected, so that it cannot free resources
of another slot. Resources that are taken without a slot in the ledger (the initial occupation of a node, or one that
was set on its cores directly) may be released with any slot that describes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import Lock
from typing import Any

from rp_api.constants import FREE
from rp_api.record import CastError, Record, count, field, integer, text
from rp_api.resources.claim import AMOUNTS, KINDS, Claim, Ledger, Shape, SlotConflict, requirements
from rp_api.resources.pool import ALL, Pool, ensure
from rp_api.resources.slots import RO, RankRequirements, Slot, occupation

Region = tuple[int, int]  # masks of the cores and GPUs to which a slot is restricted
Listener = Callable[[Any, bool], None]  # takes the node, and whether it was redefined rather than only released


def _devices(value: Any) -> list[tuple[int, float | None]]:
    """Return index and occupation of a node's devices.

    The value is a number of devices (all free), or a list of ROs, dicts, or occupations by position.
    """
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return [(index, FREE) for index in range(value)]
    if not isinstance(value, list | tuple):
        raise CastError('a number of devices, or a list of ResourceOccupations or occupations')
    return [_device(item) if isinstance(item, Mapping) else (index, occupation(item))
            for index, item in enumerate(value)]


def _device(item: Mapping[str, Any]) -> tuple[int, float | None]:
    device = item if isinstance(item, RO) else RO(item)
    device.verify()
    return device['index'], device['occupation']


class Node(Record):
    """A compute node: index, name, cores and GPUs (each an RO), and MB of free local storage and memory."""

    __slots__ = ('_amounts', '_held', '_listeners', '_lock', '_pools', '_totals')

    index: int = field(integer, 0)
    name: str = field(text, '')
    cores: list[RO] = field(_devices, list)
    gpus: list[RO] = field(_devices, list)
    lfs: int = field(count, 0)
    mem: int = field(count, 0)

    def __init__(self, from_dict: Mapping[str, Any] | None = None, **values: Any) -> None:
        self._lock = Lock()
        self._pools: dict[str, Pool] = {}
        self._held = Ledger()
        self._totals = dict.fromkeys(AMOUNTS, 0)
        self._amounts: list[Node] = [self]  # nodes whose fields lfs and mem show the free amounts
        self._listeners: list[Listener] = []
        super().__init__(from_dict, **values)

    def __setitem__(self, name: str, value: Any) -> None:
        if name in KINDS:
            if self._held:
                raise SlotConflict(f'the {name} of {self._title()} cannot be replaced while slots are in use')
            pool = Pool(self._cast(name, value), self._lock, self._redefined)
            self._pools[name] = pool
            dict.__setitem__(self, name, list(pool.views.values()))
        elif name in AMOUNTS:
            self._totals[name] = self._cast(name, value) + self._held.amount(name)
            self._show(name, self._cast(name, value))
        else:
            super().__setitem__(name, value)
        self._redefined()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.as_dict(),), (Ledger(self._held), dict(self._totals))

    def __setstate__(self, state: tuple[Ledger, dict[str, int]]) -> None:
        self._held = state[0]
        self._totals.update(state[1])

    def find_slot(self, rr: RankRequirements | Mapping[str, Any]) -> Slot | None:
        """Occupy and return a slot that fulfils the requirements; return None if there is none at present."""
        slots = self.take(Shape.of(requirements(rr)), 1)
        return slots[0] if slots else None

    def allocate_slot(self, slot: Slot | Mapping[str, Any], _check: bool = True) -> None:
        """Occupy the resources of a slot, all or nothing; raise a SlotConflict that names those which are not free.

        `_check` is accepted for compatibility; the check is always made.
        """
        claim = self._claim(slot)
        with self._lock:
            flaw = self._flaw(claim)
            if flaw:
                raise SlotConflict(f'slot cannot be allocated on {self._title()}: {flaw}')
            self._occupy(claim)

    def deallocate_slot(self, slot: Slot | Mapping[str, Any]) -> None:
        """Free the resources of a slot; raise a SlotConflict if the slot is not (or no longer) allocated here."""
        claim = self._claim(slot)
        with self._lock:
            if claim not in self._held:
                self._adopt(claim)
            self._vacate(claim)
        self._tell(False)

    def take(self, shape: Shape, limit: int) -> list[Slot]:
        """Occupy and return up to `limit` slots of this shape."""
        slots: list[Slot] = []
        with self._lock:
            for cores, gpus in self._regions(shape):
                while len(slots) < limit:
                    claim = self._find(shape, cores, gpus)
                    if claim is None:
                        break
                    self._occupy(claim)
                    slots.append(claim.slot(self['index'], self._host_name()))
        return slots

    def room(self, shape: Shape, limit: int) -> int:
        """Return the number of slots of this shape that are free at present, at most `limit`."""
        return self._count(shape, limit, Pool.room, self)

    def most(self, shape: Shape, limit: int) -> int:
        """Return the number of slots of this shape on the idle node, at most `limit`."""
        return self._count(shape, limit, Pool.most, self._totals)

    def is_idle(self) -> bool:
        """Return whether no slot is in use."""
        return not self._held

    def capacity(self) -> dict[str, int]:
        """Return the cores and GPUs that are not down, and the MB of storage and memory, free or not."""
        return {**{kind: pool.usable.bit_count() for kind, pool in self._pools.items()}, **self._totals}

    def size(self) -> tuple[int, ...]:
        """Return the numbers of cores and GPUs, down or not, and the MB of storage and memory."""
        return tuple(len(self[kind]) for kind in KINDS) + tuple(self._totals[name] for name in AMOUNTS)

    def have_at_least(self, name: str, total: int) -> None:
        """Set a lower bound for the node's total MB of storage ('lfs') or memory ('mem'), free or not."""
        self._totals[name] = max(self._totals[name], total)

    def watch(self, listener: Listener) -> None:
        """Register a listener, which is called outside of locks whenever resources may have become free."""
        if listener not in self._listeners:
            self._listeners.append(listener)

    def check(self) -> None:
        """Raise an AssertionError if ledger, pools and fields contradict each other."""
        title = self._title()
        with self._lock:
            for kind, pool in self._pools.items():
                pool.check()
                for index, owned in self._held.owned(kind).items():
                    ensure(owned <= pool.used[index], f'{title}: {kind} {index} is owned more than taken')
                ensure(list(pool.views.values()) == self[kind], f'{title}: {kind} were changed by hand')
            for name, total in self._totals.items():
                held = self._held.amount(name)
                ensure(0 <= self[name] <= total - held, f'{title}: {self[name]} MB {name} free of {total}')

    def _regions(self, _shape: Shape) -> list[Region]:
        """Return the regions of the node to which a slot of this shape is restricted."""
        return [(ALL, ALL)]

    def _host_name(self) -> str:
        """Return the name for launching processes on the node."""
        return str(self['name'])

    def _title(self) -> str:
        return f'node {self["index"]} {self._host_name()!r}'

    def _count(self, shape: Shape, limit: int, counted: Callable[[Pool, int, int, int], int],
               amounts: Mapping[str, int]) -> int:
        for name in AMOUNTS:
            asked: int = getattr(shape, name)
            if asked:
                limit = min(limit, amounts[name] // asked)
        found = 0
        for region in self._regions(shape):
            found += min(counted(pool, number, units, mask) if number else limit
                         for pool, number, units, mask in self._wanted(shape, region))
        return min(found, limit)

    def _wanted(self, shape: Shape, region: Region) -> list[tuple[Pool, int, int, int]]:
        return [(self._pools['cores'], shape.n_cores, shape.core_units, region[0]),
                (self._pools['gpus'], shape.n_gpus, shape.gpu_units, region[1])]

    def _find(self, shape: Shape, core_mask: int, gpu_mask: int) -> Claim | None:
        if shape.lfs > self['lfs'] or shape.mem > self['mem']:
            return None
        cores = self._pools['cores'].find(shape.n_cores, shape.core_units, core_mask) if shape.n_cores else []
        if cores is None:
            return None
        gpus = self._pools['gpus'].find(shape.n_gpus, shape.gpu_units, gpu_mask) if shape.n_gpus else []
        if gpus is None:
            return None
        return Claim(tuple(cores), (shape.core_units,) * shape.n_cores,
                     tuple(gpus), (shape.gpu_units,) * shape.n_gpus, shape.lfs, shape.mem)

    def _occupy(self, claim: Claim) -> None:
        self._pools['cores'].take(claim.cores, claim.core_units)
        self._pools['gpus'].take(claim.gpus, claim.gpu_units)
        self._add_amounts(-claim.lfs, -claim.mem)
        self._held.add(claim)

    def _vacate(self, claim: Claim) -> None:
        self._pools['cores'].give(claim.cores, claim.core_units)
        self._pools['gpus'].give(claim.gpus, claim.gpu_units)
        self._add_amounts(claim.lfs, claim.mem)
        self._held.remove(claim)

    def _add_amounts(self, lfs: int, mem: int) -> None:
        if lfs:
            self._show('lfs', self['lfs'] + lfs)
        if mem:
            self._show('mem', self['mem'] + mem)

    def _show(self, name: str, amount: int) -> None:
        for node in self._amounts:
            dict.__setitem__(node, name, amount)

    def _claim(self, slot: Slot | Mapping[str, Any]) -> Claim:
        """Return the claim of a slot; raise SlotConflict if the slot is for another node."""
        slot = slot if isinstance(slot, Slot) else Slot(slot)
        index, name = slot['node_index'], slot['node_name']
        if index != self['index'] or name not in ('', self._host_name(), self['name']):
            raise SlotConflict(f'slot is for node {index} {name!r}, not for {self._title()}')
        return Claim.of(slot)

    def _flaw(self, claim: Claim) -> str | None:
        """Return the reason why the claim cannot be occupied now, or None."""
        for kind, indices, units in claim.devices():
            for index, amount in zip(indices, units, strict=True):
                flaw = self._pools[kind].flaw(index, amount)
                if flaw:
                    return f'{"core" if kind == "cores" else "GPU"} {index} {flaw}'
        for name in AMOUNTS:
            if getattr(claim, name) > self[name]:
                return f'{getattr(claim, name)} MB {name} asked, {self[name]} MB free'
        return None

    def _adopt(self, claim: Claim) -> None:
        """Add a claim to the ledger if no slot in it holds the devices; else raise SlotConflict."""
        for kind, indices, units in claim.devices():
            owned, used = self._held.owned(kind), self._pools[kind].used
            if any(used.get(index, 0) - owned[index] < amount
                   for index, amount in zip(indices, units, strict=True)):
                break
        else:
            if claim.cores or claim.gpus:
                for name in AMOUNTS:
                    self.have_at_least(name, self[name] + self._held.amount(name) + getattr(claim, name))
                self._held.add(claim)
                return
        where = self._title()
        raise SlotConflict(f'slot {claim.text()} is not allocated on {where}: was it released before?')

    def _redefined(self) -> None:
        self._tell(True)

    def _tell(self, redefined: bool) -> None:
        for listener in self._listeners:
            listener(self, redefined)
