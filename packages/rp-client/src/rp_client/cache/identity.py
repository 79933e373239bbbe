"""The identity of a task: the digest of what its result depends on.

It covers the description without its name, placement and limits, the content of the inputs, of the executable and of
arguments that are absolute paths of files, and a function with its arguments. The client looks for these files on its
own host; an executable that it does not find there counts by its name.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from typing import Any

from rp_api import constants as c
from rp_api.description import task as names
from rp_api.errors import DescriptionError, DeserializationError
from rp_api.functions import PythonTask, is_python_task
from rp_api.staging.directive import Directive, describe
from rp_api.staging.files import matches
from rp_api.staging.location import Sandboxes, acts_on_client, bases, resolve
from rp_api.staging.protocol import owner, transport
from rp_client.cache.digest import DigestError, digest, file_digest

_OF_NO_EFFECT = frozenset({
    names.UID, names.NAME, names.METADATA, names.PRIORITY, names.PILOT, names.PARTITION, names.TAGS, names.SLOTS,
    names.RAPTOR_ID, names.TIMEOUT, names.STARTUP_TIMEOUT, names.RESTARTABLE, names.CLEANUP, names.STAGE_ON_ERROR,
    names.AFTER, names.CACHE, names.RETRIES, names.RETRY_ON, names.RETRY_DELAY})
"""Attributes that do not change the result of a task that is DONE."""

_STAGED = (names.INPUT_STAGING, names.OUTPUT_STAGING)
_WITHOUT_RESULT = (c.TASK_SERVICE, c.AGENT_SERVICE, c.RAPTOR_MASTER, c.RAPTOR_WORKER)
_HOW = 'give such a task a key (cache="..."), which stands for all that its result depends on, or leave cache unset'


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


def identity(description: Mapping[str, Any], client_sandbox: str) -> bytes:
    """Return the identity of a task that `check` has passed.

    Args:
        description: Its attributes, with expanded staging directives.
        client_sandbox: The directory of relative paths of the client.

    Raises:
        DigestError: Its function uses something that cannot be compared.
        OSError: An input cannot be read.
    """
    key = description[names.CACHE]
    if isinstance(key, str):
        return digest(('key', key))
    rest = {name: value for name, value in description.items() if name not in _OF_NO_EFFECT | set(_STAGED)}
    if rest.get(names.USE_MPI) == (rest.get(names.RANKS, 1) > 1):   # as without it, and as in `Task.description`
        del rest[names.USE_MPI]
    if is_python_task(rest.get(names.FUNCTION, '')):
        rest[names.FUNCTION] = _call(rest[names.FUNCTION])
    inputs = [(directive['target'], _input(directive, client_sandbox))
              for directive in description.get(names.INPUT_STAGING, ())]
    outputs = [directive['source'] for directive in description.get(names.OUTPUT_STAGING, ())]
    return digest((rest, inputs, outputs, _programs(rest)))


def call_identity(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], others: Any,
                  key: bool | str) -> bytes:
    """Return the identity of a call, whose result depends on `others`, too; `key` stands for all that if it is text.

    Raises:
        DigestError: The function or an argument cannot be compared.
    """
    return digest(('key of a call', key) if isinstance(key, str) else ('call', function, args, dict(kwargs), others))


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


def _input(directive: Directive, client_sandbox: str) -> list[tuple[str, bytes]]:
    path = _path(directive, client_sandbox)
    return [(os.path.basename(found.rstrip('/')), file_digest(found)) for found in matches(path) or [path]]


def _call(text: str) -> tuple[Any, ...]:
    try:
        return PythonTask.get_func_attr(text)
    except (DeserializationError, TypeError) as error:
        raise DigestError(str(error)) from None


def _programs(description: Mapping[str, Any]) -> list[bytes]:
    """Return the digests of the executable, and of arguments that name files."""
    executable = description.get(names.EXECUTABLE, '')
    found = shutil.which(executable) if executable and ('/' not in executable or executable[0] == '/') else None
    named = [argument for argument in description.get(names.ARGUMENTS, ())
             if argument.startswith('/') and os.path.isfile(argument)]
    return [file_digest(path) for path in ([found] if found else []) + named]
