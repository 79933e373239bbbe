"""Tells functions and classes that the receiver imports from those that travel by value; finds what these use."""

from __future__ import annotations

import dis
import sys
from types import CodeType, ModuleType
from typing import Any
from weakref import WeakKeyDictionary

from cloudpickle import list_registry_pickle_by_value

_MISSING = object()
_global_names: WeakKeyDictionary[CodeType, tuple[str, ...]] = WeakKeyDictionary()
_GLOBALS = frozenset({'LOAD_GLOBAL', 'STORE_GLOBAL', 'DELETE_GLOBAL'})


def by_reference(value: Any) -> bool:
    """Return whether a function, class or similar object is found under its name in a module that can be imported."""
    name = getattr(value, '__module__', None)
    return isinstance(name, str) and name != '__main__' and not sent_by_value(name) and found(value) is value


def found(value: Any) -> Any:
    """Return the object that is found now under the name of a function or class, in its module."""
    at: Any = sys.modules.get(value.__module__, _MISSING)
    for name in value.__qualname__.split('.'):
        at = getattr(at, name, _MISSING)
    return at


def module_by_reference(module: ModuleType) -> bool:
    """Return whether a module is imported by the receiver, as opposed to one that was made by the program."""
    return module.__name__ in sys.modules and not sent_by_value(module.__name__)


def sent_by_value(name: str) -> bool:
    """Return whether a module or one of its packages was registered to be pickled by value."""
    registered = list_registry_pickle_by_value()
    while registered and name:
        if name in registered:
            return True
        name = name.rpartition('.')[0]
    return False


def global_names(code: CodeType) -> tuple[str, ...]:
    """Return the names of the global variables that code uses, with those of the functions in it, each once."""
    found = _global_names.get(code)
    if found is None:
        names = dict.fromkeys(each.argval for each in dis.get_instructions(code) if each.opname in _GLOBALS)
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                names.update(dict.fromkeys(global_names(constant)))
        found = _global_names[code] = tuple(names)
    return found
