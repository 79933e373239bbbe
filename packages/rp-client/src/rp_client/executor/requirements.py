"""The requirements of calls and programs, the size of the pilot as users give it, and the workers that suit both."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from rp_api import units
from rp_api.system.terminal import TERMINAL, is_place

TURN_S = 10.0
"""Seconds of a turn of the calls."""


class Requirements(NamedTuple):
    """The requirements of a call or a program."""

    ranks: int = 1
    cores_per_rank: int = 1
    gpus_per_rank: float = 0
    timeout: float = 0
    retries: int = 0
    cache: bool | str = False
    stdout: str | os.PathLike[str] = TERMINAL

    @property
    def of_call(self) -> dict[str, Any]:
        """The attributes of a RAPTOR call with these requirements, without those that have their default."""
        found = {'ranks': self.ranks, 'cores': self.cores_per_rank, 'gpus': self.gpus_per_rank, 'timeout': self.timeout,
                 'stdout': self.stdout}
        return {name: value for name, value in found.items() if value != _OF_CALL[name]}

    @property
    def of_program(self) -> dict[str, Any]:
        """The attributes of a program with these requirements, without those that have their default."""
        return {name: value for name, value in self._asdict().items() if value != _NONE[name] and name != 'stdout'}


_NONE = Requirements()._asdict()
_OF_CALL = {'ranks': 1, 'cores': 1, 'gpus': 0, 'timeout': 0, 'stdout': TERMINAL}


def _whole(least: int) -> tuple[Callable[[Any], bool], str]:
    return lambda value: type(value) is int and value >= least, f'a whole number of at least {least}'


def _number(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value < math.inf


def _key(value: Any) -> bool:
    return type(value) is bool or (isinstance(value, str) and value != '')


_ALLOWED: dict[str, tuple[Callable[[Any], bool], str]] = {
    'ranks': _whole(1),
    'cores_per_rank': _whole(1),
    'gpus_per_rank': (_number, 'a number of at least 0'),
    'timeout': (_number, 'a time of at least 0, where 0 means no limit'),
    'retries': _whole(0),
    'cache': (_key, 'True, False or a key, which is text'),
    'stdout': (is_place, "'terminal', 'future', 'file', or a path with a /")}


def checked(given: Mapping[str, Any], base: Requirements) -> Requirements:
    """Return the requirements `base`, changed as given.

    Raises:
        TypeError: A name is unknown.
        ValueError: A value is not allowed.
    """
    given = {name: units.limit(value) if name == 'timeout' and not _number(value) else value
             for name, value in given.items()}
    for name, value in given.items():
        if name not in _ALLOWED:
            raise TypeError(f'{name!r} is not a requirement of a call: allowed are {", ".join(_ALLOWED)}')
        allowed, sentence = _ALLOWED[name]
        if not allowed(value):
            raise ValueError(f'{name} is {value!r}, it must be {sentence}')
    return base._replace(**given)


def size(name: str, value: Any) -> int:
    """Return the number of cores, nodes or GPUs of a pilot; ValueError if it is none."""
    least = 0 if name == 'gpus' else 1
    if type(value) is not int or value < least:
        raise ValueError(f'{name} is {value!r}, it must be a whole number of at least {least}')
    return value


class PilotSize(NamedTuple):
    """The cores, GPUs and nodes of a pilot."""

    cores: int
    gpus: int
    nodes: int


class RankNeed(NamedTuple):
    """The resources of a program. `anywhere`: they may be on any nodes, core by core."""

    cores: int
    gpus: float
    anywhere: bool


class Shape(NamedTuple):
    """The form of workers: what each rank has, how many ranks the widest call needs, and whether MPI joins the ranks.

    It only grows, with the requirements of the calls that were made.
    """

    cores: int = 1
    gpus: int = 0
    width: int = 1
    mpi: bool = False

    def widened(self, ranks: int, cores: int, gpus: float) -> Shape:
        """Return the smallest shape for the calls of this one and those of these requirements."""
        gpus_each = max(self.gpus, 1 if gpus > 0 else 0)
        if ranks == 1:   # several ranks of a worker share in a call with more cores or GPUs than one of them has
            wide = max(-(-cores // self.cores), -(-int(-(-gpus // 1)) // max(1, gpus_each)))
            return Shape(self.cores, gpus_each, max(self.width, wide), self.mpi)
        return Shape(max(self.cores, cores), max(gpus_each, int(-(-gpus // 1))), max(self.width, ranks), True)


def most_ranks(size: PilotSize, shape: Shape) -> int:
    """Return the number of ranks of workers of that shape that a pilot has room for, if it is uniform."""
    per_node = size.cores // size.nodes // shape.cores
    if shape.gpus:
        per_node = min(per_node, size.gpus // size.nodes // shape.gpus)
    return per_node * size.nodes


def ranks_of_workers(size: PilotSize, shape: Shape, *, programs: bool) -> int:
    """Return the number of ranks that workers get, if there are programs or not."""
    most = most_ranks(size, shape)
    return max(1, most // 2, shape.width) if programs else most


def check(size: PilotSize, shape: Shape) -> None:
    """Raise ValueError if a pilot has no room for the widest call."""
    most = most_ranks(size, shape)
    if most < shape.width:
        raise ValueError(f'a call needs {shape.width} ranks with {shape.cores} cores and {shape.gpus} GPUs each, and '
                         f'the pilot, which has {size.cores} cores and {size.gpus} GPUs, has room for {most} of them')


def fits(need: RankNeed, size: PilotSize, shape: Shape, ranks: int) -> bool:
    """Return whether a program fits beside workers with that number of ranks, wherever these are."""
    return (need.cores <= size.cores - ranks * shape.cores and need.gpus <= size.gpus - ranks * shape.gpus
            and (need.anywhere or size.nodes == 1))


def any_wide(needs: Iterable[RankNeed], size: PilotSize, shape: Shape) -> bool:
    """Return whether one of the programs does not fit beside the workers that there would be."""
    ranks = ranks_of_workers(size, shape, programs=True)
    return any(not fits(need, size, shape, ranks) for need in needs)
