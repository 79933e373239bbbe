"""Usage of processes that /proc tells: memory of sessions, and bytes that processes have read and written."""

import os

cimport cython
from libc.stdio cimport snprintf, sscanf
from libc.string cimport strstr
from posix.fcntl cimport O_RDONLY, open
from posix.unistd cimport close, getsid, read


cdef extern from "<fcntl.h>" nogil:
    enum:
        O_CLOEXEC


cdef int _contents(int pid, const char *name, char *text, ssize_t room) noexcept:
    """Read a short file of a process; return whether that was possible."""
    cdef char path[40]
    cdef ssize_t size
    cdef int file
    snprintf(path, sizeof(path), b'/proc/%d/%s', pid, name)
    file = open(path, O_RDONLY | O_CLOEXEC)
    if file < 0:   # it has ended, or has become another user's
        return False
    size = read(file, text, room - 1)
    close(file)
    text[max(size, 0)] = 0
    return size > 0


cdef int bytes_of(int pid, long long *taken, long long *given) noexcept:
    """Find the bytes that a process, and the children that it has waited for, have read and written by system calls.

    The process may have ended, but must not be reaped. The values are unchanged if they cannot be found.
    """
    cdef char text[256]
    cdef long long first, second
    if _contents(pid, b'io', text, sizeof(text)) and sscanf(text, b'rchar: %lld wchar: %lld', &first, &second) == 2:
        taken[0], given[0] = first, second
    return 0


cdef long long _field(const char *text, const char *name) noexcept:
    """Return the bytes in a field of /proc/PID/status; 0 without it."""
    cdef const char *found = strstr(text, name)
    cdef long long size = 0
    if found != NULL:
        sscanf(strstr(found, b':') + 1, b'%lld', &size)
    return 1024 * size


@cython.final
@cython.auto_pickle(False)
cdef class MemorySample:
    """The resident memory of all processes of some sessions, which is read in steps."""

    cdef dict _sums, _peaks
    cdef list _pids

    def __init__(self, sessions):
        self._sums = dict.fromkeys(sessions, 0)
        self._peaks = dict(self._sums)
        self._pids = [int(name) for name in os.listdir('/proc') if name.isdecimal()]

    def step(self, int most):
        """Read the memory of at most that many processes; return True if there are others."""
        cdef char text[4096]
        cdef int pid, session
        while most > 0 and self._pids:
            pid = self._pids.pop()
            session = getsid(pid)
            if session not in self._sums:
                continue
            most -= 1
            if _contents(pid, b'status', text, sizeof(text)):
                self._sums[session] += _field(text, b'\nVmRSS:')
                self._peaks[session] = max(self._peaks[session], _field(text, b'\nVmHWM:'))
        return bool(self._pids)

    def memory(self):
        """Return the memory of each session in bytes: of its processes together, or the peak of one, if that is more.

        Pages that processes share count for each.
        """
        return {session: max(size, self._peaks[session]) for session, size in self._sums.items()}
