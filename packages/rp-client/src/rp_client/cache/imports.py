"""The modules that code imports by statements, without importing them here: which files or versions they are.

Modules count with the whole package that they belong to, and with all that these import. A function that imports a
module when it is called may run where the module differs, or is not there at all.
"""

from __future__ import annotations

import dis
import importlib.util
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from importlib import metadata
from pathlib import Path
from types import CodeType


def imported(code: CodeType, package: str) -> Iterator[str]:
    """Yield the names of the top-level modules that code of a package imports, with those of the functions in it."""
    found = [each for each in dis.get_instructions(code) if each.opname != 'EXTENDED_ARG']
    for level, _, instruction in zip(found, found[1:], found[2:], strict=False):
        if instruction.opname == 'IMPORT_NAME':
            yield (package if level.argval else instruction.argval).partition('.')[0]
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from imported(constant, package)


def modules(names: Iterable[str], is_installed: Callable[[str], bool]) -> dict[str, list[tuple[str, str]] | str]:
    """Return what top-level modules are, with those that they import.

    Args:
        names: Their names.
        is_installed: Whether a file belongs to Python or to an installed package.

    Returns:
        By name, the relative names and the paths of all source files of the user's own code; the version of others.
    """
    known: dict[str, list[tuple[str, str]] | str] = {}
    left = set(names) - {'', '__main__'}
    while left:
        name = left.pop()
        if name in _installed:
            known[name] = _installed[name]
            continue
        roots = _roots(name)
        if not roots:
            known[name] = _version(name)
            continue
        if any(map(is_installed, roots)):
            known[name] = _installed[name] = _version(name)
            continue
        known[name] = files = sorted(found for root in roots for found in _sources(root))
        left |= {other for _, path in files for other in _imported_by(path, name)} - known.keys() - {'', '__main__'}
    return known


def _roots(name: str) -> list[str]:
    """Return the file of a module, or the directories of a package; empty if there are none."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):   # of a module that was made by hand
        return []
    if spec is None:
        return []
    return list(spec.submodule_search_locations or ([spec.origin] if spec.has_location and spec.origin else []))


def _sources(root: str) -> Iterator[tuple[str, str]]:
    if not os.path.isdir(root):
        yield os.path.basename(root), root
        return
    for place, below, files in os.walk(root):
        below[:] = [each for each in below if each != '__pycache__' and not each.startswith('.')]
        for file in files:
            if file.endswith('.py'):
                path = os.path.join(place, file)
                yield os.path.relpath(path, root), path


def _imported_by(path: str, package: str) -> set[str]:
    try:
        status = os.stat(path)
        key = (path, status.st_mtime_ns, status.st_size)
        if key not in _imports:
            _imports[key] = set(imported(compile(Path(path).read_bytes(), path, 'exec', dont_inherit=True), package))
        return _imports[key]
    except (OSError, SyntaxError, ValueError):   # no source of Python code
        return set()


_installed: dict[str, str] = {}   # versions by name
_imports: dict[tuple[str, int, int], set[str]] = {}   # of source files, by path, time and size


def _version(name: str) -> str:
    if name in sys.stdlib_module_names:
        return sys.version.partition(' ')[0]
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ''
