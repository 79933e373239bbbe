"""Installed packages: whether a module belongs to one or to Python, and digests of what packages contain.

A package counts by its RECORD, which has the digests of its files, by the content of files in its directories that
RECORD does not list, and by the packages that it requires.
"""

from __future__ import annotations

import os
import re
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from rp_client.cache.files import Content, Memo, joined, look, of_status, status_of

PYTHON = f'{sys.implementation.cache_tag} {sys.version}'.encode()
"""The identity of this Python with its own modules."""

_SITES = ('site-packages', 'dist-packages')
_INFOS = ('.dist-info', '.egg-info')
_RECORD = 'RECORD'
_REQUIRED = re.compile(r'^Requires-Dist:\s*([\w.-]+)', re.MULTILINE)


def is_python(file: str) -> bool:
    """Return whether a file is of Python itself."""
    return _is_below(file, _stdlib()) and not is_installed(file)


def is_installed(file: str) -> bool:
    """Return whether a file is in a directory of installed packages; those of editable ones are not."""
    return _is_below(file, sites())


@cache
def _is_below(file: str, places: tuple[str, ...]) -> bool:
    return os.path.realpath(file).startswith(tuple(place + os.sep for place in places))


def content(module: str) -> Content:
    """Return the digest of the packages that provide a top-level module, with all that they require."""
    return in_sites(module, sites())


def in_sites(module: str, places: Iterable[str]) -> Content:
    """Like `content`, of a module in directories of packages, such as those of another Python."""
    known = [found for place in places for found in _installed_in(place)]
    wanted = [found for found in known if module in found.tops] or _undescribed(module, places)
    return _together(_with_required(wanted, known))


def all_of(places: Iterable[str]) -> Content:
    """Return the digest of all packages in directories."""
    return _together(found for place in places for found in _installed_in(place))


class _Package(NamedTuple):
    """An installed package: its normalized name, directory, RECORD, top-level entries and requirements."""

    name: str
    place: str
    info: str
    tops: frozenset[str]
    requires: frozenset[str]


@cache
def _stdlib() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    return tuple({os.path.realpath(paths[name]) for name in ('stdlib', 'platstdlib')})


def sites() -> tuple[str, ...]:
    """Return the directories of installed packages."""
    return _sites(tuple(sys.path))


@cache
def _sites(paths: tuple[str, ...]) -> tuple[str, ...]:
    own = [sysconfig.get_paths()[name] for name in ('purelib', 'platlib')]
    found = map(os.path.realpath, [*own, *(path for path in paths if path.endswith(_SITES))])
    return tuple(dict.fromkeys(path for path in found if os.path.isdir(path)))


def _together(packages: Iterable[_Package]) -> Content:
    parts = []
    for package in packages:
        path = os.path.join(package.place, package.info or package.name)
        _known[path] = package
        parts.append(joined(b'package', [package.name.encode(), *_memo.get(path)]))
    found = joined(b'packages', sorted(parts))
    return Content(found, found)


def _with_required(packages: list[_Package], known: list[_Package]) -> set[_Package]:
    by_name = {found.name: found for found in reversed(known)}
    left, found = list(packages), set()
    while left:
        package = left.pop()
        if package not in found:
            found.add(package)
            left += [by_name[name] for name in package.requires if name in by_name]
    return found


_indexed: dict[str, tuple[tuple[int, ...], list[_Package]]] = {}   # by directory, with its status


def _installed_in(place: str) -> list[_Package]:
    status = of_status(os.stat(place))
    if place not in _indexed or _indexed[place][0] != status:
        _indexed[place] = status, [_package(place, name) for name in sorted(os.listdir(place)) if name.endswith(_INFOS)]
    return _indexed[place][1]


def _package(place: str, info: str) -> _Package:
    described = _text(place, info, 'METADATA') or _text(place, info, 'PKG-INFO') or _text(place, info)
    name = _normal(info.rpartition('.')[0].partition('-')[0])
    tops = {path.partition('/')[0] for path in _listed(place, info)} or set(_text(place, info, 'top_level.txt').split())
    return _Package(name, place, info, frozenset(top.partition('.')[0] if top.endswith(('.py', '.so')) else top
                                                 for top in tops if top != '__pycache__' and not top.endswith(_INFOS)),
                    frozenset(map(_normal, _REQUIRED.findall(described))))


def _undescribed(module: str, places: Iterable[str]) -> list[_Package]:
    """Return a module that was copied to a directory of packages."""
    return [_Package(module, place, '', frozenset({module}), frozenset()) for place in places
            if any(name.partition('.')[0] == module for name in os.listdir(place))]


def _listed(place: str, info: str) -> Iterator[str]:
    """Yield the relative paths in RECORD."""
    for line in _text(place, info, _RECORD).splitlines():
        path = line.rsplit(',', 2)[0].strip('"')
        if path and not path.startswith(('..', '/')):
            yield path


def _text(*path: str) -> str:
    try:
        return Path(*path).read_text(encoding='utf-8', errors='replace')
    except OSError:
        return ''


def _normal(name: str) -> str:
    return re.sub(r'[-_.]+', '-', name).lower()


def _digests(packed: str, read: dict[str, tuple[int, ...]]) -> list[bytes]:
    """Return the digests of RECORD and of the files that it does not list."""
    package = _known[packed]
    record = os.path.join(package.place, package.info, _RECORD)
    read[record] = status_of(record)
    parts = [_text(record).encode()]
    listed = {path for other in _installed_in(package.place) if other.tops & package.tops   # of a namespace, too
              for path in _listed(package.place, other.info)}
    for path in _files(package, read):
        relative = os.path.relpath(path, package.place)
        if relative not in listed:
            read[path] = status_of(path)
            parts += [os.fsencode(relative), look(path).digest]
    return parts


_known: dict[str, _Package] = {}   # by path
_memo = Memo(_digests)


def _files(package: _Package, read: dict[str, tuple[int, ...]]) -> Iterator[str]:
    """Yield the files of a package, and note the status of its directories."""
    for name in sorted(os.listdir(package.place)):
        path = os.path.join(package.place, name)
        if name.partition('.')[0] not in package.tops and name not in package.tops:
            continue
        if not os.path.isdir(path):
            yield path
            continue
        for place, below, files in os.walk(path):
            read[place] = status_of(place)
            below[:] = sorted(each for each in below if each != '__pycache__')
            yield from filter(os.path.exists, (os.path.join(place, each) for each in sorted(files)))
