"""Communicators for calls that several ranks of an MPI job run together."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

from rp_api.errors import CoordinationError

Arguments = tuple[list[Any], dict[str, Any]]


def start_mpi(ranks: int) -> int:
    """Initialise MPI on all ranks of a job of `ranks` ranks; return the rank in COMM_WORLD."""
    from mpi4py import MPI  # the import initialises MPI

    world = MPI.COMM_WORLD
    if world.size != ranks:
        raise CoordinationError(f'COMM_WORLD has {world.size} ranks instead of {ranks}: mpiexec and the library that '
                                'mpi4py loads belong to different MPI installations')
    return int(world.rank)


@contextmanager
def communicator(group: Sequence[int], tag: int) -> Generator[Any, None, None]:
    """Return a communicator over these ranks of COMM_WORLD; all of them have to call this. It is freed at exit."""
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
    """Return the arguments with the communicator in its place: the keyword `comm=None`, or a first argument None.

    Return None if the call has no such place.
    """
    if 'comm' in kwargs and kwargs['comm'] is None:
        return list(args), {**kwargs, 'comm': comm}
    if args and args[0] is None:
        return [comm, *args[1:]], kwargs
    return None
