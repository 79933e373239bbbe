"""What the extensions of the reader know of tables of names."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

cimport cython


@cython.final
cdef class Names:
    cdef char *_text         # all names, one after the other
    cdef int64_t _size
    cdef int64_t _capacity
    cdef int64_t *_starts    # of each name in the text; one more than there are names
    cdef int64_t _places     # in `_starts`
    cdef uint32_t *_slots    # the hash table: number of the name plus one, 0 where there is none
    cdef uint64_t _mask      # size of the table minus one
    cdef readonly uint32_t count

    cdef uint32_t number(self, const char *start, Py_ssize_t size) except? 0xFFFFFFFF
    cdef int _grow(self) except -1
    cdef int _room(self, Py_ssize_t size) except -1
