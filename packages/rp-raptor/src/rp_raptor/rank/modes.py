"""Runs described tasks: selects the dispatcher of the mode, and makes a result of the outcome.

An asynchronous dispatcher yields a coroutine. Asynchronous tasks that set environment variables or a directory run one
at a time, as a process has one of each.
"""

from __future__ import annotations

import ast
import base64
import binascii
import os
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from functools import cache, cached_property, lru_cache
from types import CodeType
from typing import TYPE_CHECKING, Any, Protocol

from rp_api import pickles, states
from rp_api.by_value.classes import restored
from rp_api.functions import deserialize_obj
from rp_api.values import to_plain
from rp_profiling.write.calls import ASYNC, DONE, FAILED, INTERRUPTED, TASK
from rp_raptor.errors import CallCanceled, CallTimeout
from rp_raptor.rank.capture import failure, tail, task_environment
from rp_raptor.rank.prepared import Prepared
from rp_raptor.rank.process_end import end_if_forked
from rp_raptor.rank.variable import Variable
from rp_raptor.wire.described import write_success
from rp_raptor.wire.payload import encode_result, encode_success, has_failed
from rp_raptor.wire.rank_protocol import RANK_VARIABLE

if TYPE_CHECKING:
    import asyncio

    from rp_raptor.own_profile import Profile
    from rp_raptor.rank.recorder import CallRecorder

Function = Callable[..., Any]
Task = dict[str, Any]
Dispatcher = Callable[[Task], Any]
Call = tuple[Function, Sequence[Any], Mapping[str, Any]]

OF_TASK = 'RP_TASK_ID', 'RP_TASK_NAME', 'RP_TASK_SANDBOX'
"""Environment variables of each task."""

BEGUN = 'task_start', 'task_run_start', 'task_run_ok', 'exec_start', 'rank_start'
ENDED = 'rank_stop', 'exec_stop', 'task_run_stop'
"""Events of each task, at the start and at the end of its work on a rank."""

_id, _name, _sandbox = map(Variable, OF_TASK)

_changes = [0]   # see `rp_api.by_value.classes`, at the last task

_PARTS = {'func', 'args', 'kwargs'}
_SCALARS = frozenset({int, float, bool, str, bytes, type(None)})   # immutable arguments
_LONGEST_KEPT = 16 << 10   # characters of a text whose decoded form is cached


class Dispatchers(Protocol):
    """The interface of worker objects."""

    def get_dispatcher(self, name: str) -> Dispatcher:
        """Return the dispatcher of a mode; ValueError if there is none."""


class Host:
    """The interface of a worker object to its rank, apart from the attributes that users' classes may set.

    `readers` are the functions of dispatchers that do not change the task and pass it on to no one. `comm` is the
    communicator of the running task, None if it has one rank. `recorder` has the records of asynchronous tasks.
    """

    recorder: CallRecorder

    def __init__(self, worker: Dispatchers, uid: str, readers: Collection[object]) -> None:
        self.worker = worker
        self.readers = readers
        self.sandbox = os.environ.get('RP_TASK_SANDBOX', '')   # of the worker: calls change the variable
        self.comm: Any = None
        self.modes: dict[str, Dispatcher] = {}
        self._uid = uid

    @cached_property
    def profile(self) -> Profile:
        """The profile of the rank."""
        from rp_raptor.own_profile import WORKER, Profile, worker_detail  # not all objects of this class need it

        name = f'{self._uid or "worker"}.{os.environ.get(RANK_VARIABLE, 0)}'
        return Profile(self.sandbox, name, f'{WORKER}.{name}', worker_detail())

    def adopt(self, other: Host) -> None:
        """Take the modes of another one that are not registered here, and its profile if there is none yet."""
        self.modes = {**other.modes, **self.modes}
        vars(self).setdefault('profile', other.profile)

    def close(self) -> None:
        """Close the profile."""
        if 'profile' in vars(self):
            self.profile.close()


def run(host: Host, prepared: Prepared, own: Mapping[str, Any], uid: str, sandbox: str,
        variables: Mapping[str, str]) -> bytes | Coroutine[Any, Any, bytes]:
    """Return the result of a described task as payload, or a coroutine that returns it.

    `own` are the attributes in which the task differs from `prepared`; `variables` are added to its environment.
    """
    task: Task = {'uid': uid, 'sandbox': sandbox, 'task_sandbox_path': sandbox}
    around = {**variables, **prepared.variables} if variables else prepared.variables
    directory = sandbox if prepared.in_sandbox else ''
    profile = host.profile
    profile.record_many(uid, BEGUN)
    _id.set(uid)
    _name.set(prepared.name or uid)
    _sandbox.set(sandbox)
    try:
        dispatcher = host.worker.get_dispatcher(prepared.mode)
        only_reads = getattr(dispatcher, '__func__', None) in host.readers
        task['description'] = prepared.readable(own) if only_reads else prepared.description(uid, own)
        if around or directory:
            with task_environment(around, directory):
                outcome = dispatcher(task)
        else:
            outcome = dispatcher(task)
    except (CallTimeout, CallCanceled):
        profile.record_many(uid, ENDED)
        raise
    except BaseException as error:
        end_if_forked(error)
        outcome = failure(error)
    end_if_forked()
    if not isinstance(outcome, tuple) and hasattr(type(outcome), '__await__'):
        return _later(host, prepared, task, outcome, around, directory)
    result = _result(prepared, task, outcome)
    profile.record_many(uid, ENDED)
    return result


async def _later(host: Host, prepared: Prepared, task: Task, call: Awaitable[Any], around: Mapping[str, str],
                 directory: str) -> bytes:
    recorder = host.recorder
    start, kind = recorder.now(), TASK | ASYNC | INTERRUPTED
    try:
        result = _result(prepared, task, await _outcome(call, around, directory))
        kind = TASK | ASYNC | (FAILED if has_failed(result) else DONE)
        return result
    finally:
        host.profile.record_many(task['uid'], ENDED)
        recorder.since(start, kind)


async def _outcome(call: Awaitable[Any], around: Mapping[str, str], directory: str) -> Any:
    import asyncio  # slow to import, and needed for asynchronous tasks only

    try:
        if around or directory:
            async with _turns():
                with task_environment(around, directory):
                    return await call
        return await call
    except asyncio.CancelledError:
        raise
    except BaseException as error:
        end_if_forked(error)
        return failure(error)
    finally:
        end_if_forked()


@cache
def _turns() -> asyncio.Lock:
    import asyncio

    return asyncio.Lock()


def _result(prepared: Prepared, task: Task, outcome: Any) -> bytes:
    try:
        if prepared.output:
            _keep_output(prepared, task['sandbox'], outcome)
        return _encoded(task['uid'], outcome)
    except Exception as error:   # a value cannot be serialized, a file cannot be written, the outcome is not valid
        return _encoded(task['uid'], failure(error))


def _keep_output(prepared: Prepared, sandbox: str, outcome: Any) -> None:
    """Write the output to the files that the task names; several ranks append to the same files."""
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
        raise TypeError(f'a dispatcher must return (stdout, stderr, exit code, value, (exception, traceback)), '
                        f'not {outcome!r:.200}')
    out, err, code, value, exception = outcome
    what, detail = exception if exception else (None, None)
    usual = code == 0 and what is None and not out and not err
    if usual and (packed := write_success(value)):
        return packed
    plain = None if value is None else to_plain(value, _pilot_sandbox(), uid)
    if usual:
        return encode_success(plain)
    result = {'stdout': _text(out), 'stderr': _text(err), 'exit_code': code, 'return_value': plain,
              'exception': what, 'exception_detail': detail, 'target_state': states.FAILED if code else states.DONE}
    return encode_result({name: each for name, each in result.items() if each is not None})


@cache
def _pilot_sandbox() -> str:
    return os.environ.get('RP_PILOT_SANDBOX', '')


def _text(text: Any) -> Any:
    """Return output as text that can be encoded, None if empty; dispatchers may return lists with a text per rank."""
    if not text or isinstance(text, list):
        return text or None
    text = tail(str(text))
    return text if text.isascii() else text.encode(errors='replace').decode()


def python_task(text: str) -> tuple[Function, list[Any], dict[str, Any]] | None:
    """Return function and arguments of a PythonTask; None for other texts.

    The function is unpickled once for all tasks that have it, as are immutable arguments. DeserializationError if that
    fails, TypeError if the text holds no function.
    """
    _drop_outdated()
    found = _pickle_in(text) if len(text) < _LONGEST_KEPT else _pickle_in.__wrapped__(text)
    if found is None:
        return None
    func, args, kwargs = _call_in(found) if isinstance(found, bytes) else found
    return func, list(args), dict(kwargs)


def packed_call(function: bytes, arguments: bytes) -> Call:
    """Return function and arguments of a packed call (see `rp_api.description.python_task`), as `python_task` does."""
    _drop_outdated()
    found: Any = pickles.restore(arguments, 'the arguments')
    return _restored(function), found['args'], found['kwargs']


def _drop_outdated() -> None:
    """Drop what was unpickled before another pickle has changed a class that it may use."""
    if restored.changes != _changes[0]:
        _changes[0] = restored.changes
        _pickle_in.cache_clear()
        _restored.cache_clear()


@lru_cache(maxsize=256)
def _pickle_in(text: str) -> bytes | Call | None:
    """Return the pickle in a text, or the call in it if its arguments are immutable; None if there is no pickle."""
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    if not pickles.is_pickle(data):
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
    """Return a compiled expression."""
    return compile(code.strip(), '<task>', 'eval')


@lru_cache(maxsize=256)
def statements(code: str, before: tuple[str, ...]) -> CodeType:
    """Return statements compiled as body of the function `_task`, so that they can return; `before` come first."""
    module = ast.parse('def _task(): pass')
    body = ast.parse('\n'.join([*before, code]), '<task>').body
    module.body[0].body = body or module.body[0].body  # type: ignore[attr-defined]
    return compile(module, '<task>', 'exec')
