"""The order of waiting items, and the groups that are worth a try; independent of resources.

Rules of this file:

- Items with the same key have equal requests and form a *group*; items of a group with the same priority form a
  *queue*, in the order of their arrival. Only the first item of the highest queue of a group is tried.
- A group is *awake* while it is worth a try, else *stuck*. The awake groups are a binary heap, higher priorities and
  earlier arrivals first; the stuck groups have no order.
- Entries, queues and groups are C structs in arrays and refer to each other by index: the arrays move when they grow,
  which may happen during any call of other code.
"""

cimport cython
from libc.stdint cimport INT32_MAX, int32_t, int64_t
from libc.stdlib cimport free

from rp_agent.scheduler.placement cimport Shape

from rp_api.errors import ResourceError


cdef enum:
    # groups that `foremost` returns
    MAX_FOREMOST = 64


cdef int32_t _more(int32_t capacity) noexcept:
    return capacity + capacity // 4 + 64


@cython.auto_pickle(False)
cdef class WaitQueues:
    """Waiting items, identified by tickets."""

    def __cinit__(self):
        self.items = []
        self.keys = []
        self.shapes = []
        self.groups_by_key = {}
        self.spare_entry = self.spare_queue = self.spare_group = NONE

    def __dealloc__(self):
        free(self.entries)
        free(self.queues)
        free(self.groups)
        free(self.awake)
        free(self.stuck)

    def __len__(self):
        return self.n_waiting

    def add(self, item, key, int64_t priority, double now):
        """Add an item; return its ticket, which is reused after the item has left.

        Items with equal keys are interchangeable. Higher priorities come first.
        """
        self._make_room()
        cdef int32_t group = self._group(key, now)
        cdef int32_t ticket = self._append(self._queue(group, priority), now)
        self.items[ticket] = item
        self.groups[group].count += 1
        self._rank(group)
        return ticket

    def remove(self, int32_t ticket):
        """Remove and return the item with this ticket; raise `ResourceError` if there is none."""
        if not 0 <= ticket < self.entry_capacity or self.entries[ticket].queue == NONE:
            raise ResourceError(f'nothing waits with the ticket {ticket}')
        return self.take(ticket)

    def clear(self):
        """Remove and return all items, in order."""
        cdef list items = []
        while self.n_stuck:
            self.wake_group(self.stuck[self.n_stuck - 1].group)
        while self.n_awake:
            items.append(self.take(self.first(self.awake[0])))
        return items

    def foremost(self, int32_t most):
        """Return up to `most` groups in order: the first item of each, since when it waits, and the number of items."""
        cdef int32_t chosen[MAX_FOREMOST]
        cdef int32_t index, count = 0
        most = min(most, MAX_FOREMOST)
        for index in range(self.n_awake):
            count = self._put_in_order(chosen, count, most, self.awake[index])
        for index in range(self.n_stuck):
            count = self._put_in_order(chosen, count, most, self.stuck[index].group)
        return [(self.items[self.first(chosen[index])], self.entries[self.first(chosen[index])].since,
                 self.groups[chosen[index]].count) for index in range(count)]

    cdef int32_t _put_in_order(self, int32_t *chosen, int32_t count, int32_t most, int32_t group) noexcept:
        """Put a group among the foremost ones, if it is one of them; return their number."""
        cdef int32_t at = count
        if count == most:
            if most == 0 or not before(&self.groups[group], &self.groups[chosen[most - 1]]):
                return count
            at -= 1
        while at > 0 and before(&self.groups[group], &self.groups[chosen[at - 1]]):
            chosen[at] = chosen[at - 1]
            at -= 1
        chosen[at] = group
        return min(most, count + 1)

    def check(self):
        """Verify all invariants; raise `AssertionError` if one is violated."""
        cdef int32_t index
        waiting = sum([self._check_group(self.awake[index], index, True) for index in range(self.n_awake)])
        waiting += sum([self._check_group(self.stuck[index].group, index, False) for index in range(self.n_stuck)])
        assert waiting == self.n_waiting, f'{waiting} items wait, not {self.n_waiting}'
        assert self.n_awake + self.n_stuck == len(self.groups_by_key), 'groups are neither awake nor stuck'
        used = [index for index in range(self.entry_capacity) if self.entries[index].queue != NONE]
        assert len(used) == waiting, f'{len(used)} entries are used for {waiting} items'
        for index in range(1, self.n_awake):
            assert not self._before(index, (index - 1) >> 1), 'the heap is not in order'

    cdef int32_t _check_group(self, int32_t group, int32_t at, bint awake) except -1:
        """Verify one group and its queues; return the number of its items."""
        cdef Group *its = &self.groups[group]
        cdef int32_t queue = its.highest, higher = NONE, count = 0
        assert self.groups_by_key[self.keys[group]] == group, f'group {group} is not found'
        assert its.at == at and its.awake == awake, f'group {group} is elsewhere'
        assert its.priority == self.queues[queue].priority, f'group {group} has another priority'
        assert its.arrival == self.entries[self.queues[queue].first].arrival, f'group {group} has another first item'
        while queue != NONE:
            assert self.queues[queue].group == group and self.queues[queue].higher == higher, 'queues are mixed up'
            assert higher == NONE or self.queues[higher].priority > self.queues[queue].priority, 'wrong priorities'
            count += self._check_queue(queue)
            higher, queue = queue, self.queues[queue].lower
        assert its.count == count, f'group {group} has another number of items'
        assert its.lowest == higher, f'group {group} has another lowest queue'
        return count

    cdef int32_t _check_queue(self, int32_t queue) except -1:
        """Verify one queue; return the number of its items."""
        cdef int32_t ticket = self.queues[queue].first, previous = NONE, count = 0
        assert ticket != NONE, f'queue {queue} is empty'
        while ticket != NONE:
            assert self.entries[ticket].queue == queue and self.entries[ticket].previous == previous, 'broken queue'
            assert previous == NONE or self.entries[previous].arrival < self.entries[ticket].arrival, 'wrong arrivals'
            previous, ticket, count = ticket, self.entries[ticket].next, count + 1
        assert self.queues[queue].last == previous, f'queue {queue} has another last item'
        return count

    cdef int _make_room(self) except -1:
        """Ensure an unused entry, queue and group, so that adding an item cannot fail half-way."""
        cdef int32_t index, capacity
        if self.spare_entry == NONE:
            capacity = _more(self.entry_capacity)
            self.entries = <Entry *>moved(self.entries, capacity, sizeof(Entry))
            self.items.extend([None] * (capacity - self.entry_capacity))
            for index in range(capacity - 1, self.entry_capacity - 1, -1):
                self.entries[index].queue = NONE
                self.entries[index].next = self.spare_entry
                self.spare_entry = index
            self.entry_capacity = capacity
        if self.spare_queue == NONE:
            capacity = _more(self.queue_capacity)
            self.queues = <Queue *>moved(self.queues, capacity, sizeof(Queue))
            for index in range(capacity - 1, self.queue_capacity - 1, -1):
                self.queues[index].lower = self.spare_queue
                self.spare_queue = index
            self.queue_capacity = capacity
        if self.spare_group == NONE:
            self._more_groups(_more(self.group_capacity))
        return 0

    cdef int _more_groups(self, int32_t capacity) except -1:
        cdef int32_t index
        self.groups = <Group *>moved(self.groups, capacity, sizeof(Group))
        self.awake = <int32_t *>moved(self.awake, capacity, sizeof(int32_t))
        self.stuck = <Stuck *>moved(self.stuck, capacity, sizeof(Stuck))
        self.keys.extend([None] * (capacity - self.group_capacity))
        self.shapes.extend([None] * (capacity - self.group_capacity))
        for index in range(capacity - 1, self.group_capacity - 1, -1):
            self.groups[index].at = self.spare_group
            self.spare_group = index
        self.group_capacity = capacity
        return 0

    cdef int32_t _append(self, int32_t queue, double now) noexcept:
        """Append an entry to the queue; return its ticket."""
        cdef int32_t ticket = self.spare_entry, last = self.queues[queue].last
        cdef Entry *entry = &self.entries[ticket]
        self.spare_entry = entry.next
        entry.arrival = self.arrivals
        entry.since = now
        entry.queue = queue
        entry.next = NONE
        entry.previous = last
        if last == NONE:
            self.queues[queue].first = ticket
        else:
            self.entries[last].next = ticket
        self.queues[queue].last = ticket
        self.arrivals += 1
        self.n_waiting += 1
        return ticket

    cdef object take(self, int32_t ticket):
        """Remove and return the item with this ticket, and its queue and group if they become empty."""
        cdef Entry *entry = &self.entries[ticket]
        cdef Queue *queue = &self.queues[entry.queue]
        cdef int32_t number = entry.queue, group = queue.group
        if entry.previous == NONE:
            queue.first = entry.next
        else:
            self.entries[entry.previous].next = entry.next
        if entry.next == NONE:
            queue.last = entry.previous
        else:
            self.entries[entry.next].previous = entry.previous
        entry.queue = NONE
        entry.next = self.spare_entry
        self.spare_entry = ticket
        self.n_waiting -= 1
        self.groups[group].count -= 1
        item = self.items[ticket]
        self.items[ticket] = None
        if queue.first == NONE:
            self._drop_queue(number)
        if self.groups[group].highest == NONE:
            self._drop_group(group)
        else:
            self._rank(group)
        return item

    cdef int32_t _queue(self, int32_t group, int64_t priority) noexcept:
        """Return the queue of a group for a priority; create it if it is missing."""
        cdef int32_t lower = self.groups[group].highest, higher = NONE
        cdef int32_t lowest = self.groups[group].lowest
        if lowest != NONE and priority < self.queues[lowest].priority:
            lower, higher = NONE, lowest
        while lower != NONE and self.queues[lower].priority > priority:
            lower, higher = self.queues[lower].lower, lower
        if lower != NONE and self.queues[lower].priority == priority:
            return lower
        return self._new_queue(group, priority, higher, lower)

    cdef int32_t _new_queue(self, int32_t group, int64_t priority, int32_t higher, int32_t lower) noexcept:
        cdef int32_t queue = self.spare_queue
        self.spare_queue = self.queues[queue].lower
        self.queues[queue] = Queue(priority, group, NONE, NONE, higher, lower)
        self._link(group, higher, queue)
        self._link(group, queue, lower)
        return queue

    cdef void _drop_queue(self, int32_t queue) noexcept:
        self._link(self.queues[queue].group, self.queues[queue].higher, self.queues[queue].lower)
        self.queues[queue].lower = self.spare_queue
        self.spare_queue = queue

    cdef void _link(self, int32_t group, int32_t higher, int32_t lower) noexcept:
        """Link two queues of a group; NONE stands for the end beyond the highest or the lowest."""
        if higher == NONE:
            self.groups[group].highest = lower
        else:
            self.queues[higher].lower = lower
        if lower == NONE:
            self.groups[group].lowest = higher
        else:
            self.queues[lower].higher = higher

    cdef int32_t first(self, int32_t group) noexcept:
        """Return the ticket of the first item of a group."""
        return self.queues[self.groups[group].highest].first

    cdef int32_t _group(self, key, double now) except NONE:
        """Return the group of the key; a new group has no queue, and is neither awake nor stuck."""
        found = self.groups_by_key.get(key)
        if found is not None:
            return found
        shape = key if isinstance(key, Shape) else getattr(key, 'shape', None)
        cdef void *known = NULL
        if isinstance(shape, Shape):
            known = <void *>shape
        within = getattr(key, 'within', None)
        cdef int32_t first_node = 0, end_node = INT32_MAX
        if isinstance(within, range):
            first_node, end_node = within.start, within.stop
        cdef int32_t group = self.spare_group
        self.groups_by_key[key] = group
        self.spare_group = self.groups[group].at
        self.keys[group] = key
        self.shapes[group] = shape
        self.groups[group] = Group(known, 0, 0, 0, now, NONE, NONE, NONE, 0, first_node, end_node, 0, False)
        return group

    cdef int _drop_group(self, int32_t group) except -1:
        if self.groups[group].awake:
            self._pull(group)
        else:
            self._pull_stuck(group)
        key = self.keys[group]
        self.keys[group] = self.shapes[group] = None
        self.groups[group].at = self.spare_group
        self.spare_group = group
        del self.groups_by_key[key]
        return 0

    cdef void _rank(self, int32_t group) noexcept:
        """Update the position of the group after a change of its first item; a new group becomes awake."""
        cdef Group *its = &self.groups[group]
        its.priority = self.queues[its.highest].priority
        its.arrival = self.entries[self.first(group)].arrival
        if its.at == NONE:
            self.push(group)
        elif its.awake:
            self._up(its.at)
            self._down(its.at)

    cdef void wake_group(self, int32_t group) noexcept:
        """Make a stuck group awake."""
        self._pull_stuck(group)
        self.push(group)

    cdef void stick_group(self, int32_t group) noexcept:
        """Make an awake group stuck."""
        self._pull(group)
        self.push_stuck(group)

    cdef void push_stuck(self, int32_t group) noexcept:
        cdef Group *its = &self.groups[group]
        cdef Stuck *stuck = &self.stuck[self.n_stuck]
        stuck[0] = Stuck(group, 0, 0, its.missing)
        if its.shape != NULL:
            stuck.cores, stuck.gpus = (<Shape>its.shape).cores, (<Shape>its.shape).gpus
        its.at = self.n_stuck
        its.awake = False
        self.n_stuck += 1

    cdef void _pull_stuck(self, int32_t group) noexcept:
        cdef int32_t at = self.groups[group].at
        self.n_stuck -= 1
        self.stuck[at] = self.stuck[self.n_stuck]
        self.groups[self.stuck[at].group].at = at

    cdef void push(self, int32_t group) noexcept:
        self.groups[group].awake = True
        self.groups[group].missing = 0
        self._seat(group, self.n_awake)
        self.n_awake += 1
        self._up(self.n_awake - 1)

    cdef void _pull(self, int32_t group) noexcept:
        cdef int32_t at = self.groups[group].at
        self.n_awake -= 1
        if at < self.n_awake:
            group = self.awake[self.n_awake]
            self._seat(group, at)
            self._up(at)
            self._down(self.groups[group].at)

    cdef void _seat(self, int32_t group, int32_t at) noexcept:
        self.awake[at] = group
        self.groups[group].at = at

    cdef bint _before(self, int32_t at, int32_t other) noexcept:
        """Return whether one group of the heap comes before another, by their indices."""
        return before(&self.groups[self.awake[at]], &self.groups[self.awake[other]])

    cdef void _swap(self, int32_t at, int32_t other) noexcept:
        cdef int32_t group = self.awake[at]
        self._seat(self.awake[other], at)
        self._seat(group, other)

    cdef void _up(self, int32_t at) noexcept:
        """Move a group up the heap while it comes before its parent."""
        while at > 0 and self._before(at, (at - 1) >> 1):
            self._swap(at, (at - 1) >> 1)
            at = (at - 1) >> 1

    cdef void _down(self, int32_t at) noexcept:
        """Move a group down the heap while a child comes before it."""
        cdef int32_t below = 2 * at + 1
        while below < self.n_awake:
            if below + 1 < self.n_awake and self._before(below + 1, below):
                below += 1
            if not self._before(below, at):
                return
            self._swap(at, below)
            at, below = below, 2 * below + 1
