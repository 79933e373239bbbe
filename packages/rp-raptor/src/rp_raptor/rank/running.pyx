"""The inner loop of a rank: runs calls of defined functions."""

import pickle
from array import array as make_array

cimport cython
from cpython cimport array
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcmp, memcpy

from rp_api import pickles
from rp_api.by_value.classes import restored
from rp_api.errors import DeserializationError
from rp_api.functions import deserialize_obj
from rp_raptor.wire import payload
from rp_raptor.wire.large_calls import function_in
from rp_raptor.wire.result_files import ResultFiles
from rp_raptor.wire import reused_files, store
from rp_profiling.write import calls as records
from rp_raptor.rank.capture import goes_on
from rp_raptor.rank.capture import encode_error
from rp_raptor.rank.process_end import end_fork
from rp_raptor.rank.recorder cimport CallRecorder
from rp_raptor.wire cimport scalars
from rp_raptor.wire.batch cimport Builder, Payloads
from rp_raptor.wire.cursor cimport Cursors

cdef extern from "pthread.h":
    int pthread_atfork(void (*prepare)() noexcept nogil, void (*parent)() noexcept nogil,
                       void (*child)() noexcept nogil)

NOTHING = -1   # instead of a position

cdef object _loads = pickle.loads, _dumps = pickle.dumps, _restored = restored
cdef frozenset _SCALARS = frozenset({int, float, bool, type(None)})
cdef frozenset _TEXTS = frozenset({str, bytes})
cdef Py_ssize_t _LARGE = store.STORED_BYTES

cdef int _DONE = records.DONE, _FAILED = records.FAILED, _INTERRUPTED = records.INTERRUPTED
cdef int _OF_FUNCTION = records.FUNCTION, _OF_TASK = records.TASK

cdef enum:
    SHORT = 16 * 1024                   # bytes of a payload that is cheap to copy
    FUNCTION = 70                       # the kind of a call of a function: F
    CHUNK = 67                          # of a chunk of calls: C
    LARGE_CALL = 66                     # the kind of a call with large arguments: B
    ERROR = 69                          # the kind of a result that is an error: E
    DESCRIBED = 68                      # of a described task that has failed, or printed: D
    END = 46                            # the last byte of a pickle
    ARGUMENTS = 1 + 16                  # offset of the arguments, after the identifier of the function
    ITEM = ARGUMENTS + 2                # offset of the only argument of most calls, if it is a scalar
    TAIL = 4                            # bytes behind it

cdef const char *START = b'\x80\x05'              # of a pickle
cdef const char *ONE_ARGUMENT = b'\x85N\x86.'     # the end of the pickle ((item,), None)
cdef const char *VALUE_START = b'R\x80\x05'


cdef bint _forked = False   # whether this process is a fork of the rank


cdef void _note_fork() noexcept nogil:
    global _forked
    _forked = True


pthread_atfork(NULL, NULL, _note_fork)


@cython.final
@cython.auto_pickle(False)
cdef class Functions:
    """Defined functions; files of large results go to the caller, `directory` or `carried` (see `ResultFiles`).

    `later(coroutine, files)` makes a coroutine that returns the result of an asynchronous function. While a function is
    unpickled (`restoring`), modules are imported, and an `interruption` is delayed: some modules cannot be imported
    again after an interrupted import. A function with classes by value is unpickled again if another pickle has changed
    a class since.
    """

    cdef dict _blobs, _functions
    cdef dict _changes              # of classes, when functions with classes by value were unpickled
    cdef tuple _recent              # the function of the last call, see `find`
    cdef bytes _recent_fid
    cdef object _directory, _later, _carried
    cdef readonly bint restoring
    cdef public object interruption

    def __init__(self, directory, later, carried=''):
        self._blobs, self._functions, self._changes = {}, {}, {}
        self._directory = directory
        self._later = later
        self._carried = carried

    def define(self, bytes fid not None, bytes blob not None):
        """Store a function, which is unpickled at its first call."""
        self._blobs[fid] = blob
        self._recent = None

    def forget(self, bytes fid not None):
        """Drop a function that is not called any more."""
        self._blobs.pop(fid, None)
        if self._functions.pop(fid, None):
            reused_files.unmap()   # files of the caller, which may have left
        self._changes.pop(fid, None)
        self._recent = None

    cpdef tuple find(self, bytes fid):
        """Return the function and the files for its results; DeserializationError if it cannot be unpickled."""
        cdef tuple found = self._functions.get(fid)
        if found is None or self._changes and self._changes.get(fid, _restored.changes) != _restored.changes:
            blob, results, output = payload.opened_definition(self.definition(fid))
            self.interruption = None
            self.restoring = True
            met = _restored.met
            try:
                found = deserialize_obj(blob), ResultFiles(results, self._directory, self._carried, output=output)
            finally:
                self.restoring = False
            self._functions[fid] = found
            if _restored.met != met:
                self._changes[fid] = _restored.changes
            if self.interruption is not None:
                raise self.interruption
        return found

    def wants_output(self, bytes call not None):
        """Return whether the caller of a call, of any kind, wants its output."""
        fid = function_in(call)
        return fid in self._functions and self._functions[fid][1].output

    def definition(self, bytes fid not None):
        """Return the bytes of a definition; DeserializationError if there is none."""
        blob = self._blobs.get(fid)
        if blob is None:
            raise DeserializationError(f'{fid.hex()} was never defined')
        return blob

    def run(self, bytes call not None):
        """Return the result of a call of kind F, or a coroutine that returns it; raise if there can be none."""
        return self.call(PyBytes_AS_STRING(call), PyBytes_GET_SIZE(call))

    cdef call(self, const char *data, Py_ssize_t size):
        """Do what `run` does."""
        cdef Py_ssize_t end
        if size < ARGUMENTS:
            raise DeserializationError(f'a call of {size} bytes has no function')
        if self._recent is None or memcmp(data + 1, PyBytes_AS_STRING(self._recent_fid), ARGUMENTS - 1) != 0:
            fid = <bytes>data[1:ARGUMENTS]
            self._recent, self._recent_fid = self.find(fid), fid
        func, files = self._recent
        if self._changes:
            func, files = self._recent = self.find(self._recent_fid)
        if size > ITEM + TAIL and memcmp(data + ARGUMENTS, START, ITEM - ARGUMENTS) == 0:
            end = ITEM + scalars.length(data + ITEM, size - ITEM - TAIL)
            if end > ITEM and end + TAIL == size and memcmp(data + end, ONE_ARGUMENT, TAIL) == 0:
                return self.outcome(func(scalars.read(data + ITEM)), files)
        args, kwargs = arguments(<bytes>data[:size])
        return self.outcome(func(*args, **kwargs) if kwargs else func(*args), files)

    cpdef invoke(self, bytes fid, args, kwargs):
        """Return the result of a function with these arguments (`kwargs` may be None), as `run` does."""
        func, files = self.find(fid)
        return self.outcome(func(*args, **kwargs) if kwargs else func(*args), files)

    cpdef outcome(self, value, files):
        """Return the result for a call's value, or a coroutine that returns it; a large one in one of the files."""
        if _forked:
            end_fork(None)
        cdef Py_ssize_t size = scalars.size_of(value)
        cdef bytes result
        if size:   # the usual case
            result = PyBytes_FromStringAndSize(NULL, 4 + size)
            memcpy(PyBytes_AS_STRING(result), VALUE_START, 3)
            scalars.write(PyBytes_AS_STRING(result) + 3, value)[0] = END
            return result
        kind = type(value)
        if kind in _SCALARS or (kind in _TEXTS and len(value) < _LARGE):
            return b'R' + <bytes>_dumps(value, 5)
        if goes_on(value):
            return self._later(value, files)
        return payload.encode_value(value, files)


cpdef tuple arguments(bytes call):
    """Return arguments and keyword arguments (None if there are none) of a call of kind F."""
    cdef Py_ssize_t size = PyBytes_GET_SIZE(call)
    if PyBytes_AS_STRING(call)[size - 1] != END:   # code among the arguments has a stamp behind it
        pickles.check_version(call, 'an argument')
    try:
        args, kwargs = _loads(call[ARGUMENTS:] if size < SHORT else memoryview(call)[ARGUMENTS:])
        return args, kwargs
    except DeserializationError:
        raise
    except BaseException as error:
        raise pickles.failure('the arguments', error)


@cython.final
@cython.auto_pickle(False)
cdef class Runner:
    """Runs calls one after the other, and keeps their results until they are sent.

    `cursors` and `rank` decide which calls still belong to the rank, `functions` runs calls of functions and `others`
    all others; `flush()` is called when results have waited for `span` seconds, `park(id, coroutine)` for asynchronous
    calls; it returns `between`, which is called after each call from then on. `recorder` gets a record of each call,
    except for those that record themselves.
    """

    cdef object _others, _flush, _park
    cdef Cursors _cursors
    cdef Functions _functions
    cdef int _rank
    cdef array.array _ids
    cdef Builder _results
    cdef CallRecorder _recorder
    cdef int64_t _span             # nanoseconds
    cdef int64_t _since            # start of the work that was not reported yet
    cdef readonly int64_t running  # position of the running call, or NOTHING
    cdef public object raised      # interruption of that call
    cdef public object spoken      # its output; None for most calls
    cdef public object between
    cdef public bint stopped

    def __init__(self, Cursors cursors not None, int rank, Functions functions, others, flush, park, double span,
                 CallRecorder recorder not None):
        self._cursors, self._rank = cursors, rank
        self._functions, self._others = functions, others
        self._flush, self._park, self._span = flush, park, <int64_t>(span * 1e9)
        self._recorder = recorder
        self._ids, self._results = make_array('Q'), Builder()
        self._since = recorder.last
        self.running = NOTHING

    def bulk(self, uint64_t first, const uint64_t[::1] ids, Payloads calls not None):
        """Run calls, the first one at position `first`, until the manager has taken one back."""
        cdef Py_ssize_t index
        self._recorder.begin()
        if not self._results.count:
            self._since = self._recorder.last
        for index in range(ids.shape[0]):
            result = self._run(first + index, None, calls.data(index), calls.size_of(index))
            if result is None:
                break
            if type(result) is bytes:
                self.note(ids[index], result)
                if self._recorder.last - self._since > self._span:
                    self._flush()
                    self._recorder.begin()
            else:
                self.between = self._park(ids[index], result)
                self._recorder.begin()
            if self.between is not None:
                self.between()
                self._recorder.begin()
            if self.stopped:
                break
        self._flush()

    def run(self, uint64_t position, run, bytes call not None):
        """Return the result of a call, or the coroutine of an asynchronous one; None if it was taken back.

        `run(call)`, if not None, runs it.
        """
        return self._run(position, run, PyBytes_AS_STRING(call), PyBytes_GET_SIZE(call))

    cdef _run(self, uint64_t position, run, const char *data, Py_ssize_t size):
        """Do what `run` does."""
        cdef int64_t recorded = self._recorder.total
        cdef int outcome = _DONE
        if run is not None:
            self._recorder.begin()
        try:
            try:
                self.running = position
                if not self._cursors.taken(self._rank, position):
                    return None
                if run is not None:
                    result = run(<bytes>data[:size])
                elif data[0] == FUNCTION:
                    result = self._functions.call(data, size)
                else:
                    result = self._others(<bytes>data[:size])
            finally:
                self.running = NOTHING
        except BaseException as error:
            if _forked:
                end_fork(error)
            result = encode_error(error)
        if _forked:   # calls belong to the rank, not to what functions have forked
            end_fork(None)
        if self.raised is not None:
            raised, self.raised = self.raised, None
            if type(result) is bytes and payload.has_failed(result):   # the function may have changed the exception
                result, outcome = encode_error(raised), _INTERRUPTED
        if type(result) is bytes and self._recorder.total == recorded:
            self._recorder.lap(_what(data[0], <bytes>result, outcome))
        if self.spoken is not None:
            spoken, self.spoken = self.spoken, None
            if type(result) is bytes and self._functions.wants_output(<bytes>data[:size]):
                result = spoken.attached(result)
        return result

    cpdef note(self, uint64_t id, bytes result):
        """Keep the result of a call."""
        self._ids.append(id)
        self._results.add(result)

    def taken(self):
        """Return ids, results and seconds of the work that was not reported, and reset them; None if there is none."""
        if not self._results.count:
            return None
        cdef int64_t now = self._recorder.now()
        done = self._ids, self._results.finish(), (now - self._since) * 1e-9
        self._ids, self._since = make_array('Q'), now
        return done

    def resume(self):
        """Restart the measurement of work after a wait."""
        self._since = self._recorder.now()


cdef int _what(char kind, bytes result, int outcome) except -1:
    """Return kind and outcome of a call, for its record."""
    cdef char first = PyBytes_AS_STRING(result)[0] if PyBytes_GET_SIZE(result) else 0
    if outcome == _DONE and (first == ERROR or (first == DESCRIBED and payload.has_failed(result))):
        outcome = _FAILED
    return outcome | (_OF_FUNCTION if kind == FUNCTION or kind == CHUNK or kind == LARGE_CALL else _OF_TASK)
