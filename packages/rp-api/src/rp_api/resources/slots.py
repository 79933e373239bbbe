"""The requirements of a rank, and the slot that it occupies: plain records on the wire."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from rp_api.constants import BUSY, FREE
from rp_api.record import CastError, Field, Record, count, field, flag, integer, number, record, text


def share(value: Any) -> float:
    """Cast to the occupation of a device that is in use: above 0, at most 1 (all of it)."""
    try:
        part = number(value)
    except CastError:
        part = FREE
    if not FREE < part <= BUSY:
        raise CastError('a number above 0, at most 1')
    return part


def occupation(value: Any) -> float | None:
    """Cast to the occupation of a device: from 0 (FREE) to 1 (BUSY), or None (DOWN)."""
    if value is None:
        return None
    try:
        part = number(value)
    except CastError:
        part = -1.0
    if not FREE <= part <= BUSY:
        raise CastError('a number from 0 (free) to 1 (busy), or None (down)')
    return part


class ResourceOccupation(Record):
    """A core or GPU by its index on the node, with the share that is in use (None: it must not be used)."""

    __slots__ = ()
    # not as attributes, because a field has the name of its cast
    FIELDS: ClassVar[Mapping[str, Field]] = {'index': Field(count, 0), 'occupation': Field(occupation)}

    index: int
    occupation: float | None

    def __str__(self) -> str:
        return f'{self["index"]}:{self.get("occupation")}'


RO = ResourceOccupation


def devices(whole: float) -> Callable[[Any], list[RO]]:
    """Return a cast to a list of RO that accepts ROs, dicts, and indices (devices of occupation `whole`)."""
    cast = record(RO)

    def cast_devices(value: Any) -> list[RO]:
        if not isinstance(value, list | tuple):
            raise CastError('a list of indices or ResourceOccupations')
        found: list[Any] = []
        for item in value:
            found.append(RO(index=item, occupation=whole) if isinstance(item, int) else cast(item))
            found[-1].verify()
        return found
    return cast_devices


class Slot(Record):
    """The resources that one rank occupies on one node: cores, GPUs, and MB of node-local storage and memory.

    `cores` and `gpus` may be given as indices of devices that are occupied entirely.
    """

    __slots__ = ()

    cores: list[RO] = field(devices(BUSY), list)
    gpus: list[RO] = field(devices(BUSY), list)
    lfs: int = field(count, 0)
    mem: int = field(count, 0)
    node_index: int = field(integer, 0)
    node_name: str = field(text, '')
    version: int = field(integer, 1)


class RankRequirements(Record):
    """The requirements of each rank: numbers of cores and GPUs, the share of each, and MB of storage and memory.

    With `numa`, all of it must lie in one NUMA domain. Requirements are partially ordered: `a <= b` if `a` requires at
    most as much as `b` in every field.
    """

    __slots__ = ()

    n_cores: int = field(count, 1)
    core_occupation: float = field(share, BUSY)
    n_gpus: int = field(count, 0)
    gpu_occupation: float = field(share, BUSY)
    lfs: int = field(count, 0)
    mem: int = field(count, 0)
    numa: bool = field(flag, False)

    def __le__(self, other: RankRequirements) -> bool:
        return all(self[name] <= other[name] for name in self.FIELDS)

    def __lt__(self, other: RankRequirements) -> bool:
        return self <= other and self != other

    def __ge__(self, other: RankRequirements) -> bool:
        return other <= self

    def __gt__(self, other: RankRequirements) -> bool:
        return other < self

    def __str__(self) -> str:
        parts = [_devices_text(self['n_cores'], 'core', self['core_occupation'])]
        if self['n_gpus']:
            parts.append(_devices_text(self['n_gpus'], 'GPU', self['gpu_occupation']))
        parts += [f'{self[name]} MB {name}' for name in ('lfs', 'mem') if self[name]]
        return ', '.join(parts) + (' in one NUMA domain' if self['numa'] else '')


def _devices_text(number_of: int, kind: str, part: float) -> str:
    """Return the text for messages: '2 cores', '1 GPU (0.5 of each)'."""
    plural = '' if number_of == 1 else 's'
    return f'{number_of} {kind}{plural}' + ('' if part == BUSY else f' ({part:g} of each)')
