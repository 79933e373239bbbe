"""C declarations of the nodes of a slot map and of the index over them, for other extensions of the agent."""

from cpython.ref cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint64_t

from rp_agent.scheduler.placement cimport Placement, Shape, rp_ask, rp_part


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

    int rp_nodes_open(rp_nodes *nodes, int32_t count, int32_t words, int32_t gpus, int32_t domains, int64_t units)
    void rp_nodes_close(rp_nodes *nodes)
    rp_node *rp_at(const rp_nodes *nodes, int32_t position)
    uint64_t *rp_free(const rp_nodes *nodes, int32_t position)
    uint64_t *rp_usable(const rp_nodes *nodes, int32_t position)
    int64_t *rp_used(const rp_nodes *nodes, int32_t position)
    int32_t rp_count(uint64_t bits)
    int64_t rp_largest_share(const rp_nodes *nodes, int32_t position, uint64_t among)
    int64_t rp_room(const rp_nodes *nodes, int32_t position, const rp_ask *ask, int64_t limit)
    void rp_choose(const rp_nodes *nodes, int32_t position, const rp_ask *ask, rp_part *part)
    void rp_take(const rp_nodes *nodes, const rp_part *part, int64_t share, const int64_t *units, int64_t mem,
                 int64_t lfs)
    void rp_give(const rp_nodes *nodes, const rp_part *part, int64_t share, const int64_t *units, int64_t mem,
                 int64_t lfs)


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

    int rp_index_open(rp_index *index, int32_t count, int32_t gpus)
    void rp_index_close(rp_index *index)
    void rp_index_set_devices(const rp_index *index, int32_t position, int cores, int gpus)
    void rp_index_set_amount(const rp_index *index, int64_t *tree, int32_t position, int64_t amount)
    void rp_index_set_idle(const rp_index *index, int32_t position, int32_t idle)
    bint rp_index_fits(const rp_index *index, int32_t node, const rp_need *need)
    int32_t rp_index_next(const rp_index *index, const rp_need *need, int32_t start)
    int32_t rp_index_run(const rp_index *index, int32_t length)
    void rp_index_expect(const rp_index *index, int32_t position)
    int32_t rp_index_flaw(const rp_index *index)
    int rp_index_leaf(const rp_index *index, int32_t position, int32_t gpus)


cdef class NodeMap:
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

    cdef bint may_fit_on(self, Shape shape, int32_t position) noexcept
    cdef void free_on(self, int32_t position, int32_t *cores, int32_t *gpus) noexcept
    cdef int64_t _per_node(self, Shape shape) except -1
    cdef Placement _new(self, Shape shape, int32_t ranks, int32_t parts, int64_t gpus)
    cdef void _hold(self, Placement placement) noexcept
    cdef int _give_back(self, Placement placement) except -1
    cdef void _touch(self, int32_t position) noexcept
    cdef void _settle(self) noexcept
    cdef void _publish(self, int32_t position) noexcept
    cdef int32_t _position(self, object position) except -1
