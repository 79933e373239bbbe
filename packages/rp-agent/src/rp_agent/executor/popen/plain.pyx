"""Plain tasks: one process that runs a program with fixed arguments, in a sandbox with two output files.

Most tasks are plain, and their start limits the task rate. This file therefore starts them in compiled code, without
Python objects for argument lists, environments and paths. The result is the same as with `plan` and `Starter`.

- A task is plain if its description sets only attributes that this file handles, or that do not affect its start.
- All other cases (other tasks, errors, no free descriptors) are left to `plan` and `Starter`, which report errors. A
  failed start leaves no file or process behind.
- Sandbox, files and process of a few tasks that are expected next are created before the tasks have slots, so that a
  free slot is used at once. Only the cores depend on the slot; they are set when the process is released.
"""

import os
import sys

cimport cython
from cpython.dict cimport PyDict_GetItem, PyDict_Next
from cpython.object cimport PyObject
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.errno cimport EEXIST, errno
from libc.stdlib cimport malloc
from libc.string cimport memchr, memcpy
from posix.fcntl cimport O_CREAT, O_TRUNC, O_WRONLY, open
from posix.stat cimport mkdir
from posix.unistd cimport close, rmdir, unlink

from rp_agent.executor.processes.launch cimport RP_SPAWN_WAITS, Launch, Variables, rp_spawn
from rp_agent.executor.processes.launchloop cimport LaunchLoop, Process

from rp_agent.executor.launching import plan as _planning
from rp_agent.executor.run import Run
from rp_api import states

PREPARED_MAX = 4
"""Maximum number of prepared tasks: about as many as end at the same time on machines where starts are expensive."""

FORECAST_TASKS = 4 * PREPARED_MAX
"""Number of tasks that one forecast covers."""

_WAITS = states.AGENT_SCHEDULING


cdef extern from "<fcntl.h>" nogil:
    enum:
        O_CLOEXEC


cdef enum:
    OWN = 9               # number of variables of each task
    OWN_SIZE = 256        # upper limit of the size of all constant parts of a task's texts
    MOST_PLANS = 1024     # maximum number of programs in the cache of plans

# attributes that this file handles, or that do not affect the start of a process
_KNOWN = frozenset((
    'uid', 'name', 'executable', 'arguments', 'literal_arguments', 'cores_per_rank',
    'sandbox', 'input_staging', 'output_staging', 'stage_on_error', 'priority', 'ranks_per_node',
    'lfs_per_rank', 'pilot', 'partition', 'tags', 'metadata', 'timeout', 'startup_timeout', 'restartable', 'cleanup'))


cdef bint _UTF8 = sys.getfilesystemencoding().lower().replace('-', '') == 'utf8'


cdef struct Text:
    const char *start
    Py_ssize_t size


cdef bint _text(object value, Text *text) except -1:
    """Find the text of a string; return False for other objects, and for a string with a NUL or non-UTF-8 bytes."""
    if type(value) is not str:
        return False
    try:
        text.start = PyUnicode_AsUTF8AndSize(value, &text.size)
    except UnicodeEncodeError:
        return False
    return memchr(text.start, 0, text.size) == NULL


cdef bint _fixed(object value, Text *text) except -1:
    """Find the text of a literal string; return False for one that may need a shell."""
    return (_text(value, text) and memchr(text.start, 36, text.size) == NULL   # $
            and memchr(text.start, 96, text.size) == NULL)                     # `


cdef char *_write(char *at, const char *text, Py_ssize_t size) noexcept:
    memcpy(at, text, size)
    return at + size


cdef char *_variable(char *at, char ***place, const char *name, Py_ssize_t size, Text *value) noexcept:
    """Write NAME=value, and store its address in `place`; return the address behind it."""
    place[0][0] = at
    place[0] += 1
    at = _write(_write(at, name, size), value.start, value.size)
    at[0] = 0
    return at + 1


cdef char *_path(char *at, Text *directory, Text *name, const char *ending, Py_ssize_t size) noexcept:
    """Write a path, directory/name with an ending; return the address behind it."""
    at = _write(at, directory.start, directory.size)
    at[0] = 47   # /
    at = _write(_write(at + 1, name.start, name.size), ending, size)
    at[0] = 0
    return at + 1


@cython.final
@cython.auto_pickle(False)
cdef class PlainTasks:
    """Starts plain tasks, whose processes `launched` watches.

    `variables` are those of all tasks, `defaults` the default values of a description. `programs` caches the paths of
    programs that were found in `search_path`. If `traced`, tasks get a file to record events. `null` is the descriptor
    of their standard input.
    """

    cdef LaunchLoop _launched
    cdef Variables _variables
    cdef dict _defaults
    cdef dict _plans
    cdef object _programs
    cdef str _search_path
    cdef bint _traced
    cdef int _null

    def __init__(self, LaunchLoop launched not None, Variables variables not None, dict defaults not None, programs,
                 str search_path not None, bint traced, int null):
        self._launched = launched
        self._variables = variables
        self._defaults = defaults
        self._programs = programs
        self._search_path = search_path
        self._plans = {}
        self._traced = traced
        self._null = null

    def start(self, task, bytes cpus):
        """Start a task, bound to `cpus`; return None if it is not plain or cannot be started here."""
        plan = self._plan(task)
        if plan is None:
            return None
        run = Run(task, plan)
        return self._begun(run, self._start(task, plan, run, cpus))

    def hold(self, task):
        """Create the sandbox, the files and the process of an expected task, and return the process.

        It is held until `let_go` or `discard`. Return None if the task is not plain, has a sandbox, or an error occurs.
        """
        if RP_SPAWN_WAITS:
            return None
        plan = self._plan(task)
        return None if plan is None else self._start(task, plan, None, None)

    def let_go(self, Process process not None, task, bytes cpus):
        """Start a task whose process is held; return None if the process has ended."""
        if process.launch is None:
            return None
        run = Run(task, process.launch.kept[0])
        return self._begun(run, process if self._launched.let_go(process, run, cpus) else None)

    def discard(self, Process process not None, task):
        """Undo `hold`."""
        cdef bytes sandbox = os.fsencode(task.sandbox)
        cdef bytes stem = os.fsencode(f'{task.sandbox}/{task.uid}')
        self._launched.kill(process)
        unlink(stem + b'.out')
        unlink(stem + b'.err')
        rmdir(sandbox)

    cdef object _begun(self, object run, Process process):
        if process is None:
            return None
        run.leaders[0] = process
        run.pids.append(process.pid)
        return run

    cdef object _plan(self, object task):
        """Return the plan of a plain task with a known program, which tasks share; None for other tasks.

        No task is plain if the file system encoding is not UTF-8.
        """
        cdef object description = task.description
        cdef PyObject *executable
        cdef PyObject *key
        cdef PyObject *value
        cdef Py_ssize_t position = 0
        cdef Text text
        if not _UTF8:
            return None
        while PyDict_Next(description, &position, &key, &value):
            if <object>key not in _KNOWN and <object>value != self._defaults.get(<object>key) \
                    and not (<object>key == 'use_mpi' and <object>value is False):
                return None
        executable = PyDict_GetItem(description, 'executable')
        if executable == NULL or not _fixed(<object>executable, &text):
            return None
        path = self._programs.known(<object>executable, self._search_path)
        if path is None or not _text(path, &text):
            return None
        name = <object>executable
        plan = self._plans.get(name)
        if plan is None or plan.processes[0].path != path:
            if len(self._plans) >= MOST_PLANS:
                self._plans.clear()
            process = _planning.Process(path, [], None, None, 0, name, self._search_path)
            plan = self._plans[name] = _planning.LaunchPlan(_planning.DIRECT, [process], ('', ''), {})
        return plan

    cdef Process _start(self, object task, object plan, object run, bytes cpus):
        """Create sandbox, files and process of a task; the process is held if `run` is None. Return None on errors."""
        cdef Launch launch = Launch.__new__(Launch)
        cdef Process process = None
        cdef const char *out
        cdef const char *err
        cdef bint made
        if self._launched.is_full() or not self._fill(launch, task, plan, &out, &err):
            return None
        made = mkdir(launch.request.cwd, 0o777) == 0
        if not made and (run is None or errno != EEXIST):
            return None
        if self._open(&launch.request, out, err):
            launch.request.gate = run is None
            launch.bind(cpus)
            try:
                process = self._launched.begin(launch, run, 0)
            except OSError:
                pass
            finally:
                close(launch.request.fds[1])
                close(launch.request.fds[2])
        if process is None and made:
            unlink(out)
            unlink(err)
            rmdir(launch.request.cwd)
        return process

    cdef bint _open(self, rp_spawn *request, const char *out, const char *err) noexcept:
        """Open standard input, output and error of a task."""
        cdef int flags = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC
        request.fds[0] = self._null
        request.fds[1] = open(out, flags, 0o666)
        if request.fds[1] < 0:
            return False
        request.fds[2] = open(err, flags, 0o666)
        if request.fds[2] < 0:
            close(request.fds[1])
            return False
        request.nfds = 3
        return True

    cdef bint _fill(self, Launch launch, object task, object plan, const char **out, const char **err) except -1:
        """Write arguments, environment and paths into the request; return False if a text is not literal.

        The request points to texts of the description, which does not change.
        """
        cdef object description = task.description
        cdef PyObject *arguments = PyDict_GetItem(description, 'arguments')
        cdef PyObject *literal = PyDict_GetItem(description, 'literal_arguments')
        cdef bint fixed = literal == NULL or not <object>literal
        cdef PyObject *name = PyDict_GetItem(description, 'name')
        cdef list words = []
        cdef object path = plan.processes[0].path
        cdef str number = str(description['cores_per_rank'])
        cdef Text uid, label, sandbox, cores, word
        cdef Py_ssize_t index, count
        cdef char **place
        cdef char *at
        if arguments != NULL:
            if type(<object>arguments) is not list:
                return False
            words = <list>arguments
        if not _text(task.uid, &uid) or not _text(task.sandbox, &sandbox) or not _text(number, &cores):
            return False
        label = uid
        if name != NULL and <object>name and not _text(<object>name, &label):
            return False
        count = len(words)
        launch.block = <char **>malloc(<size_t>(count + self._variables.count + OWN + 4) * sizeof(char *)
                                       + <size_t>(OWN_SIZE + 4 * uid.size + label.size + 5 * sandbox.size + cores.size))
        if launch.block == NULL:
            raise MemoryError()
        launch.kept = plan, path, description, self._variables
        launch.request.argv = launch.block + 1
        _fixed(description['executable'], &word)
        launch.request.argv[0] = <char *>word.start
        for index in range(count):
            if not (_fixed(words[index], &word) if fixed else _text(words[index], &word)):
                return False
            launch.request.argv[index + 1] = <char *>word.start
        launch.request.argv[count + 1] = NULL
        _text(path, &word)
        launch.request.path = word.start
        place = launch.request.envp = launch.request.argv + count + 2
        memcpy(place, self._variables.pointers, <size_t>self._variables.count * sizeof(char *))
        place += self._variables.count
        at = <char *>(place + OWN + 1)
        launch.request.cwd = at + 16   # behind RP_TASK_SANDBOX=
        at = _variable(at, &place, b'RP_TASK_SANDBOX=', 16, &sandbox)
        at = _variable(at, &place, b'PWD=', 4, &sandbox)
        at = _variable(at, &place, b'RP_TASK_ID=', 11, &uid)
        at = _variable(at, &place, b'RP_TASK_NAME=', 13, &label)
        at = _variable(at, &place, b'RP_CORES_PER_RANK=', 18, &cores)
        place[0], place[1], place[2] = b'RP_GPUS_PER_RANK=0', b'RP_RANKS=1', b'RP_RANK=0'
        place += 3
        if self._traced:
            place[0] = at
            place += 1
            at = _path(_write(at, b'RP_PROF_TGT=', 12), &sandbox, &uid, b'.prof', 5)
        place[0] = NULL
        out[0] = at
        at = _path(at, &sandbox, &uid, b'.out', 4)
        err[0] = at
        _path(at, &sandbox, &uid, b'.err', 4)
        return True


class Prelaunch:
    """Holds the processes of expected tasks; `expected(count)` returns at most `count` of them."""

    def __init__(self, loop, plain):
        self._loop = loop
        self._plain = plain
        self.expected = None
        self._held = {}   # task and process by uid
        self._next = []
        """Tasks of the last forecast, in reverse order."""
        self._unfit = set()
        """Uids of tasks that cannot be prepared."""
        self._most = PREPARED_MAX
        self._due = False

    @property
    def held(self):
        """Uids of the prepared tasks."""
        return self._held.keys()

    def refill(self):
        """Prepare an expected task now, and others in later turns of the loop, so that other events are not delayed."""
        if self._due:
            return
        task = self._choose() if len(self._held) < self._most else None
        if task is None:
            return
        process = self._plain.hold(task)
        if process is None:
            self._unfit.add(task.uid)
        else:
            self._held[task.uid] = task, process
        if len(self._held) < self._most:
            self._due = True
            self._loop.call_soon(self._go_on)

    def start(self, task, cpus):
        """Start a prepared task on these CPUs; return None if the task is not prepared."""
        held = self._held.pop(task.uid, None)
        return None if held is None else self._plain.let_go(held[1], task, cpus)

    def discard(self, uid):
        """Undo the preparation of a task; ignore other tasks."""
        held = self._held.pop(uid, None)
        if held is not None:
            self._plain.discard(held[1], held[0])

    def clear(self):
        """Undo all preparations; `refill` starts new ones."""
        for uid in list(self._held):
            self.discard(uid)

    def close(self):
        """Undo all preparations, and prepare no more tasks."""
        self._most = 0
        self.clear()

    def _go_on(self):
        self._due = False
        self.refill()

    def _choose(self):
        """Return the next task to prepare."""
        if not self._next:
            expected = self.expected(FORECAST_TASKS) if self.expected is not None else ()
            self._unfit.intersection_update([task.uid for task in expected])
            self._next = [task for task in reversed(expected)
                          if task.uid not in self._held and task.uid not in self._unfit]
        while self._next:
            task = self._next.pop()
            # it still waits for its slots
            if task.state == _WAITS and task.target_state is None and not task.cancelled and task.uid not in self._held:
                return task
        return None
