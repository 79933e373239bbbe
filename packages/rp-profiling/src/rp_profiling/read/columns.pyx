"""Reads the text of profiles into columns of numbers: from some hundred bytes of text to 26 bytes of memory per event.

Rules of this module:

- A row is read whole or not at all. One that lacks a field, or whose time is not a number, is incomplete and counted.
- Times are kept in ticks of 100 ns, the resolution of writers: floating-point numbers would lose digits.
- Rows keep the order of their file; they are not sorted by time.
"""

from libc.stdint cimport int64_t, uint16_t, uint32_t
from libc.string cimport memchr, memcmp

cimport cython
from rp_profiling.read.names cimport Names

import numpy

TICKS = 10_000_000

cdef enum:
    DECIMALS = 7
    FIELDS = 7
    USUAL = 64  # bytes of a row at least, usually
    SOURCE_TEXT = 512


cdef int64_t LATEST = 100_000_000_000  # seconds: beyond all valid times


cdef struct Field:
    const char *start
    Py_ssize_t size


cdef int64_t _ticks(const char *start, Py_ssize_t size) noexcept nogil:
    """Return a time in ticks; -1 if it is not valid."""
    cdef int64_t value = 0
    cdef int decimals = -1
    cdef Py_ssize_t index
    cdef char each
    if size > 20:
        size = 20
    for index in range(size):
        each = start[index]
        if each == c'.' and decimals < 0:
            decimals = 0
        elif each < c'0' or each > c'9':
            return -1
        elif decimals < DECIMALS:
            value = 10 * value + (each - c'0')
            if value > LATEST and decimals < 0:
                return -1
            decimals += decimals >= 0
    if size == 0:
        return -1
    for _ in range(DECIMALS - (decimals if decimals > 0 else 0)):
        value *= 10
    return value


def _longer(column, rows):
    longer = numpy.empty(rows, column.dtype)
    longer[:len(column)] = column
    return longer


@cython.final
@cython.auto_pickle(False)
cdef class Columns:
    """The events of many profiles, one column for each field; `size` is the number of bytes of all profiles.

    `sources` has for each number in the column `source` the recorder of the row: (number of the file, number of the
    writer in that file, component, thread). An extended file has several writers.
    """

    cdef readonly Names events
    cdef readonly Names uids
    cdef readonly Names states
    cdef readonly Names messages
    cdef readonly list sources
    cdef readonly Py_ssize_t count
    cdef readonly Py_ssize_t torn
    cdef object _time, _event, _source, _uid, _state, _message
    cdef int64_t[::1] _times
    cdef uint16_t[::1] _event_numbers
    cdef uint32_t[::1] _source_numbers
    cdef uint32_t[::1] _uid_numbers
    cdef uint16_t[::1] _state_numbers
    cdef uint32_t[::1] _message_numbers
    cdef int _file
    cdef int _writer
    cdef Py_ssize_t _writer_rows
    cdef char[SOURCE_TEXT] _last_source
    cdef Py_ssize_t _last_size
    cdef uint32_t _last
    cdef uint32_t _sync
    cdef dict _known

    def __init__(self, Py_ssize_t size):
        self._time, self._event, self._source, self._uid, self._state, self._message = [
            numpy.empty(0, kind) for kind in ('i8', 'u2', 'u4', 'u4', 'u2', 'u4')]
        self._make_room(size // USUAL + 1)
        self.events, self.uids, self.states, self.messages = Names(), Names(), Names(), Names()
        self._sync = self.events.add('sync_abs')
        self.sources = []
        self._file = -1

    @property
    def time(self):
        """Ticks of 100 ns since the epoch."""
        return self._time[:self.count]

    @property
    def event(self):
        return self._event[:self.count]

    @property
    def source(self):
        return self._source[:self.count]

    @property
    def uid(self):
        return self._uid[:self.count]

    @property
    def state(self):
        return self._state[:self.count]

    @property
    def message(self):
        return self._message[:self.count]

    def begin(self):
        """Start another file for the rows that are added next, and return its number."""
        self._file += 1
        self._writer = 0
        self._writer_rows = 0
        self._last_size = -1
        self._known = {}
        return self._file

    def add(self, bytes text not None):
        """Add the rows of `text`, which consists of whole lines; comments and empty lines are skipped."""
        cdef const char *start = text
        cdef const char *end = start + len(text)
        cdef const char *stop
        while start < end:
            stop = <const char *>memchr(start, c'\n', <size_t>(end - start))
            if stop == NULL:
                stop = end
            if start[0] != c'#' and stop > start and not (stop == start + 1 and start[0] == c'\r'):
                if self.count == self._times.shape[0]:
                    self._make_room(self.count + self.count // 4 + 1024)
                self._row(start, stop)
            start = stop + 1

    cdef int _make_room(self, Py_ssize_t rows) except -1:
        """Enlarge the columns to so many rows; memory that no row uses is never touched."""
        self._time = self._times = _longer(self._time, rows)
        self._event = self._event_numbers = _longer(self._event, rows)
        self._source = self._source_numbers = _longer(self._source, rows)
        self._uid = self._uid_numbers = _longer(self._uid, rows)
        self._state = self._state_numbers = _longer(self._state, rows)
        self._message = self._message_numbers = _longer(self._message, rows)
        return 0

    cdef int _row(self, const char *start, const char *stop) except -1:
        cdef Field[FIELDS] fields
        cdef const char *comma
        cdef int64_t when
        cdef int index
        cdef Py_ssize_t row = self.count
        if (stop - 1)[0] == c'\r':
            stop -= 1
        for index in range(FIELDS - 1):
            comma = <const char *>memchr(start, c',', <size_t>(stop - start))
            if comma == NULL:
                self.torn += 1
                return 0
            fields[index] = Field(start, comma - start)
            start = comma + 1
        fields[FIELDS - 1] = Field(start, stop - start)
        when = _ticks(fields[0].start, fields[0].size)
        if when < 0:
            self.torn += 1
            return 0
        cdef uint32_t event = self.events.number(fields[1].start, fields[1].size)
        cdef uint32_t state = self.states.number(fields[5].start, fields[5].size)
        if event > 0xFFFF or state > 0xFFFF:
            raise ValueError('there are more than 65536 different events or states: these are not profiles')
        if event == self._sync and self._writer_rows:
            self._writer += 1
            self._writer_rows = 0
            self._last_size = -1
            self._known = {}
        self._writer_rows += 1
        self._times[row] = when
        self._event_numbers[row] = <uint16_t>event
        self._state_numbers[row] = <uint16_t>state
        self._uid_numbers[row] = self.uids.number(fields[4].start, fields[4].size)
        self._message_numbers[row] = self.messages.number(fields[6].start, fields[6].size)
        # component and thread are adjacent
        self._source_numbers[row] = self._source_of(fields[2].start, fields[2].size + 1 + fields[3].size)
        self.count = row + 1
        return 0

    cdef uint32_t _source_of(self, const char *start, Py_ssize_t size) except? 0xFFFFFFFF:
        """Return the number of the source `component,thread`, in most cases that of the previous row."""
        cdef bytes text
        if size == self._last_size and memcmp(start, self._last_source, <size_t>size) == 0:
            return self._last
        text = start[:size]
        number = self._known.get(text)
        if number is None:
            number = self._known[text] = len(self.sources)
            component, _, thread = text.decode('utf-8', 'replace').partition(',')
            self.sources.append((self._file, self._writer, component, thread))
        self._last = number
        self._last_size = -1
        if size <= SOURCE_TEXT:
            self._last_size = size
            for index in range(size):
                self._last_source[index] = start[index]
        return self._last
