"""Ids of calls by the thousand: the operations on each call of a message, in C.

Ids are numbers of 64 bits in an `array('Q')`. A table is a dict of payloads by id.
"""

from cpython cimport array
from libc.stdint cimport uint64_t

from array import array as make_array

cdef array.array _TEMPLATE = make_array('Q')


def are_payloads(list payloads not None):
    """Return whether these are payloads: bytes, none of them empty."""
    for payload in payloads:
        if type(payload) is not bytes or not payload:
            return False
    return True


def hold(dict table not None, const uint64_t[::1] ids, list payloads not None):
    """Add calls to a table: as many payloads as ids."""
    cdef Py_ssize_t index
    if len(payloads) != ids.shape[0]:
        raise ValueError(f'{len(payloads)} payloads for {ids.shape[0]} calls')
    for index in range(ids.shape[0]):
        table[ids[index]] = payloads[index]


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
