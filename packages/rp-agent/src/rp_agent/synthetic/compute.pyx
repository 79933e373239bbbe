"""Floating-point work without the GIL, so that the threads of a process compute in parallel.

One step is sixteen operations: a multiplication and an addition on each of eight independent numbers. The factors keep
the numbers away from infinities and denormals, which would be slower.
"""

from libc.time cimport time_t


cdef extern from "<time.h>" nogil:
    struct timespec:
        time_t tv_sec
        long tv_nsec
    int clock_gettime(int clock, timespec *now)
    enum:
        CLOCK_MONOTONIC


cdef enum:
    WIDTH = 8
    BLOCK = 4096   # steps between two readings of the clock: about 10 us

OPERATIONS = 2 * WIDTH
"""Floating-point operations per step."""


cdef double _now() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return now.tv_sec + 1e-9 * now.tv_nsec


cdef void _steps(double *numbers, long long count) noexcept nogil:
    cdef long long _step
    cdef int index
    for _step in range(count):
        for index in range(WIDTH):
            numbers[index] = numbers[index] * 0.999999 + 1e-6


cdef double _sum(double *numbers) noexcept nogil:
    """Return a result that depends on all of the work, so that no compiler can eliminate it."""
    cdef double total = 0
    cdef int index
    for index in range(WIDTH):
        total += numbers[index]
    return total


def compute(double flops):
    """Do at least `flops` floating-point operations; return the number done."""
    return _repeat(<long long>((flops + OPERATIONS - 1) // OPERATIONS), 0)


def compute_until(double end):
    """Compute at least one block, until `time.monotonic()` is `end`; return the number of floating-point operations."""
    return _repeat(BLOCK, end)


cdef double _repeat(long long steps, double end):
    """Do the steps at least once, until `time.monotonic()` is `end`; return the number of operations."""
    cdef double numbers[WIDTH]
    cdef double total
    cdef int index
    cdef long long count = 0
    for index in range(WIDTH):
        numbers[index] = 1 + index
    with nogil:
        while True:
            _steps(numbers, steps)
            count += steps
            if _now() >= end:
                break
        total = _sum(numbers)
    assert total > 0
    return <double>count * OPERATIONS
