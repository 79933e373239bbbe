"""C declarations of the slot map, for other extensions of the agent."""

cimport cython
from cpython.ref cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint64_t

from rp_agent.scheduler.placement cimport Placement, Shape, rp_ask


cdef extern from "slotnodes.h" nogil:
    ctypedef struct rp_node:
        int64_t mem
        int64_t lfs
        uint64_t gpus
        uint64_t gpus_usable
        int32_t cores
        int32_t held
        int32_t kind
        bint hidden
        bint down
        bint masked
        bint dirty
        int32_t shown_cores
        int32_t shown_gpus
        int32_t shown_idle
        int64_t shown_share
        int64_t shown_mem
        int64_t shown_lfs

    ctypedef struct rp_nodes:
        int32_t count
        int32_t words
        int32_t gpus
        int32_t domains
        uint64_t *domain_cores
        uint64_t *domain_gpus


cdef extern from "slotindex.h" nogil:
    ctypedef struct rp_need:
        int64_t cores
        int64_t gpus
        int64_t share
        int64_t mem
        int64_t lfs

    ctypedef struct rp_run:
        int32_t longest

    ctypedef struct rp_index:
        int32_t leaves
        int32_t vectors
        int64_t *share
        int64_t *mem
        int64_t *lfs
        rp_run *run


@cython.final
cdef class SlotMap:
    cdef rp_nodes nodes
    cdef rp_index index
    cdef list table
    cdef dict by_index      # position by node index
    cdef dict kinds         # number of (cores, units of each GPU, mem, lfs) of an empty node
    cdef list kind_up       # nodes of each kind that are up
    cdef int64_t epoch      # changes with the resources of empty nodes
    cdef int64_t free_cores  # of all available nodes
    cdef int64_t free_gpus
    cdef int32_t *dirty     # positions with outdated entries in the index
    cdef int32_t n_dirty
    cdef PyObject **held    # all held placements, each with a reference
    cdef Py_ssize_t n_held
    cdef Py_ssize_t most_held  # capacity of `held`

    cdef bint may_fit(self, Shape shape) noexcept
    cdef bint may_fit_within(self, Shape shape, int32_t first, int32_t end) noexcept
    cdef bint may_fit_on(self, Shape shape, int32_t position) noexcept
    cdef void free_on(self, int32_t position, int32_t *cores, int32_t *gpus) noexcept
    cdef int32_t _one_node(self, Shape shape) noexcept nogil
    cdef int64_t _holds(self, Shape shape, int32_t position, int64_t missing) noexcept nogil
    cdef int32_t _roomiest(self, Shape shape, int64_t limit) noexcept nogil
    cdef int64_t missing(self, Shape shape, int32_t first, int32_t end) noexcept nogil
    cdef int64_t _per_node(self, Shape shape) except -1
    cdef Placement _place(self, Shape shape)
    cdef Placement _place_over_nodes(self, Shape shape)
    cdef Placement _place_on_run(self, Shape shape, int32_t first, int64_t length)
    cdef Placement _place_greedily(self, Shape shape)
    cdef Placement _new(self, Shape shape, int32_t ranks, int32_t parts, int64_t gpus)
    cdef void _hold(self, Placement placement) noexcept
    cdef void _fill(self, Placement placement, Shape shape, int32_t position, int32_t first,
                    int64_t count) noexcept nogil
    cdef int _give_back(self, Placement placement) except -1
    cdef void _touch(self, int32_t position) noexcept
    cdef void _settle(self) noexcept
    cdef void _publish(self, int32_t position) noexcept
    cdef int32_t _position(self, object position) except -1
