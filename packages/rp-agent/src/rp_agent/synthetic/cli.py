"""The program `rp-synthetic`: a synthetic task of known size, for benchmarks and experiments.

Its work, in this order: allocate memory, read, compute on cores and GPUs, write. With MPI all ranks do the same,
synchronised before and after the computation. Rarely used modules are imported on demand, so that a task of a second
starts within a few hundredths of one.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from rp_agent.synthetic.compute import compute, compute_until
from rp_api.units import byte_count, option, seconds

IO_BYTES = 1 << 20
"""Bytes per read or write call."""

LIBRARY = 'libcuda.so.1'
BUFFER = 256 << 20

FILLS = 64
"""Fills of the buffer between two readings of the clock: tens of milliseconds."""


class NoGpu(Exception):
    """A GPU is missing or unusable; the text is the reason."""


class Amount(NamedTuple):
    """The work of each rank."""

    seconds: float = 0.0
    """Seconds to compute or sleep; not together with `flops`."""
    flops: float = 0.0
    """Floating-point operations, divided among the threads."""
    sleep: bool = False
    threads: int = 1
    gpus: int = 0
    memory: int = 0
    """Bytes of memory in use during the whole run."""
    read: int = 0
    """Bytes to read from `source`, which is read repeatedly if it is shorter."""
    source: str = ''
    write: int = 0
    """Bytes to write to a temporary file in `directory`."""
    directory: str = '.'
    mpi: bool = False


class Ranks:
    """The only rank of a program without MPI."""

    rank, size = 0, 1

    def together(self) -> None:
        """Wait for all ranks (a barrier)."""


class MpiRanks(Ranks):
    """The ranks of an MPI program; initialises MPI."""

    def __init__(self) -> None:
        from mpi4py import MPI

        self._world = MPI.COMM_WORLD
        self.rank, self.size = self._world.Get_rank(), self._world.Get_size()

    def together(self) -> None:
        self._world.Barrier()


def do(amount: Amount) -> dict[str, Any]:
    """Do the work; return `rank`, `ranks`, `seconds` of computation, `flops` and numbers of bytes.

    Raises `ImportError` if mpi4py is missing for MPI, `NoGpu`, and `OSError` of file operations.
    """
    ranks = MpiRanks() if amount.mpi else Ranks()
    gpus = open_gpus(amount.gpus) if amount.gpus else []
    held = bytearray(amount.memory)
    pages = range(0, amount.memory, os.sysconf('SC_PAGESIZE'))
    held[pages.start:pages.stop:pages.step] = b'\1' * len(pages)   # every page is written
    read = _read(amount)
    ranks.together()
    begin = time.monotonic()
    flops, filled = _compute(amount, gpus, begin)
    seconds = time.monotonic() - begin
    written = _write(amount)
    ranks.together()
    return {'rank': ranks.rank, 'ranks': ranks.size, 'threads': amount.threads, 'gpus': len(gpus), 'seconds': seconds,
            'flops': flops, 'gpu_bytes': filled, 'memory': len(held), 'read': read, 'written': written}


def _compute(amount: Amount, gpus: list[Gpu], begin: float) -> tuple[float, int]:
    """Keep all threads and GPUs busy; return the operations of the threads and the bytes filled on the GPUs."""
    end = begin + amount.seconds
    if amount.sleep:
        time.sleep(amount.seconds)
        return 0.0, 0

    def work() -> float:
        return compute(amount.flops / amount.threads) if amount.flops else compute_until(end)

    if amount.threads == 1 and not gpus:
        return work(), 0
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(amount.threads + len(gpus)) as pool:
        filling = [pool.submit(gpu.work_until, end) for gpu in gpus]
        computing = [pool.submit(work) for _ in range(amount.threads)]
        return sum(each.result() for each in computing), sum(each.result() for each in filling)


def _read(amount: Amount) -> int:
    """Read as many bytes as requested; return their number."""
    if not amount.read:
        return 0
    left = amount.read
    with open(amount.source, 'rb', buffering=0) as file:
        if not os.path.getsize(amount.source):
            raise OSError(f'{amount.source} is empty: there is nothing to read')
        while left:
            got = len(file.read(min(IO_BYTES, left)))
            left -= got
            if not got:
                file.seek(0)
    return amount.read


def _write(amount: Amount) -> int:
    """Write as many bytes as requested and flush them to the disk; return their number."""
    if not amount.write:
        return 0
    from tempfile import TemporaryFile

    piece = memoryview(os.urandom(min(IO_BYTES, amount.write)))
    left = amount.write
    with TemporaryFile(dir=amount.directory, buffering=0) as file:
        while left:
            left -= file.write(piece[:left])
        os.fsync(file.fileno())
    return amount.write


class Gpu:
    """One GPU visible to this process (`CUDA_VISIBLE_DEVICES`), with a buffer in its memory."""

    def __init__(self, index: int, size: int = BUFFER) -> None:
        self._cuda = _library()
        self._size = size
        self._context, self._buffer = ctypes.c_void_p(), ctypes.c_uint64()
        self._call('cuDevicePrimaryCtxRetain', ctypes.byref(self._context), index)
        self._call('cuCtxSetCurrent', self._context)
        self._call('cuMemAlloc_v2', ctypes.byref(self._buffer), ctypes.c_size_t(size))

    def work_until(self, end: float) -> int:
        """Fill the buffer at least once, until `time.monotonic()` is `end`; return the number of bytes written."""
        self._call('cuCtxSetCurrent', self._context)   # the context is set per thread
        filled = 0
        while not filled or time.monotonic() < end:
            for number in range(FILLS):
                self._call('cuMemsetD32_v2', self._buffer, ctypes.c_uint(number), ctypes.c_size_t(self._size // 4))
            self._call('cuCtxSynchronize')
            filled += FILLS * self._size
        return filled

    def _call(self, name: str, *arguments: object) -> None:
        _check(self._cuda, name, getattr(self._cuda, name)(*arguments))


def visible_gpus() -> int:
    """Return the number of GPUs that this process may use; raise `NoGpu` without a driver."""
    count = ctypes.c_int()
    cuda = _library()
    _check(cuda, 'cuDeviceGetCount', cuda.cuDeviceGetCount(ctypes.byref(count)))
    return count.value


def open_gpus(count: int) -> list[Gpu]:
    """Return the first `count` GPUs; raise `NoGpu` if there are fewer."""
    found = visible_gpus()
    if found < count:
        raise NoGpu(f'{count} GPUs are requested, but this process can use {found}')
    return [Gpu(index) for index in range(count)]


def _library() -> ctypes.CDLL:
    try:
        cuda = ctypes.CDLL(LIBRARY)
    except OSError as error:
        raise NoGpu(f'this host has no NVIDIA driver: {error}') from None
    _check(cuda, 'cuInit', cuda.cuInit(0))
    return cuda


def _check(cuda: ctypes.CDLL, name: str, code: int) -> None:
    if code:
        text = ctypes.c_char_p()
        cuda.cuGetErrorString(code, ctypes.byref(text))
        raise NoGpu(f'{name} failed: {(text.value or b"").decode() or f"error {code}"}')


def main(arguments: Sequence[str] | None = None) -> int:
    """Do the work that the arguments describe, print one line of JSON with the result, and return the exit code."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.flops and (options.sleep or options.gpus):
        parser.error('--flops cannot be combined with --sleep or --gpus')
    if bool(options.read) != bool(options.source):
        parser.error('--read and --source must be given together')
    wanted = vars(options)
    exit_code = wanted.pop('exit_code')
    try:
        done = do(Amount(**wanted))
    except (ImportError, MemoryError, NoGpu, OSError) as error:
        print(f'rp-synthetic: {str(error) or "not enough memory"}', file=sys.stderr)
        return 1
    print(json.dumps(done), flush=True)
    return int(exit_code)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog='rp-synthetic', description='Consume known amounts of resources.')
    add = parser.add_argument
    how_long = parser.add_mutually_exclusive_group()
    how_long.add_argument('--seconds', type=option(seconds), default=0.0, metavar='TIME', help='time to compute: '
                          'seconds, or such as 2m')
    how_long.add_argument('--flops', type=_number, default=0.0, metavar='N',
                          help='floating-point operations, divided among the threads (1e9)')
    add('--sleep', action='store_true', help='sleep for --seconds and use no core')
    add('--threads', type=_whole(1), default=1, metavar='N', help='number of computing threads (default: 1)')
    add('--gpus', type=_whole(0), default=0, metavar='N', help='number of NVIDIA GPUs to keep busy for --seconds')
    add('--memory', type=option(byte_count), default=0, metavar='BYTES', help='memory in use during the '
        'computation, such as 64MB or 2GB')
    add('--read', type=option(byte_count), default=0, metavar='BYTES',
        help='bytes to read from --source, repeatedly if needed')
    add('--source', default='', metavar='FILE', help='file for --read')
    add('--write', type=option(byte_count), default=0, metavar='BYTES',
        help='bytes to write to a temporary file at the end')
    add('--directory', default='.', metavar='DIR', help='directory of that file (default: the working directory)')
    add('--mpi', action='store_true', help='do the work on all ranks of an MPI program, synchronised (needs mpi4py)')
    add('--exit-code', type=_whole(0), default=0, metavar='N', help='exit code of the program (default: 0)')
    return parser


def _number(text: str) -> float:
    value = float(text)
    if not (math.isfinite(value) and value >= 0):
        raise argparse.ArgumentTypeError(f'{text} must be a number of at least 0')
    return value


def _whole(least: int) -> Callable[[str], int]:
    def whole(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f'{text} must be a whole number of at least {least}')
        return int(text)
    return whole


if __name__ == '__main__':
    sys.exit(main())
