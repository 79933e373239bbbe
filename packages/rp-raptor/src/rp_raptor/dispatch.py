"""Runs described tasks: finds the dispatcher for the mode, and makes a result of what it gives.

Asynchronous ones go on after that: what is given for them is a coroutine. Those with an environment or a directory
of their own take turns, as the process has one of each.
"""

from __future__ import annotations

import ast
import base64
import binascii
import os
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import cache, lru_cache
from types import CodeType
from typing import TYPE_CHECKING, Any

from rp_api.constants import TASK_PROC, TASK_SHELL
from rp_api.description.task import TaskDescription
from rp_api.functions import deserialize_obj
from rp_api.states import DONE, FAILED
from rp_api.values import to_plain
from rp_raptor.capture import failure, surroundings, tail
from rp_raptor.errors import CallCanceled, CallTimeout
from rp_raptor.payload import encode_result

if TYPE_CHECKING:
    import asyncio

    from rp_raptor.worker import Worker

Function = Callable[..., Any]

_DEFAULTS = TaskDescription().as_dict()
_CONTAINERS = {name: type(value) for name, value in _DEFAULTS.items() if isinstance(value, list | dict)}
_STAGED = ('sandbox', 'input_staging', 'output_staging')


def run(worker: Worker, given: Mapping[str, Any], variables: Mapping[str, str]) -> bytes | Coroutine[Any, Any, bytes]:
    """The result of a described task as payload, or a coroutine that gives it; `variables` are for its environment."""
    task = _filled(given)
    description = task['description']
    around, directory = _around(task, variables)
    os.environ.update(RP_TASK_ID=task['uid'], RP_TASK_NAME=description['name'] or task['uid'],
                      RP_TASK_SANDBOX=task['sandbox'])
    try:
        dispatcher = worker.get_dispatcher(description['mode'])
        if around or directory:
            with surroundings(around, directory):
                outcome = dispatcher(task)
        else:
            outcome = dispatcher(task)
    except (CallTimeout, CallCanceled):
        raise
    except BaseException as error:
        outcome = failure(error)
    if hasattr(type(outcome), '__await__') and not isinstance(outcome, tuple):
        return _later(task['uid'], outcome, around, directory)
    return _result(task['uid'], outcome)


async def _later(uid: str, call: Awaitable[Any], around: Mapping[str, str], directory: str) -> bytes:
    import asyncio  # it takes long to load, and is loaded where something asynchronous runs

    try:
        if around or directory:
            async with _turns():
                with surroundings(around, directory):
                    outcome = await call
        else:
            outcome = await call
    except asyncio.CancelledError:
        raise
    except BaseException as error:
        outcome = failure(error)
    return _result(uid, outcome)


@cache
def _turns() -> asyncio.Lock:
    import asyncio

    return asyncio.Lock()


def _filled(given: Mapping[str, Any]) -> dict[str, Any]:
    """The task with a complete description, as dispatchers may look at any of its attributes."""
    empty = {name: kind() for name, kind in _CONTAINERS.items()}
    description = {**_DEFAULTS, **empty, **given['description'], 'uid': given['uid']}
    return {**given, 'description': description, 'task_sandbox_path': given['sandbox']}


def _around(task: Mapping[str, Any], variables: Mapping[str, str]) -> tuple[Mapping[str, str], str]:
    """Variables and working directory of a task; that of functions is the worker's own, unless they ask for one."""
    description = task['description']
    environment = description['environment']
    if environment:
        variables = {**variables, **{name: str(value) for name, value in environment.items()}}
    wanted = description['mode'] in (TASK_PROC, TASK_SHELL) or any(description[name] for name in _STAGED)
    return variables, task['sandbox'] if wanted else ''


def _result(uid: str, outcome: Any) -> bytes:
    try:
        return _encoded(uid, outcome)
    except Exception as error:   # the value cannot travel, or a dispatcher gave something else
        return _encoded(uid, failure(error))


def _encoded(uid: str, outcome: Any) -> bytes:
    exception: Any
    if not isinstance(outcome, tuple | list) or len(outcome) != 5:
        raise TypeError(f'a dispatcher gives (stdout, stderr, exit code, value, (exception, traceback)), '
                        f'not {outcome!r:.200}')
    out, err, code, value, exception = outcome
    what, detail = exception if exception else (None, None)
    result = {'stdout': _text(out), 'stderr': _text(err), 'exit_code': code,
              'return_value': to_plain(value, os.environ.get('RP_PILOT_SANDBOX', ''), uid),
              'exception': what, 'exception_detail': detail, 'target_state': FAILED if code else DONE}
    return encode_result({name: each for name, each in result.items() if each is not None})


def _text(text: Any) -> Any:
    """Output as text that can travel, None if there is none; dispatchers may give lists, one entry per rank."""
    if not text or isinstance(text, list):
        return text or None
    text = tail(str(text))
    return text if text.isascii() else text.encode(errors='replace').decode()


def python_task(text: str) -> tuple[Function, list[Any], dict[str, Any]] | None:
    """Function and arguments that a PythonTask holds; None for other texts.

    The function is restored once for several tasks that have it. DeserializationError if that fails, TypeError if it
    is no function.
    """
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    if not (data.startswith(b'\x80') and data.endswith(b'.')):
        return None
    call = deserialize_obj(data)
    if not isinstance(call, dict) or set(call) != {'func', 'args', 'kwargs'}:
        raise TypeError('this text holds no function call: it was not made by PythonTask')
    return _restored(call['func']), list(call['args']), dict(call['kwargs'])


@lru_cache(maxsize=64)
def _restored(data: bytes) -> Function:
    func = deserialize_obj(data)
    if not callable(func):
        raise TypeError(f'this text holds {type(func).__name__}, which cannot be called')
    return func  # type: ignore[no-any-return]


@lru_cache(maxsize=256)
def expression(code: str) -> CodeType:
    """An expression, ready to be evaluated."""
    return compile(code.strip(), '<task>', 'eval')


@lru_cache(maxsize=256)
def statements(code: str, before: tuple[str, ...]) -> CodeType:
    """Statements as the body of the function `_task`, so that they can return something; `before` come first."""
    module = ast.parse('def _task(): pass')
    body = ast.parse('\n'.join([*before, code]), '<task>').body
    module.body[0].body = body or module.body[0].body  # type: ignore[attr-defined]
    return compile(module, '<task>', 'exec')
