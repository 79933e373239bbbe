"""Calls and results as bytes that nobody opens but the rank and the one who asked.

The first byte is the kind. Calls: F is one call of a defined function, C a chunk of calls of it with one answer, D a
described task, T one of which most is defined, as it has that in common with others. Results: R is a value, E an
exception, C the results of a chunk, D what became of a described task, S the same of one that has succeeded, as
applications are told it, G the results of ranks that have run a call together, L one of these in a file (see
`rp_api.blobs`). Values are pickled
(protocol 5): to read a payload is to run code of whoever wrote it, so only peers that have shown the keys of the
session are listened to.
"""

from __future__ import annotations

import os
import pickle
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from hashlib import blake2b
from typing import Any

from rp_api import blobs
from rp_api.errors import DeserializationError, SerializationError
from rp_api.functions import serialize_obj
from rp_api.values import dump, size_of
from rp_api.wire import codec
from rp_raptor.errors import RemoteError, RemoteTraceback

FID_BYTES = 16
"""Length of the identifier of a defined function."""

_FUNCTION, _CHUNK, _DESCRIBED, _LIKE = b'F', b'C', b'D', b'T'
_VALUE, _ERROR, _OUTCOMES, _SUCCESS, _PARTS, _FILE = b'R', b'E', b'C', b'S', b'G', b'L'
_RETURNED_NOTHING = _SUCCESS + codec.pack({'exit_code': 0})
_RETURNED = (_SUCCESS + codec.pack({'exit_code': 0, 'return_value': None}))[:-1]   # the value comes last
_PER_RANK = ('stdout', 'stderr', 'return_value')
_START = 1 + FID_BYTES   # of the arguments in a call
_PROTOCOL = 5
_SCALARS, _TEXTS = frozenset({int, float, bool, type(None)}), frozenset({str, bytes})
_LONGEST_TEXT = 64 << 10   # characters of a traceback that travels

_MAIN = b'__main__'
_SHORT = 16 << 10   # bytes of a payload that may as well be copied

Arguments = tuple[Sequence[Any], dict[str, Any]]


def define(func: Callable[..., Any]) -> tuple[bytes, bytes]:
    """Identifier and bytes of a function, by value where possible; SerializationError if it cannot travel."""
    if not callable(func):
        raise TypeError(f'only what can be called can be sent to workers, not {func!r:.80}')
    blob = serialize_obj(func)
    return blake2b(blob, digest_size=FID_BYTES).digest(), blob


def encode_call(fid: bytes, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None) -> bytes:
    """One call of a defined function; SerializationError if an argument cannot travel."""
    return call_encoder(fid)(args, kwargs)


def call_encoder(fid: bytes) -> Callable[..., bytes]:
    """What makes calls of a defined function of their arguments, see `encode_call`."""
    start, dumps = _FUNCTION + fid, pickle.dumps

    def encode(args: Sequence[Any], kwargs: dict[str, Any] | None = None) -> bytes:
        try:   # what `dump` does as well; most calls take no longer than the rest of it
            data = dumps((args, kwargs), _PROTOCOL)
        except Exception:
            data = _MAIN
        return start + (dump((args, kwargs)) if _MAIN in data else data)
    return encode


def encode_chunk(fid: bytes, calls: Sequence[tuple[Sequence[Any], dict[str, Any] | None]]) -> bytes:
    """Several calls of a defined function, each as (args, kwargs or None); they have one result (`outcomes_of`)."""
    return _CHUNK + fid + dump(list(calls))


def encode_described(task: dict[str, Any]) -> bytes:
    """A described task: plain data with the keys uid, description and sandbox."""
    return _DESCRIBED + codec.pack(task)


def encode_alike(fid: bytes, uids: Sequence[str], sandboxes: Sequence[str], rests: Sequence[bytes]) -> list[bytes]:
    """Described tasks that have something in common, which is defined; `rests` is what each has of its own, packed."""
    start = _LIKE + fid
    return [start + own for own in codec.pack_all(zip(uids, sandboxes, rests, strict=True))]


def decode_result(payload: bytes) -> Any:
    """The value of a call, or the result (a dict) of a described task; raises what the call has raised.

    A call that several ranks have run together has a list of values, in the order of the ranks. The `__cause__` of what
    is raised shows the traceback of the rank. A payload can be decoded once only: the file of a large result is gone
    afterwards. For the results of a chunk see `outcomes_of`.
    """
    if len(payload) < _SHORT and payload[:1] == _VALUE:   # most of them
        return _unpickled(payload[1:])
    kind, body, buffers = _opened(payload)
    if kind == _VALUE:
        return _unpickled(body, buffers)
    if kind == _ERROR:
        raise _restored(*_unpickled(body))
    if kind in (_DESCRIBED, _SUCCESS):
        return as_result(payload)
    if kind == _PARTS:
        return [decode_result(part) for part in _unpickled(body)]
    raise DeserializationError(f'a result of kind {kind!r} is not the result of one call')


def outcomes_of(payload: bytes, count: int) -> list[bytes]:
    """The results of a chunk of `count` calls, one payload each, in the order of the calls.

    If the chunk has failed as a whole, that is the result of each call.
    """
    kind, body, buffers = _opened(payload)
    if kind == _ERROR:
        return [bytes(payload)] * count
    if kind != _OUTCOMES:
        raise DeserializationError(f'a result of kind {kind!r} is not the result of a chunk')
    outcomes: list[bytes] = _unpickled(body, buffers)
    if len(outcomes) != count:
        raise DeserializationError(f'a chunk of {count} calls has {len(outcomes)} results')
    return outcomes


def is_error(payload: bytes) -> bool:
    """Whether the payload says that the call (or the whole chunk) has raised something."""
    return payload[:1] == _ERROR


def packed_success(payload: bytes) -> bytes | None:
    """What applications are told about a described task that has succeeded, packed; None for other results."""
    return payload[1:] if payload[:1] == _SUCCESS else None


def has_failed(payload: bytes) -> bool:
    """Whether the result is an error, or that of a described task which has failed."""
    if payload[:1] != _DESCRIBED:
        return is_error(payload)
    return bool(codec.unpack(payload[1:]).get('exit_code'))


def as_result(payload: bytes) -> dict[str, Any]:
    """The result dict of a described task, also where all that is known is what went wrong with it."""
    kind, body, _ = _opened(payload)
    if kind in (_DESCRIBED, _SUCCESS):
        result: dict[str, Any] = codec.unpack(bytes(body))
        return result if kind == _DESCRIBED else {**result, 'target_state': 'DONE'}
    if kind != _ERROR:
        raise DeserializationError(f'a result of kind {kind!r} is not the result of a described task')
    pickled, represented, text = _unpickled(body)
    # a task that takes too long is canceled, as those that are no calls are
    if isinstance(_restored(pickled, represented, text), CancelledError | TimeoutError):
        return {'exception': represented, 'exception_detail': text, 'target_state': 'CANCELED'}
    return {'exit_code': 1, 'exception': represented, 'exception_detail': text, 'target_state': 'FAILED'}


def values_directory(pilot_sandbox: str, master: str) -> str:
    """Where the files of large results of a master's calls are; when it ends, the directory goes if it is empty."""
    return os.path.join(pilot_sandbox, f'{master}.values')


def discard(payload: bytes) -> None:
    """Free what a result that nobody wants holds outside of itself."""
    if payload[:1] == _FILE:
        blobs.discard(codec.unpack(payload[1:])[0])
    elif payload[:1] == _PARTS:
        for part in _unpickled(payload[1:]):
            discard(part)


def kind_of(payload: bytes) -> bytes:
    """The kind of a call: F, C, D or T."""
    return payload[:1]


def fid_of(payload: bytes) -> bytes:
    """What a call of kind F, C or T refers to: a function, or what described tasks have in common."""
    return payload[1:_START]


def decode_arguments(payload: bytes) -> Arguments:
    """Arguments and keyword arguments of a call of kind F; DeserializationError if they cannot be restored."""
    args, kwargs = _unpickled(memoryview(payload)[_START:])
    return args, kwargs or {}


def decode_chunk(payload: bytes) -> list[Arguments]:
    """Arguments and keyword arguments of each call in a chunk; DeserializationError if they cannot be restored."""
    return [(args, kwargs or {}) for args, kwargs in _unpickled(memoryview(payload)[_START:])]


def decode_described(payload: bytes) -> dict[str, Any]:
    """The described task in a call of kind D."""
    task: dict[str, Any] = codec.unpack(payload[1:])
    return task


def decode_alike(payload: bytes) -> tuple[str, str, bytes]:
    """Uid, sandbox, and what the task has of its own, packed, from a call of kind T."""
    uid, sandbox, rest = codec.unpack(payload[_START:])
    return uid, sandbox, rest


def encode_value(value: Any, directory: str | None = None) -> bytes:
    """The value of a call; large ones go to a file in the directory. SerializationError if it cannot travel."""
    kind = type(value)
    if kind in _SCALARS or (kind in _TEXTS and len(value) < blobs.LIMIT):
        return _VALUE + pickle.dumps(value, _PROTOCOL)
    if directory is None:
        return _VALUE + dump(value)
    buffers: list[pickle.PickleBuffer] = []
    body = dump(value, buffers)
    if size_of(body, buffers) > blobs.LIMIT:
        return _filed(directory, _VALUE, body, buffers)
    return _VALUE + (dump(value) if buffers else body)


def encode_error(error: BaseException, text: str | None = None) -> bytes:
    """What a call has raised, with the text of its traceback (of the exception itself if none is given)."""
    if text is None:
        text = ''.join(traceback.format_exception(error))
    if len(text) > _LONGEST_TEXT:
        text = f'...{text[-_LONGEST_TEXT:]}'
    try:
        pickled: bytes | None = dump(error)
    except SerializationError:
        pickled = None
    if pickled and len(pickled) > blobs.LIMIT:
        pickled = None
    return _ERROR + pickle.dumps((pickled, _represented(error), text), _PROTOCOL)


def encode_outcomes(outcomes: list[bytes], directory: str | None = None) -> bytes:
    """The results of a chunk as one."""
    body = pickle.dumps(outcomes, _PROTOCOL)
    if directory is not None and len(body) > blobs.LIMIT:
        return _filed(directory, _OUTCOMES, body)
    return _OUTCOMES + body


def encode_result(result: dict[str, Any]) -> bytes:
    """What became of a described task: plain data (see `rp_api.values` for the value that it returned)."""
    return _DESCRIBED + codec.pack(result)


def encode_success(value: Any) -> bytes:
    """The same for one that has succeeded, returned this plain value (None: nothing), and put nothing out.

    Its target state is not said.
    """
    return _RETURNED_NOTHING if value is None else _RETURNED + codec.pack(value)


def join_parts(parts: Sequence[bytes]) -> bytes:
    """The result of a call from those of the ranks that have run it together, in the order of the ranks.

    It is an error if one of them is. Otherwise, what a described task has put out and returned are lists, with an entry
    per rank, and its exit code is the largest one.
    """
    failed = next(filter(is_error, parts), None)
    if failed is not None:
        for part in parts:
            discard(part)
        return failed
    if all(part[:1] in (_DESCRIBED, _SUCCESS) for part in parts):
        return encode_result(_joined([as_result(part) for part in parts]))
    return _PARTS + pickle.dumps(list(parts), _PROTOCOL)


def _joined(results: list[dict[str, Any]]) -> dict[str, Any]:
    worst = max(results, key=lambda result: abs(result.get('exit_code') or 0))
    return {**worst, **{name: [result.get(name) for result in results] for name in _PER_RANK}}


def _opened(payload: bytes) -> tuple[bytes, memoryview, Sequence[memoryview]]:
    """Kind, body and buffers of a result, wherever they are."""
    kind = payload[:1]
    if kind != _FILE:
        return kind, memoryview(payload)[1:], ()
    path = codec.unpack(payload[1:])[0]
    content = blobs.read(path)
    blobs.discard(path)
    return content


def _filed(directory: str, kind: bytes, body: bytes, buffers: Sequence[pickle.PickleBuffer] = ()) -> bytes:
    path = f'{directory}/{os.urandom(12).hex()}'
    try:
        return _FILE + codec.pack([path, blobs.write(path, kind, body, buffers)])
    except OSError as error:
        raise SerializationError(f'cannot write a result of {len(body)} bytes or more: {error}') from error


def _unpickled(data: bytes | memoryview, buffers: Sequence[memoryview] = ()) -> Any:
    try:
        return pickle.loads(data, buffers=buffers)
    except Exception as error:
        raise DeserializationError(f'cannot restore a value: {error!r}', error) from error


def _restored(pickled: bytes | None, represented: str, text: str) -> BaseException:
    """The exception that a call has raised, or what can be told of it."""
    error: object = None
    if pickled is not None:
        try:
            error = pickle.loads(pickled)
        except Exception:   # its module is missing here, its __init__ wants other arguments, ...
            error = None
    if not isinstance(error, Exception):   # SystemExit must not end the program of who asked
        error = RemoteError(represented)
    error.__cause__ = RemoteTraceback(text)
    return error


def _represented(error: BaseException) -> str:
    try:
        return repr(error)
    except Exception:
        return f'{type(error).__name__} (it cannot be shown)'
