"""Partitions of a pilot: their uids and sizes.

The size of a partition is a dict: {'nodes': 2}, or {'cores': 4}, or {'cores': 4, 'gpus': 1, 'memory': 2048} (MB).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rp_api.errors import DescriptionError
from rp_api.record import CastError, count, suggestion
from rp_api.units import megabytes

Size = dict[str, int]

NODES, CORES, GPUS, MEMORY = 'nodes', 'cores', 'gpus', 'memory'
_NAMES = (NODES, CORES, GPUS, MEMORY)

WHOLE = 'whole'
"""The key of the pilot's uid in the coordinator's record of a partition."""


def partition_uid(pilot: str, number: int) -> str:
    """Return the uid of a partition, which is also the name of its agent's directory in the pilot's sandbox."""
    return f'{pilot}.{number:04d}'


def sizes(value: Any) -> int | list[Size]:
    """Cast to a number of equal partitions, or to a list of sizes; a single size becomes a list of one."""
    if isinstance(value, Mapping):
        return [size(value)]
    if isinstance(value, list | tuple):
        return [size(each) for each in value]
    try:
        return count('' if isinstance(value, bool) else value)
    except CastError:
        raise CastError('a number of partitions, or a list of their sizes, each of them a dict such as {"nodes": 2} '
                        'or {"cores": 4, "gpus": 1}') from None


def size(value: Any) -> Size:
    """Cast to the size of one partition, without zeros."""
    if not isinstance(value, Mapping):
        raise CastError('a list of sizes, each of them a dict such as {"nodes": 2} or {"cores": 4, "gpus": 1}')
    found = {}
    for name, number in value.items():
        if name not in _NAMES:
            raise CastError(f'a size with {", ".join(_NAMES)} (not {name!r}{suggestion(str(name), _NAMES)})')
        try:
            found[name] = (megabytes if name == MEMORY else count)(0 if number is None else number)
        except CastError as error:
            raise CastError(f'a size whose {name} are {error}') from None
    if bool(found.get(NODES)) == bool(found.get(CORES)):
        raise CastError('a size with either nodes, or cores (and gpus, memory)')
    for name in (GPUS, MEMORY):
        if found.get(NODES) and found.get(name):
            raise CastError(f'a size without {name} if it has nodes: whole nodes have all their {name}')
    return {name: number for name, number in found.items() if number}


def total(wanted: Sequence[Size], name: str) -> int:
    """Return the total number of nodes, cores or GPUs, or the MB of memory, of all partitions."""
    return sum(each.get(name, 0) for each in wanted)


def check_sizes(partitions: int | list[Size], nodes: int, cores: int, gpus: int, memory: int) -> None:
    """Raise a DescriptionError if a pilot of that size is too small for the partitions, as far as the client knows.

    Without `memory`, only the agent knows how much the pilot has.
    """
    if isinstance(partitions, int):
        if cores and partitions > cores:
            raise DescriptionError(f'PilotDescription.partitions is {partitions}, but each needs a core, and cores is '
                                   f'{cores}')
        return
    for name, there in ((NODES, nodes), (CORES, cores), (GPUS, gpus)):
        wanted = total(partitions, name)
        if name == NODES and wanted and not nodes:
            raise DescriptionError('PilotDescription.partitions asks for nodes, but the pilot is sized by cores: give '
                                   'the sizes of its partitions in cores, too')
        if wanted > there and not (nodes and name != NODES):   # only the agent knows the cores of whole nodes
            raise DescriptionError(f'PilotDescription.partitions asks for {wanted} {name}, but {name} is {there}')
    if total(partitions, MEMORY) > memory > 0:
        raise DescriptionError(f'PilotDescription.partitions asks for {total(partitions, MEMORY)} MB of memory, but '
                               f'memory is {memory}')


def whole(partitions: list[Size]) -> Size:
    """Return the size of a pilot that consists of these partitions; with memory if each of them names its own."""
    found = {name: total(partitions, name) for name in _NAMES}
    if found[NODES] and found[CORES]:
        raise DescriptionError('PilotDescription.partitions has sizes in nodes and sizes in cores: the size of the '
                               'pilot does not follow from them, so set nodes as well')
    if not all(each.get(MEMORY) for each in partitions):
        del found[MEMORY]
    return {name: number for name, number in found.items() if number}
