"""Calls through plain mpi4py: a manager sends pickled batches of calls, and workers send back pickled results.

    srun --mpi=pmi2 -n 17 python mpi_batches.py KIND COUNT      # KIND: sleep, nothing, arguments or results

A call is an identity, a function and an argument; what comes back is the identity, a result and an error. Each worker
has two batches at a time, so that it never waits for the manager. Ranks that wait for a message let others run, because
they are more than the cores of the benchmark's machine. Rank 0 prints the calls per second.
"""

from __future__ import annotations

import pickle
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy
from mpi4py import MPI

BATCH = {'sleep': 8, 'nothing': 64, 'arguments': 1, 'results': 1}
PAUSE = 0.0002   # seconds

Call = tuple[int, Callable[[Any], Any], Any]


def sleep(seconds: float) -> None:
    """Do nothing for a while."""
    time.sleep(seconds)


def nothing(number: int) -> int:
    """Return the argument."""
    return number


def made(size: int) -> Any:
    """Return an array of so many bytes."""
    return numpy.ones(size, numpy.uint8)


CALLS: dict[str, tuple[Callable[[Any], Any], Any]] = {
    'sleep': (sleep, 0.01), 'nothing': (nothing, 1), 'arguments': (len, numpy.ones(1 << 20, numpy.uint8)),
    'results': (made, 1 << 20)}


def received(comm: MPI.Intracomm, source: int = MPI.ANY_SOURCE) -> tuple[int, Any]:
    """Wait for a message without using a core, and return its sender and content."""
    status = MPI.Status()
    while not comm.Iprobe(source, MPI.ANY_TAG, status):
        time.sleep(PAUSE)
    data = bytearray(status.Get_count(MPI.BYTE))
    comm.Recv([data, MPI.BYTE], status.source, status.tag)
    return status.source, pickle.loads(data)


def send(comm: MPI.Intracomm, content: Any, rank: int) -> None:
    """Send a message."""
    comm.Send([pickle.dumps(content, 5), MPI.BYTE], rank)


def manage(comm: MPI.Intracomm, kind: str, count: int) -> float:
    """Have the workers make the calls; return how many there were per second."""
    function, argument = CALLS[kind]
    batches = _batches([(number, function, argument) for number in range(count)], BATCH[kind])
    results: dict[int, tuple[Any, str]] = {}
    begin = time.perf_counter()
    for _ in range(2):
        for rank in range(1, comm.size):
            send(comm, next(batches, []), rank)
    while len(results) < count:
        rank, batch = received(comm)
        results.update((number, (result, error)) for number, result, error in batch)
        send(comm, next(batches, []), rank)
    rate = count / (time.perf_counter() - begin)
    for rank in range(1, comm.size):
        send(comm, None, rank)
    assert not any(error for _, error in results.values())
    return rate


def _batches(calls: list[Call], size: int) -> Iterator[list[Call]]:
    return (calls[first:first + size] for first in range(0, len(calls), size))


def work(comm: MPI.Intracomm) -> None:
    """Make the calls of the manager until there are no more."""
    while (batch := received(comm, 0)[1]) is not None:
        results = []
        for number, function, argument in batch:
            try:
                results.append((number, function(argument), ''))
            except Exception as error:
                results.append((number, None, repr(error)))
        if results:
            send(comm, results, 0)


if __name__ == '__main__':
    world = MPI.COMM_WORLD
    assert world.size > 1, 'the launcher and the library of mpi4py belong to different MPIs'
    if world.rank:
        work(world)
    else:
        print(manage(world, sys.argv[1], int(sys.argv[2])), flush=True)
