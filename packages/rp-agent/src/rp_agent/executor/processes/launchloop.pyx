"""Starting processes and learning of their ends without a thread or a poll.

`LaunchLoop.start` does not wait for the child to execute the program: that takes several times as long as to create it.
A process can also be created before its time: it is *held* until it is let go, with nothing left to do but to execute
its program. The rules for callers are those of launch.pyx.
"""

import os
import resource

cimport cython
from libc.errno cimport EINTR, errno
from libc.limits cimport INT_MAX
from libc.stdint cimport uint64_t
from posix.signal cimport siginfo_t
from posix.unistd cimport close, getsid, pread

from rp_agent.executor.processes.launch cimport SYS_pidfd_open, Launch, rp_spawn_open


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
    EVENTS = 64       # ends that are taken note of at a time
    LONGEST = 16      # more characters than a process number and a space take


OWN = 32
"""Descriptors that an agent has open when it has nothing to do, or fewer."""

SPARE = 64
"""Descriptors that it needs besides, but not for processes of tasks: a dozen for each thread that stages, and a few for
a look at files, processes and the coordinator."""

# requests of processes whose end nobody has seen
cdef list _left_alone = []


@cython.final
@cython.auto_pickle(False)
cdef class Process:
    """A started process that is watched; `run` is what it belongs to, `rank` its number there.

    `code` is its exit code once it has ended, or the negative number of the signal that ended it. `failure` is None, or
    the OSError for which the program was never executed. With `spared`, what is left of its group when it ends is not
    killed; `leftovers` tells that something was left. A process that is held belongs to nothing: `run` is None.
    """


# all that are open in this process: none of them must reap a process of another one
cdef list _open_loops = []


@cython.final
@cython.auto_pickle(False)
cdef class LaunchLoop:
    """Starts processes and watches them. `fd` becomes readable when some have ended; `ended` tells which.

    Each process takes a descriptor. When all loops of this process watch `most`, the others are kept for other things.
    """

    def __init__(self):
        allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self.most = INT_MAX if allowed == resource.RLIM_INFINITY else max(0, min(allowed - OWN - SPARE, INT_MAX))
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

    @property
    def full(self):
        """Whether no further process should be started."""
        return self.is_full()

    def start(self, object run, int rank, list argv not None, env not None, bytes cwd not None, tuple stdio not None,
              tuple pass_fds=(), bytes path=None, bytes cpus=None, unsigned long long memory=0):
        """Start a program as `spawn` does (`stdio` are its first three descriptors), but without waiting for it.

        Gives the process, which is watched from now on. Raises OSError if there is no process, or it cannot be watched.
        What happens after that, as that the program does not exist, is its `failure` when it has ended.
        """
        cdef Launch launch = Launch.__new__(Launch)
        launch.prepare(argv, env, cwd, stdio, pass_fds, path, cpus, memory)
        return self.begin(launch, run, rank)

    def let_go(self, Process process not None, object run not None, bytes cpus):
        """Let a process that is held execute its program, for `run` and bound to `cpus`; False if it is lost."""
        if self._watched.get(process.pid) is not process:   # the number may be another one's by now
            return False
        if process.launch.request.error != 0:   # it has failed, and will not wait
            self.kill(process)
            return False
        process.run = run
        process.launch.bind(cpus)
        rp_spawn_open(&process.launch.request)
        return True

    def kill(self, Process process not None):
        """Kill the process and its group, wait for its end, and forget it."""
        if self._watched.get(process.pid) is process:
            del self._watched[process.pid]
            self._kill(process)
            self._close(process)

    def forget(self, Process process not None):
        """Neither watch the process nor hold its descriptor any more."""
        if self._watched.get(process.pid) is process:
            del self._watched[process.pid]
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
                break
            done += got
            for index in range(got):   # numbers in ASCII, each with a space behind it
                if text[index] != 32:
                    number = 10 * number + text[index] - 48
                    continue
                # children in our own session were started by other parts of this process
                if not self._is_ours(number) and getsid(number) != self._session and self._adopt(number):
                    found.append(number)
                number = 0
            if got < <ssize_t>sizeof(text) - LONGEST:   # the kernel has stopped at the end, not where there was no room
                break
        return found

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
        """Watch nothing any more; the processes are left to themselves, but for those that are held."""
        for process in list(self._watched.values()):
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
            count += len(loop._watched)
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
        self._watched[process.pid] = process
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
        if not process.spared:
            # its descriptor says that it has ended; its number belongs to it, and to its group, until it is reaped
            kill(-process.pid, SIGKILL)
        info.si_pid = 0
        if waitid(P_PIDFD_, process.pidfd, &info, WEXITED | WNOHANG) != 0:
            # it was adopted, and somebody else has asked about it
            self.forget(process)
            return False
        if info.si_pid == 0:
            return False
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
