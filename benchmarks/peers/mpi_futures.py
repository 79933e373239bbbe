"""No-op calls through mpi4py.futures, one message each: `mpiexec -n 3 python -m mpi4py.futures mpi_futures.py N`."""

from __future__ import annotations

import sys
import time

from mpi4py.futures import MPIPoolExecutor


def nothing(number: int) -> int:
    """The call."""
    return number


if __name__ == '__main__':
    count = int(sys.argv[1])
    with MPIPoolExecutor() as executor:
        assert list(executor.map(nothing, range(100))) == list(range(100))
        begin = time.monotonic()
        assert sum(executor.map(nothing, range(count), unordered=True)) == count * (count - 1) // 2
        print(count / (time.monotonic() - begin))
