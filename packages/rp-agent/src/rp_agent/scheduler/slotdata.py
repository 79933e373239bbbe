"""Nodes and slots as plain data: validation and conversion of all input of the slot map."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from rp_api.errors import ResourceError
from rp_api.resources.pool import UNITS, to_units

MOST_CORES = 32_766
"""Maximum index of a core: the index stores numbers of cores in 16 bits."""
MOST_GPUS = 63
"""Maximum index of a GPU: a bitmap of GPUs is one 64-bit word."""
MOST_MB = (1 << 53) - 1


@dataclass(frozen=True, slots=True)
class NodeData:
    """A node: bitmap of usable cores, available units of each GPU, MB of memory and storage."""

    index: int
    name: str
    cores: int
    gpus: tuple[int, ...]
    mem: int
    lfs: int


@dataclass(frozen=True, slots=True)
class SlotData:
    """A slot on a node: cores, units of GPUs by index, MB of memory and storage."""

    node_index: int
    cores: list[int]
    gpus: dict[int, int]
    mem: int
    lfs: int


class SlotKind(NamedTuple):
    """The resources of an empty node: number of cores, units of each GPU, MB of memory and storage."""

    cores: int
    gpus: tuple[int, ...]
    mem: int
    lfs: int


def whole_number(name: str, value: Any, least: int, most: int) -> int:
    """Return the value if it is an integer within the bounds, else raise `ResourceError`."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise ResourceError(f'{name} must be a whole number from {least} to {most}, not {value!r}')
    return value


def read_indices(devices: tuple[Iterable[Any], Iterable[Any]]) -> tuple[list[int], list[int]]:
    """Return validated indices of cores and of GPUs."""
    cores, gpus = devices
    return ([whole_number('an index of cores', core, 0, MOST_CORES) for core in cores],
            [whole_number('an index of gpus', gpu, 0, MOST_GPUS) for gpu in gpus])


def read_nodes(nodes: Iterable[Mapping[str, Any]]) -> list[NodeData]:
    """Return the nodes of a node list; raise `ResourceError` if one is malformed.

    Most nodes are alike: devices that equal those of the previous node are not parsed again.
    """
    found: list[NodeData] = []
    cores: int
    gpus: tuple[int, ...]
    like: Mapping[str, Any] | None = None
    for node in nodes:
        try:
            if like is None or node['cores'] != like['cores'] or node['gpus'] != like['gpus']:
                cores, gpus, like = _usable_cores(node['cores']), _units(node['gpus']), node
            found.append(NodeData(node['index'], node['name'], cores, gpus,
                                  whole_number('mem', node['mem'], 0, MOST_MB),
                                  whole_number('lfs', node['lfs'], 0, MOST_MB)))
        except (KeyError, TypeError) as error:
            raise ResourceError(f'a node must have index, name, cores, gpus, mem and lfs, not {node!r:.200}') from error
    return found


def read_slot(slot: Mapping[str, Any]) -> SlotData:
    """Return an explicit slot; raise `ResourceError` if it is malformed, or has shares of cores."""
    try:
        index, cores, gpus = slot['node_index'], _parts('core', slot['cores']), _parts('GPU', slot.get('gpus', ()))
        mem, lfs = slot.get('mem', 0), slot.get('lfs', 0)
    except (KeyError, TypeError, AttributeError) as error:
        raise ResourceError(f'a slot must have node_index, cores and gpus, not {slot!r:.200}') from error
    for core, part in cores.items():
        if part != 1:
            raise ResourceError(f'a slot can only hold whole cores, not {part!r} of core {core}')
    return SlotData(index, sorted(cores), {gpu: to_units(part) for gpu, part in sorted(gpus.items())},
                    whole_number('mem', mem, 0, MOST_MB), whole_number('lfs', lfs, 0, MOST_MB))


def together(slots: Iterable[SlotData]) -> dict[int, SlotData]:
    """Return the total of the slots by node index; raise `ResourceError` if a core is in two slots."""
    found: dict[int, SlotData] = {}
    for slot in slots:
        before = found.get(slot.node_index, SlotData(slot.node_index, [], {}, 0, 0))
        twice = set(before.cores) & set(slot.cores)
        if twice:
            raise ResourceError(f'core {min(twice)} of node {slot.node_index} is in more than one slot')
        gpus = {gpu: before.gpus.get(gpu, 0) + slot.gpus.get(gpu, 0) for gpu in {**before.gpus, **slot.gpus}}
        found[slot.node_index] = SlotData(slot.node_index, before.cores + slot.cores, gpus, before.mem + slot.mem,
                                          before.lfs + slot.lfs)
    return found


def refuse_impossible(slot: SlotData, cores: Iterable[int], kind: SlotKind) -> None:
    """Raise `ResourceError` if an empty node of this kind, with these usable cores, cannot hold the slot."""
    missing = set(slot.cores).difference(cores)
    if missing:
        raise ResourceError(f'core {min(missing)} of node {slot.node_index} does not exist, or must not be used')
    for gpu, units in slot.gpus.items():
        if gpu >= len(kind.gpus) or not kind.gpus[gpu]:
            raise ResourceError(f'GPU {gpu} of node {slot.node_index} does not exist, or must not be used')
        if units > kind.gpus[gpu]:
            raise ResourceError(f'GPU {gpu} of node {slot.node_index} cannot give {units / UNITS:g} of itself')
    for name, asked, has in ('mem', slot.mem, kind.mem), ('lfs', slot.lfs, kind.lfs):
        if asked > has:
            raise ResourceError(f'node {slot.node_index} cannot give {asked} MB {name}, it has {has} MB')


def _usable_cores(devices: Iterable[Mapping[str, Any]]) -> int:
    return sum(1 << index for index, part in _occupations('cores', devices, MOST_CORES).items() if part == 0)


def _units(devices: Iterable[Mapping[str, Any]]) -> tuple[int, ...]:
    found = _occupations('gpus', devices, MOST_GPUS)
    parts = [found.get(index) for index in range(1 + max(found, default=-1))]
    return tuple(0 if part is None else UNITS - to_units(part) for part in parts)


def _occupations(kind: str, devices: Iterable[Mapping[str, Any]], most: int) -> dict[int, float | None]:
    found: dict[int, float | None] = {}
    for device in devices:
        index, part = device['index'], device['occupation']
        if part is not None and not 0 <= part <= 1:
            raise ResourceError(f'the occupation of {kind} must be from 0 to 1, or None, not {part!r}')
        if index in found:
            raise ResourceError(f'a node cannot have two {kind} with the index {index}')
        found[whole_number(f'an index of {kind}', index, 0, most)] = part
    return found


def _parts(kind: str, devices: Iterable[Any]) -> dict[int, float]:
    """Return the part of each device by index. Devices are mappings, or indices for whole devices."""
    found: dict[int, float] = {}
    for device in devices:
        index, part = (device, 1.0) if isinstance(device, int) else (device['index'], device['occupation'])
        if index in found:
            raise ResourceError(f'a slot cannot hold {kind} {index} more than once')
        if not isinstance(part, int | float) or not 0 < part <= 1:
            raise ResourceError(f'a slot cannot hold {part!r} of {kind} {index}')
        found[whole_number(f'the index of a {kind}', index, 0, MOST_CORES)] = part
    return found
