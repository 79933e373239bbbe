"""Records of the calls that a rank runs, in the form of `rp_profiling.write.calls`.

The clock is read once for each call: a call begins when the one before has ended, or at `begin`. So its time includes
the unpickling of its arguments and the pickling of its result.
"""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

from rp_profiling.write import calls

cdef int _END = calls.END

cdef enum:
    BLOCK = 4096   # records that are written at once


@cython.final
@cython.auto_pickle(False)
cdef class CallRecorder:
    """The records of calls; `write(records)` gets them in blocks. Without it, calls are only counted, in `total`.

    `last` is the time of the last reading of the clock, in nanoseconds. `flags` are set in each record.
    """

    def __init__(self, write):
        self._write = write
        self.begin()
        if write is not None and self._records == NULL:
            self._records = <Record *>malloc(BLOCK * sizeof(Record))
            if self._records == NULL:
                raise MemoryError('no memory for records of calls')

    def __dealloc__(self):
        free(self._records)

    cpdef int64_t now(self) noexcept:
        """Return the time by the clock of the records, in nanoseconds."""
        cdef timespec now
        clock_gettime(CLOCK_MONOTONIC, &now)
        return <int64_t>now.tv_sec * 1000000000 + now.tv_nsec

    cpdef int64_t begin(self) noexcept:
        """Begin the next call now, and return the time."""
        self.last = self.now()
        return self.last

    cpdef int64_t lap(self, int what) except? -1:
        """Record a call that has ended now, and return the time."""
        cdef int64_t start = self.last
        self.last = self.now()
        self._keep(start, self.last, what)
        return self.last

    def since(self, int64_t start, int what):
        """Record a call that has begun at `start` and ended now; the next call begins independently of it."""
        self._keep(start, self.now(), what)

    def flush(self):
        """Write all records."""
        cdef bytes records
        if self._count:
            records = PyBytes_FromStringAndSize(<char *>self._records, self._count * <Py_ssize_t>sizeof(Record))
            self._count = 0   # before the write, in which a signal handler may run
            self._write(records)

    def close(self):
        """Write all records and the mark of an end in order, and record nothing more."""
        cdef int64_t now = self.now()
        if self._write is not None:
            self._keep(now, now, _END)
            self.flush()
            self._write = None

    cdef int _keep(self, int64_t start, int64_t stop, int what) except -1:
        self.total += 1
        if self._write is not None:
            self._records[self._count] = Record(start, (stop - start) << 8 | what | self.flags)
            self._count += 1
            if self._count == BLOCK:
                self.flush()
        return 0
