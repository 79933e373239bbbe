"""Maps of files in shared memory that a process writes or reads again and again.

The module `mmap` duplicates the descriptor of each file that it maps; these maps need none, so there may be many.
"""

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from libc.errno cimport errno
from posix.mman cimport MAP_FAILED, MAP_SHARED, PROT_READ, PROT_WRITE, mmap, munmap

import os

cdef enum:
    MAX_FILES = 4096

cdef extern from *:
    """
    #include <sys/mman.h>
    #ifdef __linux__
    #define POPULATED MAP_POPULATE
    #define free_pages(start, size) madvise((start), (size), MADV_REMOVE)
    #else
    #define POPULATED 0
    #define free_pages(start, size) 0
    #endif
    """
    int POPULATED
    int free_pages(void *start, size_t size) nogil


@cython.final
@cython.auto_pickle(False)
cdef class FileMap:
    """A map of the first `size` bytes of an open file, a buffer that can be written; OSError if it cannot be mapped."""

    cdef void *_start
    cdef readonly Py_ssize_t size

    def __cinit__(self, int file, Py_ssize_t size):
        self._start = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | POPULATED, file, 0)
        if self._start == MAP_FAILED:
            self._start = NULL
            raise OSError(errno, os.strerror(errno))
        self.size = size

    def __dealloc__(self):
        if self._start != NULL:
            munmap(self._start, self.size)

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        PyBuffer_FillInfo(buffer, self, self._start, self.size, False, flags)

    def __len__(self):
        return self.size

    def free(self):
        """Free the memory of the file, also if other processes have mapped it; it has zeros from then on."""
        free_pages(self._start, self.size)


@cython.final
@cython.auto_pickle(False)
cdef class FileMaps:
    """Maps by path. Those that were used first are dropped beyond `limit` bytes, or beyond many files.

    For any thread: no method runs code of Python between its changes. There is no lock, which a fork would inherit.
    """

    cdef dict _maps    # the values are None for files that were used once
    cdef Py_ssize_t _limit, _bytes

    def __init__(self, Py_ssize_t limit):
        self._maps = {}
        self._limit = limit

    def find(self, str path not None):
        """Return the map of a file, None if it has none, and whether it was used before."""
        cdef bint known = path in self._maps
        found = self._maps.pop(path, None)
        self._maps[path] = found
        if not known:
            self._drop_oldest()
        return found, known

    def add(self, str path not None, FileMap new not None):
        """Keep the map of a file, in place of an older one."""
        self.take(path)
        self._maps[path] = new
        self._bytes += new.size
        self._drop_oldest()

    cpdef take(self, str path):
        """Remove and return the map of a file; None if there is none."""
        cdef FileMap found = self._maps.pop(path, None)
        if found is not None:
            self._bytes -= found.size
        return found

    def clear(self):
        """Drop all maps."""
        self._maps.clear()
        self._bytes = 0

    cdef _drop_oldest(self):
        while self._bytes > self._limit or len(self._maps) > MAX_FILES:
            self.take(next(iter(self._maps)))
