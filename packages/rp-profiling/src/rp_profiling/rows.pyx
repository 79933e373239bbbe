"""Formats events as rows of a profile, at once and into one block of memory.

Rules of this file:

- A row is written as a whole, once all its fields are clean UTF-8, in a stretch of C that neither runs Python code nor
  lets go of the interpreter's lock. So several threads may record, and nobody takes a part of a row away.
- Fields of plain ASCII are copied as they are; Python code looks only at the others.
"""

from libc.stdint cimport uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy
from posix.time cimport CLOCK_REALTIME, clock_gettime, timespec

cimport cython


cdef extern from "Python.h":
    bint PyUnicode_CheckExact(object value)
    bint PyUnicode_IS_COMPACT_ASCII(object text)
    void *PyUnicode_DATA(object text)
    Py_ssize_t PyUnicode_GET_LENGTH(object text)


cdef enum:
    FULL_AT = 256 * 1024  # bytes: some thousand rows, which one write takes to the file
    FIRST_SIZE = 4 * 1024
    DECIMALS = 7
    STAMP_SIZE = 24  # bytes: enough for all times that a clock can tell
    SEPARATORS = 6  # five commas, without the one in the source, and the end of the line


cdef struct Text:
    const char *start
    Py_ssize_t size


cdef struct Stamp:
    char[STAMP_SIZE] digits  # right-aligned
    int size


# for each byte: whether it can stand in a field as it is
cdef char[256] _PLAIN
for _byte in range(256):
    _PLAIN[_byte] = 32 <= _byte < 127 and _byte not in b',"'


def clean(field):
    """`field` as text without what would end a field or a row, or what a CSV reader takes for a quote."""
    text = str(field).replace(',', ';').replace('"', "'")
    return text if text.isprintable() else ''.join([each if each.isprintable() else ' ' for each in text])


def timestamp(uint64_t nanoseconds):
    """A time since the epoch as it stands in a profile: seconds with seven decimals; what is finer is cut off."""
    cdef Stamp stamp
    _set_stamp(&stamp, nanoseconds // 100)
    return stamp.digits[STAMP_SIZE - stamp.size:STAMP_SIZE].decode('ascii')


cdef void _set_stamp(Stamp *stamp, uint64_t ticks) noexcept nogil:
    """Write the time `ticks`, counted in the last decimal."""
    cdef int place = STAMP_SIZE
    for _ in range(DECIMALS):
        place -= 1
        stamp.digits[place] = <char>(c'0' + ticks % 10)
        ticks //= 10
    place -= 1
    stamp.digits[place] = c'.'
    while True:
        place -= 1
        stamp.digits[place] = <char>(c'0' + ticks % 10)
        ticks //= 10
        if ticks == 0:
            break
    stamp.size = STAMP_SIZE - place


cdef void _set_now(Stamp *stamp) noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_REALTIME, &now)
    _set_stamp(stamp, <uint64_t>now.tv_sec * 10_000_000 + <uint64_t>now.tv_nsec // 100)


cdef bint _is_plain(const char *start, Py_ssize_t size) noexcept nogil:
    cdef Py_ssize_t index
    for index in range(size):
        if not _PLAIN[<unsigned char>start[index]]:
            return False
    return True


cdef object _set_text(Text *text, object field):
    """Point `text` to `field` as clean UTF-8; gives the object that holds those bytes as long as it is kept."""
    cdef bytes encoded
    if PyUnicode_CheckExact(field) and PyUnicode_IS_COMPACT_ASCII(field):
        text.start = <const char *>PyUnicode_DATA(field)
        text.size = PyUnicode_GET_LENGTH(field)
        if _is_plain(text.start, text.size):
            return field
    encoded = clean(field).encode()
    text.start = encoded
    text.size = len(encoded)
    return encoded


cdef inline char *_put(char *end, const char *start, Py_ssize_t size) noexcept nogil:
    """Copy to `end`, gives the new end."""
    memcpy(end, start, <size_t>size)
    return end + size


cdef inline char *_put_field(char *end, Text *field) noexcept nogil:
    end = _put(end, field.start, field.size)
    end[0] = c','
    return end + 1


@cython.auto_pickle(False)
cdef class RowBuffer:
    """Rows of one component that wait to be written; keeps nothing unless `enabled`.

    The memory grows as needed. Once it is full, and again after each further row, `_full` is called: subclasses take
    the rows there.
    """

    cdef public bint enabled
    cdef readonly str comp
    cdef bytes _source_bytes
    cdef Text _source  # component and thread
    cdef char *_rows
    cdef Py_ssize_t _size
    cdef Py_ssize_t _capacity

    def __init__(self, str comp not None, str thread not None, bint enabled):
        self.comp = comp
        self.enabled = enabled
        self._source_bytes = f'{clean(comp)},{clean(thread)}'.encode()
        self._source = Text(self._source_bytes, len(self._source_bytes))

    def __dealloc__(self):
        free(self._rows)

    def record(self, event, uid='', state='', msg=''):
        """Keep one event, at the present time."""
        cdef Text event_text, uid_text, state_text, msg_text
        cdef Stamp stamp
        if not self.enabled:
            return
        event = _set_text(&event_text, event)
        uid = _set_text(&uid_text, uid)
        state = _set_text(&state_text, state)
        msg = _set_text(&msg_text, msg)
        _set_now(&stamp)
        self._append(&stamp, &event_text, &uid_text, &state_text, &msg_text)

    def record_many(self, uid, tuple events not None):
        """Keep the `events` of one entity in their order, all at the present time."""
        cdef Text uid_text, event_text, empty = Text('', 0)
        cdef Stamp stamp
        if not self.enabled:
            return
        uid = _set_text(&uid_text, uid)
        _set_now(&stamp)
        for event in events:
            event = _set_text(&event_text, event)
            self._append(&stamp, &event_text, &uid_text, &empty, &empty)

    def record_bulk(self, event, uids, state='', msg=''):
        """Keep one event for each of `uids`, all at the present time."""
        cdef Text event_text, uid_text, state_text, msg_text
        cdef Stamp stamp
        if not self.enabled:
            return
        event = _set_text(&event_text, event)
        state = _set_text(&state_text, state)
        msg = _set_text(&msg_text, msg)
        _set_now(&stamp)
        for uid in tuple(uids):
            uid = _set_text(&uid_text, uid)
            self._append(&stamp, &event_text, &uid_text, &state_text, &msg_text)

    def record_each(self, event, entities):
        """Keep one event for each of `entities`, pairs of a uid and a message, all at the present time."""
        cdef Text event_text, uid_text, msg_text, empty = Text('', 0)
        cdef Stamp stamp
        if not self.enabled:
            return
        event = _set_text(&event_text, event)
        _set_now(&stamp)
        for uid, msg in tuple(entities):
            uid = _set_text(&uid_text, uid)
            msg = _set_text(&msg_text, msg)
            self._append(&stamp, &event_text, &uid_text, &empty, &msg_text)

    def _take(self):
        """The rows that wait, as they are to stand in the file; none of them waits any longer."""
        cdef bytes rows = self._rows[:self._size]
        self._size = 0
        if self._capacity > 2 * FULL_AT:  # a large bulk, or a slow disk
            free(self._rows)
            self._rows = NULL
            self._capacity = 0
        return rows

    def _full(self):
        """Called when there are enough rows to be written."""

    cdef int _append(self, Stamp *stamp, Text *event, Text *uid, Text *state, Text *msg) except -1:
        """Keep a row, and see that the rows are written when they are enough."""
        if not self.enabled:  # since the call began: the file failed, or another thread has closed it
            return 0
        cdef char *end = self._room(
            stamp.size + event.size + self._source.size + uid.size + state.size + msg.size + SEPARATORS)
        end = _put(end, stamp.digits + STAMP_SIZE - stamp.size, stamp.size)
        end[0] = c','
        end = _put_field(end + 1, event)
        end = _put_field(end, &self._source)
        end = _put_field(end, uid)
        end = _put_field(end, state)
        end = _put(end, msg.start, msg.size)
        end[0] = c'\n'
        self._size = end + 1 - self._rows
        if self._size >= FULL_AT:
            self._full()
        return 0

    cdef char *_room(self, Py_ssize_t size) except NULL:
        """Where the next row begins, with room for `size` bytes."""
        cdef Py_ssize_t capacity = self._capacity or FIRST_SIZE
        cdef char *rows
        if self._size + size > self._capacity:
            while capacity < self._size + size:
                capacity *= 2
            rows = <char *>realloc(self._rows, <size_t>capacity)
            if rows == NULL:
                raise MemoryError('no memory for the rows of a profile')
            self._rows = rows
            self._capacity = capacity
        return self._rows + self._size
