"""Snapshots of what is pickled with an object: they tell, without pickling it again, that it has not changed since.

A snapshot keeps the objects that were found in each place that can change: global variables, cells, attributes, items.
It compares by identity, and walks on through everything that travels by value until it is at objects which cannot
change, or which the receiver imports. An object whose content it cannot see, such as an array, makes it unknown: it
never holds.

`rp_raptor.unchanged` compares the places that functions have faster than `Snapshot.holds`.
"""

from __future__ import annotations

import copyreg
import dataclasses
import functools
import logging
import re
import sys
import types
from collections.abc import Callable, Iterable
from operator import attrgetter, is_
from pathlib import PosixPath, PurePosixPath
from typing import Any

import cloudpickle

from rp_api.by_value.references import by_reference, found, global_names, module_by_reference

_MAX_OBJECTS = 4000
"""Objects in a snapshot at most; larger ones take longer to compare than to pickle."""

MISSING = object()
"""Stands for a variable or attribute that is not set."""

_HEAP_TYPE = 1 << 9   # a flag of classes that can be changed

_ATOMS = frozenset({
    int, float, complex, str, bytes, bool, type(None), type(...), type(NotImplemented), range, re.Pattern, PosixPath,
    PurePosixPath, types.CodeType, types.GetSetDescriptorType, types.MemberDescriptorType, types.MethodDescriptorType,
    types.WrapperDescriptorType})
"""Types whose objects cannot change, nor refer to others that can."""

OF_FUNCTION = attrgetter('__code__', '__name__', '__qualname__', '__module__', '__doc__', '__defaults__',
                          '__kwdefaults__', '__annotations__', '__dict__')
"""The attributes of a function that are pickled besides its variables."""

_OF_CLASS = attrgetter('__class__', '__name__', '__qualname__', '__bases__')
_FOR_IMPORTS = ('__package__', '__name__', '__path__', '__file__')   # global variables of each function
_REDUCING = '__reduce__', '__reduce_ex__', '__getstate__', '__getnewargs__', '__getnewargs_ex__'
_PLAINLY = [getattr(object, name, None) for name in _REDUCING]

Fetch = Callable[[Any], tuple[Any, ...]]
Place = tuple[Fetch, Any, tuple[Any, ...]]


class _Unknown(Exception):
    """The content of an object cannot be compared."""


class Variables:
    """Fetches the variables with these names from a dict."""

    __slots__ = ('names',)

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names

    def __call__(self, variables: dict[str, Any]) -> tuple[Any, ...]:
        return tuple([variables.get(name, MISSING) for name in self.names])   # faster than `map`


class Snapshot:
    """The objects that are pickled with a function or class that travels by value, as they are now.

    Attributes:
        places: For each place that can change: how to fetch what is there, from where (None: the function or class),
            and the objects that were there. None if that is unknown.
        registered: The modules that are pickled by value.
    """

    __slots__ = ('places', 'registered')

    def __init__(self, root: Any) -> None:
        self.registered = cloudpickle.list_registry_pickle_by_value()
        self.places: list[Place] | None
        try:
            self.places = _Walk(root).places
        except Exception:   # _Unknown, or of an attribute that is computed
            self.places = None

    def holds(self, root: Any) -> bool:
        """Return whether nothing has changed that would be pickled with the object; False if that is unknown."""
        if self.places is None or cloudpickle.list_registry_pickle_by_value() != self.registered:
            return False
        try:
            for fetch, holder, expected in self.places:
                current = fetch(root if holder is None else holder)
                if current is not expected and (len(current) != len(expected) or not all(map(is_, current, expected))):
                    return False
        except Exception:   # an attribute is gone, or a dict changes meanwhile
            return False
        return True


class _Walk:
    """Finds all places of an object that can change; those of the object itself have None as their holder."""

    def __init__(self, root: Any) -> None:
        self.places: list[Place] = []
        self._root = root
        self._seen: dict[int, Any] = {}   # the objects are kept, so that their numbers stay theirs
        self._open = [root]
        self._size = 0
        while self._open:
            self._visit(self._open.pop())

    def _add(self, value: Any, fetch: Fetch) -> tuple[Any, ...]:
        """Add a place, and visit what is there."""
        current = fetch(value)
        self._size += len(current)
        if self._size > _MAX_OBJECTS:
            raise _Unknown
        self.places.append((fetch, None if value is self._root else value, current))
        self._open += current
        return current

    def _visit(self, value: Any) -> None:
        kind = type(value)
        if kind in _ATOMS or value is MISSING or id(value) in self._seen:
            return
        self._seen[id(value)] = value
        visit = _VISITS.get(kind)
        if visit is not None:
            visit(self, value)
        elif isinstance(value, type):
            self._visit_class(value)
        else:
            self._visit_object(kind, value)

    def visit_items(self, value: Iterable[Any]) -> None:
        self._open += value

    def visit_list(self, value: Any) -> None:
        self._add(value, tuple)

    def visit_dict(self, value: Any) -> None:
        self._add(value, entries)

    def visit_parts(self, value: Any) -> None:
        self._add(value, _PARTS[type(value)])

    def visit_module(self, value: types.ModuleType) -> None:
        if not module_by_reference(value):
            raise _Unknown

    def visit_builtin(self, value: types.BuiltinFunctionType) -> None:
        if not isinstance(value.__self__, types.ModuleType | None):
            raise _Unknown

    def visit_function(self, value: types.FunctionType) -> None:
        if by_reference(value):
            self._add(value, _found)
            return
        self._add(value, OF_FUNCTION)
        names = global_names(value.__code__)
        used = self._add(value.__globals__, Variables((*_FOR_IMPORTS, *names)))
        cells = [self._add(cell, _content)[0] for cell in value.__closure__ or ()]
        for each in (*used, *cells):
            if isinstance(each, types.ModuleType):
                self._add_submodules(each.__name__, value.__code__.co_names)

    def visit_cached(self, value: Any) -> None:
        if by_reference(value):
            self._add(value, _found)
        else:
            self._add(vars(value), entries)

    def _visit_class(self, value: type) -> None:
        if not value.__flags__ & _HEAP_TYPE:
            return
        if by_reference(value):
            self._add(value, _found)
        elif type(value) is type:
            self._add(value, _OF_CLASS)
            self._add(value, _members)
        else:   # a metaclass may keep anything anywhere
            raise _Unknown

    def _visit_object(self, kind: type, value: Any) -> None:
        """Visit an object that is pickled as its class with its attributes."""
        reducing = [getattr(kind, name, None) for name in _REDUCING]
        if (kind in cloudpickle.Pickler.dispatch_table or not all(map(is_, reducing, _PLAINLY))
                or not all(each is object or each.__flags__ & _HEAP_TYPE for each in kind.__mro__)):
            raise _Unknown
        self._add(value, _class_of)
        if hasattr(value, '__dict__'):
            self._add(vars(value), entries)
        slots: list[str] = copyreg._slotnames(kind)   # type: ignore[attr-defined]
        if slots:
            self._add(value, lambda each: tuple([getattr(each, name, MISSING) for name in slots]))

    def _add_submodules(self, package: str, names: tuple[str, ...]) -> None:
        """Add the submodules of a package that code may use: those that are imported now travel with it."""
        paths = tuple(f'{package}.{name}' for name in names)
        for path, module in zip(paths, self._add(sys.modules, Variables(paths)), strict=True):
            if module is not MISSING:
                self._add_submodules(path, names)


def entries(value: Any) -> tuple[Any, ...]:
    """Return the keys of a dict, and after them the values."""
    return (*value, *value.values())


def _members(value: type) -> tuple[Any, ...]:
    members = vars(value)
    return (*members, *members.values())


def _found(value: Any) -> tuple[Any, ...]:
    return found(value),


def _class_of(value: Any) -> tuple[Any, ...]:
    return type(value),


def _content(cell: types.CellType) -> tuple[Any, ...]:
    try:
        return cell.cell_contents,
    except ValueError:   # it is empty
        return MISSING,


_PARTS: dict[type, Fetch] = {
    property: attrgetter('fget', 'fset', 'fdel', '__doc__'), staticmethod: attrgetter('__func__', '__dict__'),
    classmethod: attrgetter('__func__', '__dict__'),
    functools.partial: attrgetter('func', 'args', 'keywords', '__dict__'),
    logging.Logger: attrgetter('name'), type(vars(dataclasses)['_FIELD']): attrgetter('name'),
    types.MethodType: attrgetter('__func__', '__self__')}
"""The parts of objects that are pickled as these."""

_VISITS: dict[type, Callable[[_Walk, Any], None]] = {
    tuple: _Walk.visit_items, frozenset: _Walk.visit_items, list: _Walk.visit_list, set: _Walk.visit_list,
    dict: _Walk.visit_dict, types.MappingProxyType: _Walk.visit_dict, types.FunctionType: _Walk.visit_function,
    functools._lru_cache_wrapper: _Walk.visit_cached, types.ModuleType: _Walk.visit_module,
    types.BuiltinFunctionType: _Walk.visit_builtin,
    **dict.fromkeys(_PARTS, _Walk.visit_parts)}
