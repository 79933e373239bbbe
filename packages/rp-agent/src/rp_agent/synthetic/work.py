"""What a synthetic task does: it takes memory, reads, computes on cores and GPUs, and writes, in this order.

With MPI all ranks do the same, and begin and end to compute together. What few tasks need is imported when they need
it: a task of a second should start in a few hundredths of one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from rp_agent.synthetic.compute import compute, compute_until

if TYPE_CHECKING:
    from rp_agent.synthetic.gpu import Gpu

PIECE = 1 << 20
"""Bytes that are read or written at a time."""


class NoGpu(Exception):
    """There is no such GPU, or it cannot be used; says why."""


class Amount(NamedTuple):
    """How much of each there is to do, by each rank."""

    seconds: float = 0.0
    """To compute, or to sleep; not together with `flops`."""
    flops: float = 0.0
    """To compute, shared by the threads."""
    sleep: bool = False
    threads: int = 1
    gpus: int = 0
    memory: int = 0
    """Bytes that are used from the beginning to the end."""
    read: int = 0
    """Bytes that are read: of `source`, from its beginning again as often as needed."""
    source: str = ''
    write: int = 0
    """Bytes that are written to a new file in `directory`, which is deleted."""
    directory: str = '.'
    mpi: bool = False


class Ranks:
    """The only rank there is; `MpiRanks` are more."""

    rank, size = 0, 1

    def together(self) -> None:
        """Wait for all ranks."""


class MpiRanks(Ranks):
    """The ranks of an MPI program, which is initialised by this."""

    def __init__(self) -> None:
        from mpi4py import MPI

        self._world = MPI.COMM_WORLD
        self.rank, self.size = self._world.Get_rank(), self._world.Get_size()

    def together(self) -> None:
        self._world.Barrier()


def do(amount: Amount) -> dict[str, Any]:
    """Do all of it; what was done: `rank`, `ranks`, `seconds` of computing, `flops`, and bytes.

    Raises `ImportError` where MPI is asked for and mpi4py is missing, `NoGpu`, and `OSError` of files.
    """
    ranks = MpiRanks() if amount.mpi else Ranks()
    gpus = _gpus(amount.gpus)
    held = _used(amount.memory)
    read = _read(amount)
    ranks.together()
    begin = time.monotonic()
    flops, filled = _compute(amount, gpus, begin)
    seconds = time.monotonic() - begin
    written = _write(amount)
    ranks.together()
    return {'rank': ranks.rank, 'ranks': ranks.size, 'threads': amount.threads, 'gpus': len(gpus), 'seconds': seconds,
            'flops': flops, 'gpu_bytes': filled, 'memory': len(held), 'read': read, 'written': written}


def _gpus(count: int) -> list[Gpu]:
    if not count:
        return []
    from rp_agent.synthetic.gpu import open_gpus

    return open_gpus(count)


def _compute(amount: Amount, gpus: list[Gpu], begin: float) -> tuple[float, int]:
    """Keep all threads and GPUs busy; operations of the threads, bytes filled on the GPUs."""
    end = begin + amount.seconds
    if amount.sleep:
        time.sleep(amount.seconds)
        return 0.0, 0
    work: Callable[[], float] = (lambda: compute(amount.flops / amount.threads)) if amount.flops else \
        (lambda: compute_until(end))
    if amount.threads == 1 and not gpus:
        return work(), 0
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(amount.threads + len(gpus)) as pool:
        filling = [pool.submit(gpu.work_until, end) for gpu in gpus]
        computing = [pool.submit(work) for _ in range(amount.threads)]
        return sum(each.result() for each in computing), sum(each.result() for each in filling)


def _used(size: int) -> bytearray:
    """So many bytes of memory, each page of which has been written to."""
    held = bytearray(size)
    pages = range(0, size, os.sysconf('SC_PAGESIZE'))
    held[pages.start:pages.stop:pages.step] = b'\1' * len(pages)
    return held


def _read(amount: Amount) -> int:
    """Read as much as there is to be read; the bytes."""
    if not amount.read:
        return 0
    left = amount.read
    with open(amount.source, 'rb', buffering=0) as file:
        if not os.path.getsize(amount.source):
            raise OSError(f'{amount.source} is empty: there is nothing to read')
        while left:
            got = len(file.read(min(PIECE, left)))
            left -= got
            if not got:
                file.seek(0)
    return amount.read


def _write(amount: Amount) -> int:
    """Write as much as there is to be written, down to the disk; the bytes."""
    if not amount.write:
        return 0
    from tempfile import TemporaryFile

    piece = memoryview(os.urandom(min(PIECE, amount.write)))
    left = amount.write
    with TemporaryFile(dir=amount.directory, buffering=0) as file:
        while left:
            left -= file.write(piece[:left])
        os.fsync(file.fileno())
    return amount.write
