"""Matches the rows of a trace with automata and state models, entity by entity.

Rows are put into groups (`group`) of one entity each. A group may mix the rows of several instances of an order, such
as the staging directives of a task: `keys` tells them apart. `rp_profiling.check.orders` describes the tables.
"""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc

cimport cython

import numpy

SKIP = 0
STRICT = 1
RELAXED = 2

UNEXPECTED = 1
UNFINISHED = 2

FORBIDDEN = 1
AFTER_END = 2
REPEATED = 3

cdef enum:
    IGNORED = -1
    BROKEN = -2
    FEW = 48  # rows that are sorted by insertion


cdef struct Instance:
    int64_t key
    uint64_t seen
    int32_t state
    int32_t attempts
    int32_t last     # the previous symbol
    uint32_t row


def group(const uint32_t[::1] keys, Py_ssize_t n_keys, const int64_t[::1] times):
    """Sort rows by key, and those of one key by time; return (rows, index at which each key starts).

    Rows of one key and time keep their order; without `times`, all rows of a key do.
    """
    cdef Py_ssize_t n = keys.shape[0]
    starts_array = numpy.zeros(n_keys + 2, numpy.int64)
    rows_array = numpy.empty(n, numpy.uint32)
    cdef int64_t[::1] starts = starts_array
    cdef uint32_t[::1] rows = rows_array
    cdef Py_ssize_t index
    for index in range(n):
        starts[keys[index] + 2] += 1
    for index in range(2, n_keys + 2):
        starts[index] += starts[index - 1]
    for index in range(n):
        rows[starts[keys[index] + 1]] = <uint32_t>index
        starts[keys[index] + 1] += 1
    if times is not None:
        for index in range(n_keys):
            if not _sort_few(rows, starts[index], starts[index + 1], times):
                part = rows_array[starts[index]:starts[index + 1]]
                part[:] = part[numpy.argsort(numpy.asarray(times)[part], kind='stable')]
    return rows_array, starts_array[:n_keys + 1]


cdef bint _sort_few(uint32_t[::1] rows, int64_t first, int64_t stop, const int64_t[::1] times) noexcept nogil:
    """Sort rows by time; return False if they are too many and in disorder."""
    cdef int64_t index, place
    cdef uint32_t row
    for index in range(first + 1, stop):
        row = rows[index]
        if times[rows[index - 1]] <= times[row]:
            continue
        if stop - first > FEW:
            return False
        place = index
        while place > first and times[rows[place - 1]] > times[row]:
            rows[place] = rows[place - 1]
            place -= 1
        rows[place] = row
    return True


@cython.final
@cython.auto_pickle(False)
cdef class Matcher:
    """One order with its two automata; `violations` has (kind, row, possible symbols) of each failure.

    Only the first `limit` failures are listed, `count` counts all.
    """

    cdef readonly list violations
    cdef readonly Py_ssize_t count
    cdef Py_ssize_t limit
    cdef const int16_t[::1] _symbols
    cdef const int16_t[:, ::1] _strict
    cdef const int16_t[:, ::1] _relaxed
    cdef const uint8_t[::1] _strict_ends
    cdef const uint8_t[::1] _once
    cdef const uint8_t[::1] _named
    cdef Instance *_instances
    cdef Py_ssize_t _used
    cdef Py_ssize_t _room

    def __init__(self, symbols, strict, relaxed, strict_ends, once, named, Py_ssize_t limit):
        self._symbols, self._strict, self._relaxed = symbols, strict, relaxed
        self._strict_ends, self._once, self._named = strict_ends, once, named
        self.violations = []
        self.limit = limit

    def __dealloc__(self):
        free(self._instances)

    def run(self, const uint32_t[::1] rows, const int64_t[::1] starts, const uint8_t[::1] modes,
            const int32_t[::1] attempts, const uint16_t[::1] events, const uint32_t[::1] sources,
            const int32_t[::1] keys, const uint32_t[::1] messages):
        """Match all groups.

        `modes` has SKIP, STRICT or RELAXED for each group, `attempts` how often its entity may have restarted. `keys`
        has for each source the instance of the group that its rows belong to, or -1; with `messages`, rows with
        different messages belong to different instances.
        """
        cdef Py_ssize_t which
        cdef int64_t place
        cdef uint32_t row
        cdef int16_t symbol
        cdef int64_t key
        cdef Instance *instance
        for which in range(starts.shape[0] - 1):
            if modes[which] == 0:
                continue
            self._used = 0
            for place in range(starts[which], starts[which + 1]):
                row = rows[place]
                symbol = self._symbols[events[row]]
                if symbol < 0 or keys[sources[row]] < 0:
                    continue
                key = keys[sources[row]]
                if messages is not None:
                    key |= <int64_t>messages[row] << 32
                instance = self._instance(key, attempts[which])
                self._step(instance, symbol, row, modes[which] == 1)
            if modes[which] == 1:
                self._end()

    cdef Instance *_instance(self, int64_t key, int32_t attempts) except NULL:
        cdef Py_ssize_t index
        cdef Instance *found
        for index in range(self._used):
            if self._instances[index].key == key:
                return &self._instances[index]
        if self._used == self._room:
            found = <Instance *>realloc(self._instances, <size_t>(2 * self._room + 8) * sizeof(Instance))
            if found == NULL:
                raise MemoryError('no memory for the instances of an order')
            self._instances = found
            self._room = 2 * self._room + 8
        self._used += 1
        self._instances[self._used - 1] = Instance(key, 0, 0, attempts, -1, 0)
        return &self._instances[self._used - 1]

    cdef int _step(self, Instance *instance, int16_t symbol, uint32_t row, bint strict) except -1:
        cdef int32_t state = instance.state
        cdef int32_t after
        if state == BROKEN:
            return 0
        if self._once[symbol] and instance.seen >> symbol & 1 and (
                instance.last < 0 or self._once[instance.last]):
            instance.last = symbol
            return 0   # of another rank
        after = self._strict[state, symbol] if strict else self._relaxed[state, symbol]
        if after < 0 and instance.attempts > 0:
            after = self._strict[0, symbol] if strict else self._relaxed[0, symbol]
            if after >= 0:
                instance.attempts -= 1
                instance.seen = 0
        if after < 0:
            instance.state = BROKEN
            self._failed(UNEXPECTED, row, state, strict)
            return 0
        instance.state = after
        instance.seen |= <uint64_t>1 << symbol
        instance.last = symbol
        if self._named[symbol]:
            instance.row = row + 1
        return 0

    cdef int _end(self) except -1:
        """Finish the instances of a group after its last row."""
        cdef Py_ssize_t index
        cdef Instance *each
        for index in range(self._used):
            each = &self._instances[index]
            if each.row and each.state != BROKEN and not self._strict_ends[each.state]:
                self._failed(UNFINISHED, each.row - 1, each.state, True)
        return 0

    cdef int _failed(self, int kind, uint32_t row, int32_t state, bint strict) except -1:
        self.count += 1
        if self.count <= self.limit:
            table = self._strict if strict else self._relaxed
            possible = [symbol for symbol in range(table.shape[1]) if table[state, symbol] >= 0]
            self.violations.append((kind, row, possible))
        return 0


def check_states(const uint32_t[::1] rows, const int64_t[::1] starts, const uint16_t[::1] events,
                 const uint16_t[::1] states, const uint32_t[::1] sources, const uint8_t[::1] modes,
                 const int32_t[::1] places, Py_ssize_t advance, const int8_t[::1] values, const int16_t[::1] bits,
                 const uint8_t[::1] again, Py_ssize_t final, const int64_t[::1] times, Py_ssize_t limit):
    """Check all entities with a state model; return (final states, attempts, passed states, violations, their number).

    `modes` has SKIP for entities of other models, `places` the place of each source. `values` has the number of each
    state in the model, or -1; the final states have the number `final`. `bits` has for each state its bit in the set of
    passed states. States with 1 in `again` may be entered again from later ones, which is another attempt; final states
    with 2 may be corrected. A violation is (kind, row, row of the previous state).
    """
    cdef Py_ssize_t n = starts.shape[0] - 1
    ends_array = numpy.full(n, -1, numpy.int32)
    attempts_array = numpy.zeros(n, numpy.int32)
    passed_array = numpy.zeros(n, numpy.uint32)
    cdef int32_t[::1] ends = ends_array
    cdef int32_t[::1] attempts = attempts_array
    cdef uint32_t[::1] passed = passed_array
    cdef Py_ssize_t which, count = 0
    cdef int64_t place
    cdef int8_t value, now
    cdef uint32_t row, before = 0
    cdef list found = []
    for which in range(n):
        if modes[which] == 0:
            continue
        now = -1
        for place in range(starts[which], starts[which + 1]):
            row = rows[place]
            if events[row] != advance or values[states[row]] < 0:
                continue
            value = values[states[row]]
            if now == final:
                if ends[which] != states[row]:
                    # a cancellation may be corrected by the real end
                    if value == final and again[ends[which]] == 2:
                        ends[which] = states[row]
                        passed[which] |= <uint32_t>1 << bits[states[row]]
                        before = row
                        continue
                    passed[which] |= <uint32_t>1 << bits[states[row]]
                    # an agent may learn of an end later than the application
                    if times[row] == times[before] or places[sources[row]] > 0:
                        continue
                    count += 1
                    if count <= limit:
                        found.append((AFTER_END, row, before))
                continue
            if value < now:
                if times[row] == times[before] or value == 0:
                    passed[which] |= <uint32_t>1 << bits[states[row]]
                    continue
                if again[states[row]] == 1:
                    attempts[which] += 1
                else:
                    count += 1
                    if count <= limit:
                        found.append((FORBIDDEN, row, before))
            elif value == now and sources[row] == sources[before]:
                count += 1
                if count <= limit:
                    found.append((REPEATED, row, before))
            now = value
            before = row
            passed[which] |= <uint32_t>1 << bits[states[row]]
            if value == final:
                ends[which] = states[row]
    return ends_array, attempts_array, passed_array, found, count


def has_event(const uint32_t[::1] rows, const int64_t[::1] starts, const uint16_t[::1] events,
              const uint8_t[::1] wanted):
    """Return for each group the bits in `wanted` of all its events."""
    cdef Py_ssize_t which
    cdef int64_t place
    found_array = numpy.zeros(starts.shape[0] - 1, numpy.uint8)
    cdef uint8_t[::1] found = found_array
    for which in range(starts.shape[0] - 1):
        for place in range(starts[which], starts[which + 1]):
            found[which] |= wanted[events[rows[place]]]
    return found_array
