"""Declarations of the recorder for the runner."""

from libc.stdint cimport int64_t

cimport cython


cdef struct Record:
    int64_t start
    int64_t rest


@cython.final
cdef class CallRecorder:
    cdef Record *_records
    cdef Py_ssize_t _count
    cdef object _write
    cdef public int flags
    cdef readonly int64_t last
    cdef readonly int64_t total

    cpdef int64_t now(self) noexcept
    cpdef int64_t begin(self) noexcept
    cpdef int64_t lap(self, int what) except? -1
    cdef int _keep(self, int64_t start, int64_t stop, int what) except -1
