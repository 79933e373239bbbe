"""The wait of a carrier: for messages of MPI, which cannot be waited for without using a CPU, and for descriptors.

Where MPI uses TCP, its sockets end a sleep when something arrives, so that probes between are few.

The address of `MPI_Iprobe` is known at run time only, so that this module works with each MPI that mpi4py loads.
"""

import os

cimport cython
from libc.errno cimport EINTR, errno
from libc.stdint cimport uintptr_t
from libc.stdlib cimport calloc, free
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

cdef extern from *:
    """
    #include <poll.h>
    #include <sys/epoll.h>
    #include <time.h>
    static int poll_for(struct pollfd *polled, int count, const struct timespec *timeout) {
        return ppoll(polled, count, timeout, NULL);
    }
    static void take_events(int fd) {
        struct epoll_event events[64];
        while (epoll_wait(fd, events, 64, 0) == 64)
            ;
    }
    """
    struct pollfd:
        int fd
        short events
        short revents
    int POLLIN
    int poll_for(pollfd *polled, int count, const timespec *timeout) nogil
    void take_events(int fd) nogil

# the handle of a communicator is an int or a pointer: as an argument, both are one register
ctypedef int (*Iprobe)(int source, int tag, uintptr_t comm, int *flag, void *status) noexcept nogil

cdef enum:
    LONGEST_NS = 5000000   # of a sleep between two probes
    SHARE = 8              # of the time since the last traffic, a sleep takes one part in so many,
    SIGNALLED_SHARE = 1    # or if a socket has told of the last message
    BUSY_NS = 20000        # of a sleep while messages are being sent or received
    PIECES_NS = 300000     # of a sleep while only pieces of objects are
    MOST_SLEEPS = 100      # of one wait


@cython.final
@cython.auto_pickle(False)
cdef class Probe:
    """Waits for messages from any rank of a communicator.

    `iprobe` and `comm` are the address of the function and the handle, `status` is the size of an `MPI_Status`.
    `sockets` is an epoll descriptor, edge-triggered, of the sockets that MPI uses.
    """

    cdef Iprobe _iprobe
    cdef uintptr_t _comm
    cdef int _source, _tag, _sockets
    cdef bint _signalled
    cdef void *_status
    cdef long long _heard

    def __init__(self, uintptr_t iprobe, uintptr_t comm, size_t status, int source, int tag, int sockets):
        self._iprobe, self._comm = <Iprobe>iprobe, comm
        self._source, self._tag, self._sockets = source, tag, sockets
        self._signalled = False
        self._status = calloc(1, status)
        if self._status == NULL:
            raise MemoryError()
        self._heard = _now()

    def __dealloc__(self):
        free(self._status)

    def wait(self, int fd, bint busy, bint pieces):
        """Return when there is a message (True), or the descriptor is readable (False).

        Also return, with False, after a short time if it is `busy`: messages are under way that need calls of MPI; and
        from time to time, so that handlers of signals run. `pieces` is for objects that are under way: sleeps are
        longer then, as each costs more than a probe, and the sockets hold what comes meanwhile.
        """
        cdef pollfd polled[2]
        cdef bint woken = False
        cdef timespec timeout
        cdef long long sleep
        cdef int found = 0, ready = 0, code = 0, failure = 0, left = MOST_SLEEPS
        polled[0].fd, polled[0].events, polled[0].revents = fd, POLLIN, 0
        polled[1].fd, polled[1].events, polled[1].revents = self._sockets, POLLIN, 0
        with nogil:
            while True:
                for _ in range(2):   # the first probe makes progress, after it has looked for messages
                    if not code and not found:
                        code = self._iprobe(self._source, self._tag, self._comm, &found, self._status)
                if code or found:
                    break
                sleep = min(LONGEST_NS, (_now() - self._heard) // (SIGNALLED_SHARE if self._signalled else SHARE))
                if busy:
                    sleep = min(sleep, BUSY_NS)
                elif pieces:
                    sleep = PIECES_NS
                timeout.tv_sec, timeout.tv_nsec = 0, sleep
                ready = poll_for(polled, 1 if pieces else 2, &timeout)
                if ready < 0:
                    failure = errno
                woken = ready > 0 and polled[1].revents
                if woken:
                    take_events(self._sockets)
                    ready -= 1
                left -= 1
                if ready or busy or pieces or not left:
                    break
            if found:
                self._signalled = woken
            if found or ready > 0:
                self._heard = _now()
        if code:
            raise RuntimeError(f'MPI_Iprobe has failed with {code}')
        if ready < 0 and failure != EINTR:
            raise OSError(failure, os.strerror(failure))
        return bool(found)


cdef long long _now() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <long long>now.tv_sec * 1000000000 + now.tv_nsec
