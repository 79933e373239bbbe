"""Runs calls in a rank: what is done for each of them."""

import pickle
from array import array as make_array

cimport cython
from cpython cimport array
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint64_t
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

from rp_api import blobs
from rp_api.errors import DeserializationError
from rp_api.functions import deserialize_obj
from rp_raptor.wire import payload
from rp_raptor.rank.capture import goes_on
from rp_raptor.rank.failures import encode_error

NOTHING = -1   # instead of a position

cdef object _loads = pickle.loads, _dumps = pickle.dumps
cdef frozenset _SCALARS = frozenset({int, float, bool, type(None)})
cdef frozenset _TEXTS = frozenset({str, bytes})
cdef Py_ssize_t _LARGE = blobs.LIMIT

cdef enum:
    SHORT = 16 * 1024                   # bytes of a payload that may as well be copied
    FUNCTION = 70                       # the kind of a call of a function: F
    ARGUMENTS = 1 + 16                  # where they start, after the identifier of the function


@cython.final
@cython.auto_pickle(False)
cdef class Functions:
    """The functions that were defined; files of large results go to `directory`.

    `later(coroutine)` gives the result of an asynchronous function as a coroutine. While a function is restored
    (`restoring`), modules are imported, and an `interruption` waits until that is done: some cannot be imported once
    more if that was interrupted.
    """

    cdef dict _blobs, _functions
    cdef object _directory, _later
    cdef readonly bint restoring
    cdef public object interruption

    def __init__(self, directory, later):
        self._blobs, self._functions = {}, {}
        self._directory = directory
        self._later = later

    def define(self, bytes fid not None, bytes blob not None):
        """Keep a function, which is restored when it is first called."""
        self._blobs[fid] = blob

    def forget(self, bytes fid not None):
        """Drop a function that will not be called any more."""
        self._blobs.pop(fid, None)
        self._functions.pop(fid, None)

    cpdef find(self, bytes fid):
        """The function; DeserializationError if it cannot be restored."""
        func = self._functions.get(fid)
        if func is None:
            blob = self.definition(fid)
            self.interruption = None
            self.restoring = True
            try:
                func = deserialize_obj(blob)
            finally:
                self.restoring = False
            self._functions[fid] = func
            if self.interruption is not None:
                raise self.interruption
        return func

    def definition(self, bytes fid not None):
        """What was defined, as it came; DeserializationError if that is nothing."""
        blob = self._blobs.get(fid)
        if blob is None:
            raise DeserializationError(f'{fid.hex()} was never defined')
        return blob

    cpdef run(self, bytes call):
        """The result of a call of kind F, or a coroutine that gives it; raises what prevents it from having one."""
        func = self.find(call[1:ARGUMENTS])
        args, kwargs = arguments(call)
        return self.outcome(func(*args, **kwargs) if kwargs else func(*args))

    cpdef outcome(self, value):
        """The result of a call that has returned this, or a coroutine that gives it."""
        kind = type(value)
        if kind in _SCALARS or (kind in _TEXTS and len(value) < _LARGE):   # most of them
            return b'R' + <bytes>_dumps(value, 5)
        if goes_on(value):
            return self._later(value)
        return payload.encode_value(value, self._directory)


cpdef tuple arguments(bytes call):
    """Arguments and keyword arguments of a call of kind F, the latter None if there are none."""
    try:
        args, kwargs = _loads(call[ARGUMENTS:] if PyBytes_GET_SIZE(call) < SHORT else memoryview(call)[ARGUMENTS:])
        return args, kwargs
    except Exception as error:
        raise DeserializationError(f'the arguments cannot be restored: {error!r}', error) from error


@cython.final
@cython.auto_pickle(False)
cdef class Runner:
    """Runs calls one after the other, and keeps their results until they are sent.

    `cursors` and `rank` tell which calls are still the rank's, `functions` runs those of functions and `others` all
    others; `flush()` is called when results have waited for `span` seconds, `park(id, coroutine)` for asynchronous
    calls, and `between()` after each call, if there is one.
    """

    cdef object _cursors, _others, _flush, _park
    cdef Functions _functions
    cdef int _rank
    cdef array.array _ids
    cdef list _results
    cdef double _span
    cdef double _since             # when the work began that was not told of yet
    cdef readonly int64_t running  # the position of the call that runs, or NOTHING
    cdef public object raised      # the interruption of that call
    cdef public object between
    cdef public bint stopped

    def __init__(self, cursors, int rank, Functions functions, others, flush, park, double span):
        self._cursors, self._rank = cursors, rank
        self._functions, self._others = functions, others
        self._flush, self._park, self._span = flush, park, span
        self._ids, self._results = make_array('Q'), []
        self._since = _now()
        self.running = NOTHING

    def bulk(self, uint64_t first, const uint64_t[::1] ids, list calls not None):
        """Run calls, the first of which is at the position `first`, until one was taken back."""
        cdef Py_ssize_t index
        if not self._results:
            self._since = _now()
        for index in range(ids.shape[0]):
            result = self.run(first + index, None, calls[index])
            if result is None:
                break
            if type(result) is bytes:
                self.note(ids[index], result)
                if _now() - self._since > self._span:
                    self._flush()
            else:
                self._park(ids[index], result)
            if self.between is not None:
                self.between()
            if self.stopped:
                break
        self._flush()

    cpdef run(self, uint64_t position, run, bytes call):
        """The result of a call, or the coroutine that it goes on in; None if the manager has taken it back.

        `run(call)` runs it, if that is not None.
        """
        try:
            try:
                self.running = position
                if not self._cursors.take(self._rank, position):
                    return None
                if run is not None:
                    result = run(call)
                elif PyBytes_AS_STRING(call)[0] == FUNCTION:
                    result = self._functions.run(call)
                else:
                    result = self._others(call)
            finally:
                self.running = NOTHING
        except BaseException as error:
            result = encode_error(error)
        if self.raised is not None:
            raised, self.raised = self.raised, None
            if type(result) is bytes and payload.has_failed(result):   # whatever became of it on its way
                return encode_error(raised)
        return result

    cpdef note(self, uint64_t id, bytes result):
        """Keep the result of a call."""
        self._ids.append(id)
        self._results.append(result)

    def taken(self):
        """The ids and results that were kept, and how long the work for them took; None if there are none."""
        if not self._results:
            return None
        cdef double now = _now()
        done = self._ids, self._results, now - self._since
        self._ids, self._results, self._since = make_array('Q'), [], now
        return done

    def resume(self):
        """Note that the rank has waited until now."""
        self._since = _now()


cdef double _now() noexcept:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return now.tv_sec + now.tv_nsec * 1e-9
