"""The wait pool: tasks that wait for resources, and the decision which of them to try.

No I/O, no clock. Rules of this file:

- `WaitQueues` defines the order of items. A failed try makes a group stuck; so does, without a try, a slot map that
  reports no room.
- Freed resources wake no group at once. The pool records the nodes, and the next `place` lists the stuck groups that
  may have room there, the *hopeful* ones. It tries the first of them and scans the list again; after several scans, it
  wakes all of them.
- A group of several ranks without room records the deficit of its ranks in GPUs, or in cores if they need no GPUs. It
  is not considered again until as much was freed.
- A try may add and remove items, which moves arrays: no pointer into them is kept across it.
"""

cimport cython
from libc.stdint cimport INT32_MAX, INT64_MAX, int32_t, int64_t
from libc.stdlib cimport free

from rp_agent.scheduler.placement cimport Placement, Shape, part_of
from rp_agent.scheduler.slotmap cimport SlotMap
from rp_agent.scheduler.waitqueues cimport NONE, Group, Stuck, WaitQueues, before, moved

from rp_api.errors import ResourceError


cdef enum:
    # freed nodes that are recorded individually; with more, all groups are considered
    MAX_NODES = 16
    # scans of the stuck groups for the first one, before all that may have room are woken
    MAX_LOOKS = 4
    # share of the heap (1 / SIEVE) that is refused one by one, before all groups without a chance are removed
    SIEVE = 16


@cython.final
@cython.auto_pickle(False)
cdef class WaitPool(WaitQueues):
    """Items that wait for a place on `slots`.

    The key of an item is its request. If it is a `Shape`, or has one as its attribute `shape`, the item is tried only
    while `slots` may have room for that shape, otherwise after every release. If the key has a range of node positions
    as its attribute `within`, only resources on these nodes count.
    """

    cdef SlotMap _slots
    cdef int32_t _nodes
    cdef int32_t _freed[MAX_NODES]      # positions for the next call of place()
    cdef int32_t _n_freed
    cdef bint _all_freed
    cdef int32_t _open[MAX_NODES]       # positions in this call of place()
    cdef int32_t _n_open
    cdef int32_t *_hopeful              # stuck groups
    cdef int32_t _n_hopeful
    cdef int32_t _hopeful_capacity
    cdef int32_t _looks
    cdef int64_t _calls
    cdef int32_t _last                  # group of the item placed last; may have left
    cdef bint _placing

    def __cinit__(self, SlotMap slots not None):
        self._slots = slots
        self._nodes = <int32_t>len(slots)
        self._last = NONE

    def __dealloc__(self):
        free(self._hopeful)

    def freed(self, Placement placement not None):
        """Record that a placement was released; takes effect with the next call of `place`."""
        cdef int32_t which
        for which in range(placement.n_parts):
            if self._all_freed or not self.n_waiting:
                break
            self._note(part_of(placement, which).position)

    def wake(self):
        """Consider all items in the next call of `place`."""
        self._all_freed = True

    def place(self, fits, double now, int32_t most=INT32_MAX):
        """Try items in order with `fits(item)`, which places one or returns False; return the placed ones.

        Higher priorities come first, then earlier arrivals, but an item that fits does not wait for one of another
        group that does not. With `most`, at most that many are placed, and the next call continues. `fits` may add and
        remove items. An exception in it ends the call and leaves its item in the pool; items placed before are out.
        """
        if self._placing:
            raise RuntimeError('place() was called by a function that place() has called')
        cdef list placed = []
        cdef int32_t group
        self._placing = True
        try:
            self._open_freed()
            while len(placed) < most and (group := self._choose()) != NONE:
                self._try(group, fits, now, placed)
            # some remain if `most` items were placed before their turn
            self._wake_hopeful()
        except BaseException:
            # not all groups with possible room were considered
            self._all_freed = True
            raise
        finally:
            self._placing = False
        return placed

    def upcoming(self, int32_t count):
        """Return up to `count` first items of the group that an item was placed of last: it comes next again."""
        cdef list found = []
        cdef int32_t queue = NONE, ticket
        if self._last != NONE:
            queue = self.groups[self._last].highest   # NONE if the group is empty
        while queue != NONE:
            ticket = self.queues[queue].first
            while ticket != NONE:
                if len(found) == count:
                    return found
                found.append(self.items[ticket])
                ticket = self.entries[ticket].next
            queue = self.queues[queue].lower
        return found

    def starving(self, double now, double patience):
        """Yield the first item of each stuck group that has waited for `patience` seconds, in order.

        The wait of a group begins when its first item arrives, or when another item of it is placed, whichever is
        later.
        """
        cdef int32_t group
        cdef Group last
        last.priority, last.arrival = INT64_MAX, NONE   # before all others
        while (group := self._next_starving(last, now, patience)) != NONE:
            last = self.groups[group]
            yield self.items[self.first(group)]

    def waiting_since(self):
        """Return when the stuck group with the longest wait began to wait (see `starving`); None without one."""
        cdef int32_t index
        cdef double longest
        if self.n_stuck == 0:
            return None
        longest = self._since(self.stuck[0].group)
        for index in range(1, self.n_stuck):
            longest = min(longest, self._since(self.stuck[index].group))
        return longest

    cdef int32_t _next_starving(self, Group last, double now, double patience) noexcept:
        """Return the first stuck group after `last` that has waited for `patience`."""
        cdef int32_t index, group, best = NONE
        for index in range(self.n_stuck):
            group = self.stuck[index].group
            if (self._since(group) + patience <= now and before(&last, &self.groups[group])
                    and (best == NONE or self._goes_before(group, best))):
                best = group
        return best

    cdef double _since(self, int32_t group) noexcept:
        """Return the time at which the group's first item began to wait for its turn."""
        return max(self.groups[group].moved, self.entries[self.first(group)].since)

    # -- one call of place()

    cdef int _note(self, int32_t position) except -1:
        """Record a release on this node."""
        cdef int32_t index
        if not 0 <= position < self._nodes:
            raise ResourceError(f'{position} is no position of a node: there are {self._nodes} nodes')
        for index in range(self._n_freed):
            if self._freed[index] == position:
                return 0
        if self._n_freed == MAX_NODES:
            self._all_freed = True
        else:
            self._freed[self._n_freed] = position
            self._n_freed += 1
        return 0

    cdef int _open_freed(self) except -1:
        """Begin a call of place() with the releases recorded before it."""
        cdef int32_t index
        self._calls += 1
        self._looks = 0
        self._n_open = 0 if self._all_freed else self._n_freed
        for index in range(self._n_open):
            self._open[index] = self._freed[index]
        self._list_hopeful()
        if self._all_freed:
            for index in range(self.n_stuck - 1, -1, -1):
                self.stuck[index].missing = 0
                if self._may_fit(self.stuck[index].group):
                    self.wake_group(self.stuck[index].group)
        self._n_freed = 0
        self._all_freed = False
        return 0

    cdef int _list_hopeful(self) except -1:
        """List the stuck groups that may fit because of the resources of the freed nodes."""
        cdef int32_t index, cores, gpus, most_cores = 0, most_gpus = 0, all_cores = 0, all_gpus = 0
        cdef int32_t count = 0, fits, freed, missing
        cdef int32_t *hopeful
        cdef Stuck *stuck
        self._n_hopeful = 0
        if self._n_open == 0:
            return 0
        if self._hopeful_capacity < self.n_stuck:
            self._hopeful = <int32_t *>moved(self._hopeful, self.group_capacity, sizeof(int32_t))
            self._hopeful_capacity = self.group_capacity
        for index in range(self._n_open):
            self._slots.free_on(self._open[index], &cores, &gpus)
            most_cores, most_gpus = max(most_cores, cores), max(most_gpus, gpus)
            all_cores, all_gpus = all_cores + cores, all_gpus + gpus
        hopeful = self._hopeful
        for index in range(self.n_stuck):
            # no branches: they are unpredictable, and mispredictions would dominate the cost
            stuck = &self.stuck[index]
            fits = (stuck.cores <= most_cores) & (stuck.gpus <= most_gpus)
            freed = all_gpus if stuck.gpus else all_cores
            missing = max(0, stuck.missing - fits * freed)
            stuck.missing = missing
            hopeful[count] = stuck.group
            count += fits & (missing == 0)
        self._n_hopeful = count
        return 0

    cdef int32_t _choose(self) noexcept:
        """Return the group to try next; NONE if none has a chance."""
        cdef int32_t awake = self._first_awake(), hopeful
        if self._n_hopeful == 0:
            return awake
        if self._looks == MAX_LOOKS:
            self._wake_hopeful()
            return self._first_awake()
        self._looks += 1
        hopeful = self._first_hopeful()
        return hopeful if hopeful != NONE and (awake == NONE or self._goes_before(hopeful, awake)) else awake

    cdef int32_t _first_awake(self) noexcept:
        """Return the first awake group that may fit; groups before it become stuck."""
        cdef int32_t refused = 0
        while self.n_awake and not (self._may_fit(self.awake[0]) and self._enough(self.awake[0])):
            self.stick_group(self.awake[0])
            refused += 1
            if SIEVE * refused > self.n_awake:
                self._sieve()
        return self.awake[0] if self.n_awake else NONE

    cdef void _sieve(self) noexcept:
        """Make all awake groups stuck that cannot fit, at a lower cost than one by one."""
        cdef int32_t index, group, count = self.n_awake
        self.n_awake = 0
        for index in range(count):
            group = self.awake[index]
            if self._may_fit(group):
                self.push(group)   # overwrites only entries that were read
            else:
                self.push_stuck(group)

    cdef int32_t _first_hopeful(self) noexcept:
        """Return the first of the hopeful groups; remove groups without a chance from the list."""
        cdef int32_t index, group, best = NONE, kept = 0
        for index in range(self._n_hopeful):
            group = self._hopeful[index]
            # compare the order first, which is cheaper
            if best == NONE or self._goes_before(group, best):
                if not self._has_hope(group):
                    continue
                best = group
            self._hopeful[kept] = group
            kept += 1
        self._n_hopeful = kept
        return best

    cdef void _wake_hopeful(self) noexcept:
        cdef int32_t index
        for index in range(self._n_hopeful):
            if self._has_hope(self._hopeful[index]):
                self.wake_group(self._hopeful[index])
        self._n_hopeful = 0

    cdef bint _has_hope(self, int32_t group) noexcept:
        """Return whether a group is stuck, was not tried in this call, and has room for a rank on an open node."""
        cdef Group *its = &self.groups[group]
        cdef int32_t index
        if its.highest == NONE or its.awake or its.tried == self._calls:
            return False
        if its.shape == NULL:
            return True
        if not self._may_fit(group):
            return False
        for index in range(self._n_open):
            if (its.first_node <= self._open[index] < its.end_node
                    and self._slots.may_fit_on(<Shape>its.shape, self._open[index])):
                return self._enough(group)
        return False

    cdef bint _goes_before(self, int32_t group, int32_t other) noexcept:
        return before(&self.groups[group], &self.groups[other])

    cdef bint _may_fit(self, int32_t group) noexcept:
        cdef Group *its = &self.groups[group]
        return its.shape == NULL or self._slots.may_fit_within(<Shape>its.shape, its.first_node, its.end_node)

    cdef bint _enough(self, int32_t group) noexcept:
        """Return whether the nodes have room for all ranks of the group; record the deficit if not."""
        cdef Group *its = &self.groups[group]
        cdef int64_t ranks
        if its.shape == NULL or (<Shape>its.shape).ranks == 1:
            return True
        ranks = self._slots.missing(<Shape>its.shape, its.first_node, its.end_node)
        its.missing = <int32_t>min(INT32_MAX, ranks * ((<Shape>its.shape).gpus or (<Shape>its.shape).cores))
        if not its.awake:
            self.stuck[its.at].missing = its.missing
        return ranks == 0

    cdef int _try(self, int32_t group, fits, double now, list placed) except -1:
        cdef int32_t ticket = self.first(group)
        cdef int64_t arrival = self.entries[ticket].arrival
        cdef object item = self.items[ticket]
        cdef bint fitted = fits(item)
        if self.entries[ticket].queue == NONE or self.entries[ticket].arrival != arrival:
            # `fits` has removed the item, and possibly its group
            return 0
        if fitted:
            self.groups[group].moved = now
            self._last = group
            placed.append(item)
            self.take(ticket)
            return 0
        self.groups[group].tried = self._calls
        if self.groups[group].awake:
            self.stick_group(group)
        return 0
