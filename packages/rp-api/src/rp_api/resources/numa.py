"""Nodes with NUMA domains: groups of cores and GPUs that are close to each other.

A domain can be used like a node of its own, but shares all resources with its node: an occupation of one is visible in
the other, and slots always carry the index and the name of the whole node.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping
from typing import Any

from rp_api.errors import attribute_type_error
from rp_api.record import CastError, Record, count, field, integer, list_of
from rp_api.resources.claim import KINDS, Claim, Shape, SlotConflict
from rp_api.resources.node import Node, Region
from rp_api.resources.slots import Slot


class NumaDomain(Record):
    """The indices of the cores and GPUs of a domain; also created as `NumaDomain([0, 1], [0])`."""

    __slots__ = ()

    cores: list[int] = field(list_of(count), list)
    gpus: list[int] = field(list_of(count), list)

    def __init__(self, cores: Mapping[str, Any] | list[int] | None = None,
                 gpus: list[int] | None = None) -> None:
        if isinstance(cores, Mapping):
            super().__init__(cores)
        else:
            super().__init__(cores=cores, gpus=gpus)


class NumaDomainMap(dict[int, NumaDomain]):
    """Domains by integer id; ids may be given as text, because JSON keys are strings."""

    def __init__(self, from_dict: Mapping[Any, Any] | None = None) -> None:
        super().__init__()
        for domain, members in (from_dict or {}).items():
            self[domain] = members

    def __setitem__(self, domain: Any, members: Any) -> None:
        try:
            number = integer(domain)
        except CastError as error:
            raise attribute_type_error(f'the id of a NUMA domain must be {error}, not {domain!r}') from None
        super().__setitem__(number, members if isinstance(members, NumaDomain) else NumaDomain(members))

    def as_dict(self) -> dict[str, Any]:
        """Return the map with string keys, as in JSON."""
        return {str(domain): members.as_dict() for domain, members in self.items()}


def domain_map(value: Any) -> dict[str, Any]:
    """Cast to a domain map in plain form."""
    if not isinstance(value, Mapping):
        raise CastError('a dict of NUMA domains')
    return NumaDomainMap(value).as_dict()


class NumaNode(Node):
    """A node with NUMA domains: a slot with the requirement `numa` lies in one of them.

    The attribute `numa_domains` holds, by domain id, the domains as nodes named `<name>.<id>`.
    """

    __slots__ = ('_domains', '_masks')

    numa_domain_map: dict[str, Any] = field(domain_map, dict)

    def __init__(self, from_dict: Mapping[str, Any] | None = None,
                 numa_domain_map: Mapping[Any, Any] | None = None, **values: Any) -> None:
        self._masks: list[Region] = []
        self._domains: dict[int, Node] | None = {}
        given = {**(from_dict or {}), **values}
        # set last, because the map is checked against the cores and GPUs
        chosen = given.pop('numa_domain_map', None) if numa_domain_map is None else numa_domain_map
        super().__init__(given)
        self['numa_domain_map'] = chosen

    def __setitem__(self, name: str, value: Any) -> None:
        super().__setitem__(name, value)
        domains = self.get('numa_domain_map', {})
        self._masks = [self._mask(domain, members) for domain, members in domains.items()]
        for masks in zip(*self._masks, strict=True):
            if sum(masks) != functools.reduce(operator.or_, masks):
                raise SlotConflict(f'the NUMA domains of {self._title()} overlap: {domains}')
        self._domains = None  # created on demand

    @property
    def numa_domains(self) -> dict[int, Node]:
        """The domains as nodes, by domain id; they share the resources of this node."""
        if self._domains is None:
            self._amounts[1:] = []
            shared = (self._lock, self._pools, self._held, self._totals, self._amounts, self._listeners)
            self._domains = {int(domain): DomainNode(self, domain, region, shared) for domain, region
                             in zip(self['numa_domain_map'], self._masks, strict=True)}
        return self._domains

    def _regions(self, shape: Shape) -> list[Region]:
        return self._masks if shape.numa and self._masks else super()._regions(shape)

    def _mask(self, domain: str, members: Mapping[str, list[int]]) -> Region:
        masks = []
        for kind in KINDS:
            unknown = [index for index in members[kind] if index not in self._pools[kind].views]
            if unknown:
                raise SlotConflict(f'{self._title()} has no {kind} {unknown}, needed for domain {domain}')
            masks.append(sum(1 << index for index in set(members[kind])))
        return masks[0], masks[1]


class DomainNode(Node):
    """A NUMA domain of a node; all resources belong to the node."""

    __slots__ = ('_host', '_region')

    def __init__(self, host: NumaNode, domain: str, region: Region, shared: tuple[Any, ...]) -> None:
        self._host, self._region = host, region
        self._lock, self._pools, self._held, self._totals, self._amounts, self._listeners = shared
        members = host['numa_domain_map'][domain]
        name = f'{host["name"]}.{domain}'
        dict.update(self, index=host['index'], name=name, lfs=host['lfs'], mem=host['mem'])
        for kind in KINDS:
            views = self._pools[kind].views
            dict.__setitem__(self, kind, [views[index] for index in sorted(set(members[kind]))])
        self._amounts.append(self)

    def __setitem__(self, name: str, value: Any) -> None:
        raise SlotConflict(f'{self["name"]} is a domain of {self._title()}: set {name} there')

    def __reduce__(self) -> tuple[Any, ...]:
        return Node, (self.as_dict(),)  # a copy shares nothing, so it is a node of its own

    def check(self) -> None:
        self._host.check()

    def capacity(self) -> dict[str, int]:
        masks = dict(zip(KINDS, self._region, strict=True))
        devices = {kind: (pool.usable & masks[kind]).bit_count() for kind, pool in self._pools.items()}
        return {**devices, **self._totals}

    def _regions(self, _shape: Shape) -> list[Region]:
        return [self._region]

    def _host_name(self) -> str:
        return str(self._host['name'])

    def _claim(self, slot: Slot | Mapping[str, Any]) -> Claim:
        claim = super()._claim(slot)
        for kind, indices, _ in claim.devices():
            outside = set(indices) - {device['index'] for device in self[kind]}
            if outside:
                raise SlotConflict(f'slot has {kind} {sorted(outside)}, which are not in {self["name"]}')
        return claim
