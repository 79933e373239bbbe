"""Launch loop: starts processes and watches their ends, without threads or polling.

`LaunchLoop.start` does not wait until the child executes its program, which takes several times as long as its
creation. A process can also be created in advance: it is *held* just before it executes its program, until it is
released. The rules for callers are those of launch.pyx.
"""

import os
import resource

cimport cython
from libc.errno cimport EINTR, errno
from libc.limits cimport INT_MAX
from libc.math cimport NAN
from libc.stdint cimport uint64_t
from posix.signal cimport siginfo_t
from posix.unistd cimport close, getsid, pread

from rp_agent.executor.processes.launch cimport SYS_pidfd_open, Launch, rp_spawn_open
from rp_agent.executor.processes.usage cimport SYS_waitid, bytes_of, getrusage, RUSAGE_SELF, rusage


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


cdef extern from "<unistd.h>" nogil:
    long syscall(long number, ...)


cdef extern from "<signal.h>" nogil:
    enum:
        SIGKILL

    int kill(int pid, int sig)


cdef enum:
    P_PIDFD_ = 3      # P_PIDFD, which old headers lack
    EVENTS = 64       # maximum number of ends that one call processes
    LONGEST = 16      # upper limit of the characters of a pid and a space


OWN = 32
"""Upper limit of the descriptors that an idle agent has open."""

SPARE = 64
"""Descriptors that an agent needs for purposes other than tasks' processes: a dozen per staging thread, and some for
files, process tables and the coordinator."""

# requests of forgotten processes, which may still use their memory
cdef list _forgotten = []


@cython.final
@cython.auto_pickle(False)
cdef class Process:
    """A watched process; `run` is the run that it belongs to, None while it is held, `rank` its number in the run.

    `code` is its exit code once it has ended, or the negative number of the signal that ended it. `failure` is the
    OSError because of which the program was not executed, or None. With `spared`, the rest of its group is not killed
    when it ends; `leftovers` is true if other members of the group were left.

    When it has ended, `user` and `system` are its CPU time in seconds, `switches` its context switches, all with those
    of the descendants that were waited for; NaN for processes of other parents. `peak` is a lower limit of the largest
    resident memory of one of these processes in bytes, 0 if there is none. If `sampled`, as for processes that run for
    some time, `read` and `written` are the bytes that they have read and written by system calls; else they are -1.
    """

    def __cinit__(self):
        self.user = self.system = self.switches = NAN
        self.read = self.written = -1


# the open loops of this process; a loop must not reap the processes of another one
cdef list _open_loops = []


@cython.auto_pickle(False)
cdef class LaunchLoop:
    """Starts processes and watches them. `fd` becomes readable when some have ended; `ended` returns them.

    `watched` are the processes by pid. Each process takes a descriptor. `most` is the maximum number of processes in
    all loops of this process.
    """

    def __init__(self):
        allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self.most = INT_MAX if allowed == resource.RLIM_INFINITY else max(0, min(allowed - OWN - SPARE, INT_MAX))
        self.watched = {}
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
        return len(self.watched)

    def __contains__(self, pid):
        """Return whether this loop, or another one in this process, watches the process."""
        return self._is_ours(pid)

    @property
    def full(self):
        """True if no further process must be started."""
        return self.is_full()

    def start(self, object run, int rank, list argv not None, env not None, bytes cwd not None, tuple stdio not None,
              tuple pass_fds=(), bytes path=None, bytes cpus=None, unsigned long long memory=0):
        """Start a program, do not wait until it runs, and return the watched process.

        `argv` are its arguments including its name, `env` its environment (a `Block`, or a list of b'NAME=value'),
        `cwd` its working directory, `path` the program if it is not argv[0]; PATH is not searched. The descriptors
        `stdio` become 0, 1 and 2 of the program, `pass_fds` 3, 4, ...; all others are closed. `cpus` is the mask of its
        CPUs (see `cpu_mask`), `memory` limits the data of each of its processes, in bytes, 0 for no limit. /bin/sh runs
        a text file without #!. Raise OSError if it cannot be created or watched, TypeError or ValueError for arguments
        that cannot be passed to a program. Later errors, such as a program that does not exist, are its `failure` when
        it has ended, an OSError with the step that failed, and its path.
        """
        cdef Launch launch = Launch.__new__(Launch)
        launch.prepare(argv, env, cwd, stdio, pass_fds, path, cpus, memory)
        return self.begin(launch, run, rank)

    def follow(self, object run, int rank, int pid, int pidfd):
        """Watch a process that is not a child of this one; `pidfd` becomes readable when it has ended.

        Return the watched process, which `ended` returns without an exit code. Raise OSError if it cannot be watched.
        """
        cdef Process process = Process.__new__(Process)
        process.run = run
        process.rank = rank
        process.pid = pid
        process.pidfd = pidfd
        if self._watch(process) != 0:
            raise OSError(errno, f'cannot watch the process: {os.strerror(errno)}')
        return process

    def let_go(self, Process process not None, object run not None, bytes cpus):
        """Release a held process for `run`, bound to `cpus`; return False if the process is lost."""
        if self.watched.get(process.pid) is not process:   # another process may have its pid
            return False
        if process.launch.request.error != 0:   # it has failed before the gate
            self.kill(process)
            return False
        process.run = run
        process.launch.bind(cpus)
        rp_spawn_open(&process.launch.request)
        return True

    def kill(self, Process process not None):
        """Kill the process and its group, wait for its end, and forget it."""
        if self.watched.get(process.pid) is process:
            del self.watched[process.pid]
            self._kill(process)
            self._close(process)

    def forget(self, Process process not None):
        """Stop watching a process, and close its descriptor."""
        if self.watched.get(process.pid) is process:
            del self.watched[process.pid]
            # it may not have executed its program yet, and still use the memory of its request
            _forgotten.append(process.launch)
            self._close(process)

    def adopt(self):
        """Watch children that were not started here, which a subreaper has adopted; return the pids of new ones.

        They are reaped when they end, and `ended` does not return them. Children for which no descriptor is left are
        found again by the next call.
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
                break
            done += got
            for index in range(got):   # decimal numbers, each followed by a space
                if text[index] != 32:
                    number = 10 * number + text[index] - 48
                    continue
                # children in our own session were started by other parts of this process
                if not self._is_ours(number) and getsid(number) != self._session and self._adopt(number):
                    found.append(number)
                number = 0
            if got < <ssize_t>sizeof(text) - LONGEST:   # the kernel has reached the end of the list
                break
        return found

    def ended(self):
        """Reap ended processes, kill the rest of their groups, and return them; not all at once if there are many.

        Adopted children that have ended are also reaped.
        """
        cdef epoll_event events[EVENTS]
        cdef int index, count
        cdef Process process
        count = epoll_wait(self.fd, events, EVENTS, 0)
        found = []
        for index in range(count):
            process = self.watched.get(<int>events[index].data.u64)
            if process is not None and self._reap(process) and process.run is not None:
                found.append(process)
        if count:
            self._reap_orphans()
        return found

    def close(self):
        """Stop watching all processes, and kill held ones."""
        for process in list(self.watched.values()):
            if process.run is None and not process.spared:
                self.kill(process)
            else:
                self.forget(process)
        if self.fd >= 0:
            close(self.fd)
            self.fd = -1
            _open_loops.remove(self)
        if self._children >= 0:
            close(self._children)
            self._children = -1

    cdef bint is_full(self) except -1:
        cdef LaunchLoop loop
        cdef Py_ssize_t count = 0
        for loop in _open_loops:
            count += len(loop.watched)
        return count >= self.most

    cdef Process begin(self, Launch launch, object run, int rank):
        """Create the process of a request, and watch it."""
        cdef Process process = Process.__new__(Process)
        cdef int cause
        launch.start()
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

    cdef int _watch(self, Process process) except -2:
        cdef epoll_event event
        event.events = EPOLLIN
        event.data.u64 = <uint64_t>process.pid
        if epoll_ctl(self.fd, EPOLL_CTL_ADD, process.pidfd, &event) != 0:
            return -1
        self.watched[process.pid] = process
        return 0

    cdef bint _adopt(self, int pid) except -1:
        cdef Process process
        cdef int pidfd = -1
        if not self.is_full():
            pidfd = <int>syscall(SYS_pidfd_open, pid, 0)
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
        cdef rusage used
        if not process.spared:
            # it has ended, but its pid, which is also the id of its group, cannot be reused until it is reaped
            kill(-process.pid, SIGKILL)
        if process.launch is None and process.run is not None:   # its parent reaps it
            del self.watched[process.pid]
            self._close(process)
            return True
        if process.sampled:
            bytes_of(process.pid, &process.read, &process.written)
        info.si_pid = 0
        # the system call tells the usage, which the function of the C library leaves out
        if syscall(SYS_waitid, P_PIDFD_, process.pidfd, &info, WEXITED | WNOHANG, &used) != 0:
            # it was adopted, and other code has reaped it
            self.forget(process)
            return False
        if info.si_pid == 0:
            return False
        self._note_usage(process, &used)
        process.code = info.si_status if info.si_code == CLD_EXITED else -info.si_status
        process.leftovers = kill(-process.pid, 0) == 0
        if process.launch is not None:
            process.failure = process.launch.error()
            process.launch = None
        del self.watched[process.pid]
        self._close(process)
        return True

    cdef int _note_usage(self, Process process, rusage *used) except -1:
        cdef rusage own
        process.user = used.ru_utime.tv_sec + used.ru_utime.tv_usec / 1e6
        process.system = used.ru_stime.tv_sec + used.ru_stime.tv_usec / 1e6
        process.switches = used.ru_nvcsw + used.ru_nivcsw
        # a process that shared the memory of this one before it executed its program has at least the peak of this one
        if used.ru_maxrss > self._own_peak and getrusage(RUSAGE_SELF, &own) == 0:
            self._own_peak = own.ru_maxrss
        if used.ru_maxrss > self._own_peak:
            process.peak = 1024 * <long long>used.ru_maxrss
        return 0

    cdef int _close(self, Process process) except -1:
        """Close the descriptor of a process."""
        # explicitly: a child that was just created may have a copy of the descriptor, which would keep it in the set
        epoll_ctl(self.fd, EPOLL_CTL_DEL, process.pidfd, NULL)
        close(process.pidfd)
        return 0

    cdef int _kill(self, Process process) except -1:
        cdef siginfo_t info
        kill(process.pid, SIGKILL)   # it may not have its group yet
        kill(-process.pid, SIGKILL)
        while waitid(P_PIDFD_, process.pidfd, &info, WEXITED) != 0 and errno == EINTR:
            pass
        return 0

    cdef bint _is_ours(self, int pid) except -1:
        cdef LaunchLoop loop
        for loop in _open_loops:
            if pid in loop.watched:
                return True
        return False

    cdef int _reap_orphans(self) except -1:
        """Reap ended children that were not started here, up to the first one that other code will wait for."""
        cdef siginfo_t info
        while True:
            info.si_pid = 0
            if waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 or info.si_pid == 0:
                return 0
            # children in our own session were started by other parts of this process
            if self._is_ours(info.si_pid) or getsid(info.si_pid) == self._session:
                return 0
            waitid(P_PID, info.si_pid, &info, WEXITED)
