"""The identity of a task: the digest of what its result depends on.

It covers the description without its name, placement and limits, the content of the inputs, of the executable and of
arguments that are absolute paths, a function with its arguments, and what surrounds the task. The client looks at these
on its own host. What it cannot judge has no identity, and is not cached unless a key stands for it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rp_api import constants as c
from rp_api.description import task as names
from rp_api.description.python_task import PythonTask, is_python_task, shown_call
from rp_api.errors import DescriptionError, DeserializationError
from rp_api.staging.directive import Directive, describe
from rp_api.staging.files import matches
from rp_api.staging.location import Sandboxes, acts_on_client, bases, resolve
from rp_api.staging.protocol import owner, transport
from rp_client.cache import imports
from rp_client.cache.digest import DigestError, digest
from rp_client.cache.files import Seen
from rp_client.cache.notes import Identity, identity_of
from rp_client.cache.surroundings import Surroundings

_OF_NO_EFFECT = frozenset({
    names.UID, names.NAME, names.METADATA, names.PRIORITY, names.PILOT, names.PARTITION, names.TAGS, names.SLOTS,
    names.RAPTOR_ID, names.TIMEOUT, names.STARTUP_TIMEOUT, names.RESTARTABLE, names.CLEANUP, names.STAGE_ON_ERROR,
    names.AFTER, names.CACHE, names.RETRIES, names.RETRY_ON, names.RETRY_DELAY})
"""Attributes that do not change the result of a task that is DONE."""

_STAGED = (names.INPUT_STAGING, names.OUTPUT_STAGING)
_WITHOUT_RESULT = (c.TASK_SERVICE, c.AGENT_SERVICE, c.RAPTOR_MASTER, c.RAPTOR_WORKER)
_HOW = 'give such a task cache=rp.Cache(key=...), which stands for all that its result depends on, or leave cache unset'

_MOST_ENTRIES = 10_000
"""Entries of a directory that is an argument of a program; one with more is not looked at."""

OUTSIDE = (
    'files that a call or a program opens by itself, and variables of the environment that it reads',
    'the clock, the network, and randomness without a seed',
    'modules that are imported by computed names, and libraries of the system')
"""The parts that no identity covers."""


def check(description: Mapping[str, Any], uid: str) -> None:
    """Raise `DescriptionError` if the result of a verified task cannot be cached.

    Args:
        description: Its attributes, with expanded staging directives.
        uid: Its uid, for the message.
    """
    mode = description.get(names.MODE, c.TASK_EXECUTABLE)
    if mode in _WITHOUT_RESULT:
        raise DescriptionError(f'TaskDescription.cache of {uid} is set, but tasks of mode {mode!r} have no result: '
                               'leave it unset')
    for directive in description.get(names.OUTPUT_STAGING, ()):
        if not _reaches_client(directive):
            raise DescriptionError(f'TaskDescription.cache of {uid} is set, but its output stays on the platform '
                                   f'[{describe(directive)}], where the cache has no access: use the action '
                                   f'{c.TRANSFER!r} and a target of the client, or leave cache unset')
    for directive in description.get(names.INPUT_STAGING, ()) if description[names.CACHE] is True else ():
        if not _readable(directive):
            raise DescriptionError(f'TaskDescription.cache of {uid} is set, but the client cannot compare the content '
                                   f'of its input [{describe(directive)}]: {_HOW}')


def identity(description: Mapping[str, Any], client_sandbox: str, surroundings: Surroundings,
             seen: Seen | None = None) -> Identity:
    """Return the identity of a task that `check` has passed.

    Args:
        description: Its attributes, with expanded staging directives.
        client_sandbox: The directory of relative paths of the client.
        surroundings: What the task runs in.
        seen: Files and packages that are not looked at again.

    Raises:
        DigestError: Its result depends on something that cannot be judged.
        OSError: An input cannot be read.
    """
    key = description[names.CACHE]
    seen = seen or Seen()
    if isinstance(key, str):
        return identity_of(digest(('key', str(key))), seen, by_key=True)
    rest = {name: value for name, value in sorted(description.items()) if name not in _OF_NO_EFFECT | set(_STAGED)}
    if rest.get(names.USE_MPI) == (rest.get(names.RANKS, 1) > 1):   # as without it, and as in `Task.description`
        del rest[names.USE_MPI]
    if rest.get(names.SANDBOX):
        raise DigestError(f'its sandbox {rest[names.SANDBOX]!r}, in which there may be files, and in which it leaves '
                          'some: stage them')
    for name in (names.STDOUT, names.STDERR):
        if os.path.normpath(rest.get(name, '')).startswith('..'):
            raise DigestError(f'its {name} {rest[name]!r}, which is not in its sandbox: give an absolute path')
    rest = shown_call(rest)
    if is_python_task(rest.get(names.FUNCTION, '')):
        rest[names.FUNCTION] = _call(rest[names.FUNCTION])
    directives = description.get(names.INPUT_STAGING, ())
    inputs = [(directive['target'], _input(directive, client_sandbox, seen)) for directive in directives]
    outputs = [directive['source'] for directive in description.get(names.OUTPUT_STAGING, ())]
    staged = {name for target, found in inputs for name in (target, *(each for each, _ in found))}
    unpacked = any(directive['action'] == c.TARBALL for directive in directives)
    programs = [seen.file(path, most=_MOST_ENTRIES) for path in _programs(rest, None if unpacked else staged)]
    around = [surroundings.of(description, seen), *_modules(rest, seen)]
    return identity_of(digest((rest, inputs, outputs, programs, around), seen), seen, by_key=False)


def call_identity(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], others: Any,
                  key: bool | str, seen: Seen | None = None) -> Identity:
    """Return the identity of a call, whose result depends on `others`, too; `key` stands for all that if it is text.

    Files and packages in `seen` are not looked at again.

    Raises:
        DigestError: The function or an argument cannot be compared.
        OSError: A file of a module cannot be read.
    """
    seen = seen or Seen()
    value = ('key of a call', str(key)) if isinstance(key, str) else ('call', function, args, dict(kwargs), others)
    return identity_of(digest(value, seen), seen, by_key=isinstance(key, str))


def _readable(directive: Directive) -> bool:
    """Return whether the client can read the source of an input."""
    source = directive['source']
    if owner(source) or transport(source):
        return False
    scheme, separator, _ = source.partition('://')
    if not separator:
        return acts_on_client(directive['action']) or os.path.exists(source)
    return scheme in ('client', 'pwd') or (scheme in ('file', 'endpoint') and os.path.exists(_path(directive, '/')))


def _reaches_client(directive: Directive) -> bool:
    """Return whether an output gets a place that the client knows without a pilot."""
    if not acts_on_client(directive['action']):
        return False
    try:
        resolve(directive['target'], 'client', Sandboxes(client='/'))
    except DescriptionError:
        return False
    return True


def _path(directive: Directive, client_sandbox: str) -> str:
    base, _ = bases(directive['action'], output=False)
    return resolve(directive['source'], base, Sandboxes(client=client_sandbox, task=client_sandbox))


def _input(directive: Directive, client_sandbox: str, seen: Seen) -> list[tuple[str, bytes]]:
    path = _path(directive, client_sandbox)
    return [(os.path.basename(found.rstrip('/')), seen.file(found)) for found in matches(path) or [path]]


def _modules(description: Mapping[str, Any], seen: Seen) -> list[bytes]:
    """Return the digests of the modules that the code of a task imports."""
    if not description.get(names.CODE):
        return []
    try:
        code = compile(description[names.CODE], names.CODE, 'exec', dont_inherit=True)
    except (SyntaxError, ValueError):   # the task fails
        return []
    return imports.modules(imports.imported(code, ''), seen, {})


def _call(text: str) -> tuple[Any, ...]:
    try:
        return PythonTask.get_func_attr(text)
    except (DeserializationError, TypeError) as error:
        raise DigestError(str(error)) from None


def _programs(description: Mapping[str, Any], staged: set[str] | None) -> Iterator[str]:
    """Yield the paths of the executable, and of files and directories that are arguments.

    Args:
        description: The description of the task.
        staged: The names of its inputs in its sandbox; None if they are not known, as they come out of an archive.
    """
    executable = description.get(names.EXECUTABLE, '')
    if os.sep in executable and not os.path.isabs(executable):
        if staged is not None and _top(executable) not in map(_top, staged):
            raise DigestError(f'the executable {executable!r}, which is not among its inputs')
    elif executable:
        path = description.get(names.ENVIRONMENT, {}).get('PATH')
        literal = path is None or description.get(names.LITERAL_ARGUMENTS)
        found = shutil.which(executable, path=path if literal else os.path.expandvars(path))
        if found is None:
            raise DigestError(f'the executable {executable!r}, which this host does not have')
        yield found
    for argument in description.get(names.ARGUMENTS, ()):
        value = argument.partition('=')[2] if argument.startswith('-') else argument
        if os.path.isabs(value) and os.path.exists(value):
            yield value


def _top(path: str) -> str:
    """Return the first part of a relative path or URL."""
    return os.path.normpath(path.rpartition('://')[2].lstrip('/')).partition(os.sep)[0]
