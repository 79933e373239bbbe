"""Declarations of the launch loop and of watched processes."""

from rp_agent.executor.processes.launch cimport Launch


cdef class Process:
    cdef readonly int pid, pidfd, rank
    cdef readonly object run
    cdef public int code
    cdef public object failure
    cdef public bint leftovers, spared
    cdef Launch launch


cdef class LaunchLoop:
    cdef readonly int fd, most
    cdef bint is_full(self) except -1
    cdef readonly dict watched      # by pid
    cdef int _session
    cdef int _children      # descriptor of the kernel's list of the children of this thread; -1 if it has none

    cdef Process begin(self, Launch launch, object run, int rank)
    cdef int _watch(self, Process process) except -2
    cdef bint _adopt(self, int pid) except -1
    cdef bint _reap(self, Process process) except -1
    cdef int _close(self, Process process) except -1
    cdef int _kill(self, Process process) except -1
    cdef bint _is_ours(self, int pid) except -1
    cdef int _reap_orphans(self) except -1
