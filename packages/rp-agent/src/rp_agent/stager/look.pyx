"""A directory listing for task output in few system calls: it runs for every task, and most leave no files."""

import os

from libc.stdint cimport uint64_t
from libc.string cimport strcmp, strncmp
from posix.fcntl cimport O_RDONLY, open
from posix.stat cimport struct_stat
from posix.unistd cimport close


cdef extern from "Python.h":
    bytes PyUnicode_EncodeFSDefault(object text)   # os.fsencode without two calls of Python code


cdef extern from "<fcntl.h>" nogil:
    enum:
        O_CLOEXEC
        O_DIRECTORY


cdef extern from "<sys/stat.h>" nogil:
    int fstatat(int directory, const char *name, struct_stat *result, int flags)


cdef extern from "<sys/syscall.h>" nogil:
    enum:
        SYS_getdents64


cdef extern from "<unistd.h>" nogil:
    long syscall(long number, ...)


cdef enum:
    RECORD = 16     # offset of an entry's length in the kernel's record
    NAME = 19       # offset of its name


def look(str sandbox not None, str uid not None):
    """Return the sizes of the files `uid`.out and `uid`.err in a directory, and all names without the prefix `uid.`.

    A size is -1 if the file is missing or inaccessible; there are no names if the directory cannot be read.
    """
    cdef bytes path = PyUnicode_EncodeFSDefault(sandbox), stem = PyUnicode_EncodeFSDefault(uid), own = stem + b'.out'
    cdef list others = []
    cdef int directory = -1
    if b'\0' not in path:
        directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
    if directory < 0:
        return -1, -1, others
    try:
        out = _size(directory, own)
        err = _size(directory, stem + b'.err')
        _others(directory, own, len(stem) + 1, others)
    finally:
        close(directory)
    return out, err, others


cdef long long _size(int directory, const char *name) noexcept:
    cdef struct_stat found
    return found.st_size if fstatat(directory, name, &found, 0) == 0 else -1


cdef int _others(int directory, const char *own, Py_ssize_t size, list others) except -1:
    """Append the names that do not start with the first `size` characters of `own`."""
    cdef uint64_t aligned[512]
    cdef char *entries = <char *>aligned
    cdef const char *name
    cdef long got, at
    while True:
        got = syscall(SYS_getdents64, directory, entries, sizeof(aligned))
        if got <= 0:
            return 0
        at = 0
        while at < got:
            name = entries + at + NAME
            at += (<unsigned short *>(entries + at + RECORD))[0]
            if strncmp(name, own, size) != 0 and strcmp(name, b'.') != 0 and strcmp(name, b'..') != 0:
                others.append(os.fsdecode(<bytes>name))
