"""Compares functions with snapshots of them (see `rp_api.by_value.snapshot`), before each call of an executor."""

from cpython.dict cimport PyDict_GetItem, PyDict_Next, PyDict_Size
from cpython.object cimport PyObject
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE

from types import FunctionType

from cloudpickle import list_registry_pickle_by_value

from rp_api.by_value import snapshot as of

cdef extern from "Python.h":
    ctypedef struct PyFunctionObject:
        PyObject *func_code
        PyObject *func_name
        PyObject *func_qualname
        PyObject *func_module
        PyObject *func_doc
        PyObject *func_defaults
        PyObject *func_kwdefaults
        PyObject *func_annotations
        PyObject *func_dict

cdef object _registry = list_registry_pickle_by_value
cdef object _function = FunctionType, _of_function = of.OF_FUNCTION, _entries = of.entries, _missing = of.MISSING
cdef type _variables = of.Variables


def unchanged(snapshot, root):
    """Return what `snapshot.holds(root)` does."""
    cdef list places = snapshot.places
    cdef tuple place
    if places is None or _registry() != snapshot.registered:
        return False
    for place in places:
        holder = place[1]
        if not _same(place[0], root if holder is None else holder, place[2]):
            return False
    return True


cdef bint _same(fetch, holder, tuple expected) except -1:
    """Return whether the same objects are still in a place."""
    if fetch is _of_function and type(holder) is _function:
        return _same_function(<PyFunctionObject *>holder, expected)
    if fetch is _entries and type(holder) is dict:
        return _same_entries(holder, expected)
    if type(fetch) is _variables and type(holder) is dict:
        return _same_variables(holder, fetch.names, expected)
    try:
        found = fetch(holder)
    except Exception:   # an attribute is gone
        return False
    return _same_tuple(found, expected)


cdef bint _same_tuple(tuple found, tuple expected) noexcept:
    cdef Py_ssize_t index, size = PyTuple_GET_SIZE(expected)
    if PyTuple_GET_SIZE(found) != size:
        return False
    for index in range(size):
        if _at(found, index) is not _at(expected, index):
            return False
    return True


cdef bint _same_function(PyFunctionObject *function, tuple expected) noexcept:
    """Compare the attributes that OF_FUNCTION names, in its order."""
    return (_is(function.func_code, expected, 0) and _is(function.func_name, expected, 1)
            and _is(function.func_qualname, expected, 2) and _is(function.func_module, expected, 3)
            and _is(function.func_doc, expected, 4) and _is(function.func_defaults, expected, 5)
            and _is(function.func_kwdefaults, expected, 6) and _is(function.func_annotations, expected, 7)
            and _is(function.func_dict, expected, 8))


cdef bint _same_entries(dict holder, tuple expected) noexcept:
    cdef Py_ssize_t position = 0, index = 0, size = PyDict_Size(holder)
    cdef PyObject *key
    cdef PyObject *value
    if 2 * size != PyTuple_GET_SIZE(expected):
        return False
    while PyDict_Next(holder, &position, &key, &value):
        if index == size or not _is(key, expected, index) or not _is(value, expected, size + index):
            return False
        index += 1
    return index == size


cdef bint _same_variables(dict holder, tuple names, tuple expected) except -1:
    cdef Py_ssize_t index
    cdef PyObject *value
    for index in range(PyTuple_GET_SIZE(expected)):
        value = PyDict_GetItem(holder, names[index])
        if not _is(<PyObject *>_missing if value is NULL else value, expected, index):
            return False
    return True


cdef inline object _at(tuple values, Py_ssize_t index):
    return <object>PyTuple_GET_ITEM(values, index)


cdef inline bint _is(PyObject *found, tuple expected, Py_ssize_t index) noexcept:
    """Return whether this is the expected object; an attribute without a value counts as None."""
    return (<PyObject *>None if found is NULL else found) == <PyObject *>PyTuple_GET_ITEM(expected, index)
