"""Files that a specification names: their digests, and the dependencies of a `pyproject.toml`."""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from rp_api.description.environment import EnvSpec, files, is_path, option_files, words

_COMMENT = re.compile(r'(^|\s+)#.*')
_NO_REQUIREMENTS = ('.whl', '.gz', '.zip', '.toml')
_SKIPPED = ('__pycache__', 'build', 'dist')


class BuildError(Exception):
    """An environment cannot be built; the text says why, in a sentence."""


def digests(spec: EnvSpec) -> dict[str, str]:
    """Return the digests of the files that a specification names, by path; raise BuildError if one cannot be read.

    Those that a requirements file names in turn are included. The digest of a directory covers all files in it, except
    hidden ones and what a build leaves behind.
    """
    found: dict[str, str] = {}
    waiting = list(files(spec))
    while waiting:
        path = waiting.pop()
        if path not in found:
            found[path] = _digest(path)
            if os.path.isfile(path) and not path.endswith(_NO_REQUIREMENTS):
                waiting += (name for name in _named_by(path) if '$' not in name)   # pip knows the variable
    return found


def _named_by(path: str) -> Iterator[str]:
    """Yield the paths of the files and projects that a requirements file names."""
    with open(path, encoding='utf-8', errors='replace') as file:
        lines = file.read().replace('\\\n', ' ').splitlines()
    for line in lines:
        entry = _COMMENT.sub('', line).strip()
        if is_path(entry):
            yield entry
        elif entry.startswith('-'):
            with suppress(ValueError):   # pip reports it
                yield from (os.path.join(os.path.dirname(path), name) for name in option_files(words(entry)))


def dependencies(path: str) -> list[str]:
    """Return the dependencies of the project that a `pyproject.toml` describes; raise BuildError if it lists none."""
    try:
        with open(path, 'rb') as file:
            data = _parse(file.read().decode())
    except (OSError, ValueError) as error:
        raise BuildError(f'{path} cannot be read: {error}') from error
    project = data.get('project')
    if not isinstance(project, dict):
        raise BuildError(f'{path} has no table "project", so it does not list dependencies')
    if 'dependencies' in project.get('dynamic', ()):
        raise BuildError(f'the dependencies in {path} are dynamic: name the directory of the project in "setup", which '
                         'installs the project itself')
    found: list[str] = project.get('dependencies', [])
    return found


def _parse(text: str) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        try:
            from pip._vendor import tomli as tomllib
        except ImportError as error:
            raise BuildError('the Python 3.10 of the agent cannot read a pyproject.toml: install pip beside the agent, '
                             'or set the type uv') from error
    found: dict[str, Any] = tomllib.loads(text)
    return found


def _digest(path: str) -> str:
    found = hashlib.sha256()
    try:
        for name in sorted(_tree(path)) if os.path.isdir(path) else [path]:
            with open(name, 'rb') as file:
                content = file.read()
            found.update(f'{os.path.relpath(name, path)}\0{len(content)}\0'.encode(errors='surrogateescape'))
            found.update(content)
    except OSError as error:
        raise BuildError(f'{path!r}, which "setup" names, cannot be read in {os.getcwd()}: {error.strerror}') from error
    return found.hexdigest()


def _tree(path: str) -> Iterator[str]:
    for directory, inner, names in os.walk(path):
        inner[:] = [name for name in inner if name not in _SKIPPED and not name.startswith('.')
                    and not name.endswith('.egg-info')]
        yield from (os.path.join(directory, name) for name in names
                    if not name.startswith('.') and os.path.isfile(os.path.join(directory, name)))
