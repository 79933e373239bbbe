"""Runs described tasks: finds the dispatcher for the mode, and makes a result of what it gives.

Asynchronous ones go on after that: what is given for them is a coroutine. Those with an environment or a directory
of their own take turns, as the process has one of each.
"""

from __future__ import annotations

import ast
import base64
import binascii
import os
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import cache, lru_cache
from types import CodeType
from typing import TYPE_CHECKING, Any

from rp_api.functions import deserialize_obj
from rp_api.states import DONE, FAILED
from rp_api.values import to_plain
from rp_raptor.errors import CallCanceled, CallTimeout
from rp_raptor.rank.capture import failure, tail, task_environment
from rp_raptor.rank.prepared import Prepared
from rp_raptor.rank.variable import Variable
from rp_raptor.wire.payload import encode_result, encode_success

if TYPE_CHECKING:
    import asyncio

    from rp_raptor.rank.worker import Worker

Function = Callable[..., Any]
Task = Mapping[str, Any]
Call = tuple[Function, Sequence[Any], Mapping[str, Any]]

OF_TASK = 'RP_TASK_ID', 'RP_TASK_NAME', 'RP_TASK_SANDBOX'
"""Variables of each task."""

_id, _name, _sandbox = map(Variable, OF_TASK)

_PARTS = {'func', 'args', 'kwargs'}
_SCALARS = frozenset({int, float, bool, str, bytes, type(None)})   # what a function cannot change
_LONGEST_KEPT = 16 << 10   # characters of a text whose bytes are kept for the next task


def run(worker: Worker, prepared: Prepared, own: Mapping[str, Any], uid: str, sandbox: str,
        variables: Mapping[str, str]) -> bytes | Coroutine[Any, Any, bytes]:
    """The result of a described task as payload, or a coroutine that gives it.

    `own` is what the task has instead of what is prepared, see there; `variables` are for its environment.
    """
    task = {'uid': uid, 'description': prepared.description(uid, own), 'sandbox': sandbox,
            'task_sandbox_path': sandbox}
    around = {**variables, **prepared.variables} if variables else prepared.variables
    directory = sandbox if prepared.in_sandbox else ''
    _id.set(uid)
    _name.set(prepared.name or uid)
    _sandbox.set(sandbox)
    try:
        dispatcher = worker.get_dispatcher(prepared.mode)
        if around or directory:
            with task_environment(around, directory):
                outcome = dispatcher(task)
        else:
            outcome = dispatcher(task)
    except (CallTimeout, CallCanceled):
        raise
    except BaseException as error:
        outcome = failure(error)
    if not isinstance(outcome, tuple) and hasattr(type(outcome), '__await__'):
        return _later(prepared, task, outcome, around, directory)
    return _result(prepared, task, outcome)


async def _later(prepared: Prepared, task: Task, call: Awaitable[Any], around: Mapping[str, str],
                 directory: str) -> bytes:
    import asyncio  # it takes long to load, and is loaded where something asynchronous runs

    try:
        if around or directory:
            async with _turns():
                with task_environment(around, directory):
                    outcome = await call
        else:
            outcome = await call
    except asyncio.CancelledError:
        raise
    except BaseException as error:
        outcome = failure(error)
    return _result(prepared, task, outcome)


@cache
def _turns() -> asyncio.Lock:
    import asyncio

    return asyncio.Lock()


def _result(prepared: Prepared, task: Task, outcome: Any) -> bytes:
    try:
        if prepared.output:
            _keep_output(prepared, task['sandbox'], outcome)
        return _encoded(task['uid'], outcome)
    except Exception as error:   # the value cannot travel, a file cannot be written, a dispatcher gave something else
        return _encoded(task['uid'], failure(error))


def _keep_output(prepared: Prepared, sandbox: str, outcome: Any) -> None:
    """Write what was put out to the files that the task names.

    Of several ranks, all write to the same files, as those of programs do.
    """
    mode = 'a' if prepared.ranks > 1 else 'w'
    for name, text in zip(prepared.output, outcome, strict=False):
        if name:
            _write(os.path.join(sandbox, name), mode, str(text or ''))


def _write(path: str, mode: str, text: str) -> None:
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, mode, encoding='utf-8', errors='replace') as file:
            file.write(text)
    except OSError as error:
        raise RuntimeError(f'cannot write {path}: {error.strerror}') from error


def _encoded(uid: str, outcome: Any) -> bytes:
    exception: Any
    if not isinstance(outcome, (tuple, list)) or len(outcome) != 5:
        raise TypeError(f'a dispatcher gives (stdout, stderr, exit code, value, (exception, traceback)), '
                        f'not {outcome!r:.200}')
    out, err, code, value, exception = outcome
    what, detail = exception if exception else (None, None)
    plain = None if value is None else to_plain(value, _pilot_sandbox(), uid)
    if code == 0 and what is None and not out and not err:   # most of them
        return encode_success(plain)
    result = {'stdout': _text(out), 'stderr': _text(err), 'exit_code': code, 'return_value': plain,
              'exception': what, 'exception_detail': detail, 'target_state': FAILED if code else DONE}
    return encode_result({name: each for name, each in result.items() if each is not None})


@cache
def _pilot_sandbox() -> str:
    return os.environ.get('RP_PILOT_SANDBOX', '')


def _text(text: Any) -> Any:
    """Output as text that can travel, None if there is none; dispatchers may give lists, one entry per rank."""
    if not text or isinstance(text, list):
        return text or None
    text = tail(str(text))
    return text if text.isascii() else text.encode(errors='replace').decode()


def python_task(text: str) -> tuple[Function, list[Any], dict[str, Any]] | None:
    """Function and arguments that a PythonTask holds; None for other texts.

    The function is restored once for several tasks that have it, and so are arguments that nobody can change.
    DeserializationError if that fails, TypeError if it is no function.
    """
    found = _pickle_in(text) if len(text) < _LONGEST_KEPT else _pickle_in.__wrapped__(text)
    if found is None:
        return None
    func, args, kwargs = _call_in(found) if isinstance(found, bytes) else found
    return func, list(args), dict(kwargs)


@lru_cache(maxsize=256)
def _pickle_in(text: str) -> bytes | Call | None:
    """The pickle that a text holds, if it looks like one; or the call in it, if that is the same each time."""
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    if not (data.startswith(b'\x80') and data.endswith(b'.')):
        return None
    call = _call_in(data)
    return call if _SCALARS.issuperset(map(type, (*call[1], *call[2].values()))) else data


def _call_in(data: bytes) -> Call:
    call = deserialize_obj(data)
    if not isinstance(call, dict) or call.keys() != _PARTS:
        raise TypeError('this text holds no function call: it was not made by PythonTask')
    return _restored(call['func']), call['args'], call['kwargs']


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
