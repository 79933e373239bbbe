"""Declarations of the launch loop and of watched processes."""

from rp_agent.executor.processes.launch cimport Launch

from rp_agent.executor.processes.usage cimport rusage


cdef class Process:
    cdef readonly int pid, pidfd, rank
    cdef readonly object run
    cdef public int code
    cdef public object failure
    cdef public bint leftovers, spared, sampled
    cdef readonly double user, system, switches
    cdef readonly long long peak, read, written
    cdef public long long memory
    cdef Launch launch


cdef class LaunchLoop:
    cdef readonly int fd, most
    cdef bint is_full(self) except -1
    cdef readonly dict watched      # by pid
    cdef int _session
    cdef long _own_peak     # upper limit of the resident memory of this process until now, in KiB
    cdef int _children      # descriptor of the kernel's list of the children of this thread; -1 if it has none

    cdef Process begin(self, Launch launch, object run, int rank)
    cdef int _watch(self, Process process) except -2
    cdef bint _adopt(self, int pid) except -1
    cdef bint _reap(self, Process process) except -1
    cdef int _note_usage(self, Process process, rusage *used) except -1
    cdef int _close(self, Process process) except -1
    cdef int _kill(self, Process process) except -1
    cdef bint _is_ours(self, int pid) except -1
    cdef int _reap_orphans(self) except -1
