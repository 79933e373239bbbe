# cython: binding=False
"""Keeps recorded events as numbers and references, and formats them as rows of a profile on request.

Rules of this module:

- Recording neither formats nor copies: between two events the processor does other work, which evicts the data of the
  formatter from its caches. Formatting many rows at once takes a tenth of the time.
- An event is kept in a stretch of C that neither runs Python code nor releases the interpreter's lock. So several
  threads may record, and an event is either kept whole or not at all.
- Only immutable text is kept; other values of fields are converted to such text at once.
- The common part of all rows of an event is formatted once (`_Form`). Fields of plain ASCII are copied; Python code
  handles only the others.
- Events that are left out are dropped first: that costs a lookup in a set, and for several events of one entity no more
  than the lookup of their form, which has only the recorded ones.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from libc.stdint cimport uint64_t
from libc.stdlib cimport free, realloc

cimport cython


cdef extern from "Python.h":
    bint PyUnicode_CheckExact(object value)
    bint PyUnicode_CHECK_INTERNED(object text)
    bint PyUnicode_IS_COMPACT_ASCII(object text)
    void *PyUnicode_DATA(object text)
    Py_ssize_t PyUnicode_GET_LENGTH(object text)
    void Py_DECREF(PyObject *value)
    ctypedef struct PyByteArrayObject:
        Py_ssize_t ob_exports  # number of memoryviews


cdef extern from "rowtext.h" nogil:
    enum: RP_BLOCK
    ctypedef struct rp_stamp:
        const char *text
        Py_ssize_t size
    uint64_t rp_now()
    void rp_set_time(rp_stamp *stamp, uint64_t ticks)
    bint rp_is_plain(const char *start, Py_ssize_t size)
    char *rp_put(char *end, const char *start, Py_ssize_t size)
    char *rp_put_blocks(char *end, const char *start, Py_ssize_t size)


cdef enum:
    FULL_AT = 256 * 1024  # approximate bytes of rows in one write
    ROW_SIZE = 80  # approximate bytes of a row without its message
    LARGE_BULK = 1024  # rows of one bulk that are kept before the next check for a full buffer
    FIRST_RECORDS = 32
    FIRST_SIZE = 4 * 1024
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


# the memory in which rows were last made; a thread that makes rows takes it away meanwhile
cdef bytearray _MEMORY = None


def clean(field):
    """Return `field` as text without characters that end a field or a row, or that CSV readers take for a quote."""
    text = str(field).replace(',', ';').replace('"', "'")
    return text if text.isprintable() else ''.join([each if each.isprintable() else ' ' for each in text])


def timestamp(uint64_t nanoseconds):
    """Return a time since the epoch in the format of profiles: seconds with seven decimals, truncated."""
    cdef rp_stamp stamp
    stamp.size = 0
    rp_set_time(&stamp, nanoseconds // 100)
    return stamp.text[:stamp.size].decode('ascii')


cdef inline object _set_text(Text *text, object field):
    """Point `text` to `field` as clean UTF-8; return the object that has to live as long as `text`, besides `field`."""
    text.start = <const char *>PyUnicode_DATA(field) if PyUnicode_IS_COMPACT_ASCII(field) else NULL
    text.size = PyUnicode_GET_LENGTH(field)
    if text.start != NULL and rp_is_plain(text.start, text.size):
        return None
    return _set_cleaned(text, field)


cdef object _set_cleaned(Text *text, object field):
    cdef bytes encoded = clean(field).encode()
    text.start = encoded
    text.size = len(encoded)
    return encoded


cdef inline object _fixed(object field):
    """Return a field as immutable text."""
    return field if PyUnicode_CheckExact(field) else clean(field)


cdef bint _is_name(object name) noexcept:
    """Return whether this text is a constant of the program, of which there are few."""
    return PyUnicode_CheckExact(name) and PyUnicode_CHECK_INTERNED(name)


@cython.final
cdef class _Form:
    """The common part of all rows of some events: everything except times, uids and messages."""

    cdef object events  # a name or a tuple of names
    cdef object state
    cdef bytes text  # of `heads` and `tail`, with padding for copies in blocks
    cdef Py_ssize_t count  # of the recorded events
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
        self.text = b''.join([*parts, tail, bytes(RP_BLOCK)])
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
    """Formatted rows."""

    cdef bytearray memory
    cdef char *end
    cdef char *limit  # of the memory
    cdef rp_stamp stamp

    def __init__(self):
        global _MEMORY
        self.memory, _MEMORY = _MEMORY, None
        # not memory that a large bulk or a slow disk has enlarged, nor memory whose rows are still in use
        if self.memory is None or PyByteArray_GET_SIZE(self.memory) > 2 * FULL_AT or _is_looked_at(self.memory):
            self.memory = bytearray(FIRST_SIZE)
        self.end = PyByteArray_AS_STRING(self.memory)
        self.limit = self.end + PyByteArray_GET_SIZE(self.memory)

    cdef object done(self):
        """Return the rows, which are not changed while a memoryview of them exists."""
        global _MEMORY
        _MEMORY = self.memory
        return memoryview(self.memory)[:self.end - PyByteArray_AS_STRING(self.memory)]

    cdef int add(self, Record *record) except -1:
        """Format the rows of a record."""
        cdef _Form form = <_Form>record.form
        cdef Text msg
        _held = _set_text(&msg, <object>record.msg)
        rp_set_time(&self.stamp, record.ticks)
        if type(<object>record.entities) is tuple:
            for uid in <tuple>record.entities:
                self.add_entity(form, uid, &msg)
        else:
            self.add_entity(form, <object>record.entities, &msg)
        return 0

    cdef int add_entity(self, _Form form, object entity, Text *msg) except -1:
        """Format the rows of all events of a form for one entity; the first one has the message."""
        cdef Py_ssize_t index
        cdef Text uid
        _held = _set_text(&uid, entity)
        for index in range(form.count):
            self.add_row(&form.heads[index], &uid, &form.tail, msg if index == 0 and form.told else NULL)
        return 0

    cdef inline int add_row(self, const Text *head, const Text *uid, const Text *tail, const Text *msg) except -1:
        cdef Py_ssize_t size = self.stamp.size + head.size + uid.size + tail.size + RP_BLOCK
        cdef char *end
        if msg != NULL:
            size += msg.size
        if self.limit - self.end < size:
            self.grow(size)
        end = rp_put_blocks(self.end, self.stamp.text, self.stamp.size)
        end = rp_put_blocks(end, head.start, head.size)
        end = rp_put(end, uid.start, uid.size)
        end = rp_put_blocks(end, tail.start, tail.size)
        if msg != NULL and msg.size:
            end = rp_put(end - 1, msg.start, msg.size)
            end[0] = c'\n'
            end += 1
        self.end = end
        return 0

    cdef int grow(self, Py_ssize_t size) except -1:
        """Reserve `size` more bytes."""
        cdef Py_ssize_t used = self.end - PyByteArray_AS_STRING(self.memory)
        cdef Py_ssize_t capacity = PyByteArray_GET_SIZE(self.memory)
        while capacity < used + size:
            capacity *= 2
        PyByteArray_Resize(self.memory, capacity)
        self.end = PyByteArray_AS_STRING(self.memory) + used
        self.limit = self.end - used + capacity
        return 0


cdef bint _is_looked_at(bytearray data) noexcept:
    """Return whether there is a memoryview of it."""
    return (<PyByteArrayObject *>data).ob_exports > 0


cdef void _forget(Record *records, Py_ssize_t count) noexcept:
    cdef Py_ssize_t index
    for index in range(count):
        Py_DECREF(records[index].entities)
        Py_DECREF(records[index].msg)
    free(records)


@cython.auto_pickle(False)
cdef class RowBuffer:
    """Pending rows of one component; keeps nothing unless `enabled`, and no events named in `left_out`.

    The memory grows as needed. When there are enough rows, and after each further call, `_full` is called: subclasses
    take the rows there.
    """

    cdef public bint enabled
    cdef readonly str comp
    cdef Record *_records
    cdef Py_ssize_t _count
    cdef Py_ssize_t _capacity
    cdef Py_ssize_t _size  # approximate bytes of the rows
    cdef Py_ssize_t _known
    cdef Kind[FORMS] _kinds  # the first `_known` are valid
    cdef list _forms  # all forms of the kept records
    cdef str _source  # component and thread
    cdef frozenset _left_out
    cdef bint _all  # whether all events are recorded

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
        """Record one event, at the current time."""
        if self._wants(event):
            self._keep(rp_now(), event, state, 1, _fixed(uid), _fixed(msg))

    def record_many(self, uid, tuple events not None, msg=''):
        """Record the `events` of one entity in their order, all at the current time; `msg` belongs to the first one."""
        if self.enabled:
            self._keep(rp_now(), events, '', 1, _fixed(uid), _fixed(msg))

    def record_bulk(self, event, uids, state='', msg=''):
        """Record one event for each of `uids`, all at the current time."""
        cdef uint64_t ticks
        cdef Py_ssize_t first, count
        cdef tuple fixed
        if not self._wants(event):
            return
        ticks = rp_now()
        msg = _fixed(msg)
        fixed = tuple(uids)
        for uid in fixed:
            if not PyUnicode_CheckExact(uid):
                fixed = tuple([_fixed(each) for each in fixed])
                break
        count = len(fixed)
        if count == 1:  # the garbage collector would traverse each tuple
            self._keep(ticks, event, state, 1, fixed[0], msg)
        elif count <= LARGE_BULK:
            self._keep(ticks, event, state, count, fixed, msg)
        else:
            for first in range(0, count, LARGE_BULK):
                self._keep(ticks, event, state, min(LARGE_BULK, count - first), fixed[first:first + LARGE_BULK], msg)

    def record_each(self, event, entities):
        """Record one event for each of `entities`, pairs of a uid and a message, all at the current time."""
        cdef uint64_t ticks
        if not self._wants(event):
            return
        ticks = rp_now()
        for uid, msg in tuple(entities):
            self._keep(ticks, event, '', 1, _fixed(uid), _fixed(msg))

    def _take(self):
        """Remove and return all pending rows, formatted."""
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
        """Handle a full buffer: called when there are enough rows for a write."""

    cdef inline bint _wants(self, object event) except -1:
        return self.enabled and (self._all or event not in self._left_out)

    cdef int _keep(self, uint64_t ticks, object events, object state, Py_ssize_t count, object entities,
                   object msg) except -1:
        """Keep the record of the rows of `count` entities, and call `_full` if there are enough rows."""
        cdef PyObject *form
        if not self.enabled or count == 0:  # the file may have failed, or a thread may have closed it, meanwhile
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
        """Return the form of these events (a name or a tuple of names) in this state, valid until rows are taken."""
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
