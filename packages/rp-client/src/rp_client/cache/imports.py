"""The modules that code imports by statements, without importing them here: their files and installed packages.

Modules count with the whole package that they belong to, and with all that these import. A function that imports a
module when it is called may run where the module differs, or is not there at all.
"""

from __future__ import annotations

import dis
import importlib.util
import os
import stat
import sys
from collections.abc import Iterable, Iterator
from functools import partial
from importlib.machinery import EXTENSION_SUFFIXES, all_suffixes
from pathlib import Path
from types import CodeType

from rp_client.cache import distributions
from rp_client.cache.files import Content, Memo, Seen, joined, look, status_of


def imported(code: CodeType, package: str) -> Iterator[str]:
    """Yield the names of the top-level modules that code of a package imports, with those of the functions in it."""
    found = [each for each in dis.get_instructions(code) if each.opname != 'EXTENDED_ARG']
    for level, _, instruction in zip(found, found[1:], found[2:], strict=False):
        if instruction.opname == 'IMPORT_NAME':
            yield (package if level.argval else instruction.argval).partition('.')[0]
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from imported(constant, package)


def modules(names: Iterable[str], seen: Seen, known: dict[str, tuple[bytes, frozenset[str]]]) -> list[bytes]:
    """Return the digests of top-level modules by their names, and of those that they import.

    Own modules count by the content of their sources and extension modules, those of installed packages by these, and
    those of Python by its version.

    Args:
        names: The names.
        seen: Notes the modules and packages.
        known: The digests of modules of the same identity, with what they import; further ones are added.
    """
    left, found = set(names) - _NONE, {}
    while left:
        name = left.pop()
        if name not in known:
            known[name] = _look(name, seen)
        found[name], imported = known[name]
        left |= imported - found.keys()
    return [part for name in sorted(found) for part in (name.encode(), found[name])]


def _look(name: str, seen: Seen) -> tuple[bytes, frozenset[str]]:
    roots = _roots(name)
    if any(map(distributions.is_installed, roots)):
        return seen.note(f'package {name}', partial(distributions.content, name)), frozenset()
    if not roots and name not in sys.stdlib_module_names:
        return b'missing', frozenset()
    if not roots or any(map(distributions.is_python, roots)):
        return distributions.PYTHON, frozenset()
    key = '\0'.join([name, *roots])
    return seen.note(f'module {name}', lambda: _own.get(key)[0]), _own.get(key)[1]


_NONE = {'', '__main__'}


def _files_of(key: str, read: dict[str, tuple[int, ...]]) -> tuple[Content, frozenset[str]]:
    """Look at all files of a module or package of the user; return also the names of the modules that it imports."""
    name, *roots = key.split('\0')
    parts, names = [], set[str]()
    for relative, path in sorted(found for root in roots for found in _sources(root, read)):
        read[path] = status_of(path)
        parts += [os.fsencode(relative), look(path).digest]
        names |= imported_by(path, name)
    found = joined(b'module', parts)
    states = (repr(status).encode() for status in read.values() if not stat.S_ISDIR(status[2]))   # others get a cache
    return Content(found, joined(b'states', [found, *states])), frozenset(names - _NONE)


_own = Memo(_files_of)


def _roots(name: str) -> list[str]:
    """Return the file of a module, or the directories of a package; empty if there are none."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):   # of a module that was made by hand
        return []
    if spec is None:
        return []
    return list(spec.submodule_search_locations or ([spec.origin] if spec.has_location and spec.origin else []))


def _sources(root: str, read: dict[str, tuple[int, ...]]) -> Iterator[tuple[str, str]]:
    read[root] = status_of(root)
    if not os.path.isdir(root):
        yield os.path.basename(root), root
        return
    for place, below, files in os.walk(root):
        read[place] = status_of(place)
        below[:] = [each for each in below if each != '__pycache__' and not each.startswith('.')]
        for file in files:
            if file.endswith(_MODULES):
                path = os.path.join(place, file)
                yield os.path.relpath(path, root), path


def imported_by(path: str, package: str) -> frozenset[str]:
    """Return the names of the top-level modules that a source file of a package imports; none for other files."""
    try:
        key = path, look(path).digest
        if key not in _imports:
            code = compile(Path(path).read_bytes(), path, 'exec', dont_inherit=True)
            _imports[key] = frozenset(imported(code, package))
        return _imports[key]
    except (OSError, SyntaxError, ValueError):   # no source of Python code
        return frozenset()


_imports: dict[tuple[str, bytes], frozenset[str]] = {}   # of source files, by path and content
_MODULES = tuple(all_suffixes())
EXTENSIONS = tuple(EXTENSION_SUFFIXES)
"""Endings of the names of extension modules."""
