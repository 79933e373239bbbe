"""Digests of values and functions: equal content has equal digests, in all processes with one Python version.

One walk collects all that the result of a call can depend on. Functions and classes count by their code, defaults,
closures and attributes, and by all that these use; those of the user's own modules, also by the files of the module,
which a worker imports; those that an installed package or Python provides, by their name and the package's content.
Line numbers and file names of code do not count. Pickles do not serve here: their bytes depend on which objects are
identical, and they contain no code of importable functions.
"""

from __future__ import annotations

import abc
import copyreg
import dis
import functools
import sys
import types
from collections.abc import Iterable, Iterator
from typing import Any

from rp_client.cache import distributions, imports
from rp_client.cache.files import Seen, joined

_GLOBALS = frozenset({'LOAD_GLOBAL', 'LOAD_NAME', 'LOAD_FROM_DICT_OR_GLOBALS'})
_OF_NO_EFFECT = frozenset({
    '__dict__', '__weakref__', '__module__', '__firstlineno__', '__static_attributes__', '__annotate__',
    '__annotate_func__', '__annotations_cache__', '_abc_impl'})
"""Attributes of classes that no method uses, or that differ between processes."""

_SHARED = (list, dict, set, bytearray)
"""Types whose objects can be changed, so that it matters which of them are the same object."""

_DISPATCH = functools.singledispatch(len).__code__   # type: ignore[attr-defined]
_OF_DISPATCH = ('register', 'dispatch', 'registry', '_clear_cache')


class DigestError(ValueError):
    """A value has no digest: it holds something, such as an open file, that another process cannot compare."""


def digest(value: Any, seen: Seen | None = None) -> bytes:
    """Return the digest of a value, and note in `seen` the files and packages that it depends on.

    Raises:
        DigestError: The value has none.
        OSError: A file that it depends on cannot be read.
    """
    return _Digester(seen or Seen()).of(value)


class _Digester:
    """Computes the digest of one value. Parts that occur several times are visited once."""

    def __init__(self, seen: Seen) -> None:
        self._seen = seen
        self._found: dict[int, tuple[bytes, Any]] = {}   # by id, with the object, which keeps its id in use
        self._open: dict[int, int] = {}                  # the objects around the present one
        self._numbers: dict[int, int] = {}               # of objects that can be changed
        self._modules_known: dict[str, tuple[bytes, frozenset[str]]] = {}

    def of(self, value: Any) -> bytes:
        kind = type(value)
        if kind in _PLAIN:
            return joined(kind.__name__.encode(), [_PLAIN[kind](value)])
        number = id(value)
        if number in self._open:   # an object that contains itself
            return b'around %d' % (len(self._open) - self._open[number])
        if number in self._numbers:
            return b'again %d' % self._numbers[number]
        if number in self._found:
            return self._found[number][0]
        self._open[number] = len(self._open)
        try:
            found = self._of_object(kind, value)
        except RecursionError:
            raise DigestError(f'{kind.__qualname__} is nested too deeply') from None
        finally:
            del self._open[number]
        self._found[number] = found, value
        if kind in _SHARED:
            self._numbers[number] = len(self._numbers)
        return found

    def _of_object(self, kind: type, value: Any) -> bytes:
        if kind in _KINDS:
            found: bytes = _KINDS[kind](self, value)
            return found
        if isinstance(value, type):
            return self._of_class(value)
        if kind is types.BuiltinFunctionType and isinstance(value.__self__, types.ModuleType | None):
            return self._named(value.__module__ or 'builtins', value.__qualname__)
        return self._of_reduced(kind, value)

    def _all(self, kind: str, parts: Iterable[Any]) -> bytes:
        return joined(kind.encode(), map(self.of, parts))

    def _of_items(self, value: Any) -> bytes:
        return joined(b'dict', [self.of(part) for pair in value.items() for part in pair])

    def _of_set(self, value: Any) -> bytes:
        return joined(type(value).__name__.encode(), sorted(map(self.of, value)))

    # functions and classes

    def _of_function(self, function: types.FunctionType) -> bytes:
        module = _home(function.__globals__, function.__module__)
        if _is_provided(module, function.__qualname__, function):
            return self._named(module, function.__qualname__)
        names = (function.__name__, function.__qualname__, function.__module__)
        if function.__code__ is _DISPATCH:   # its cache differs between processes
            attributes = {name: each for name, each in vars(function).items() if name not in _OF_DISPATCH}
            return self._all('dispatch', (names, function.registry, attributes))   # type: ignore[attr-defined]
        used = [(name, function.__globals__[name]) for name in _globals_of(function.__code__)
                if name in function.__globals__]
        cells = [_cell(cell) for cell in function.__closure__ or ()]
        try:
            return joined(b'function', [
                *map(self.of, (names, function.__code__, function.__defaults__, function.__kwdefaults__,
                               function.__doc__, _annotations(function), vars(function), *cells)),
                *(self.of(part) for pair in used for part in pair),
                *self._modules({*_imported_by(function.__code__, function.__globals__.get('__package__') or ''),
                                _own(module)})])
        except DigestError as error:
            raise DigestError(f'the function {function.__qualname__} uses a value that cannot be compared: '
                              f'{error}') from None

    def _of_class(self, value: type) -> bytes:
        module = value.__module__ if isinstance(value.__module__, str) else ''
        if _is_provided(module, value.__qualname__, value):
            return self._named(module, value.__qualname__)
        members = [(name, member) for name, member in sorted(vars(value).items())
                   if name not in _OF_NO_EFFECT
                   and not isinstance(member, types.MemberDescriptorType | types.GetSetDescriptorType)]
        return joined(b'class', [
            *map(self.of, (value.__qualname__, module, type(value), _annotations(value), *value.__bases__)),
            *(self.of(part) for pair in members for part in pair), *sorted(map(self.of, _registered(value))),
            *self._modules([_own(module)])])

    def _of_code(self, code: types.CodeType) -> bytes:
        return self._all('code', [
            code.co_code, getattr(code, 'co_exceptiontable', b''), code.co_name, getattr(code, 'co_qualname', ''),
            code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags, code.co_names,
            code.co_varnames, code.co_freevars, code.co_cellvars, code.co_consts])

    def _of_module(self, module: types.ModuleType) -> bytes:
        if _file(module.__name__) is None and getattr(module, '__spec__', None) is None:
            raise DigestError(f'the module {module.__name__} has no file')
        if _travels(module.__name__):
            return self._all('module', [(name, each) for name, each in vars(module).items() if name[:2] != '__'])
        return self._named(module.__name__, '')

    def _modules(self, names: Iterable[str]) -> list[bytes]:
        return imports.modules(names, self._seen, self._modules_known)

    def _named(self, module: str, name: str) -> bytes:
        """Return the digest of something that a module provides, with the module."""
        return joined(b'named', [module.encode(), name.encode(),
                                 *self._modules([module.partition('.')[0]])])

    # other objects

    def _of_reduced(self, kind: type, value: Any) -> bytes:
        """Return the digest of an object by the parts from which pickle would restore it."""
        if isinstance(value, set | frozenset):   # without the order, which differs between processes
            return joined(b'object', [self.of(kind), *sorted(map(self.of, value)),
                                      self.of(getattr(value, '__dict__', None))])
        reduced = _reduced(kind, value)
        if isinstance(reduced, str):
            return self._of_name(kind, value, reduced)
        found = self._of_parts(kind, reduced)
        if _has_own_way(kind) and found != self._of_parts(kind, _reduced(kind, value)):
            raise DigestError(f'an object of {kind.__module__}.{kind.__qualname__} is pickled in another way each time')
        self._numbers[id(value)] = len(self._numbers)
        return found

    def _of_name(self, kind: type, value: Any, name: str) -> bytes:
        """Return the digest of an object that is pickled by its name."""
        module = str(getattr(value, '__module__', None) or kind.__module__)
        if not _is_provided(module, name, value) and hasattr(value, '__wrapped__'):   # a function with a cache
            return self._all('wrapped', (kind, vars(value)))
        if module == '__main__' and not kind.__module__.startswith('typing'):
            raise DigestError(f'an object of {kind.__module__}.{kind.__qualname__}, which is pickled by its name')
        return self._named(module, name)

    def _of_parts(self, kind: type, reduced: Any) -> bytes:
        parts = [list(part) if number in (3, 4) and part is not None else part for number, part in enumerate(reduced)]
        return self._all('object', (kind, *parts))


_KINDS: dict[type, Any] = {
    list: lambda self, value: self._all('list', value), tuple: lambda self, value: self._all('tuple', value),
    dict: _Digester._of_items, types.MappingProxyType: _Digester._of_items, set: _Digester._of_set,
    frozenset: _Digester._of_set, types.CodeType: _Digester._of_code, types.ModuleType: _Digester._of_module,
    types.FunctionType: _Digester._of_function,
    types.MethodType: lambda self, value: self._all('method', (value.__self__, value.__func__)),
    staticmethod: lambda self, value: self._all('staticmethod', (value.__func__, vars(value))),
    classmethod: lambda self, value: self._all('classmethod', (value.__func__, vars(value))),
    property: lambda self, value: self._all('property', (value.fget, value.fset, value.fdel, value.__doc__)),
    functools.cached_property: lambda self, value: self._all('cached', (value.func, value.attrname))}
"""How the digests of values are computed, by type."""

_PLAIN: dict[type, Any] = {
    type(None): lambda _: b'', bool: lambda value: b'1' if value else b'0', int: lambda value: b'%x' % value,
    float: lambda value: value.hex().encode(), complex: lambda value: repr(value).encode(),
    str: lambda value: value.encode(errors='surrogatepass'), bytes: bytes,
    type(...): lambda _: b'', type(NotImplemented): lambda _: b''}
"""The bytes of plain values, by type."""


@functools.lru_cache(1000)
def _globals_of(code: types.CodeType) -> tuple[str, ...]:
    """Return the names of the global variables that code reads, with those of the functions in it."""
    found = {instruction.argval for instruction in dis.get_instructions(code) if instruction.opname in _GLOBALS}
    nested = (each for each in code.co_consts if isinstance(each, types.CodeType))
    return tuple(sorted(found.union(*map(_globals_of, nested))))


@functools.lru_cache(1000)
def _imported_by(code: types.CodeType, package: str) -> frozenset[str]:
    return frozenset(imports.imported(code, package))


def _home(namespace: dict[str, Any], module: str | None) -> str:
    """Return the name of the module whose variables a function uses; empty if it is no module."""
    for name in (namespace.get('__name__'), module):
        if isinstance(name, str) and getattr(sys.modules.get(name), '__dict__', None) is namespace:
            return name
    return ''


def _is_provided(module: str, name: str, value: Any) -> bool:
    """Return whether an installed package, Python or an extension module has this value under this name."""
    if module not in sys.modules or module == '__main__' or not _is_foreign(module):
        return False
    found: Any = sys.modules[module]
    for part in name.split('.'):
        found = getattr(found, part, None)
    return found is value


def _is_foreign(module: str) -> bool:
    file = _file(module)
    if file is None:
        return module in sys.builtin_module_names
    return distributions.is_installed(file) or distributions.is_python(file) or file.endswith(imports.EXTENSIONS)


def _travels(module: str) -> bool:
    """Return whether the application has said that cloudpickle sends a module by value."""
    pickler = sys.modules.get('cloudpickle')
    registered = pickler.list_registry_pickle_by_value() if pickler else ()
    return any(module == name or module.startswith(f'{name}.') for name in registered)


def _file(module: str) -> str | None:
    """Return the file of a module; None for one that is built in, or made by hand."""
    return getattr(sys.modules.get(module), '__file__', None)


def _own(module: str) -> str:
    """Return the top-level name of a module of the user, which workers import."""
    return module.partition('.')[0] if _file(module) else ''


def _annotations(value: Any) -> Any:
    try:
        return dict(getattr(value, '__annotations__', None) or {})
    except Exception:   # they are computed, of names that are not defined
        return None


def _registered(value: type) -> Iterator[type]:
    """Yield the classes that were registered as sub-classes of an abstract one."""
    if isinstance(value, abc.ABCMeta):
        yield from filter(None, (reference() for reference in abc._get_dump(value)[0]))   # type: ignore[attr-defined]


def _cell(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:   # it is empty, as the variable is not set yet
        return None


def _reduced(kind: type, value: Any) -> Any:
    try:
        return copyreg.dispatch_table[kind](value) if kind in copyreg.dispatch_table else value.__reduce_ex__(4)
    except Exception:   # each class has its own
        raise DigestError(f'an object of {kind.__module__}.{kind.__qualname__}') from None


def _has_own_way(kind: type) -> bool:
    """Return whether Python code of a class decides how its objects are pickled."""
    return any(isinstance(getattr(kind, name, None), types.FunctionType)
               for name in ('__reduce_ex__', '__reduce__', '__getstate__'))
