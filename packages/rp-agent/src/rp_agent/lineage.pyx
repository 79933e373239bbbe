"""Process control by `prctl`: adopts orphaned descendants, and ties the life of a process to its parent.

It is in C because loading `ctypes` would take a large part of the start of a sub-agent.
"""

import os
import signal

from libc.errno cimport errno


cdef extern from "<sys/prctl.h>" nogil:
    enum:
        PR_SET_CHILD_SUBREAPER
        PR_SET_PDEATHSIG
    int prctl(int option, unsigned long value, unsigned long, unsigned long, unsigned long)


def become_subreaper():
    """Make this process the parent of all orphans among its descendants, which it then has to reap."""
    _set(PR_SET_CHILD_SUBREAPER, 1, 'become the reaper of orphaned processes')


def die_with_parent(int parent):
    """Ask the kernel to kill this process when the thread that started it ends; at once if `parent` has ended."""
    _set(PR_SET_PDEATHSIG, signal.SIGKILL, 'get a signal when the parent process ends')
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


cdef int _set(int option, unsigned long value, str purpose) except -1:
    cdef int error
    if prctl(option, value, 0, 0, 0) != 0:
        error = errno
        raise OSError(error, f'cannot {purpose}: {os.strerror(error)}')
    return 0
