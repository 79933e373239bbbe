"""Partitions of a pilot: what they are called, and how an application says how large they are.

The size of a partition is a dict: {'nodes': 2}, or {'cores': 4}, or {'cores': 4, 'gpus': 1}.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rp_api.errors import DescriptionError
from rp_api.record import CastError, count, suggestion

Size = dict[str, int]

NODES, CORES, GPUS = 'nodes', 'cores', 'gpus'
_NAMES = (NODES, CORES, GPUS)

WHOLE = 'whole'
"""What names the pilot in the record that the coordinator has of a partition."""


def partition_uid(pilot: str, number: int) -> str:
    """What the coordinator knows a partition by, and the name of its agent's directory in the pilot's sandbox."""
    return f'{pilot}.{number:04d}'


def sizes(value: Any) -> int | list[Size]:
    """A cast: a number of like partitions, or the sizes of all; a single size makes a list of one."""
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
    """A cast: the size of one partition, without what is 0."""
    if not isinstance(value, Mapping):
        raise CastError('a list of sizes, each of them a dict such as {"nodes": 2} or {"cores": 4, "gpus": 1}')
    found = {}
    for name, number in value.items():
        if name not in _NAMES:
            raise CastError(f'a size with {", ".join(_NAMES)} (not {name!r}{suggestion(str(name), _NAMES)})')
        try:
            found[name] = count(0 if number is None else number)
        except CastError as error:
            raise CastError(f'a size whose {name} are {error}') from None
    if bool(found.get(NODES)) == bool(found.get(CORES)):
        raise CastError('a size with either nodes, or cores (and gpus)')
    if found.get(NODES) and found.get(GPUS):
        raise CastError('a size without gpus if it has nodes: whole nodes have all their gpus')
    return {name: number for name, number in found.items() if number}


def total(wanted: Sequence[Size], name: str) -> int:
    """How many nodes, cores or GPUs all partitions have together."""
    return sum(each.get(name, 0) for each in wanted)


def check_sizes(partitions: int | list[Size], nodes: int, cores: int, gpus: int) -> None:
    """Return if a pilot of that size can have these partitions, as far as that can be known before it runs."""
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
        if wanted > there and not (nodes and name != NODES):   # of whole nodes, only the agent knows the cores
            raise DescriptionError(f'PilotDescription.partitions asks for {wanted} {name}, but {name} is {there}')


def whole(partitions: list[Size]) -> Size:
    """What a pilot has to have for these partitions, if its description does not say."""
    found = {name: total(partitions, name) for name in _NAMES}
    if found[NODES] and found[CORES]:
        raise DescriptionError('PilotDescription.partitions has sizes in nodes and sizes in cores: the size of the '
                               'pilot does not follow from them, so set nodes as well')
    return {name: number for name, number in found.items() if number}
