cimport cython
from cpython cimport array
from libc.stdint cimport uint64_t


@cython.final
@cython.auto_pickle(False)
cdef class Payloads:
    cdef bytes _data           # of these payloads, and maybe of others
    cdef array.array _ends     # a 0, and the end of each payload in the data, 64 bits each
    cdef Py_ssize_t _first
    cdef Py_ssize_t _count

    cdef uint64_t start(self, Py_ssize_t index) noexcept
    cdef const char *data(self, Py_ssize_t index) noexcept
    cdef Py_ssize_t size_of(self, Py_ssize_t index) noexcept
    cdef Payloads part(self, Py_ssize_t first, Py_ssize_t last)
    cpdef bytes at(self, Py_ssize_t index)


@cython.final
@cython.auto_pickle(False)
cdef class Builder:
    cdef char *_data
    cdef uint64_t *_ends
    cdef Py_ssize_t _size, _room, _ends_room
    cdef readonly Py_ssize_t count

    cdef char *reserve(self, Py_ssize_t most) except NULL
    cdef int close(self, const char *end) except -1
    cpdef add(self, bytes payload)
    cpdef Payloads finish(self)
