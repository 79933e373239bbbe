"""C declarations of shapes and placements, for the extensions of the scheduler."""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint64_t


cdef extern from "slotnodes.h" nogil:
    ctypedef struct rp_part:
        int32_t position
        uint64_t gpus
        uint64_t *cores

    size_t rp_part_size(int32_t words)
    int32_t rp_lowest(uint64_t bits)

    ctypedef struct rp_ask:
        int32_t cores
        int32_t gpus
        int64_t share
        int64_t mem
        int64_t lfs


cdef inline list bit_indices(const uint64_t *bits, int32_t words):
    """Return the indices of the bits that are set in a bitmap of several words."""
    cdef uint64_t rest
    cdef int32_t word
    cdef list found = []
    for word in range(words):
        rest = bits[word]
        while rest:
            found.append(64 * word + rp_lowest(rest))
            rest &= rest - 1
    return found


@cython.final
cdef class Shape:
    cdef readonly int32_t ranks
    cdef readonly int32_t cores
    cdef readonly int32_t gpus
    cdef readonly int32_t ranks_per_node
    cdef readonly int64_t share
    cdef readonly int64_t mem
    cdef readonly int64_t lfs
    cdef rp_ask ask
    cdef Py_hash_t hash
    cdef int64_t epoch     # of the slot map to which `per_node` applies
    cdef int64_t per_node  # most ranks that an empty node holds


@cython.final
cdef class Placement:
    cdef readonly Shape shape
    cdef list table         # index and name of each node of the map
    cdef char *parts        # resources of each part, as rp_part
    cdef int64_t *amounts   # mem and lfs per part, then the units per GPU; NULL if they follow from the shape
    cdef int32_t ranks      # number of parts with ranks; further parts hold the rest of whole nodes
    cdef int32_t n_parts
    cdef int32_t words      # of a bitmap of cores
    cdef int32_t number     # index in the list of held placements; -1 after the release
    cdef uint64_t small[4]  # memory of one part with up to 128 cores, which is enough for most tasks


# functions instead of methods: a method table would enlarge each placement by a pointer

cdef inline rp_part *part_of(Placement placement, int32_t which) noexcept nogil:
    """Return the part of a rank or, after the ranks, the rest of a whole node."""
    return <rp_part *>(placement.parts + rp_part_size(placement.words) * <size_t>which)


cdef inline int64_t *units_of(Placement placement) noexcept nogil:
    """Return the units of the first GPU, followed by those of the others; NULL if they follow from the shape."""
    return NULL if placement.amounts == NULL else placement.amounts + 2 * <size_t>placement.n_parts


cdef inline tuple amounts_of(Placement placement, int32_t which):
    """Return the MB of memory and of storage of a part."""
    if placement.amounts != NULL:
        return placement.amounts[2 * which], placement.amounts[2 * which + 1]
    return placement.shape.mem, placement.shape.lfs
