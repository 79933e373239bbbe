"""The payloads of many calls or results in one buffer: a process that only forwards them touches none of them.

In a message, payloads are a list of two: their sizes, the bytes of an `array('I')`, and all payloads, one after the
other.
"""

from array import array as make_array

cimport cython
from cpython cimport array
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from rp_api.wire import codec

cdef enum:
    KEPT = 1 << 20   # bytes of memory that a builder keeps

cdef array.array _ENDS = make_array('Q'), _SIZES = make_array('I')


@cython.final
@cython.auto_pickle(False)
cdef class Payloads:
    """An immutable sequence of payloads; a slice is a view that shares the buffer, or a copy if it is a small part."""

    def __init__(self, payloads=()):
        """Join payloads, any iterable of bytes."""
        cdef list parts = list(payloads)
        cdef Py_ssize_t index
        cdef uint64_t end = 0
        self._count = len(parts)
        self._ends = array.clone(_ENDS, self._count + 1, False)
        self._ends.data.as_ulonglongs[0] = 0
        for index in range(self._count):
            end += PyBytes_GET_SIZE(<bytes?>parts[index])
            self._ends.data.as_ulonglongs[index + 1] = end
        self._data = parts[0] if self._count == 1 and type(parts[0]) is bytes else b''.join(parts)

    cdef uint64_t start(self, Py_ssize_t index) noexcept:
        """Return where a payload starts in the data: where that before it ends."""
        return self._ends.data.as_ulonglongs[self._first + index]

    cdef const char *data(self, Py_ssize_t index) noexcept:
        return PyBytes_AS_STRING(self._data) + self.start(index)

    cdef Py_ssize_t size_of(self, Py_ssize_t index) noexcept:
        return <Py_ssize_t>(self.start(index + 1) - self.start(index))

    cpdef bytes at(self, Py_ssize_t index):
        """Return the payload at an index, which is not checked."""
        cdef uint64_t start = self.start(index), size = self.start(index + 1) - start
        if size == <uint64_t>PyBytes_GET_SIZE(self._data):
            return self._data
        return PyBytes_FromStringAndSize(PyBytes_AS_STRING(self._data) + start, size)

    def __len__(self):
        return self._count

    def __getitem__(self, index):
        if isinstance(index, slice):
            first, last, step = index.indices(self._count)
            if step != 1:
                raise ValueError('payloads are sliced without a step')
            return self.part(first, last)
        if not -self._count <= index < self._count:
            raise IndexError(f'there are {self._count} payloads, and none at {index}')
        return self.at(index % self._count)

    def __iter__(self):
        cdef Py_ssize_t index
        for index in range(self._count):
            yield self.at(index)

    def __repr__(self):
        return f'Payloads({list(self)!r:.200})'

    cdef Payloads part(self, Py_ssize_t first, Py_ssize_t last):
        cdef Payloads made = Payloads.__new__(Payloads)
        cdef uint64_t start, size
        cdef Py_ssize_t index
        made._count = max(0, last - first)
        start, size = self.start(first), self.start(first + made._count) - self.start(first)
        if 4 * size >= <uint64_t>PyBytes_GET_SIZE(self._data):
            made._data, made._ends, made._first = self._data, self._ends, self._first + first
            return made
        # a view would keep all payloads as long as the longest call of these runs
        made._data = PyBytes_FromStringAndSize(PyBytes_AS_STRING(self._data) + start, size)
        made._ends = array.clone(_ENDS, made._count + 1, False)
        for index in range(made._count + 1):
            made._ends.data.as_ulonglongs[index] = self.start(first + index) - start
        return made

    def fitting(self, Py_ssize_t most, uint64_t most_bytes):
        """Return how many of the first payloads, at most `most`, have no more bytes together than `most_bytes`."""
        cdef Py_ssize_t count = min(most, self._count)
        cdef uint64_t start = self.start(0)
        while count > 0 and self.start(count) - start > most_bytes:
            count -= 1
        return count

    def size(self):
        """Return the number of bytes of all payloads."""
        return self.start(self._count) - self.start(0)

    def has(self, int kind):
        """Return whether any payload is of this kind, its first byte."""
        cdef Py_ssize_t index
        cdef const unsigned char *data = <const unsigned char *>PyBytes_AS_STRING(self._data)
        for index in range(self._count):
            if data[self.start(index)] == kind:
                return True
        return False

    def parts(self):
        """Return the form of messages: [sizes, data], where data may be a view."""
        cdef array.array sizes = array.clone(_SIZES, self._count, False)
        cdef Py_ssize_t index
        cdef uint64_t first = self.start(0), start = first, end
        for index in range(self._count):
            end = self.start(index + 1)
            sizes.data.as_uints[index] = <uint32_t>(end - start)
            start = end
        if start - first == <uint64_t>PyBytes_GET_SIZE(self._data):
            return [sizes.tobytes(), self._data]
        return [sizes.tobytes(), memoryview(self._data)[first:start]]


@cython.final
@cython.auto_pickle(False)
cdef class Builder:
    """Payloads that are being made: each is added as bytes, or written in place between `reserve` and `close`.

    Attributes:
        count: The number of payloads.
    """

    def __dealloc__(self):
        free(self._data)
        free(self._ends)

    cdef char *reserve(self, Py_ssize_t most) except NULL:
        """Return where the next payload is to be written, of at most so many bytes."""
        if self._size + most > self._room:
            self._data = <char *>_enlarged(self._data, &self._room, self._size + most, 1)
        return self._data + self._size

    cdef int close(self, const char *end) except -1:
        """End the payload that was written up to `end`."""
        if self.count == self._ends_room:
            self._ends = <uint64_t *>_enlarged(self._ends, &self._ends_room, self.count + 1, sizeof(uint64_t))
        self._size = end - self._data
        self._ends[self.count] = self._size
        self.count += 1
        return 0

    cpdef add(self, bytes payload):
        """Add a payload."""
        cdef Py_ssize_t size = PyBytes_GET_SIZE(payload)
        cdef char *at = self.reserve(size)
        memcpy(at, PyBytes_AS_STRING(payload), size)
        self.close(at + size)

    cpdef Payloads finish(self):
        """Return the payloads, and begin anew."""
        cdef Payloads made = Payloads.__new__(Payloads)
        made._data = PyBytes_FromStringAndSize(self._data, self._size)
        made._ends = array.clone(_ENDS, self.count + 1, False)
        made._ends.data.as_ulonglongs[0] = 0
        if self.count:
            memcpy(made._ends.data.as_ulonglongs + 1, self._ends, self.count * sizeof(uint64_t))
        made._count, self.count, self._size = self.count, 0, 0
        if self._room > KEPT:
            free(self._data)
            self._data, self._room = NULL, 0
        return made


cdef void *_enlarged(void *memory, Py_ssize_t *room, Py_ssize_t least, size_t each) except NULL:
    """Return the memory with room for at least so many things of a size, and set how many there are."""
    cdef Py_ssize_t count = max(2 * room[0], least, 256)
    memory = realloc(memory, count * each)
    if memory == NULL:
        raise MemoryError()
    room[0] = count
    return memory


def unpack(parts):
    """Return the payloads of a message; ValueError if the parts do not fit, or a payload is empty."""
    if type(parts) is not list or len(parts) != 2 or type(parts[0]) is not bytes or type(parts[1]) is not bytes:
        raise ValueError('payloads are two parts: sizes and data')
    cdef bytes sizes = parts[0], data = parts[1]
    cdef Py_ssize_t count = PyBytes_GET_SIZE(sizes) // sizeof(uint32_t), index
    cdef const uint32_t *each = <const uint32_t *>PyBytes_AS_STRING(sizes)
    cdef array.array ends = array.clone(_ENDS, count + 1, False)
    cdef uint64_t end = 0
    ends.data.as_ulonglongs[0] = 0
    for index in range(count):
        if each[index] == 0:
            raise ValueError('a payload is empty')
        end += each[index]
        ends.data.as_ulonglongs[index + 1] = end
    if end != <uint64_t>PyBytes_GET_SIZE(data) or PyBytes_GET_SIZE(sizes) % sizeof(uint32_t):
        raise ValueError('the sizes of payloads are not those of the data')
    cdef Payloads made = Payloads.__new__(Payloads)
    made._data, made._ends, made._count = data, ends, count
    return made


def joined(list batches not None):
    """Return the payloads of several sequences of payloads in one."""
    cdef list parts = [batch if type(batch) is Payloads else Payloads(batch) for batch in batches], data = []
    cdef Payloads part, made
    cdef Py_ssize_t index, count = 0
    cdef uint64_t start, size = 0
    if len(parts) == 1:
        return parts[0]
    for part in parts:
        count += part._count
    made = Payloads.__new__(Payloads)
    made._count, made._ends = count, array.clone(_ENDS, count + 1, False)
    made._ends.data.as_ulonglongs[0] = 0
    count = 0
    for part in parts:
        start = part.start(0)
        for index in range(part._count):
            made._ends.data.as_ulonglongs[count + index + 1] = size + part.start(index + 1) - start
        count += part._count
        size += part.start(part._count) - start
        data.append(part.parts()[1])
    made._data = b''.join(data)
    return made


def pack_message(message not None):
    """Return the bytes of a message; ids in it are an `array('Q')`, payloads are of this module."""
    cdef list parts = []
    for each in message:
        if type(each) is Payloads:
            parts.append((<Payloads>each).parts())
        else:
            parts.append(each.tobytes() if isinstance(each, array.array) else each)
    return codec.pack(parts)
