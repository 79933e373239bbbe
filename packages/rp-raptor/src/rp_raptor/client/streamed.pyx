"""The calls of a stream: made of items, finished with results."""

import pickle
from array import array as make_array

cimport cython
from cpython cimport array
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint64_t
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

from rp_raptor.client.caller import checked
from rp_raptor.objects import reference
from rp_raptor.wire.batch import Payloads
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

    `items` yields (index, item); `encode` makes the payload of a call from its arguments, which have `limit` bytes at
    most, unless a single call has more; `show` is called with the objects that a call refers to.
    """

    cdef dict _calls
    cdef object _items, _encode
    cdef public object show
    cdef readonly Py_ssize_t count
    cdef readonly Py_ssize_t size    # bytes of the arguments of these calls
    cdef Py_ssize_t _limit
    cdef readonly bint exhausted     # there are no further items

    def __init__(self, items, encode, Py_ssize_t limit):
        self._calls = {}
        self._items = items
        self._encode = encode
        self._limit = limit

    @property
    def full(self):
        """True if these calls have as many bytes of arguments as may be in flight."""
        return self.size >= self._limit

    def take(self, Py_ssize_t most, Py_ssize_t most_bytes, double seconds):
        """Make calls of the next items until `most` calls, `most_bytes` bytes, `seconds` or the limit are reached.

        Return their numbers, their payloads, and (number, error) for each that cannot be sent.
        """
        cdef Py_ssize_t made = 0, size = 0
        cdef double until = _now() + seconds
        cdef array.array numbers = make_array('Q')
        cdef list payloads = [], failed = []
        cdef Call call
        for index, item in self._items:
            call = Call.__new__(Call)
            call.index, call.item = index, item
            self._calls[index] = call
            self.count += 1
            made += 1
            try:
                payload = self._encode((item,))
                call._size = checked(payload)
                if type(payload) is not bytes:
                    call._lease, payload = payload.lease, bytes(payload)
            except Exception as error:    # this call fails, and not the whole stream
                failed.append((index, error))
            else:
                numbers.append(index)
                payloads.append(payload)
                size += PyBytes_GET_SIZE(payload)
                self.size += call._size
                if _pending:
                    call._objects = _taken()
                    self.show(call._objects)
            if made >= most or size >= most_bytes or self.size >= self._limit or _now() > until:
                break
        else:
            self.exhausted = True
        return numbers, Payloads(payloads), failed

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
    cdef Py_ssize_t _next

    def __init__(self, UnderWay calls, const uint64_t[::1] numbers, results):
        self._calls, self._numbers, self._results = calls, numbers, results

    def __iter__(self):
        return self

    def __next__(self):
        if self._next >= self._numbers.shape[0]:
            raise StopIteration
        cdef Call call = self._calls.pop(self._numbers[self._next])
        call.finish(self._results[self._next])
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
        except Exception:
            pass   # `decode_result` fails too, with a better message
    return decode_result(result)


cdef double _now() noexcept:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return now.tv_sec + now.tv_nsec * 1e-9
