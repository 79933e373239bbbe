"""Digests of values, functions and files: equal content has equal digests, in all processes with one Python version.

A function of the user's own code counts by its code, its defaults, the values that it uses from outside, and the
modules that it imports; one of an installed package or of Python counts by its name and the package's version. Pickles
do not serve here: their bytes depend on which objects are identical, and they contain no code of importable functions.
"""

from __future__ import annotations

import dis
import os
import stat
import sys
import sysconfig
import time
from collections.abc import Iterable, Iterator
from functools import cache
from hashlib import blake2b
from importlib.machinery import all_suffixes
from types import BuiltinFunctionType, CodeType, FunctionType, MappingProxyType, MethodType, ModuleType
from typing import Any

from rp_client.cache import imports

SIZE = 20
"""Bytes of a digest."""

SETTLED = 2.0
"""Seconds after its last change from which on a file's time and size tell whether it has changed."""

_CHUNK = 1 << 20
_GLOBALS = frozenset({'LOAD_GLOBAL', 'LOAD_NAME'})
_OF_NO_EFFECT = frozenset({
    '__dict__', '__weakref__', '__doc__', '__module__', '__firstlineno__', '__static_attributes__', '__annotations__',
    '__annotate__', '__annotations_cache__', '_abc_impl'})
"""Attributes of classes that no method uses, or that differ between processes."""


class DigestError(ValueError):
    """A value has no digest: it holds something, such as an open file, that another process cannot compare."""


def digest(value: Any) -> bytes:
    """Return the digest of a value; raise `DigestError` if it has none."""
    return _Digester().of(value)


def file_digest(path: str) -> bytes:
    """Return the digest of a file, or of a directory with all that it contains; raise OSError if it is not readable."""
    status = os.stat(path)
    if not stat.S_ISDIR(status.st_mode):
        return _content(path, status)
    parts = []
    for name in sorted(os.listdir(path)):
        below = os.path.join(path, name)
        found = os.readlink(below).encode(errors='surrogateescape') if os.path.islink(below) else file_digest(below)
        parts += [name.encode(errors='surrogateescape'), found]
    return _joined(b'directory', parts)


_known: dict[tuple[int, int, int, int, int], bytes] = {}   # of files by device, inode, size, time and mode
_KNOWN_FILES = 10_000


def _content(path: str, status: os.stat_result) -> bytes:
    key = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_mode & 0o111)
    if key in _known:
        return _known[key]
    content = blake2b(digest_size=SIZE)
    with open(path, 'rb') as file:
        while chunk := file.read(_CHUNK):
            content.update(chunk)
    found = _joined(b'file', [b'x' if status.st_mode & 0o111 else b'', content.digest()])
    if time.time() - status.st_mtime > SETTLED:
        if len(_known) >= _KNOWN_FILES:
            _known.clear()
        _known[key] = found
    return found


def _joined(kind: bytes, parts: Iterable[bytes]) -> bytes:
    """Return the digest of a kind of value with these parts."""
    content = blake2b(kind, digest_size=SIZE)
    for part in parts:
        content.update(b'%d:' % len(part))
        content.update(part)
    return content.digest()


class _Digester:
    """Computes the digest of one value. Parts that occur several times are visited once."""

    def __init__(self) -> None:
        self._found: dict[int, tuple[bytes, Any]] = {}   # by id, with the object, which keeps its id in use
        self._open: dict[int, int] = {}                  # the objects around the present one

    def of(self, value: Any) -> bytes:
        kind = type(value)
        if kind in _PLAIN:
            return _joined(kind.__name__.encode(), [_PLAIN[kind](value)])
        number = id(value)
        if number in self._found:
            return self._found[number][0]
        if number in self._open:   # an object that contains itself
            return b'around %d' % (len(self._open) - self._open[number])
        self._open[number] = len(self._open)
        try:
            found = self._of_object(kind, value)
        except RecursionError:
            raise DigestError(f'{kind.__qualname__} is nested too deeply') from None
        finally:
            del self._open[number]
        self._found[number] = found, value
        return found

    def _of_object(self, kind: type, value: Any) -> bytes:
        if kind in (list, tuple):
            return _joined(kind.__name__.encode(), map(self.of, value))
        if kind in (dict, MappingProxyType):
            return _joined(b'dict', sorted(self.of(key) + self.of(item) for key, item in value.items()))
        if kind in (set, frozenset):
            return _joined(kind.__name__.encode(), sorted(map(self.of, value)))
        if kind is CodeType:
            return self._of_code(value)
        if kind is ModuleType:
            return self._of_module(value)
        if kind is MethodType:
            return _joined(b'method', [self.of(value.__self__), self.of(value.__func__)])
        if kind in (staticmethod, classmethod):
            return _joined(kind.__name__.encode(), [self.of(value.__func__)])
        if kind is property:
            return _joined(b'property', map(self.of, (value.fget, value.fset, value.fdel)))
        if kind is FunctionType or isinstance(value, type):
            return self._of_definition(value)
        if kind is BuiltinFunctionType and isinstance(value.__self__, ModuleType | None):
            return _named(value)
        return self._of_reduced(kind, value)

    def _of_definition(self, value: Any) -> bytes:
        """Return the digest of a function or class."""
        if _installed(value.__module__):
            return _named(value)
        return self._of_function(value) if isinstance(value, FunctionType) else self._of_class(value)

    def _of_function(self, function: FunctionType) -> bytes:
        used = [(name, function.__globals__[name]) for name in sorted(set(_globals_of(function.__code__)))
                if name in function.__globals__]
        cells = [_cell(cell) for cell in function.__closure__ or ()]
        parts = (function.__code__, function.__defaults__, function.__kwdefaults__, cells)
        package = function.__globals__.get('__package__') or ''
        try:
            return _joined(b'function', [*map(self.of, parts), *(self.of(part) for pair in used for part in pair),
                                         *_imported(imports.imported(function.__code__, package))])
        except DigestError as error:
            raise DigestError(f'the function {function.__qualname__} uses a value that cannot be compared: '
                              f'{error}') from None

    def _of_class(self, value: type) -> bytes:
        members = [(name, member) for name, member in sorted(vars(value).items())
                   if name not in _OF_NO_EFFECT and type(member).__name__ not in ('member_descriptor',
                                                                                  'getset_descriptor')]
        return _joined(b'class', [value.__qualname__.encode(), *map(self.of, value.__bases__),
                                  *(self.of(part) for pair in members for part in pair)])

    def _of_code(self, code: CodeType) -> bytes:
        numbers = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
        names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
        return _joined(b'code', [code.co_code, *map(self.of, (*numbers, *names, code.co_consts))])

    def _of_module(self, module: ModuleType) -> bytes:
        if _installed(module.__name__):
            return _joined(b'module', [module.__name__.encode(), _version(module.__name__)])
        try:
            return _joined(b'module', [module.__name__.encode(), file_digest(module.__file__ or ''),
                                       *_imported([module.__name__.partition('.')[0]])])
        except OSError:
            raise DigestError(f'the module {module.__name__} has no file') from None

    def _of_reduced(self, kind: type, value: Any) -> bytes:
        """Return the digest of an object by the parts from which pickle would restore it."""
        try:
            reduced = value.__reduce_ex__(4)
        except Exception:   # each class has its own
            raise DigestError(f'an object of {kind.__module__}.{kind.__qualname__}') from None
        if isinstance(reduced, str) and hasattr(value, '__wrapped__'):   # a function with a cache, for example
            return _joined(b'wrapped', [self.of(kind), self.of(value.__wrapped__)])
        if isinstance(reduced, str):
            return _joined(b'named', [str(kind.__module__).encode(), reduced.encode()])
        parts = [list(part) if number in (3, 4) and part is not None else part for number, part in enumerate(reduced)]
        return _joined(b'object', [self.of(kind), *map(self.of, parts)])


_PLAIN: dict[type, Any] = {
    type(None): lambda _: b'', bool: lambda value: b'1' if value else b'0', int: lambda value: b'%x' % value,
    float: lambda value: value.hex().encode(), complex: lambda value: repr(value).encode(),
    str: lambda value: value.encode(errors='surrogatepass'), bytes: bytes, bytearray: bytes,
    type(...): lambda _: b'', type(NotImplemented): lambda _: b''}
"""The bytes of plain values, by type."""


def _globals_of(code: CodeType) -> Iterator[str]:
    """Yield the names of the global variables that code reads, with those of the functions in it."""
    yield from (instruction.argval for instruction in dis.get_instructions(code) if instruction.opname in _GLOBALS)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _globals_of(constant)


def _imported(names: Iterable[str]) -> Iterator[bytes]:
    """Yield the digests of imported top-level modules, and of those that they import."""
    for name, found in sorted(imports.modules(names, _is_installed).items()):
        yield name.encode()
        if isinstance(found, str):
            yield found.encode()
            continue
        for relative, path in found:
            yield relative.encode(errors='surrogateescape')
            yield file_digest(path)


def _cell(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:   # it is empty, as the variable is not set yet
        return None


def _named(value: Any) -> bytes:
    module = value.__module__ or 'builtins'
    return _joined(b'named', [module.encode(), value.__qualname__.encode(), _version(module)])


@cache
def _places() -> tuple[str, ...]:
    """Return the directories of Python and of installed packages."""
    names = ('stdlib', 'platstdlib', 'purelib', 'platlib')
    found = {os.path.realpath(path) + os.sep for name in names if (path := sysconfig.get_paths().get(name))}
    return tuple(found | {os.path.realpath(path) + os.sep for path in sys.path
                          if path.endswith(('site-packages', 'dist-packages'))})


def _installed(name: str | None) -> bool:
    """Return whether a module belongs to Python or to an installed package, and not to the user's own code."""
    module = sys.modules.get(name or 'builtins')
    if name == '__main__' or module is None:
        return False
    file = getattr(module, '__file__', None)
    if file is None:
        return getattr(module, '__spec__', None) is not None
    return _is_installed(file)


def _is_installed(file: str) -> bool:
    return os.path.join(os.path.realpath(file), '').startswith(_places()) or str(file).endswith(_EXTENSIONS)


_EXTENSIONS = tuple(suffix for suffix in all_suffixes() if suffix.endswith(('.so', '.pyd')))


def _version(module: str) -> bytes:
    """Return the version of the package that a module belongs to; that of Python for its own modules."""
    package = sys.modules.get(module.partition('.')[0])
    found = getattr(package, '__version__', None)
    return (found if isinstance(found, str) else sys.version.partition(' ')[0]).encode()
