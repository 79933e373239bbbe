"""The tasks that wait for resources, and when they are tried.

No I/O, no clock. Rules of this file:

- Which item goes first is the matter of `WaitQueues`. A try in vain makes a group stuck, and so does, without a try, a
  look at the slot map that says there is no room.
- What is freed wakes nobody at once: the nodes are noted, and the next `place` lists the stuck groups that could have
  room there, the *hopeful* ones. It picks the first of them in the order, tries it, and looks through the list again;
  when that happens often, it rather wakes all of them.
- A group of several ranks that found no room remembers what the ranks need that had none, in GPUs, or in cores if they
  need no GPUs. Until as much was freed, it is not looked at again.
- A try may add and remove items, which moves arrays: pointers into them are not kept over it.
"""

cimport cython
from libc.stdint cimport INT32_MAX, INT64_MAX, int32_t, int64_t
from libc.stdlib cimport free

from rp_agent.scheduler.placement cimport Placement, Shape, part_of
from rp_agent.scheduler.slotmap cimport SlotMap
from rp_agent.scheduler.waitqueues cimport NONE, Group, Stuck, WaitQueues, before, moved

from rp_api.errors import ResourceError


cdef enum:
    # freed nodes that are told apart; when there are more, all groups are worth a look
    MAX_NODES = 16
    # how often the stuck groups are looked through for the best one, before all that could have room are woken
    MAX_LOOKS = 4
    # part of the heap that is refused one by one, before all that have no chance are taken out
    SIEVE = 16


@cython.final
@cython.auto_pickle(False)
cdef class WaitPool(WaitQueues):
    """Waiting items that are placed on `slots`.

    The key of an item says what it asks for. If it is a `Shape`, or has one as its attribute `shape`, the item is tried
    only while `slots.place` has a chance for that shape; otherwise whenever something was freed. If the key has a range
    of positions of nodes as its attribute `within` as well, only what is free on these counts.
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
    cdef int32_t _last                  # the group that an item was placed of last; may have left
    cdef bint _placing

    def __cinit__(self, SlotMap slots not None):
        self._slots = slots
        self._nodes = <int32_t>len(slots)
        self._last = NONE

    def __dealloc__(self):
        free(self._hopeful)

    def freed(self, Placement placement not None):
        """Something was released where `placement` is or was; counts from the next call of `place` on."""
        cdef int32_t which
        for which in range(placement.n_parts):
            if self._all_freed or not self.n_waiting:
                break
            self._note(part_of(placement, which).position)

    def wake(self):
        """Everything is worth a try; counts from the next call of `place` on."""
        self._all_freed = True

    def place(self, fits, double now, int32_t most=INT32_MAX):
        """Try items in their order: `fits(item)` places one, or says that there is no room; gives those placed.

        Higher priorities go first, then earlier arrivals, but an item that fits now does not wait for one of another
        group that does not. With `most`, no more than so many are placed, and the next call goes on with the others.
        `fits` may add and remove items. An exception in it ends the call and leaves its item in
        the pool; those placed before it are out.
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
            # there are some left if enough were placed before it was their turn
            self._wake_hopeful()
        except BaseException:
            # not all were looked at that could have room on what was freed
            self._all_freed = True
            raise
        finally:
            self._placing = False
        return placed

    def upcoming(self, int32_t count):
        """The first items, at most so many, of the group that an item was placed of last: it will be its turn again."""
        cdef list found = []
        cdef int32_t queue = NONE, ticket
        if self._last != NONE:
            queue = self.groups[self._last].highest   # none, if all of it has left
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
        """Iterator over the first items of those stuck groups that have waited for `patience`, in their order.

        A group waits since its first item came, or since another item of it was placed, if that was later.
        """
        cdef int32_t group
        cdef Group last
        last.priority, last.arrival = INT64_MAX, NONE   # goes before all others
        while (group := self._next_starving(last, now, patience)) != NONE:
            last = self.groups[group]
            yield self.items[self.first(group)]

    def waiting_since(self):
        """When the wait began of the stuck group that has waited longest (see `starving`); None if there is none."""
        cdef int32_t index
        cdef double longest
        if self.n_stuck == 0:
            return None
        longest = self._since(self.stuck[0].group)
        for index in range(1, self.n_stuck):
            longest = min(longest, self._since(self.stuck[index].group))
        return longest

    cdef int32_t _next_starving(self, Group last, double now, double patience) noexcept:
        """The first of the stuck groups after `last` that have waited for `patience`."""
        cdef int32_t index, group, best = NONE
        for index in range(self.n_stuck):
            group = self.stuck[index].group
            if (self._since(group) + patience <= now and before(&last, &self.groups[group])
                    and (best == NONE or self._goes_before(group, best))):
                best = group
        return best

    cdef double _since(self, int32_t group) noexcept:
        """Since when the first item waits for its turn."""
        return max(self.groups[group].moved, self.entries[self.first(group)].since)

    # -- one call of place()

    cdef int _note(self, int32_t position) except -1:
        """Remember that something was freed on this node."""
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
        """Begin a call of place(): what was freed before it counts in it."""
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
        """List the stuck groups for which the cores and GPUs of the freed nodes could make the difference."""
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
            # no branches: the processor could not predict them, which costs more than all the rest
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
        """The group to try next; NONE if none has a chance."""
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
        """The first awake group that fits as far as the slot map can tell; those before it become stuck."""
        cdef int32_t refused = 0
        while self.n_awake and not (self._may_fit(self.awake[0]) and self._enough(self.awake[0])):
            self.stick_group(self.awake[0])
            refused += 1
            if SIEVE * refused > self.n_awake:
                self._sieve()
        return self.awake[0] if self.n_awake else NONE

    cdef void _sieve(self) noexcept:
        """Make all awake groups stuck that cannot fit, at less cost than one by one."""
        cdef int32_t index, group, count = self.n_awake
        self.n_awake = 0
        for index in range(count):
            group = self.awake[index]
            if self._may_fit(group):
                self.push(group)   # overwrites only what has been looked at
            else:
                self.push_stuck(group)

    cdef int32_t _first_hopeful(self) noexcept:
        """The first of the hopeful groups; those that turn out to have no chance leave the list."""
        cdef int32_t index, group, best = NONE, kept = 0
        for index in range(self._n_hopeful):
            group = self._hopeful[index]
            # the order is compared first, as that is cheaper
            if best == NONE or self._goes_before(group, best):
                if not self._has_hope(group):
                    continue
                best = group
            self._hopeful[kept] = group
            kept += 1
        self._n_hopeful = kept
        return best

    cdef void _wake_hopeful(self) noexcept:
        """Wake all hopeful groups."""
        cdef int32_t index
        for index in range(self._n_hopeful):
            if self._has_hope(self._hopeful[index]):
                self.wake_group(self._hopeful[index])
        self._n_hopeful = 0

    cdef bint _has_hope(self, int32_t group) noexcept:
        """Whether a group is still stuck, was not tried in this call, and has room for a rank on an open node."""
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
        """Whether its nodes together have room for all ranks; else remembers what is missing."""
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
        """Try the first item of a group."""
        cdef int32_t ticket = self.first(group)
        cdef int64_t arrival = self.entries[ticket].arrival
        cdef object item = self.items[ticket]
        cdef bint fitted = fits(item)
        if self.entries[ticket].queue == NONE or self.entries[ticket].arrival != arrival:
            # `fits` has removed the item, and perhaps its group
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
