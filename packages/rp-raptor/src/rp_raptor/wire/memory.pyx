"""Comparison of memory: whether a buffer has the content that was stored of it."""

from libc.stdint cimport uintptr_t
from libc.string cimport memcmp


def address(const unsigned char[::1] buffer not None):
    """Return the address of a buffer, 0 if it is empty."""
    return <uintptr_t>&buffer[0] if buffer.shape[0] else 0


def equal(const unsigned char[::1] one not None, const unsigned char[::1] other not None):
    """Return whether two buffers have the same content."""
    cdef Py_ssize_t size = one.shape[0]
    cdef int differs
    if other.shape[0] != size:
        return False
    if not size:
        return True
    with nogil:
        differs = memcmp(&one[0], &other[0], size)
    return not differs
