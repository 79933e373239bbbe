"""Ids of calls by the thousand: the operations on each call of a message, in C.

Ids are numbers of 64 bits in an `array('Q')`. A table is a dict of batches (`Held`) by id, so that no payload is
touched before a call has to be repeated.
"""

cimport cython

from cpython cimport array
from libc.stdint cimport uint64_t

from array import array as make_array

cdef array.array _TEMPLATE = make_array('Q')


@cython.final
@cython.auto_pickle(False)
cdef class Held:
    """Calls that were added to a table together."""

    cdef const uint64_t[::1] _ids
    cdef object _payloads

    def of(self, uint64_t id):
        """Return the payload of one of the calls; KeyError if it is not among them."""
        cdef Py_ssize_t index = <Py_ssize_t>(id - self._ids[0])   # if the ids are consecutive
        if 0 <= index < self._ids.shape[0] and self._ids[index] == id:
            return self._payloads[index]
        for index in range(self._ids.shape[0]):
            if self._ids[index] == id:
                return self._payloads[index]
        raise KeyError(id)


def hold(dict table not None, const uint64_t[::1] ids, payloads):
    """Add calls to a table: as many payloads as ids."""
    cdef Py_ssize_t index
    cdef Held held
    if len(payloads) != ids.shape[0]:
        raise ValueError(f'{len(payloads)} payloads for {ids.shape[0]} calls')
    held = Held.__new__(Held)
    held._ids, held._payloads = ids, payloads
    for index in range(ids.shape[0]):
        table[ids[index]] = held


def release(dict table not None, const uint64_t[::1] ids):
    """Remove calls from a table; return None if all were in it, else a list of bools."""
    cdef Py_ssize_t index, missing = 0
    cdef list found = []
    for index in range(ids.shape[0]):
        if table.pop(ids[index], None) is None:
            if not missing:
                found = [True] * index
            missing += 1
            found.append(False)
        elif missing:
            found.append(True)
    return found if missing else None


def with_source(const uint64_t[::1] ids, uint64_t source, int shift):
    """Return the ids with the number of their source above the lowest `shift` bits."""
    cdef array.array result = array.clone(_TEMPLATE, ids.shape[0], False)
    cdef Py_ssize_t index
    for index in range(ids.shape[0]):
        result.data.as_ulonglongs[index] = ids[index] | source << shift
    return result


def without_source(const uint64_t[::1] ids, int shift):
    """Return the lowest `shift` bits of the ids."""
    cdef array.array result = array.clone(_TEMPLATE, ids.shape[0], False)
    cdef Py_ssize_t index
    cdef uint64_t mask = (<uint64_t>1 << shift) - 1
    for index in range(ids.shape[0]):
        result.data.as_ulonglongs[index] = ids[index] & mask
    return result


def source_of(const uint64_t[::1] ids, int shift):
    """Return the common source of the ids; None if there are several, or no ids."""
    cdef Py_ssize_t index
    for index in range(1, ids.shape[0]):
        if ids[index] >> shift != ids[0] >> shift:
            return None
    return ids[0] >> shift if ids.shape[0] else None
