"""Process creation at the cost of the system call: environments and requests.

Everything is prepared before the child exists, and the child makes only system calls (spawn.h). Rules for callers:

- The kernel kills a started program (SIGKILL) when the *thread* that started it ends (PR_SET_PDEATHSIG). Tasks must be
  started from a thread that lives as long as the agent.
- The program leads a new session and process group, whose id is its pid.
- Signal handlers and the signal mask are reset to their defaults; so SIGPIPE, which Python ignores, ends the program.
- Requires Linux 5.3, for process file descriptors.
"""

import os
import sys

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memchr, memcpy, strlen


cdef dict _ACTIONS = {
    RP_SPAWN_CLONE: 'cannot create a process',
    RP_SPAWN_PIDFD: 'cannot get a process file descriptor (needs Linux 5.3)',
    RP_SPAWN_SESSION: 'cannot create a session',
    RP_SPAWN_DESCRIPTORS: 'cannot pass on the open files',
    RP_SPAWN_DIRECTORY: 'cannot enter the working directory',
    RP_SPAWN_AFFINITY: 'cannot bind the process to its cores',
    RP_SPAWN_MEMORY: 'cannot limit the memory of the process',
    RP_SPAWN_EXECUTE: 'cannot execute',
}

cdef bint _UTF8 = sys.getfilesystemencoding().lower().replace('-', '') == 'utf8'


# limit of open files for programs, 0 for that of this process
cdef unsigned long long _files = 0


def limit_files(unsigned long long files):
    """Set the limit of open files (RLIMIT_NOFILE) for programs that are started from now on."""
    global _files
    _files = files


cdef char *_text(object value) except NULL:
    """Return the C string in a bytes object, which must outlive it."""
    if not isinstance(value, bytes):
        raise TypeError(f'need bytes, not {type(value).__name__}: {value!r}')
    cdef char *text = PyBytes_AS_STRING(value)
    if <Py_ssize_t>strlen(text) != PyBytes_GET_SIZE(value):
        raise ValueError(f'a NUL character cannot be passed to a program: {value!r}')
    return text


cdef int _fill(char **target, list values) except -1:
    """Write the C strings of `values` and a closing NULL to `target`."""
    cdef Py_ssize_t index
    for index in range(len(values)):
        target[index] = _text(values[index])
    target[len(values)] = NULL
    return 0


@cython.final
@cython.auto_pickle(False)
cdef class Block:
    """The whole environment of a process; iteration returns its variables as b'NAME=value'."""

    cdef Variables _shared      # owns the texts of the shared variables
    cdef char *_text            # the other texts, NUL-terminated
    cdef size_t _size, _room
    cdef char **_pointers
    cdef Py_ssize_t _count

    def __cinit__(self):
        self._text = NULL
        self._pointers = NULL
        self._size = self._room = 0
        self._count = 0

    def __dealloc__(self):
        free(self._text)
        free(self._pointers)

    def __len__(self):
        return self._count

    def __iter__(self):
        return iter([<bytes>self._pointers[index] for index in range(self._count)])

    cdef int _append(self, const char *text, size_t size) except -1:
        if self._size + size + 1 > self._room:
            self._room = 2 * (self._size + size + 1) + 512
            grown = <char *>realloc(self._text, self._room)
            if grown == NULL:
                raise MemoryError()
            self._text = grown
        memcpy(self._text + self._size, text, size)
        self._size += size
        return 0

    cdef int _append_str(self, str value) except -1:
        """Append the text in the file system encoding, without an intermediate copy for usual texts."""
        cdef Py_ssize_t size
        cdef const char *text = NULL
        cdef bytes encoded
        if _UTF8:
            try:
                text = PyUnicode_AsUTF8AndSize(value, &size)
            except UnicodeEncodeError:   # it contains bytes that are not UTF-8
                text = NULL
        if text == NULL:
            encoded = os.fsencode(value)
            text = PyBytes_AS_STRING(encoded)
            size = PyBytes_GET_SIZE(encoded)
        if memchr(text, 0, size) != NULL:
            raise ValueError(f'a NUL character cannot be passed to a program: {value!r}')
        return self._append(text, size)


@cython.final
@cython.auto_pickle(False)
cdef class Variables:
    """The environment that all processes share, encoded once."""

    def __cinit__(self):
        self.pointers = NULL

    def __init__(self, dict shared not None):
        if self.pointers != NULL:
            raise RuntimeError('the variables have already been initialized')
        self._position = {name: index for index, name in enumerate(shared)}
        self._encoded = [os.fsencode(f'{name}={value}') for name, value in shared.items()]
        self.count = len(self._encoded)
        self.pointers = <char **>malloc((self.count + 1) * sizeof(char *))
        if self.pointers == NULL:
            raise MemoryError()
        _fill(self.pointers, self._encoded)

    def __dealloc__(self):
        free(self.pointers)

    def block(self, dict own not None):
        """Return the environment with the variables `own`, which take precedence; raise ValueError for a NUL in one."""
        cdef Block block = Block.__new__(Block)
        cdef Py_ssize_t index, number = self.count
        cdef size_t offset
        block._shared = self
        block._pointers = <char **>malloc((self.count + len(own) + 1) * sizeof(char *))
        if block._pointers == NULL:
            raise MemoryError()
        memcpy(block._pointers, self.pointers, self.count * sizeof(char *))
        # offsets, because the texts may move while they are collected
        offsets = []
        for name, value in own.items():
            offset = block._size
            block._append_str(<str?>name)
            block._append(b'=', 1)
            block._append_str(<str?>value)
            block._append(b'\0', 1)
            place = self._position.get(name)
            if place is None:
                place = number
                number += 1
            offsets.append((place, offset))
        for index, offset in offsets:
            block._pointers[index] = block._text + offset
        block._pointers[number] = NULL
        block._count = number
        return block


@cython.final
@cython.auto_pickle(False)
cdef class Launch:
    """A request to start a program; it owns all memory that the child uses until it executes the program."""

    def __cinit__(self):
        self.block = NULL
        self.stack = NULL
        self.request.files = _files

    def __dealloc__(self):
        free(self.block)
        free(self.stack)

    cdef int prepare(self, list argv, object env, bytes cwd, tuple stdio, tuple pass_fds, bytes path, bytes cpus,
                     unsigned long long memory) except -1:
        cdef rp_spawn *request = &self.request
        cdef Py_ssize_t index, nargs = len(argv), nfds = 3 + len(pass_fds)
        cdef Py_ssize_t nenv = 0 if isinstance(env, Block) else len(env)
        if nargs == 0:
            raise ValueError('argv is empty: it needs at least the name of the program')
        if nfds > RP_SPAWN_MAX_FDS:
            raise ValueError(f'cannot pass {len(pass_fds)} file descriptors, the limit is {RP_SPAWN_MAX_FDS - 3}')
        path = <bytes?>argv[0] if path is None else path
        request.path = _text(path)
        request.cwd = _text(cwd)
        for index in range(3):
            request.fds[index] = stdio[index]
        for index in range(3, nfds):
            request.fds[index] = pass_fds[index - 3]
        request.nfds = <int>nfds
        self.bind(cpus)
        request.memory = memory
        self.block = <char **>malloc(<size_t>(nargs + nenv + 3) * sizeof(char *))
        if self.block == NULL:
            raise MemoryError()
        request.argv = self.block + 1
        _fill(request.argv, argv)
        if isinstance(env, Block):
            request.envp = (<Block>env)._pointers
        else:
            env = list(env)
            request.envp = self.block + nargs + 2
            _fill(request.envp, env)
        self.kept = path, tuple(argv), env, cwd
        return 0

    cdef int start(self) except -1:
        """Create the process, without waiting for it."""
        self.stack = <char *>malloc(RP_SPAWN_STACK)
        if self.stack == NULL:
            raise MemoryError()
        if rp_spawn_start(&self.request, self.stack) != 0:
            raise self.error()
        return 0

    cdef int bind(self, bytes cpus) except -1:
        """Set the CPUs to which the process is bound."""
        self.cpus = cpus
        self.request.cpus = NULL if cpus is None else PyBytes_AS_STRING(cpus)
        self.request.cpus_size = 0 if cpus is None else <size_t>PyBytes_GET_SIZE(cpus)
        return 0

    cdef object error(self):
        """Return an exception with the step and the path that failed; None if nothing failed."""
        cdef int step = self.request.step
        if self.request.error == 0:
            return None
        text = f'{_ACTIONS[step]}: {os.strerror(self.request.error)}'
        if step == RP_SPAWN_EXECUTE:
            return OSError(self.request.error, text, os.fsdecode(self.request.path))
        if step == RP_SPAWN_DIRECTORY:
            return OSError(self.request.error, text, os.fsdecode(self.request.cwd))
        return OSError(self.request.error, text)


def cpu_mask(cpus):
    """Return the mask of these CPU numbers, as `LaunchLoop.start` takes it."""
    numbers = list(cpus)
    cdef bytearray mask = bytearray(8 * (max(numbers, default=0) // 64 + 1))
    for cpu in numbers:
        mask[cpu // 8] |= 1 << cpu % 8
    return bytes(mask)
