"""Communicators for calls that several ranks of an MPI job run together."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

from rp_api.errors import CoordinationError

Arguments = tuple[list[Any], dict[str, Any]]


def start_mpi(ranks: int) -> int:
    """Initialise MPI, which all ranks of the job have to do; gives the rank in COMM_WORLD, which has so many."""
    from mpi4py import MPI  # to import it is to initialise it

    world = MPI.COMM_WORLD
    if world.size != ranks:
        raise CoordinationError(f'COMM_WORLD has {world.size} ranks instead of {ranks}: mpiexec and the library that '
                                'mpi4py loads are not of the same MPI')
    return int(world.rank)


@contextmanager
def communicator(group: Sequence[int], tag: int) -> Generator[Any, None, None]:
    """A communicator over these ranks of COMM_WORLD, all of which have to ask for it; it is freed in the end."""
    from mpi4py import MPI

    members = MPI.COMM_WORLD.group.Incl(list(group))
    try:
        made = MPI.COMM_WORLD.Create_group(members, tag)
    finally:
        members.Free()
    try:
        yield made
    finally:
        made.Free()


def insert(comm: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Arguments | None:
    """The arguments with the communicator in the place that was left for it: `comm=None`, or None as the first one.

    None if no place was left.
    """
    if 'comm' in kwargs and kwargs['comm'] is None:
        return list(args), {**kwargs, 'comm': comm}
    if args and args[0] is None:
        return [comm, *args[1:]], kwargs
    return None
