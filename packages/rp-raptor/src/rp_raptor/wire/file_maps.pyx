"""Maps of files in shared memory that a process writes or reads again and again.

The module `mmap` duplicates the descriptor of each file that it maps; these maps need none, so there may be many. The
format is that of `rp_api.blobs`, whose readers and writers of files take the time of a copy of 100 KB.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.errno cimport errno
from libc.stdint cimport uint64_t
from libc.string cimport memcmp, memcpy
from posix.mman cimport MAP_FAILED, MAP_SHARED, PROT_READ, PROT_WRITE, mmap, munmap

import os

cdef enum:
    MAX_FILES = 4096
    ALIGNMENT = 64
    LARGE = 256 * 1024    # bytes of a copy during which other threads run

cdef uint64_t OF_BYTES = <uint64_t>1 << 63    # in the size of a buffer that was of a `bytes`

cdef struct Head:
    uint64_t version
    char magic[7]
    char kind
    uint64_t length    # of the body
    uint64_t count     # of the buffers, whose sizes follow

cdef extern from *:
    """
    #include <sys/mman.h>
    #define version_load(word) __atomic_load_n((word), __ATOMIC_SEQ_CST)
    #define version_store(word, value) __atomic_store_n((word), (value), __ATOMIC_SEQ_CST)
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
    uint64_t version_load(uint64_t *word) nogil
    void version_store(uint64_t *word, uint64_t value) nogil


@cython.final
@cython.auto_pickle(False)
cdef class FileMap:
    """A map of the first `size` bytes of an open file in the format of blobs; OSError if it cannot be mapped."""

    cdef char *_start
    cdef readonly Py_ssize_t size

    def __cinit__(self, int file, Py_ssize_t size):
        if size < <Py_ssize_t>sizeof(Head):
            raise OSError('the file is too short')
        self._start = <char *>mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | POPULATED, file, 0)
        if <void *>self._start == MAP_FAILED:
            self._start = NULL
            raise OSError(errno, os.strerror(errno))
        self.size = size

    def __dealloc__(self):
        if self._start != NULL:
            munmap(self._start, self.size)

    @property
    def version(self):
        """The version of the content."""
        return version_load(&self._head().version)

    def release(self, uint64_t version):
        """Give the content the version 0 if it has this one, which says that it was read."""
        if self.version == version:
            version_store(&self._head().version, 0)

    def write(self, bytes kind not None, body, buffers, uint64_t version):
        """Replace the content, as `blobs.write` does, and return its size; ValueError if it does not fit."""
        cdef Head *head = self._head()
        cdef uint64_t *size = <uint64_t *>(self._start + sizeof(Head))
        cdef Py_ssize_t end = sizeof(Head) + 8 * len(buffers)
        if end > self.size:
            raise ValueError('the file is too short')
        version_store(&head.version, 0)
        memcpy(head.magic, b'rpblob3', 7)
        head.kind, head.length, head.count = kind[0], len(body), len(buffers)
        end = self._put(body, end)
        for buffer in buffers:
            content = buffer.raw()
            size[0] = <uint64_t>content.nbytes | (OF_BYTES if type(content.obj) is bytes else 0)
            size += 1
            end = self._put(content, _aligned(end))
        version_store(&head.version, version)
        return end

    def read(self, Py_ssize_t size, uint64_t version):
        """Return what `blobs.read` does of the first `size` bytes, copied; ValueError if it is not there."""
        cdef Head *head = self._head()
        cdef uint64_t *sizes = <uint64_t *>(self._start + sizeof(Head))
        cdef uint64_t count = head.count, index
        cdef Py_ssize_t end = sizeof(Head) + 8 * count
        if version_load(&head.version) != version or memcmp(head.magic, b'rpblob3', 7) != 0:
            raise ValueError('its content was replaced')
        if size > self.size or count > <uint64_t>size // 8 or end > size:
            raise ValueError('the file is truncated')
        kind, body, buffers = self._start[15:16], self._get(&end, head.length | OF_BYTES, size), []
        for index in range(count):
            end = _aligned(end)
            buffers.append(self._get(&end, sizes[index], size))
        if version_load(&head.version) != version:
            raise ValueError('its content was replaced')
        return kind, body, buffers

    cdef Head *_head(self) noexcept:
        return <Head *>self._start

    cdef Py_ssize_t _put(self, content, Py_ssize_t start) except -1:
        """Write a content, and return where it ends."""
        cdef Py_buffer view
        PyObject_GetBuffer(content, &view, PyBUF_SIMPLE)
        try:
            if start + view.len > self.size:
                raise ValueError('the file is too short')
            _copy(self._start + start, view.buf, view.len)
            return start + view.len
        finally:
            PyBuffer_Release(&view)

    cdef _get(self, Py_ssize_t *start, uint64_t what, Py_ssize_t limit):
        """Return a content of this size, and advance `start` to its end."""
        cdef uint64_t length = what & ~OF_BYTES
        cdef char *source = self._start + start[0]
        if start[0] > limit or length > <uint64_t>(limit - start[0]):
            raise ValueError('the file is truncated')
        start[0] += length
        if what & OF_BYTES:
            content = PyBytes_FromStringAndSize(NULL, length)
            _copy(PyBytes_AS_STRING(content), source, length)
            return content
        changing = PyByteArray_FromStringAndSize(NULL, length)
        _copy(PyByteArray_AS_STRING(changing), source, length)
        return memoryview(changing)

    def free(self):
        """Free the memory of the file, also if other processes have mapped it; it has zeros from then on."""
        free_pages(self._start, self.size)


cdef Py_ssize_t _aligned(Py_ssize_t end) noexcept:
    return (end + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT


cdef void _copy(void *target, const void *source, size_t size) noexcept:
    if size < LARGE:
        memcpy(target, source, size)
    else:
        with nogil:
            memcpy(target, source, size)


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
        """Return the map of a file, or None."""
        found = self._maps.pop(path, None)
        if found is not None:
            self._maps[path] = found
        return found

    def uses(self, str path not None):
        """Return whether a file was used before, and note that it is used now."""
        if path in self._maps:
            return True
        self._maps[path] = None
        self._drop_oldest()
        return False

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
