"""C declarations of the slot map, for other extensions of the agent."""

from libc.stdint cimport int32_t, int64_t

cimport cython

from rp_agent.scheduler.nodemap cimport NodeMap
from rp_agent.scheduler.placement cimport Placement, Shape


@cython.final
cdef class SlotMap(NodeMap):
    cdef bint may_fit(self, Shape shape) noexcept
    cdef bint may_fit_within(self, Shape shape, int32_t first, int32_t end) noexcept
    cdef int32_t _one_node(self, Shape shape) noexcept nogil
    cdef int64_t _holds(self, Shape shape, int32_t position, int64_t missing) noexcept nogil
    cdef int32_t _roomiest(self, Shape shape, int64_t limit) noexcept nogil
    cdef int64_t missing(self, Shape shape, int32_t first, int32_t end) noexcept nogil
    cdef Placement _place(self, Shape shape)
    cdef Placement _place_over_nodes(self, Shape shape)
    cdef Placement _place_on_run(self, Shape shape, int32_t first, int64_t length)
    cdef Placement _place_greedily(self, Shape shape)
    cdef void _fill(self, Placement placement, Shape shape, int32_t position, int32_t first,
                    int64_t count) noexcept nogil
