"""Words in memory shared by a manager and its ranks: the next call of each rank, and the call to be interrupted.

A file in the worker's runtime directory holds a record of one cache line for each rank, with two words of 64 bits. The
*cursor* is the position of the call that the rank takes next. The rank advances it with a compare-and-exchange that
expects the position of the call; the manager takes back untaken calls with an exchange. The first of them has the call,
without a message. The *mark* names the call that a signal to the rank is meant for.
"""

import mmap
import os

cimport cython
from libc.stdint cimport uint64_t

cdef extern from *:
    """
    #include <stdint.h>
    #define word_load(word) __atomic_load_n((word), __ATOMIC_SEQ_CST)
    #define word_store(word, value) __atomic_store_n((word), (value), __ATOMIC_SEQ_CST)
    #define word_exchange(word, value) __atomic_exchange_n((word), (value), __ATOMIC_SEQ_CST)
    static inline int word_take(uint64_t *word, uint64_t expected) {
        return __atomic_compare_exchange_n(word, &expected, expected + 1, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    }
    """
    uint64_t word_load(uint64_t *word) nogil
    void word_store(uint64_t *word, uint64_t value) nogil
    uint64_t word_exchange(uint64_t *word, uint64_t value) nogil
    bint word_take(uint64_t *word, uint64_t expected) nogil

cdef enum:
    WORDS = 8    # of one record: a cache line, so that ranks do not share one
    CURSOR = 0
    MARK = 1


def create(path, int ranks):
    """Create the file for `ranks` ranks, all words zero; OSError if it exists."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        os.ftruncate(fd, ranks * WORDS * sizeof(uint64_t))
    finally:
        os.close(fd)


@cython.final
@cython.auto_pickle(False)
cdef class Cursors:
    """The records in a file that `create` made; the memory is unmapped with the object."""

    def __init__(self, path):
        fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            self._map = mmap.mmap(fd, 0)
        finally:
            os.close(fd)
        self._words = memoryview(self._map).cast('Q')
        self.ranks = <int>(self._words.shape[0] // WORDS)

    cdef uint64_t *_word(self, int rank, int which) except NULL:
        if not 0 <= rank < self.ranks:
            raise IndexError(f'rank {rank} does not exist: there are {self.ranks}')
        return &self._words[rank * WORDS + which]

    def take(self, int rank, uint64_t position):
        """Return whether the rank has taken the call at this position; False if the manager has taken it back."""
        return bool(self.taken(rank, position))

    cdef int taken(self, int rank, uint64_t position) except -1:
        """Do what `take` does."""
        return word_take(self._word(rank, CURSOR), position)

    def position(self, int rank):
        """Return the position of the call that the rank takes next."""
        return word_load(self._word(rank, CURSOR))

    def move(self, int rank, uint64_t position):
        """Take back all untaken calls, and return the position of the first; the next call will be at `position`."""
        return word_exchange(self._word(rank, CURSOR), position)

    def mark(self, int rank):
        """Return the mark, as made by `rank_protocol.interruption`; 0 for none."""
        return word_load(self._word(rank, MARK))

    def set_mark(self, int rank, uint64_t value):
        """Set the call that the next signal to the rank is meant for."""
        word_store(self._word(rank, MARK), value)
