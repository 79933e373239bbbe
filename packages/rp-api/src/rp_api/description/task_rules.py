"""Rules of task descriptions: casts and checks of single attributes, and which attributes go together."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from rp_api import constants as c
from rp_api.description.casts import TASK_UID, list_of, text
from rp_api.description.typed import Description
from rp_api.errors import DescriptionError, attribute_type_error
from rp_api.failures import retry_rules
from rp_api.record import CastError

RESERVED_UIDS = ('client', 'resource', 'pilot')
"""Words that are valid where a uid is expected."""

# the required attribute of each mode; RAPTOR masters and workers have defaults for all attributes
_NEEDED = {
    **dict.fromkeys((c.TASK_EXECUTABLE, c.TASK_SERVICE, c.AGENT_SERVICE, c.TASK_PROC), 'executable'),
    c.TASK_FUNCTION: 'function', c.TASK_METHOD: 'method', c.TASK_EVAL: 'code', c.TASK_EXEC: 'code',
    c.TASK_SHELL: 'command',
}

_SERVICE_MODES = (c.TASK_SERVICE, c.AGENT_SERVICE)
_KEPT_UP = (*_SERVICE_MODES, c.RAPTOR_MASTER, c.RAPTOR_WORKER)
_OF_AGENTS = (c.TASK_EXECUTABLE, *_SERVICE_MODES)
# the modes of tasks that run in a process of a RAPTOR worker, or as a child of one
_OF_WORKERS = (c.TASK_FUNCTION, c.TASK_METHOD, c.TASK_EVAL, c.TASK_EXEC, c.TASK_PROC, c.TASK_SHELL)

_set = dict.get   # the value that was set: reading a default as an attribute would set it


def function(value: Any) -> Any:
    """Cast to a function, to the name of one of the worker's, or to the text of a `PythonTask`."""
    if type(value) is str or callable(value):
        return value
    if isinstance(value, str):
        from rp_api.description.python_task import PythonTask  # few tasks are functions

        return value if isinstance(value, PythonTask) else str(value)
    return text(value)


def per_rank(value: Any) -> Any:
    """Cast to a command for all ranks, or to a dict with a command or list of commands for each rank number."""
    if isinstance(value, str):
        return value
    if isinstance(value, os.PathLike):
        return text(value)
    if not isinstance(value, Mapping) or not all(str(rank).isdecimal() for rank in value):
        raise CastError('a command or a dict of rank numbers with commands')
    commands = {str(rank): cmd if isinstance(cmd, str) else list_of(str)(cmd) for rank, cmd in value.items()}
    return value if commands == value and isinstance(value, dict) else commands


def service(value: Any) -> dict[str, Any]:
    """Cast to the settings of a service."""
    from rp_api.description import service  # few tasks are services

    return service.service(value) if value != {} else value


def cache(value: Any) -> bool | str:
    """Cast to a bool, or to a key, which is not empty."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str | os.PathLike) and text(value):
        return str(text(value))
    raise CastError('True, False or a key, which is text')


def uid(value: str) -> str | None:
    """Check `uid`."""
    if value in RESERVED_UIDS:
        return f'none of the reserved words {", ".join(RESERVED_UIDS)}'
    return TASK_UID(value)


def services(value: list[str]) -> str | None:
    """Check `services`."""
    return None if all(value) else 'names or uids of services, which are not empty'


def gpus(value: float) -> str | None:
    """Check `gpus_per_rank`."""
    if value < 0 or (value > 1 and value != int(value)):
        return 'a share of a GPU from 0 to 1, or a whole number of GPUs'
    return None


def niceness(value: int) -> str | None:
    """Check `nice`."""
    return None if 0 <= value <= 19 else 'a number from 0 to 19'


def verify(task: Description) -> None:
    """Verify the attributes of a task as a whole; all values have their types."""
    mode = task.mode
    if mode not in c.TASK_MODES and not task.raptor_id:
        raise attribute_type_error(f'TaskDescription.mode must be one of {", ".join(map(repr, c.TASK_MODES))}, or, '
                                   f'with raptor_id, one that the workers have registered, not {mode!r}')
    if mode in _SERVICE_MODES or _set(task, 'service'):
        _verify_service(task)
    if mode == c.TASK_METHOD and not task['method']:
        if callable(task['function']):
            raise attribute_type_error('TaskDescription.method must be the name of a method of the worker, not '
                                       f'{task["function"]!r:.80}')
        task['method'] = task['function']
    needed = _NEEDED.get(mode)
    if needed and not task[needed]:
        raise DescriptionError(f'TaskDescription.{needed} is not set, but tasks of mode {mode!r} need it')
    if mode in _OF_AGENTS and _set(task, 'args') and not _set(task, 'arguments') and not task.raptor_id:
        raise DescriptionError(f'TaskDescription.args is {task["args"]!r}, but it is for functions: tasks of mode '
                               f'{mode!r} have "arguments"')
    if mode in _OF_WORKERS and _set(task, 'container'):
        raise DescriptionError(f'TaskDescription.container is {task["container"]!r}, but tasks of mode {mode!r} run '
                               "in their worker's container: leave it unset")
    if _set(task, 'nice') and (mode in _OF_WORKERS or (task.raptor_id and mode not in _KEPT_UP)):
        raise DescriptionError(f'TaskDescription.nice is {task["nice"]!r}, but calls of RAPTOR have the niceness of '
                               'their worker: set it in the description of the worker')
    if _set(task, 'transport'):
        _verify_transport(task)
    if any(_set(task, name) for name in ('retries', 'retry_on', 'retry_with', 'expect')):
        _verify_attempts(task)
    task.verify_call()


def _verify_transport(task: Description) -> None:
    if task.mode != c.RAPTOR_WORKER:
        raise DescriptionError(f'TaskDescription.transport is {task["transport"]!r}, but the mode is {task.mode!r}: it '
                               f'is for tasks of mode {c.RAPTOR_WORKER!r}')
    if task['transport'] == c.TRANSPORT_MPI and _set(task, 'container'):
        raise DescriptionError(f'TaskDescription.transport is {task["transport"]!r}, but the MPI job that carries the '
                               'calls cannot run in a container: leave transport or container unset')


def _verify_attempts(task: Description) -> None:
    mode = task.mode
    for name in ('retry_on', 'retry_with'):
        if _set(task, name) and not task.retries:
            raise DescriptionError(f'TaskDescription.{name} is {task[name]!r}, but retries is 0: set retries')
    if _set(task, 'retry_with'):
        task['retry_with'] = _verified_changes(task)
    if mode in _KEPT_UP:
        name = 'retries' if _set(task, 'retries') else 'expect'
        raise DescriptionError(f'TaskDescription.{name} is {task[name]!r}, but tasks of mode {mode!r} run until '
                               'they are stopped: leave it unset (a service has service["restart"])')
    if _set(task, 'expect') and task.raptor_id and mode != c.TASK_EXECUTABLE:
        raise DescriptionError(f'TaskDescription.expect is {task["expect"]!r}, but calls of RAPTOR leave no files: '
                               'leave it unset')


def _verified_changes(task: Description) -> dict[str, Any]:
    """Return `retry_with` with the values that the attributes are cast to; raise DescriptionError."""
    changes: dict[str, Any] = task['retry_with']
    new = {name: value for name, value in changes.items() if not retry_rules.is_relative(name, value)}
    try:
        description = type(task)({'executable': 'any', **new})
        description.verify()
    except DescriptionError as error:
        raise DescriptionError(f'TaskDescription.retry_with is {changes!r}: {error}') from None
    return {**changes, **{name: description[name] for name in new}}


def _verify_service(task: Description) -> None:
    from rp_api.description import service  # few tasks are services

    if task.mode not in _SERVICE_MODES:
        raise DescriptionError(f'TaskDescription.service is set, but the mode is {task.mode!r}: set the mode '
                               f'{c.TASK_SERVICE!r}')
    if task.raptor_id:
        raise DescriptionError(f'TaskDescription.raptor_id is {task.raptor_id!r}, but the agent runs services '
                               'itself: leave it unset')
    service.check(_set(task, 'service') or {}, _set(task, 'info_pattern') or '')


def verify_call(task: Description) -> None:
    """Verify the combination of attributes of a function or method task; raise DescriptionError."""
    mode = task.mode
    if mode not in (c.TASK_FUNCTION, c.TASK_METHOD):
        return
    if task.named_env:
        raise DescriptionError(f'TaskDescription.named_env is {task.named_env!r}, but tasks of mode {mode!r} run '
                               "in their worker's environment: leave it unset")
    if _set(task, 'args') or _set(task, 'kwargs'):
        from rp_api.description.python_task import is_python_task

        if not callable(task.function) and is_python_task(task.function):
            raise DescriptionError('TaskDescription.function includes its arguments, because PythonTask created '
                                   'it: leave args and kwargs unset')
