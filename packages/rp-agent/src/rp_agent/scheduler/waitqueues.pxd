"""C declarations of the queues of waiting items, for the wait pool."""

from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport realloc


cdef enum:
    NONE = -1


cdef struct Entry:
    int64_t arrival
    double since
    int32_t queue           # NONE: unused
    int32_t next            # also links unused entries
    int32_t previous


cdef struct Queue:
    int64_t priority
    int32_t group
    int32_t first
    int32_t last
    int32_t higher
    int32_t lower           # also links unused queues


cdef struct Group:
    void *shape             # NULL: the request has no shape; owned by the list of shapes
    int64_t priority        # of its first item
    int64_t arrival         # of its first item
    int64_t tried           # number of the call of place() whose try failed
    double moved            # time at which an item of it was placed
    int32_t highest
    int32_t lowest
    int32_t at              # index among the awake or the stuck groups; also links unused groups
    int32_t missing         # deficit of GPUs or cores at the last refusal; 0: unknown
    int32_t first_node      # first node of its items
    int32_t end_node        # end of their nodes
    int32_t count           # number of its items
    bint awake


cdef struct Stuck:
    int32_t group
    int32_t cores           # of one rank; 0 without a shape
    int32_t gpus            # whole GPUs of one rank; 0 without a shape
    int32_t missing         # GPUs or cores to be freed before it may fit; 0: it may fit


cdef inline void *moved(void *array, int32_t capacity, size_t size) except NULL:
    """Return the array with room for `capacity` elements; its address may change."""
    cdef void *place = realloc(array, <size_t>capacity * size)
    if place == NULL:
        raise MemoryError()
    return place


cdef inline bint before(const Group *one, const Group *other) noexcept:
    """Return whether the first item of a group comes before that of another."""
    return one.arrival < other.arrival if one.priority == other.priority else one.priority > other.priority


cdef class WaitQueues:
    cdef list items                     # by ticket
    cdef list keys                      # by group
    cdef list shapes                    # by group
    cdef dict groups_by_key
    cdef Entry *entries
    cdef Queue *queues
    cdef Group *groups
    cdef int32_t entry_capacity
    cdef int32_t queue_capacity
    cdef int32_t group_capacity
    cdef int32_t spare_entry
    cdef int32_t spare_queue
    cdef int32_t spare_group
    cdef int32_t *awake                 # heap of groups
    cdef Stuck *stuck
    cdef int32_t n_awake
    cdef int32_t n_stuck
    cdef int32_t n_waiting
    cdef int64_t arrivals

    cdef int32_t first(self, int32_t group) noexcept
    cdef int32_t _put_in_order(self, int32_t *chosen, int32_t count, int32_t most, int32_t group) noexcept
    cdef object take(self, int32_t ticket)
    cdef void wake_group(self, int32_t group) noexcept
    cdef void stick_group(self, int32_t group) noexcept
    cdef void push(self, int32_t group) noexcept
    cdef void push_stuck(self, int32_t group) noexcept
    cdef int _make_room(self) except -1
    cdef int _more_groups(self, int32_t capacity) except -1
    cdef int32_t _append(self, int32_t queue, double now) noexcept
    cdef int32_t _queue(self, int32_t group, int64_t priority) noexcept
    cdef int32_t _new_queue(self, int32_t group, int64_t priority, int32_t higher, int32_t lower) noexcept
    cdef void _drop_queue(self, int32_t queue) noexcept
    cdef void _link(self, int32_t group, int32_t higher, int32_t lower) noexcept
    cdef int32_t _group(self, key, double now) except NONE
    cdef int _drop_group(self, int32_t group) except -1
    cdef void _rank(self, int32_t group) noexcept
    cdef void _pull(self, int32_t group) noexcept
    cdef void _pull_stuck(self, int32_t group) noexcept
    cdef void _seat(self, int32_t group, int32_t at) noexcept
    cdef void _swap(self, int32_t at, int32_t other) noexcept
    cdef bint _before(self, int32_t at, int32_t other) noexcept
    cdef void _up(self, int32_t at) noexcept
    cdef void _down(self, int32_t at) noexcept
    cdef int32_t _check_group(self, int32_t group, int32_t at, bint awake) except -1
    cdef int32_t _check_queue(self, int32_t queue) except -1
