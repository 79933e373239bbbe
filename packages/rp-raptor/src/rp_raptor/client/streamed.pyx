"""The calls of a stream: made of items, finished with results."""

import pickle
from array import array as make_array

cimport cython
from cpython cimport array
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint64_t
from libc.string cimport memcmp, memcpy
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

from rp_api.pickles import is_interrupt
from rp_raptor.client.caller import checked
from rp_raptor.objects import reference
from rp_raptor.wire cimport scalars
from rp_raptor.wire.batch cimport Builder, Payloads
from rp_raptor.wire.payload import decode_result

cdef object _loads = pickle.loads, _taken = reference.taken
cdef dict _pending = reference.pending    # empty unless references to objects were pickled

cdef enum:
    SHORT = 16 * 1024    # bytes of a payload that is cheap to copy
    VALUE = 82           # the kind of a result that is a value: R
    END = 46             # the last byte of a pickle without code


@cython.final
@cython.auto_pickle(False)
cdef class Call:
    """A call of a stream.

    Attributes:
        index: The position of the call's item in the iterable.
        item: The argument.
        exception: The exception that the call has raised, with the worker's traceback as its `__cause__`; or None.
    """

    cdef readonly object index
    cdef readonly object item
    cdef readonly object exception
    cdef object _value
    cdef object _objects     # those that the arguments refer to
    cdef object _lease       # of files with arguments
    cdef Py_ssize_t _size    # bytes of the serialized arguments

    def __init__(self, index, item):
        self.index = index
        self.item = item

    def __repr__(self):
        return f'<Call {self.index} {"failed" if self.exception else "done"}>'

    def result(self):
        """Return the value of the call, or raise its exception."""
        if self.exception is not None:
            raise self.exception
        return self._value

    cdef bint finish_scalar(self, const char *data, Py_ssize_t size) except -1:
        """Set the result if the payload is the pickle of a scalar, and return whether it is."""
        if size < 5 or memcmp(data, b'R\x80\x05', 3) != 0 or data[size - 1] != END:
            return False
        if scalars.length(data + 3, size - 4) != size - 4:
            return False
        try:
            self._value = scalars.read(data + 3)
        except UnicodeDecodeError:   # `finish` makes an error of it
            return False
        return True

    cpdef finish(self, result):
        """Set the result: a payload, or the reason why there is none."""
        try:
            self._value = _decoded(result)
        except Exception as error:
            self.exception = error.with_traceback(None)


@cython.final
@cython.auto_pickle(False)
cdef class UnderWay:
    """The calls of a stream in flight.

    `items` yields (index, item); `encode` makes the payload of a call from its arguments. If `start` is given, a
    payload is that and a pickle of the arguments, which is made here if the item is a scalar. `show` is called with the
    objects that a call refers to.
    """

    cdef dict _calls
    cdef object _items, _encode, _show
    cdef bytes _start
    cdef Builder _payloads
    cdef readonly Py_ssize_t count
    cdef readonly Py_ssize_t size    # bytes of the arguments of these calls
    cdef readonly bint exhausted     # there are no further items
    cdef object _error               # the exception with which the items have ended, if any

    def __init__(self, items, encode, show, bytes start=None):
        self._calls = {}
        self._start, self._payloads = start, Builder()
        self._items = items
        self._encode, self._show = encode, show

    def take(self, Py_ssize_t most, Py_ssize_t most_bytes, Py_ssize_t limit, double seconds):
        """Make calls of the next items until `most` calls, `most_bytes` bytes or `seconds` are reached.

        Make none after the one with which the arguments of all calls in flight have `limit` bytes. Return their
        numbers, their payloads, and (number, error) for each that cannot be sent.
        """
        cdef Py_ssize_t made = 0, size = 0, added
        cdef double until = _now() + seconds
        cdef array.array numbers = make_array('Q')
        cdef list failed = []
        cdef Call call
        while True:
            try:
                index, item = next(self._items)
            except StopIteration:
                self.exhausted = True
                break
            except Exception as error:    # the calls before have results
                self.exhausted, self._error = True, error
                break
            call = Call.__new__(Call)
            call.index, call.item = index, item
            self._calls[index] = call
            self.count += 1
            made += 1
            try:
                added = self._add(call, item)
            except Exception as error:    # this call fails, and not the whole stream
                failed.append((index, error))
            else:
                numbers.append(index)
                size += added
                self.size += call._size
                if _pending:
                    call._objects = _taken()
                    self._show(call._objects)
            if made >= most or size >= most_bytes or self.size >= limit or _now() > until:
                break
        return numbers, self._payloads.finish(), failed

    def end(self):
        """Raise the exception with which the items have ended, if any; it is kept no longer."""
        error, self._error = self._error, None
        if error is not None:
            raise error

    cdef Py_ssize_t _add(self, Call call, item) except -1:
        """Add the payload of a call, and return its size."""
        cdef Py_ssize_t size = scalars.size_of(item) if self._start is not None else 0, start
        cdef char *begin
        cdef char *end
        if not size:
            payload = self._encode((item,))
            call._size = checked(payload)
            if type(payload) is not bytes:
                call._lease, payload = payload.lease, bytes(payload)
            self._payloads.add(payload)
            return PyBytes_GET_SIZE(payload)
        start = PyBytes_GET_SIZE(self._start)
        begin = self._payloads.reserve(start + 2 + size + 4)
        memcpy(begin, PyBytes_AS_STRING(self._start), start)
        memcpy(begin + start, b'\x80\x05', 2)
        end = scalars.write(begin + start + 2, item)
        memcpy(end, b'\x85N\x86.', 4)   # the end of the pickle ((item,), None)
        self._payloads.close(end + 4)
        call._size = end + 4 - begin
        return call._size

    cpdef Call pop(self, number):
        """Remove and return the call of that number."""
        cdef Call call = self._calls.pop(number)
        self.count -= 1
        self.size -= call._size
        call._objects = None
        call._lease = None
        return call

    def finished(self, const uint64_t[::1] numbers, results):
        """Return an iterator that takes out the calls of these numbers and sets their results."""
        return Finished(self, numbers, results)


@cython.final
@cython.auto_pickle(False)
@cython.internal
cdef class Finished:
    """An iterator of calls that decodes each result when it is requested, as results may be large."""

    cdef UnderWay _calls
    cdef const uint64_t[::1] _numbers
    cdef object _results
    cdef Payloads _payloads    # the results, if they are payloads
    cdef Py_ssize_t _next

    def __init__(self, UnderWay calls, const uint64_t[::1] numbers, results):
        self._calls, self._numbers, self._results = calls, numbers, results
        self._payloads = results if type(results) is Payloads else None

    def __iter__(self):
        return self

    def __next__(self):
        if self._next >= self._numbers.shape[0]:
            raise StopIteration
        cdef Call call = self._calls.pop(self._numbers[self._next])
        if self._payloads is None:
            call.finish(self._results[self._next])
        elif not call.finish_scalar(self._payloads.data(self._next), self._payloads.size_of(self._next)):
            call.finish(self._payloads.at(self._next))
        self._next += 1
        return call


cdef object _decoded(result):
    if not isinstance(result, bytes):
        raise result
    cdef Py_ssize_t size = PyBytes_GET_SIZE(result)
    cdef char *data = PyBytes_AS_STRING(result)
    if data[0] == VALUE and size < SHORT and data[size - 1] == END:   # the usual case
        try:
            return _loads((<bytes>result)[1:])
        except BaseException as error:
            if is_interrupt(error):
                raise
            # `decode_result` fails too, with a better message
    return decode_result(result)


cdef double _now() noexcept:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return now.tv_sec + now.tv_nsec * 1e-9
