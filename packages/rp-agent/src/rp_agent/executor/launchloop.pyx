"""Starting processes at the cost of the system call, and learning of their ends without a thread or a poll.

Everything is prepared before the child exists, and the child makes only system calls (spawn.h). `LaunchLoop.start` does
not wait for the child to execute the program: that takes several times as long as to create it. Rules for callers:

- A started program is killed (SIGKILL) when the *thread* that started it ends, as the kernel counts parents by thread
  (PR_SET_PDEATHSIG). So tasks are started from the thread that lives as long as the agent.
- The program leads a session and a process group of its own, whose number is its pid.
- Signal handlers and the signal mask are the default ones. SIGPIPE, which Python ignores, ends the program as usual.
- Needs Linux 5.3, for process file descriptors.
"""

import os
import sys

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.errno cimport EINTR, errno
from libc.stdint cimport uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memchr, memcpy, strlen
from posix.signal cimport siginfo_t
from posix.unistd cimport close, getsid, pread


cdef extern from "spawn.h" nogil:
    enum:
        RP_SPAWN_MAX_FDS
        RP_SPAWN_STACK
        RP_SPAWN_CLONE
        RP_SPAWN_PIDFD
        RP_SPAWN_SESSION
        RP_SPAWN_DESCRIPTORS
        RP_SPAWN_DIRECTORY
        RP_SPAWN_AFFINITY
        RP_SPAWN_MEMORY
        RP_SPAWN_EXECUTE

    struct rp_spawn:
        const char *path
        char **argv
        char **envp
        const char *cwd
        int fds[16]
        int nfds
        const char *cpus
        size_t cpus_size
        unsigned long long memory
        int pid
        int pidfd
        int error
        int step

    int rp_spawn_run(rp_spawn *request)
    int rp_spawn_start(rp_spawn *request, char *stack)


cdef extern from "<sys/epoll.h>" nogil:
    union epoll_data:
        uint64_t u64

    struct epoll_event:
        unsigned int events
        epoll_data data

    enum:
        EPOLLIN
        EPOLL_CTL_ADD
        EPOLL_CTL_DEL
        EPOLL_CLOEXEC

    int epoll_create1(int flags)
    int epoll_ctl(int epfd, int op, int fd, epoll_event *event)
    int epoll_wait(int epfd, epoll_event *events, int maxevents, int timeout)


cdef extern from "<sys/wait.h>" nogil:
    enum:
        WEXITED
        WNOHANG
        WNOWAIT
        CLD_EXITED
        P_ALL
        P_PID

    int waitid(int idtype, int id, siginfo_t *info, int options)


cdef extern from "spawn.h" nogil:   # which knows it where the headers of the system are too old
    enum:
        SYS_pidfd_open


cdef extern from "<unistd.h>" nogil:
    long syscall(long number, ...)


cdef extern from "<signal.h>" nogil:
    enum:
        SIGKILL

    int kill(int pid, int sig)


cdef enum:
    P_PIDFD_ = 3      # P_PIDFD, which old headers lack
    EVENTS = 64       # ends that are taken note of at a time


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

# requests of processes whose end nobody has seen
cdef list _left_alone = []

cdef bint _UTF8 = sys.getfilesystemencoding().lower().replace('-', '') == 'utf8'


cdef char *_text(object value) except NULL:
    """The C string in a bytes object, which must outlive it."""
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
    """The whole environment of a process; iterating over it gives its variables as b'NAME=value'."""

    cdef Variables _shared      # owns the texts of what was not replaced
    cdef char *_text            # the other texts, each closed by a NUL
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
        """The text as the operating system has it, without a copy in between for all usual texts."""
        cdef Py_ssize_t size
        cdef const char *text = NULL
        cdef bytes encoded
        if _UTF8:
            try:
                text = PyUnicode_AsUTF8AndSize(value, &size)
            except UnicodeEncodeError:   # it holds bytes that are no UTF-8
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
    """The environment that processes have in common, encoded once."""

    cdef dict _position
    cdef list _encoded
    cdef Py_ssize_t _count

    def __init__(self, dict shared not None):
        self._position = {name: index for index, name in enumerate(shared)}
        self._encoded = [os.fsencode(f'{name}={value}') for name, value in shared.items()]
        for entry in self._encoded:
            _text(entry)
        self._count = len(self._encoded)

    def block(self, dict own not None):
        """The environment with the variables `own` added, which take precedence; ValueError for a NUL in one."""
        cdef Block block = Block.__new__(Block)
        cdef Py_ssize_t index, number = self._count
        cdef size_t offset
        block._shared = self
        block._pointers = <char **>malloc((self._count + len(own) + 1) * sizeof(char *))
        if block._pointers == NULL:
            raise MemoryError()
        for index in range(self._count):
            block._pointers[index] = PyBytes_AS_STRING(<bytes>self._encoded[index])
        # the texts may still move while they are collected
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
cdef class _Launch:
    """A request to start a program, with all that the child uses while it borrows our memory."""

    cdef rp_spawn request
    cdef char **block           # a free slot, the arguments, NULL, the environment if it came as a list, NULL
    cdef char *stack
    cdef tuple kept             # what the request points to

    def __cinit__(self):
        self.block = NULL
        self.stack = NULL

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
        request.cpus = NULL if cpus is None else PyBytes_AS_STRING(cpus)
        request.cpus_size = 0 if cpus is None else <size_t>PyBytes_GET_SIZE(cpus)
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
        self.kept = path, tuple(argv), env, cwd, cpus
        return 0

    cdef object error(self):
        """The exception that says what failed, on which path; None if nothing did."""
        cdef int step = self.request.step
        if self.request.error == 0:
            return None
        text = f'{_ACTIONS[step]}: {os.strerror(self.request.error)}'
        if step == RP_SPAWN_EXECUTE:
            return OSError(self.request.error, text, os.fsdecode(self.request.path))
        if step == RP_SPAWN_DIRECTORY:
            return OSError(self.request.error, text, os.fsdecode(self.request.cwd))
        return OSError(self.request.error, text)


def spawn(list argv not None, env not None, bytes cwd not None, int stdin_fd, int stdout_fd, int stderr_fd,
          tuple pass_fds=(), bytes path=None, bytes cpus=None, unsigned long long memory=0):
    """Start a program, and wait until it runs; gives its pid and a process file descriptor, which is the caller's.

    `argv` are its arguments from the name on, `env` its whole environment (a `Block`, or a list of b'NAME=value'),
    `cwd` its working directory, `path` the program if it is not argv[0]; nothing is searched for. The descriptors
    `pass_fds` become 3, 4, ... of the program; all others are closed for it. `cpus` is a mask of the CPUs that it may
    use (see `cpu_mask`), `memory` the bytes that each of its processes may use for data, 0 for no limit. A text file
    without #! is run by /bin/sh.
    Raises OSError with errno, a text that says which step failed, and the path if there is one; TypeError and
    ValueError for what cannot be passed to a program.
    """
    cdef _Launch launch = _Launch.__new__(_Launch)
    launch.prepare(argv, env, cwd, (stdin_fd, stdout_fd, stderr_fd), pass_fds, path, cpus, memory)
    if rp_spawn_run(&launch.request) != 0:
        raise launch.error()
    return launch.request.pid, launch.request.pidfd


def cpu_mask(cpus):
    """The mask of these CPU numbers, as `spawn` takes it."""
    numbers = list(cpus)
    cdef bytearray mask = bytearray(8 * (max(numbers, default=0) // 64 + 1))
    for cpu in numbers:
        mask[cpu // 8] |= 1 << cpu % 8
    return bytes(mask)


@cython.final
@cython.auto_pickle(False)
cdef class Process:
    """A started process that is watched; `run` is what it belongs to, `rank` its number there.

    `code` is its exit code once it has ended, or the negative number of the signal that ended it. `failure` is None, or
    the OSError for which the program was never executed. With `spared`, what is left of its group when it ends is not
    killed; `leftovers` tells that something was left.
    """

    cdef readonly int pid, pidfd, rank, code
    cdef readonly object run, failure
    cdef readonly bint leftovers
    cdef public bint spared
    cdef _Launch launch


# all that are open in this process: none of them must reap a process of another one
cdef list _open_loops = []


@cython.final
@cython.auto_pickle(False)
cdef class LaunchLoop:
    """Starts processes and watches them. `fd` becomes readable when some have ended; `ended` tells which."""

    cdef readonly int fd
    cdef dict _watched      # by pid
    cdef int _session
    cdef int _children      # the kernel's list of the children of this thread; -1 where it keeps none

    def __init__(self):
        self._watched = {}
        self._session = getsid(0)
        self._children = -1
        self.fd = -1
        try:
            self._children = os.open('/proc/thread-self/children', os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:   # the kernel is built without it
            pass
        self.fd = epoll_create1(EPOLL_CLOEXEC)
        if self.fd < 0:
            raise OSError(errno, os.strerror(errno))
        _open_loops.append(self)

    def __len__(self):
        return len(self._watched)

    def __contains__(self, pid):
        """Whether this loop, or another one in this process, watches the process."""
        return self._is_ours(pid)

    def start(self, object run, int rank, list argv not None, env not None, bytes cwd not None, tuple stdio not None,
              tuple pass_fds=(), bytes path=None, bytes cpus=None, unsigned long long memory=0):
        """Start a program as `spawn` does (`stdio` are its first three descriptors), but without waiting for it.

        Gives the process, which is watched from now on. Raises OSError if there is no process, or it cannot be watched.
        What happens after that, as that the program does not exist, is its `failure` when it has ended.
        """
        cdef Process process = Process.__new__(Process)
        cdef _Launch launch = _Launch.__new__(_Launch)
        cdef int cause
        launch.prepare(argv, env, cwd, stdio, pass_fds, path, cpus, memory)
        launch.stack = <char *>malloc(RP_SPAWN_STACK)
        if launch.stack == NULL:
            raise MemoryError()
        if rp_spawn_start(&launch.request, launch.stack) != 0:
            raise launch.error()
        process.run = run
        process.rank = rank
        process.launch = launch
        process.pid = launch.request.pid
        process.pidfd = launch.request.pidfd
        if self._watch(process) != 0:
            cause = errno
            self._kill(process)
            close(process.pidfd)
            raise OSError(cause, f'cannot watch the process: {os.strerror(cause)}')
        return process

    def kill(self, Process process not None):
        """Kill the process and its group, wait for its end, and forget it."""
        if self._watched.pop(process.pid, None) is not None:
            self._kill(process)
            self._close(process)

    def forget(self, Process process not None):
        """Neither watch the process nor hold its descriptor any more."""
        if self._watched.pop(process.pid, None) is not None:
            # it may still be on its way to its program, and use our memory
            _left_alone.append(process.launch)
            self._close(process)

    def adopt(self):
        """Watch the children that were not started here, as a subreaper gets them; gives the pids of new ones.

        They are reaped when they end, and nobody hears of that. Those for which there is no descriptor left are found
        again next time.
        """
        cdef char text[4096]
        cdef ssize_t got, done = 0, index
        cdef int number = 0
        cdef list found = []
        if self._children < 0:
            return found
        while True:
            got = pread(self._children, text, sizeof(text), done)
            if got <= 0:
                return found
            done += got
            for index in range(got):   # numbers in ASCII, each with a space behind it
                if text[index] != 32:
                    number = 10 * number + text[index] - 48
                    continue
                # children in our own session were started by other parts of this process
                if not self._is_ours(number) and getsid(number) != self._session and self._adopt(number):
                    found.append(number)
                number = 0

    def ended(self):
        """The processes that have ended, some of them if they are many; what was left of their groups is killed.

        Children that ended but were not started here, as a subreaper gets them, are reaped as well.
        """
        cdef epoll_event events[EVENTS]
        cdef int index, count
        cdef Process process
        count = epoll_wait(self.fd, events, EVENTS, 0)
        found = []
        for index in range(count):
            process = self._watched.get(<int>events[index].data.u64)
            if process is not None and self._reap(process) and process.run is not None:
                found.append(process)
        if count:
            self._reap_orphans()
        return found

    def close(self):
        """Watch nothing any more; the processes are left to themselves."""
        for process in list(self._watched.values()):
            self.forget(process)
        if self.fd >= 0:
            close(self.fd)
            self.fd = -1
            _open_loops.remove(self)
        if self._children >= 0:
            close(self._children)
            self._children = -1

    cdef int _watch(self, Process process) except -2:
        cdef epoll_event event
        event.events = EPOLLIN
        event.data.u64 = <uint64_t>process.pid
        if epoll_ctl(self.fd, EPOLL_CTL_ADD, process.pidfd, &event) != 0:
            return -1
        self._watched[process.pid] = process
        return 0

    cdef bint _adopt(self, int pid) except -1:
        cdef Process process
        cdef int pidfd = <int>syscall(SYS_pidfd_open, pid, 0)
        if pidfd < 0:
            return False
        process = Process.__new__(Process)
        process.pid = pid
        process.pidfd = pidfd
        process.spared = True
        if self._watch(process) != 0:
            close(pidfd)
            return False
        return True

    cdef bint _reap(self, Process process) except -1:
        cdef siginfo_t info
        cdef int got
        # its number belongs to it, and to its group, until it is reaped
        info.si_pid = 0
        got = waitid(P_PIDFD_, process.pidfd, &info, WEXITED | WNOHANG | WNOWAIT)
        if got != 0:   # it was adopted, and somebody else has asked about it
            self.forget(process)
            return False
        if info.si_pid == 0:
            return False
        if not process.spared:
            kill(-process.pid, SIGKILL)
        while waitid(P_PIDFD_, process.pidfd, &info, WEXITED) != 0 and errno == EINTR:
            pass
        process.code = info.si_status if info.si_code == CLD_EXITED else -info.si_status
        process.leftovers = kill(-process.pid, 0) == 0
        if process.launch is not None:
            process.failure = process.launch.error()
            process.launch = None
        del self._watched[process.pid]
        self._close(process)
        return True

    cdef int _close(self, Process process) except -1:
        """Close the descriptor of a process; other processes that have just been created may have copies of it."""
        epoll_ctl(self.fd, EPOLL_CTL_DEL, process.pidfd, NULL)
        close(process.pidfd)
        return 0

    cdef int _kill(self, Process process) except -1:
        cdef siginfo_t info
        kill(process.pid, SIGKILL)   # it may not have a group of its own yet
        kill(-process.pid, SIGKILL)
        while waitid(P_PIDFD_, process.pidfd, &info, WEXITED) != 0 and errno == EINTR:
            pass
        return 0

    cdef bint _is_ours(self, int pid) except -1:
        """Whether this loop, or another one in this process, watches the process."""
        cdef LaunchLoop loop
        for loop in _open_loops:
            if pid in loop._watched:
                return True
        return False

    cdef int _reap_orphans(self) except -1:
        """Reap ended children that were not started here, up to the first one that somebody else will ask about."""
        cdef siginfo_t info
        while True:
            info.si_pid = 0
            if waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 or info.si_pid == 0:
                return 0
            # children in our own session were started by other parts of this process
            if self._is_ours(info.si_pid) or getsid(info.si_pid) == self._session:
                return 0
            waitid(P_PID, info.si_pid, &info, WEXITED)
