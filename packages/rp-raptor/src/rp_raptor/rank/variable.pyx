"""An environment variable whose value changes with each task.

The C library keeps every value ever set through `os.environ`, as pointers to it may exist: a rank that runs millions of
tasks would grow by hundreds of megabytes.
"""

import os

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdlib cimport getenv, malloc
from libc.string cimport memcpy, memchr

cdef extern from "Python.h":
    bytes PyUnicode_EncodeFSDefault(object text)

cdef extern from "<stdlib.h>" nogil:
    int putenv(char *string)

cdef dict _data = os.environ._data   # Python's view of the environment; there is no public way to change it alone


@cython.final
@cython.auto_pickle(False)
cdef class Variable:
    """An environment variable whose value is stored in reused memory."""

    cdef bytes _name
    cdef char *_memory        # name=value; never freed, as the environment refers to it until the process ends
    cdef Py_ssize_t _size

    def __init__(self, str name not None):
        self._name = os.fsencode(name)
        self._memory = NULL
        self._size = 0

    cpdef set(self, str value):
        """Set the variable for this process and its children; ValueError for a NUL character."""
        cdef bytes data = PyUnicode_EncodeFSDefault(value)
        cdef Py_ssize_t start = PyBytes_GET_SIZE(self._name) + 1, length = PyBytes_GET_SIZE(data)
        if memchr(PyBytes_AS_STRING(data), 0, length) != NULL:
            raise ValueError('embedded null byte')
        if self._size < start + length + 1:
            self._enlarge(start + length + 1)
        memcpy(self._memory + start, PyBytes_AS_STRING(data), length + 1)
        # the task before may have set the variable, too; looking for it takes a third of the time of setting it
        if getenv(PyBytes_AS_STRING(self._name)) != self._memory + start and putenv(self._memory) != 0:
            raise MemoryError()
        _data[self._name] = data

    cdef int _enlarge(self, Py_ssize_t least) except -1:
        """Allocate larger memory, with room for longer values."""
        cdef Py_ssize_t start = PyBytes_GET_SIZE(self._name)
        cdef char *memory = <char *> malloc(2 * least)
        if memory == NULL:
            raise MemoryError()
        memcpy(memory, PyBytes_AS_STRING(self._name), start)
        memory[start] = b'='
        self._memory, self._size = memory, 2 * least
        return 0
