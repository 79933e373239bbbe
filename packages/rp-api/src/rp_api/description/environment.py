"""Specifications of named environments: their verification, normal form and identity.

A specification (`env_spec`) is a dict that an application passes to `Pilot.prepare_env` or
`PilotDescription.prepare_env`. Its normal form is plain data with the keys of `EnvSpec`.

An entry of `setup` is a requirement such as `numpy>=1.26`, or options of pip such as `-r requirements.txt`, or a path:
a `pyproject.toml` stands for the dependencies of its project, a directory or an archive for the project itself.
Relative paths refer to the pilot's sandbox.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, TypedDict

from rp_api.description.casts import path_part, program, text
from rp_api.description.container import container
from rp_api.errors import DescriptionError
from rp_api.record import CastError, flag, list_of, suggestion

OWN = 'rp'
"""The name of the environment that the agent runs in, which always exists."""

VENV, VIRTUALENV, CONDA, ANACONDA, MAMBA, UV = 'venv', 'virtualenv', 'conda', 'anaconda', 'mamba', 'uv'
SHELL, CONTAINER = 'shell', 'container'

BUILT = (VENV, VIRTUALENV, CONDA, ANACONDA, MAMBA, UV)
"""Types of environments that have a directory with a Python."""

TYPES = (*BUILT, SHELL, CONTAINER)

PYPROJECT = 'pyproject.toml'

_VERSION = re.compile(r'\d+(\.\d+)?\Z')
_ARCHIVES = ('.whl', '.tar.gz', '.zip')
_OF_FILES = ('.sh', '.env', '.log', '.json', '.lock')
_EDITABLE = ('-e', '--editable')
_FILE_OPTIONS = ('-r', '--requirement', '-c', '--constraint')
_ONLY_BUILT = ('version', 'path', 'setup', 'keep', 'pack')


class EnvSpec(TypedDict):
    """The normal form of a specification; an attribute that was not set has its default."""

    type: str
    version: str
    """The version of Python, as `X.Y`; empty for the default one."""
    path: str
    """The directory to use, or to build in; empty for a directory of the pilot."""
    setup: list[str]
    pre_exec: list[str]
    """Shell lines that run before the environment is built and when it is activated."""
    keep: bool | str
    """True if later pilots use the environment too; a string is the directory that keeps it."""
    pack: bool
    """True if the environment is copied to the local disks of all nodes."""
    container: dict[str, Any]
    """The container in which tasks run."""


_DEFAULTS: EnvSpec = {'type': VENV, 'version': '', 'path': '', 'setup': [], 'pre_exec': [], 'keep': False,
                      'pack': False, 'container': {}}


def normal_form(name: str, spec: Any) -> EnvSpec:
    """Return the normal form of the specification of the environment `name`; raise DescriptionError."""
    _check_name(name)
    if not isinstance(spec, Mapping):
        raise DescriptionError(f'the specification of the environment {name!r} must be a dict, not {spec!r}')
    values: dict[str, Any] = dict(_DEFAULTS)
    for key, value in spec.items():
        if key not in _CASTS:
            raise DescriptionError(f'the specification of the environment {name!r} has the unknown key {key!r}'
                                   f'{suggestion(str(key), _CASTS)}')
        if value is None:
            continue
        try:
            values[key] = _CASTS[key](value)
        except CastError as error:
            raise DescriptionError(f'{key!r} of the environment {name!r} must be {error}, not {value!r}') from None
    _check_together(name, values)
    return values   # type: ignore[return-value]  # it has all keys of the class


def identity(spec: EnvSpec, contents: Mapping[str, str]) -> str:
    """Return the identity of an environment as a hexadecimal hash.

    It is equal for equal specifications and contents, regardless of where the environment is kept or copied to.

    Args:
        spec: The specification.
        contents: Everything else that determines the environment: digests of the named files, by path, and properties
            of the host.
    """
    import hashlib
    import json

    said = {key: value for key, value in spec.items() if key not in ('keep', 'pack')}
    data = json.dumps([said, dict(contents)], sort_keys=True, ensure_ascii=True, separators=(',', ':'))
    return hashlib.sha256(data.encode()).hexdigest()


def words(entry: str) -> list[str]:
    """Return the words of a `setup` entry on the command line of pip: several for options, otherwise one."""
    import shlex

    return shlex.split(entry) if entry.startswith('-') else [entry]


def is_path(entry: str) -> bool:
    """Return whether a `setup` entry is the path of a project, an archive, or a `pyproject.toml`."""
    return (entry.startswith(('/', './', '../')) or entry in ('.', '..') or entry.endswith(_ARCHIVES)
            or is_pyproject(entry)) and '://' not in entry


def is_pyproject(entry: str) -> bool:
    """Return whether a `setup` entry stands for the dependencies of a project."""
    return not entry.startswith('-') and entry.rpartition('/')[2] == PYPROJECT


def files(spec: EnvSpec) -> Iterator[str]:
    """Yield the paths that the `setup` entries name, as they are."""
    for entry in spec['setup']:
        if is_path(entry):
            yield entry
        else:
            yield from option_files(words(entry))


def option_files(given: list[str]) -> Iterator[str]:
    """Yield the paths of the requirements and constraints files that words of pip's command line name."""
    for option, value in pairwise([*given, '']):
        name, equals, attached = option.partition('=')
        if option in _FILE_OPTIONS:
            found = value
        elif equals and name in _FILE_OPTIONS:
            found = attached
        else:
            found = option[2:] if option[:2] in _FILE_OPTIONS else ''
        if found and '://' not in found:
            yield found


def _check_name(name: Any) -> None:
    allowed = 'a string' if not isinstance(name, str) else path_part(name) if name else 'not empty'
    if allowed:
        raise DescriptionError(f'the name of an environment must be {allowed}, not {name!r}')
    if name.endswith(_OF_FILES):
        raise DescriptionError(f'the name of an environment must not end in {" or ".join(_OF_FILES)}, as {name!r}: its '
                               'files are named so')
    if name == OWN:
        raise DescriptionError(f'the name {OWN!r} of an environment is taken: it is that of the agent, which always '
                               'exists')


def _check_together(name: str, values: Mapping[str, Any]) -> None:
    kind = values['type']
    if kind in BUILT:
        if values['container']:
            raise DescriptionError(f"'container' of the environment {name!r} is set, but its type is {kind!r}: set "
                                   f'the type {CONTAINER!r}')
        if values['keep'] and values['path']:
            raise DescriptionError(f"'keep' and 'path' of the environment {name!r} are both set: an environment with "
                                   'a path is used by all pilots that name this path')
        if values['keep'] and any(word in _EDITABLE for entry in values['setup'] for word in words(entry)):
            raise DescriptionError(f"'setup' of the environment {name!r} has an editable project, which stays in the "
                                   "sandbox of its pilot: leave 'keep' unset")
        return
    for key in _ONLY_BUILT:
        if values[key]:
            raise DescriptionError(f'{key!r} of the environment {name!r} is {values[key]!r}, but environments of type '
                                   f'{kind!r} have none: leave it unset')
    if kind == SHELL and values['container']:
        raise DescriptionError(f"'container' of the environment {name!r} is set, but its type is {SHELL!r}: set the "
                               f'type {CONTAINER!r}')
    if kind == CONTAINER and not values['container']:
        raise DescriptionError(f"'container' of the environment {name!r} is not set, but its type {CONTAINER!r} needs "
                               'it: the image, or a dict as in TaskDescription.container')


def _type(value: Any) -> str:
    found = value.lower() if isinstance(value, str) else None
    if found not in TYPES:
        raise CastError(f'one of {", ".join(map(repr, TYPES))}')
    return found


def _version(value: Any) -> str:
    if not isinstance(value, str) or not (_VERSION.match(value) or not value):
        raise CastError("a string such as '3.12'")
    return value


def _path(value: Any) -> str:
    found = text(value)
    if '\0' in found or '\n' in found or found.startswith('~') or '$' in found:
        raise CastError('a path, absolute or relative to the sandbox of the pilot, without ~ and variables')
    return found


def _lines(value: Any) -> list[str]:
    found = list_of(text)(value)
    if any('\0' in line for line in found):
        raise CastError('a list of strings without NUL characters')
    return found


def _setup(value: Any) -> list[str]:
    found = [entry.strip() for entry in list_of(program)(value)]
    for entry in found:
        if not entry or '\n' in entry or '\0' in entry:
            raise CastError('a list of requirements, paths, or options of pip, one in each entry')
        try:
            words(entry)
        except ValueError as error:
            raise CastError(f'a list of valid entries ({error} in {entry!r})') from None
    return found


def _keep(value: Any) -> bool | str:
    if isinstance(value, bool):
        return value
    if isinstance(value, str | os.PathLike) and text(value).startswith('/'):
        return _path(value)
    raise CastError('True, False, or the absolute path of a directory for kept environments')


_CASTS = {'type': _type, 'version': _version, 'path': _path, 'setup': _setup, 'pre_exec': _lines, 'keep': _keep,
          'pack': flag, 'container': container}
