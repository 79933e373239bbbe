# cython: binding=False
"""Keeps what was recorded as a few numbers and references, and makes the rows of a profile of it when they are wanted.

Rules of this file:

- Recording neither formats nor copies anything: between two events the processor does other work, and what it would
  need for a row has left its caches by then. Many rows at once take a tenth of the time.
- What is kept is kept as a whole, in a stretch of C that neither runs Python code nor lets go of the interpreter's
  lock. So several threads may record, and nobody takes a part of a call away.
- Only text that cannot change is kept; whatever else stands for a field is turned into such text at once.
- What all rows of an event have in common is made once (`_Form`). Fields of plain ASCII are copied as they are; Python
  code looks only at the others.
- An event that is to be left out is dropped before anything is kept: it costs a look into a set, and several events of
  one entity cost no more than finding their form, which has only those that are wanted.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from libc.stdint cimport uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy
from posix.time cimport CLOCK_REALTIME, clock_gettime, timespec

cimport cython


cdef extern from "Python.h":
    bint PyUnicode_CheckExact(object value)
    bint PyUnicode_CHECK_INTERNED(object text)
    bint PyUnicode_IS_COMPACT_ASCII(object text)
    void *PyUnicode_DATA(object text)
    Py_ssize_t PyUnicode_GET_LENGTH(object text)
    void Py_DECREF(PyObject *value)
    ctypedef struct PyByteArrayObject:
        Py_ssize_t ob_exports  # how many look at the memory


cdef extern from *:
    "#define RP_ONES 0x0101010101010101ULL"
    const uint64_t ONES "RP_ONES"  # a one in each byte


cdef enum:
    FULL_AT = 256 * 1024  # bytes of rows, about, which one write takes to the file
    ROW_SIZE = 80  # bytes, about, without the message
    LARGE_BULK = 1024  # rows of one bulk that are kept before it is looked whether there are enough
    FIRST_RECORDS = 32
    FIRST_SIZE = 4 * 1024
    TICKS = 10_000_000  # in a second: what the decimals of a time can tell
    DECIMALS = 7
    STAMP_SIZE = 32  # bytes, whole blocks: enough for all times that a clock can tell
    SECONDS_SIZE = 20
    BLOCK = 16  # bytes that the processor copies at once
    FORMS = 16  # more than the kinds of events that a component records for each task


cdef struct Record:
    uint64_t ticks
    PyObject *form  # borrowed from the list of forms
    PyObject *entities  # a uid, or a tuple of uids
    PyObject *msg


cdef struct Kind:
    PyObject *events
    PyObject *state
    PyObject *form


cdef struct Text:
    const char *start
    Py_ssize_t size


cdef struct Stamp:
    char[STAMP_SIZE] text
    Py_ssize_t size
    uint64_t second


# for each byte: whether it can stand in a field as it is
cdef char[256] _PLAIN
for _byte in range(256):
    _PLAIN[_byte] = 32 <= _byte < 127 and _byte not in b',"'

# the memory in which rows were made last; whoever makes some takes it away meanwhile
cdef bytearray _MEMORY = None


def clean(field):
    """`field` as text without what would end a field or a row, or what a CSV reader takes for a quote."""
    text = str(field).replace(',', ';').replace('"', "'")
    return text if text.isprintable() else ''.join([each if each.isprintable() else ' ' for each in text])


def timestamp(uint64_t nanoseconds):
    """A time since the epoch as it stands in a profile: seconds with seven decimals; what is finer is cut off."""
    cdef Stamp stamp
    stamp.size = 0
    _set_time(&stamp, nanoseconds // 100)
    return stamp.text[:stamp.size].decode('ascii')


cdef uint64_t _now() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_REALTIME, &now)
    return <uint64_t>now.tv_sec * TICKS + <uint64_t>now.tv_nsec // 100


cdef void _set_time(Stamp *stamp, uint64_t ticks) noexcept nogil:
    cdef uint64_t second = ticks // TICKS
    cdef unsigned int decimals = <unsigned int>(ticks - second * TICKS)
    cdef char *digit
    if stamp.size == 0 or second != stamp.second:
        _set_seconds(stamp, second)
    digit = stamp.text + stamp.size
    for _ in range(DECIMALS):
        digit -= 1
        digit[0] = <char>(c'0' + decimals % 10)
        decimals //= 10


cdef void _set_seconds(Stamp *stamp, uint64_t second) noexcept nogil:
    """Begin a stamp, and leave room for its decimals."""
    cdef char[SECONDS_SIZE] digits
    cdef int place = SECONDS_SIZE
    stamp.second = second
    while True:
        place -= 1
        digits[place] = <char>(c'0' + second % 10)
        second //= 10
        if second == 0:
            break
    memcpy(stamp.text, digits + place, <size_t>(SECONDS_SIZE - place))
    stamp.text[SECONDS_SIZE - place] = c'.'
    stamp.size = SECONDS_SIZE - place + 1 + DECIMALS


cdef bint _is_plain(const char *start, Py_ssize_t size) noexcept nogil:
    """Whether this ASCII text can stand in a field as it is."""
    cdef uint64_t word
    while size >= 8:
        memcpy(&word, start, 8)
        if _is_odd(word):
            return False
        start += 8
        size -= 8
    while size > 0:
        size -= 1
        if not _PLAIN[<unsigned char>start[size]]:
            return False
    return True


cdef inline bint _is_odd(uint64_t word) noexcept nogil:
    """Whether one of eight ASCII characters is a control character, a comma or a quote.

    Only such a one gets its highest bit set by these sums, and only from there on do they carry over.
    """
    return ((word - 0x20 * ONES) | ((word ^ c',' * ONES) - ONES) | ((word ^ c'"' * ONES) - ONES) | (word + ONES)
            ) & (0x80 * ONES) != 0


cdef inline object _set_text(Text *text, object field):
    """Point `text` to `field` as clean UTF-8; gives what has to be kept as long as that is needed, besides `field`."""
    text.start = <const char *>PyUnicode_DATA(field) if PyUnicode_IS_COMPACT_ASCII(field) else NULL
    text.size = PyUnicode_GET_LENGTH(field)
    if text.start != NULL and _is_plain(text.start, text.size):
        return None
    return _set_cleaned(text, field)


cdef object _set_cleaned(Text *text, object field):
    cdef bytes encoded = clean(field).encode()
    text.start = encoded
    text.size = len(encoded)
    return encoded


cdef inline char *_put(char *end, const char *start, Py_ssize_t size) noexcept nogil:
    """Copy to `end`, gives the new end."""
    memcpy(end, start, <size_t>size)
    return end + size


cdef inline char *_put_blocks(char *end, const char *start, Py_ssize_t size) noexcept nogil:
    """The same, in whole blocks, which both sides must have room for: several times as fast."""
    cdef Py_ssize_t place = 0
    while place < size:
        memcpy(end + place, start + place, BLOCK)
        place += BLOCK
    return end + size


cdef inline object _fixed(object field):
    """A field as text that stays as it is."""
    return field if PyUnicode_CheckExact(field) else clean(field)


cdef bint _is_name(object name) noexcept:
    """Whether this text stands in the program, which has no end of other texts."""
    return PyUnicode_CheckExact(name) and PyUnicode_CHECK_INTERNED(name)


@cython.final
cdef class _Form:
    """What all rows of some events have in common: all but times, uids and messages."""

    cdef object events  # a name or a tuple of names
    cdef object state
    cdef bytes text  # of `heads` and `tail`, and as much behind as copying them in blocks may take along
    cdef Py_ssize_t count  # of the events that are recorded
    cdef bint told  # whether the first event, which has the message, is recorded
    cdef Text *heads  # `,event,component,thread,` of each event
    cdef Text tail  # `,state,` and the end of the line

    def __init__(self, str source not None, object events, object state, frozenset left_out):
        cdef Py_ssize_t index
        cdef const char *place
        names = events if type(events) is tuple else (events,)
        self.told = bool(names) and names[0] not in left_out
        names = [name for name in names if name not in left_out]
        parts = [f',{clean(name)},{source},'.encode() for name in names]
        tail = f',{clean(state)},\n'.encode()
        self.events = events
        self.state = state
        self.text = b''.join([*parts, tail, bytes(BLOCK)])
        self.heads = <Text *>PyMem_Malloc((len(parts) + 1) * sizeof(Text))
        if self.heads == NULL:
            raise MemoryError('no memory for a kind of events of a profile')
        self.count = len(parts)
        place = self.text
        for index in range(self.count):
            self.heads[index] = Text(place, len(parts[index]))
            place += self.heads[index].size
        self.tail = Text(place, len(tail))

    def __dealloc__(self):
        PyMem_Free(self.heads)


@cython.final
cdef class _Rows:
    """Rows that are being made."""

    cdef bytearray memory
    cdef char *end
    cdef char *limit  # of what may be written
    cdef Stamp stamp

    def __init__(self):
        global _MEMORY
        self.memory, _MEMORY = _MEMORY, None
        # not one that a large bulk, or a slow disk, has made large, nor one whose rows somebody still looks at
        if self.memory is None or PyByteArray_GET_SIZE(self.memory) > 2 * FULL_AT or _is_looked_at(self.memory):
            self.memory = bytearray(FIRST_SIZE)
        self.end = PyByteArray_AS_STRING(self.memory)
        self.limit = self.end + PyByteArray_GET_SIZE(self.memory)

    cdef object done(self):
        """The rows; they stay as they are as long as somebody looks at them."""
        global _MEMORY
        _MEMORY = self.memory
        return memoryview(self.memory)[:self.end - PyByteArray_AS_STRING(self.memory)]

    cdef int add(self, Record *record) except -1:
        """Make the rows of a record."""
        cdef _Form form = <_Form>record.form
        cdef Text msg
        _held = _set_text(&msg, <object>record.msg)
        _set_time(&self.stamp, record.ticks)
        if type(<object>record.entities) is tuple:
            for uid in <tuple>record.entities:
                self.add_entity(form, uid, &msg)
        else:
            self.add_entity(form, <object>record.entities, &msg)
        return 0

    cdef int add_entity(self, _Form form, object entity, Text *msg) except -1:
        """Make the rows of all events of a form for one entity; the first one has the message."""
        cdef Py_ssize_t index
        cdef Text uid
        _held = _set_text(&uid, entity)
        for index in range(form.count):
            self.add_row(&form.heads[index], &uid, &form.tail, msg if index == 0 and form.told else NULL)
        return 0

    cdef inline int add_row(self, const Text *head, const Text *uid, const Text *tail, const Text *msg) except -1:
        cdef Py_ssize_t size = self.stamp.size + head.size + uid.size + tail.size + BLOCK
        cdef char *end
        if msg != NULL:
            size += msg.size
        if self.limit - self.end < size:
            self.grow(size)
        end = _put_blocks(self.end, self.stamp.text, self.stamp.size)
        end = _put_blocks(end, head.start, head.size)
        end = _put(end, uid.start, uid.size)
        end = _put_blocks(end, tail.start, tail.size)
        if msg != NULL and msg.size:
            end = _put(end - 1, msg.start, msg.size)
            end[0] = c'\n'
            end += 1
        self.end = end
        return 0

    cdef int grow(self, Py_ssize_t size) except -1:
        """Make room for `size` bytes."""
        cdef Py_ssize_t used = self.end - PyByteArray_AS_STRING(self.memory)
        cdef Py_ssize_t capacity = PyByteArray_GET_SIZE(self.memory)
        while capacity < used + size:
            capacity *= 2
        PyByteArray_Resize(self.memory, capacity)
        self.end = PyByteArray_AS_STRING(self.memory) + used
        self.limit = self.end - used + capacity
        return 0


cdef bint _is_looked_at(bytearray data) noexcept:
    """Whether there is a memoryview of it."""
    return (<PyByteArrayObject *>data).ob_exports > 0


cdef void _forget(Record *records, Py_ssize_t count) noexcept:
    cdef Py_ssize_t index
    for index in range(count):
        Py_DECREF(records[index].entities)
        Py_DECREF(records[index].msg)
    free(records)


@cython.auto_pickle(False)
cdef class RowBuffer:
    """Rows of one component that wait to be written; keeps nothing unless `enabled`, and no events named in `left_out`.

    The memory grows as needed. Once there are enough, and again after each further call, `_full` is called: subclasses
    take the rows there.
    """

    cdef public bint enabled
    cdef readonly str comp
    cdef Record *_records
    cdef Py_ssize_t _count
    cdef Py_ssize_t _capacity
    cdef Py_ssize_t _size  # of the rows, about
    cdef Py_ssize_t _known
    cdef Kind[FORMS] _kinds  # so many of which are known
    cdef list _forms  # all that are needed for what is kept
    cdef str _source  # component and thread
    cdef frozenset _left_out
    cdef bint _all  # whether no event is left out

    def __init__(self, str comp not None, str thread not None, bint enabled, frozenset left_out not None=frozenset()):
        self.comp = comp
        self.enabled = enabled
        self._left_out = left_out
        self._all = not left_out
        self._source = f'{clean(comp)},{clean(thread)}'
        self._forms = []

    def __dealloc__(self):
        _forget(self._records, self._count)

    def record(self, event, uid='', state='', msg=''):
        """Keep one event, at the present time."""
        if self._wants(event):
            self._keep(_now(), event, state, 1, _fixed(uid), _fixed(msg))

    def record_many(self, uid, tuple events not None, msg=''):
        """Keep the `events` of one entity in their order, all at the present time; `msg` is that of the first one."""
        if self.enabled:
            self._keep(_now(), events, '', 1, _fixed(uid), _fixed(msg))

    def record_bulk(self, event, uids, state='', msg=''):
        """Keep one event for each of `uids`, all at the present time."""
        cdef uint64_t ticks
        cdef Py_ssize_t first, count
        cdef tuple fixed
        if not self._wants(event):
            return
        ticks = _now()
        msg = _fixed(msg)
        fixed = tuple(uids)
        for uid in fixed:
            if not PyUnicode_CheckExact(uid):
                fixed = tuple([_fixed(each) for each in fixed])
                break
        count = len(fixed)
        if count == 1:  # the garbage collector would look at each tuple
            self._keep(ticks, event, state, 1, fixed[0], msg)
        elif count <= LARGE_BULK:
            self._keep(ticks, event, state, count, fixed, msg)
        else:
            for first in range(0, count, LARGE_BULK):
                self._keep(ticks, event, state, min(LARGE_BULK, count - first), fixed[first:first + LARGE_BULK], msg)

    def record_each(self, event, entities):
        """Keep one event for each of `entities`, pairs of a uid and a message, all at the present time."""
        cdef uint64_t ticks
        if not self._wants(event):
            return
        ticks = _now()
        for uid, msg in tuple(entities):
            self._keep(ticks, event, '', 1, _fixed(uid), _fixed(msg))

    def _take(self):
        """The rows that wait, as they are to stand in the file; none of them waits any longer."""
        cdef Record *records = self._records
        cdef Py_ssize_t index, count = self._count
        cdef list forms = self._forms
        cdef _Rows rows
        if count == 0:
            return b''
        self._records = NULL
        self._count = self._capacity = self._size = 0
        if len(forms) > FORMS:
            self._forms, self._known = [], 0
        try:
            rows = _Rows()
            for index in range(count):
                rows.add(&records[index])
            return rows.done()
        finally:
            _forget(records, count)

    def _full(self):
        """Called when there are enough rows to be written."""

    cdef inline bint _wants(self, object event) except -1:
        return self.enabled and (self._all or event not in self._left_out)

    cdef int _keep(self, uint64_t ticks, object events, object state, Py_ssize_t count, object entities,
                   object msg) except -1:
        """Keep what belongs to the rows of `count` entities, and see that they are written when they are enough."""
        cdef PyObject *form
        if not self.enabled or count == 0:  # since the call began, the file has failed, or a thread has closed it
            return 0
        form = self._form(events, state)
        if (<_Form>form).count == 0:
            return 0
        if self._count == self._capacity:
            self._grow()
        Py_INCREF(entities)
        Py_INCREF(msg)
        self._records[self._count] = Record(ticks, form, <PyObject *>entities, <PyObject *>msg)
        self._count += 1
        self._size += count * (<_Form>form).count * ROW_SIZE + PyUnicode_GET_LENGTH(msg)
        if self._size >= FULL_AT:
            self._full()
        return 0

    cdef inline PyObject *_form(self, object events, object state) except NULL:
        """The form of these events, a name or a tuple of names, in this state; it stays until rows are taken."""
        cdef Py_ssize_t index
        for index in range(self._known):
            if self._kinds[index].events == <PyObject *>events and self._kinds[index].state == <PyObject *>state:
                return self._kinds[index].form
        return self._new_form(events, state)

    cdef PyObject *_new_form(self, object events, object state) except NULL:
        cdef _Form form = _Form(self._source, events, state, self._left_out)
        self._forms.append(form)
        if self._known < FORMS and _is_name(state) and (type(events) is tuple or _is_name(events)):
            self._kinds[self._known] = Kind(<PyObject *>events, <PyObject *>state, <PyObject *>form)
            self._known += 1
        return <PyObject *>form

    cdef int _grow(self) except -1:
        cdef Py_ssize_t capacity = 2 * self._capacity or FIRST_RECORDS
        cdef Record *records = <Record *>realloc(self._records, <size_t>capacity * sizeof(Record))
        if records == NULL:
            raise MemoryError('no memory for the events of a profile')
        self._records = records
        self._capacity = capacity
        return 0
