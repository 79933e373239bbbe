"""A table that numbers names in order of appearance: columns of a trace have numbers, the table has the texts."""

from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcmp, memcpy

cimport cython

cdef enum:
    FIRST_SLOTS = 1024
    FIRST_TEXT = 16 * 1024


cdef inline uint64_t _hash(const char *start, Py_ssize_t size) noexcept nogil:
    """Hash eight bytes at a time by multiplication (Fibonacci hashing)."""
    cdef uint64_t value = <uint64_t>size * 0x9E3779B97F4A7C15U
    cdef uint64_t word
    while size > 0:
        word = 0
        memcpy(&word, start, <size_t>(8 if size > 8 else size))
        value = (value ^ word) * 0x9E3779B97F4A7C15U
        value ^= value >> 29
        start += 8
        size -= 8
    return value


@cython.final
@cython.auto_pickle(False)
cdef class Names:
    """A table of names; the first one is the empty name, with number 0."""

    def __cinit__(self):
        self._mask = FIRST_SLOTS - 1
        self._slots = <uint32_t *>calloc(FIRST_SLOTS, sizeof(uint32_t))
        self._places = FIRST_SLOTS
        self._starts = <int64_t *>calloc(FIRST_SLOTS, sizeof(int64_t))
        self._capacity = FIRST_TEXT
        self._text = <char *>realloc(NULL, FIRST_TEXT)
        if self._slots == NULL or self._starts == NULL or self._text == NULL:
            raise MemoryError('no memory for a table of names')
        self.number(b'', 0)

    def __dealloc__(self):
        free(self._slots)
        free(self._starts)
        free(self._text)

    def __len__(self):
        return self.count

    def __getitem__(self, uint32_t number):
        """Return the name with that number."""
        if number >= self.count:
            raise IndexError(f'no name has the number {number}, there are {self.count}')
        cdef int64_t first = self._starts[number]
        return self._text[first:self._starts[number + 1]].decode('utf-8', 'replace')

    def add(self, str name not None):
        """Return the number of a name, which is added if it is new."""
        cdef bytes text = name.encode()
        return self.number(text, len(text))

    def find(self, str name not None):
        """Return the number of a name, or -1."""
        cdef bytes text = name.encode()
        cdef const char *start = text
        cdef Py_ssize_t size = len(text)
        cdef uint64_t slot = _hash(start, size) & self._mask
        cdef uint32_t known
        while self._slots[slot]:
            known = self._slots[slot] - 1
            if (self._starts[known + 1] - self._starts[known] == size
                    and memcmp(self._text + self._starts[known], start, <size_t>size) == 0):
                return known
            slot = (slot + 1) & self._mask
        return -1

    cdef uint32_t number(self, const char *start, Py_ssize_t size) except? 0xFFFFFFFF:
        """Return the number of the name of `size` bytes at `start`, which is added if it is new."""
        cdef uint64_t slot = _hash(start, size) & self._mask
        cdef uint32_t known
        while self._slots[slot]:
            known = self._slots[slot] - 1
            if (self._starts[known + 1] - self._starts[known] == size
                    and memcmp(self._text + self._starts[known], start, <size_t>size) == 0):
                return known
            slot = (slot + 1) & self._mask
        self._room(size)
        memcpy(self._text + self._size, start, <size_t>size)
        known = self.count
        self._starts[known] = self._size
        self._size += size
        self.count += 1
        self._starts[self.count] = self._size
        self._slots[slot] = self.count
        if 2 * <uint64_t>self.count > self._mask:
            self._grow()
        return known

    cdef int _room(self, Py_ssize_t size) except -1:
        """Reserve memory for a new name of `size` bytes."""
        cdef char *text
        cdef int64_t *starts
        cdef int64_t wanted = self._capacity
        while wanted < self._size + size:
            wanted *= 2
        if wanted > self._capacity:
            text = <char *>realloc(self._text, <size_t>wanted)
            if text == NULL:
                raise MemoryError('no memory for a table of names')
            self._text = text
            self._capacity = wanted
        if <int64_t>self.count + 2 > self._places:
            starts = <int64_t *>realloc(self._starts, 2 * <size_t>self._places * sizeof(int64_t))
            if starts == NULL:
                raise MemoryError('no memory for a table of names')
            self._starts = starts
            self._places *= 2
        return 0

    cdef int _grow(self) except -1:
        """Double the size of the hash table."""
        cdef uint64_t mask = 2 * self._mask + 1
        cdef uint32_t *slots = <uint32_t *>calloc(mask + 1, sizeof(uint32_t))
        cdef uint32_t known
        cdef uint64_t slot
        if slots == NULL:
            raise MemoryError('no memory for a table of names')
        for known in range(self.count):
            slot = _hash(self._text + self._starts[known], self._starts[known + 1] - self._starts[known]) & mask
            while slots[slot]:
                slot = (slot + 1) & mask
            slots[slot] = known + 1
        free(self._slots)
        self._slots = slots
        self._mask = mask
        return 0
