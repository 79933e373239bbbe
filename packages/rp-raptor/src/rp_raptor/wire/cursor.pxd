cimport cython
from libc.stdint cimport uint64_t


@cython.final
@cython.auto_pickle(False)
cdef class Cursors:
    cdef object _map
    cdef uint64_t[::1] _words
    cdef readonly int ranks

    cdef uint64_t *_word(self, int rank, int which) except NULL
    cdef int taken(self, int rank, uint64_t position) except -1
