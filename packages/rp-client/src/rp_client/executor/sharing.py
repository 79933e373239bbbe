"""How calls and programs share the cores of a pilot: a rule without I/O.

Calls run on workers, which keep their cores; programs get cores from the agent. The workers have all cores if there are
no programs, and else half of them, or as many as the widest call needs. Programs that fit beside the workers start at
once. For others, calls and programs take turns: calls stop, the workers end when the last call that runs has its
result, the programs that wait start, and workers come back when no program is left that does not fit beside them. A
turn of the calls lasts until none is left; if a program waits, it ends after a multiple of `TURN` seconds, when one has
finished. So neither waits for ever.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

TURN = 10.0
"""Seconds of a turn of the calls."""


class Size(NamedTuple):
    """What a pilot has."""

    cores: int
    gpus: int
    nodes: int


class Need(NamedTuple):
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


def most_ranks(size: Size, shape: Shape) -> int:
    """Return the number of ranks of workers of that shape that a pilot has room for, if it is uniform."""
    per_node = size.cores // size.nodes // shape.cores
    if shape.gpus:
        per_node = min(per_node, size.gpus // size.nodes // shape.gpus)
    return per_node * size.nodes


def ranks_of_workers(size: Size, shape: Shape, *, programs: bool) -> int:
    """Return the number of ranks that workers get, if there are programs or not."""
    most = most_ranks(size, shape)
    return max(1, most // 2, shape.width) if programs else most


def check(size: Size, shape: Shape) -> None:
    """Raise ValueError if a pilot has no room for the widest call."""
    most = most_ranks(size, shape)
    if most < shape.width:
        raise ValueError(f'a call needs {shape.width} ranks with {shape.cores} cores and {shape.gpus} GPUs each, and '
                         f'the pilot, which has {size.cores} cores and {size.gpus} GPUs, has room for {most} of them')


def fits(need: Need, size: Size, shape: Shape, ranks: int) -> bool:
    """Return whether a program fits beside workers with that number of ranks, wherever these are."""
    return (need.cores <= size.cores - ranks * shape.cores and need.gpus <= size.gpus - ranks * shape.gpus
            and (need.anywhere or size.nodes == 1))


def any_wide(needs: Iterable[Need], size: Size, shape: Shape) -> bool:
    """Return whether one of the programs does not fit beside the workers that there would be."""
    ranks = ranks_of_workers(size, shape, programs=True)
    return any(not fits(need, size, shape, ranks) for need in needs)
