"""The encoding of calls and results, which is opaque to all but the caller and the rank.

The first byte is the kind. Calls: F a call of a defined function; C a chunk of such calls with one result; B one of
these with large arguments (see `large_calls`); D a described task; T a described task that refers to a defined, shared
part. Results: R a value; E an exception; C the results of a chunk; D the result of a described task; S the same for
success, in the packed form that applications get; G the results of the ranks that have run a call together; L one of
these in a file (see `rp_api.blobs`); K and I the same on its way from other nodes (see `carried_results`); O one of
these with the output of the call (see `output`).

Values are pickled (protocol 5). To decode a payload is to run code of its author, so messages are accepted only from
peers that have authenticated with the keys of the session.
"""

from __future__ import annotations

import os
import pickle
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from hashlib import blake2b
from typing import Any

from rp_api import blobs, pickles
from rp_api.errors import DeserializationError, SerializationError
from rp_api.failures.kinds import CANCELED, EXCEPTION, LOST, TIMEOUT
from rp_api.functions import serialize_obj
from rp_api.values import dump, size_of
from rp_api.wire import codec
from rp_raptor.errors import CallLost, represented, restored
from rp_raptor.wire import reused_files
from rp_raptor.wire.carried_results import CARRIED, CONTENT, carried_result
from rp_raptor.wire.described import read_alike, write_success
from rp_raptor.wire.large_calls import encode_large, stored_call
from rp_raptor.wire.output import split_output, with_output
from rp_raptor.wire.result_files import ResultFiles, release
from rp_raptor.wire.store import STORED_BYTES, ValueStore

FID_BYTES = 16
"""Length of the identifier of a defined function."""

_FUNCTION, _CHUNK, _DESCRIBED, _LIKE = b'F', b'C', b'D', b'T'
_VALUE, _ERROR, _OUTCOMES, _SUCCESS, _PARTS, _FILE = b'R', b'E', b'C', b'S', b'G', b'L'
_RETURNED = (_SUCCESS + codec.pack({'exit_code': 0, 'return_value': None}))[:-1]   # without the value, which is last
_PLACED = b'@'   # begins a definition with the directory for results; pickles begin otherwise
_TOLD = b'>'   # comes before a definition whose caller wants the output of calls
_PER_RANK = ('stdout', 'stderr', 'return_value')
_START = 1 + FID_BYTES   # offset of the arguments in a call
_PROTOCOL = 5
_SCALARS, _TEXTS = frozenset({int, float, bool, type(None)}), frozenset({str, bytes})
_LONGEST_TEXT = 64 << 10   # characters of a traceback in a result

_SHORT = 16 << 10   # bytes of a payload that is cheap to copy


def pickled_function(func: Callable[..., Any]) -> bytes:
    """Return the bytes of a function; SerializationError if it cannot be pickled."""
    _check_callable(func)
    return serialize_obj(func)


def pickled_apart(func: Callable[..., Any]) -> tuple[bytes, list[pickle.PickleBuffer]]:
    """Return the bytes of a function, as `pickled_function` does, and the large buffers that it refers to."""
    from rp_api.by_value.pickler import dumps

    _check_callable(func)
    buffers: list[pickle.PickleBuffer] = []
    return pickles.stamped(dumps(func, buffers)), buffers


def define(func: Callable[..., Any] | bytes, results: str = '', *, output: bool = False) -> tuple[bytes, bytes]:
    """Return identifier and definition of a function, which may be pickled already; see `pickled_function`.

    `results` is `ValueStore.results` of the caller: the place and directory for large results. `output` tells whether
    the output of calls is to travel with their results.
    """
    blob = func if isinstance(func, bytes) else pickled_function(func)
    if results:
        blob = _PLACED + len(results).to_bytes(2, 'little') + results.encode() + blob
    if output:
        blob = _TOLD + blob
    return blake2b(blob, digest_size=FID_BYTES).digest(), blob


def opened_definition(data: bytes) -> tuple[bytes, str, bool]:
    """Return the pickled function of a definition, and `results` and `output` as in `define`."""
    output = data[:1] == _TOLD
    if output:
        data = data[1:]
    if data[:1] != _PLACED:
        return data, '', output
    end = 3 + int.from_bytes(data[1:3], 'little')
    return data[end:], data[3:end].decode(), output


def encode_call(fid: bytes, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None,
                store: ValueStore | None = None) -> bytes:
    """Return one call of a defined function; SerializationError if an argument cannot be serialized.

    Large arguments are written to files of the store, if there is one.
    """
    return call_encoder(fid, store)(args, kwargs)


def call_start(fid: bytes) -> bytes:
    """Return the start of a call of a defined function: all but the pickle of ((argument, ...), keyword arguments)."""
    return _FUNCTION + fid


def call_encoder(fid: bytes, store: ValueStore | None = None) -> Callable[..., bytes]:
    """Return a function that makes calls of a defined function, see `encode_call`."""
    start = call_start(fid)
    if store is None or not store.path:
        return lambda args, kwargs=None: start + dump((args, kwargs))

    def encode(args: Sequence[Any], kwargs: dict[str, Any] | None = None) -> bytes:
        buffers: list[pickle.PickleBuffer] = []   # an inlined `encode_large` for speed
        data = dump((args, kwargs), buffers)
        return stored_call(start, data, buffers, store) if buffers or len(data) > STORED_BYTES else start + data
    return encode


def encode_chunk(fid: bytes, calls: Sequence[tuple[Sequence[Any], dict[str, Any] | None]],
                 store: ValueStore | None = None) -> bytes:
    """Return several calls of a defined function, each (args, kwargs or None), as one call (see `outcomes_of`)."""
    start = _CHUNK + fid
    if store is None or not store.path:
        return start + dump(list(calls))
    return encode_large(start, list(calls), store)


def encode_described(task: dict[str, Any]) -> bytes:
    """Return the call of a described task: plain data with the keys uid, description and sandbox."""
    return _DESCRIBED + codec.pack(task)


def encode_alike(fid: bytes, uids: Sequence[str], sandboxes: Sequence[str], rests: Sequence[bytes]) -> list[bytes]:
    """Return calls of described tasks with a defined, shared part; `rests` are the packed other attributes of each."""
    start = _LIKE + fid
    return [start + own for own in codec.pack_all(zip(uids, sandboxes, rests, strict=True))]


def decode_result(payload: bytes) -> Any:
    """Return the value of a call, or the result (a dict) of a described task; raise the exception of the call.

    A call that several ranks have run together has a list of values, in the order of the ranks. The `__cause__` of the
    exception has the rank's traceback. A payload can be decoded only once: the file of a large result is removed. For
    the results of a chunk see `outcomes_of`.
    """
    if len(payload) < _SHORT and payload[:1] == _VALUE:   # the usual case
        return _unpickled(payload[1:])
    kind, body, buffers = _opened(payload)
    if kind == _VALUE:
        return _unpickled(body, buffers)
    if kind == _ERROR:
        raise restored(*_unpickled(body))
    if kind in (_DESCRIBED, _SUCCESS):
        return as_result(payload)
    if kind == _PARTS:
        return [decode_result(part) for part in _unpickled(body)]
    raise DeserializationError(f'a result of kind {kind!r} is not the result of one call')


def outcomes_of(payload: bytes, count: int) -> list[bytes]:
    """Return the results of a chunk of `count` calls, one payload each, in the order of the calls.

    If the chunk has failed as a whole, each call has that result.
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


def filed_result(path: str, size: int, version: int = 0) -> bytes:
    """Return the result in a file that the caller sees."""
    return _FILE + codec.pack([path, size, version])


def is_error(payload: bytes) -> bool:
    """Return whether the call (or the whole chunk) has raised an exception."""
    return split_output(payload)[0][:1] == _ERROR


def packed_success(payload: bytes) -> bytes | None:
    """Return the packed result of a described task that has succeeded; None for other results."""
    return payload[1:] if payload[:1] == _SUCCESS else None


def has_failed(payload: bytes) -> bool:
    """Return whether the result is an error, or that of a described task which has failed."""
    if payload[:1] != _DESCRIBED:
        return is_error(payload)
    return bool(codec.unpack(payload[1:]).get('exit_code'))


def as_result(payload: bytes) -> dict[str, Any]:
    """Return the result dict of a described task, also if the result is an error."""
    kind, body, _ = _opened(payload)
    if kind in (_DESCRIBED, _SUCCESS):
        result: dict[str, Any] = codec.unpack(bytes(body))
        return result if kind == _DESCRIBED else {**result, 'target_state': 'DONE'}
    if kind != _ERROR:
        raise DeserializationError(f'a result of kind {kind!r} is not the result of a described task')
    pickled, shown, text = _unpickled(body)
    error = restored(pickled, shown, text)
    # a task that exceeds its timeout is canceled, as an executable is
    if isinstance(error, CancelledError | TimeoutError):
        record = {'kind': CANCELED if isinstance(error, CancelledError) else TIMEOUT}
        return {'exception': shown, 'exception_detail': text, 'error': record, 'target_state': 'CANCELED'}
    record = {'kind': LOST if isinstance(error, CallLost) else EXCEPTION}
    return {'exit_code': 1, 'exception': shown, 'exception_detail': text, 'error': record,
            'target_state': 'FAILED'}


def values_directory(pilot_sandbox: str, master: str) -> str:
    """Return the directory of a master's large results; it is removed at the master's end if it is empty."""
    return os.path.join(pilot_sandbox, f'{master}.values')


def discard(payload: bytes) -> None:
    """Free the files of a result that is not decoded."""
    payload, *_ = split_output(payload)
    if payload[:1] == _FILE:
        path, _, version = codec.unpack(payload[1:])
        release(path, version)
    elif payload[:1] == CARRIED:
        blobs.discard(codec.unpack(payload[1:])[0])
    elif payload[:1] in (_PARTS, _OUTCOMES):
        for part in _unpickled(payload[1:]):
            discard(part)


def kind_of(payload: bytes) -> bytes:
    """Return the kind of a call: F, C, D or T."""
    return payload[:1]


def fid_of(payload: bytes) -> bytes:
    """Return the identifier in a call of kind F, C or T: of a function, or of the shared part of tasks."""
    return payload[1:_START]


def decode_chunk(payload: bytes) -> list[tuple[Sequence[Any], dict[str, Any]]]:
    """Return arguments and keyword arguments of each call in a chunk; DeserializationError if this fails."""
    return chunk_of(memoryview(payload)[_START:])


def chunk_of(body: blobs.Bytes, buffers: Sequence[blobs.Bytes] = ()) -> list[tuple[Sequence[Any], dict[str, Any]]]:
    """Return arguments and keyword arguments of each call in the pickle of a chunk."""
    return [(args, kwargs or {}) for args, kwargs in _unpickled(body, buffers)]


def decode_described(payload: bytes) -> dict[str, Any]:
    """Return the described task in a call of kind D."""
    task: dict[str, Any] = codec.unpack(payload[1:])
    return task


def decode_alike(payload: bytes) -> tuple[str, str, bytes]:
    """Return uid, sandbox and packed other attributes of the task in a call of kind T."""
    found = read_alike(payload)
    if found is not None:   # the usual case
        return found
    uid, sandbox, rest = codec.unpack(payload[_START:])
    return uid, sandbox, rest


def encode_value(value: Any, files: ResultFiles | None = None) -> bytes:
    """Return the result for a value, a large one in one of the files; SerializationError if that fails."""
    kind = type(value)
    if kind in _SCALARS or (kind in _TEXTS and len(value) < STORED_BYTES):
        return _VALUE + pickle.dumps(value, _PROTOCOL)
    if files is None:
        return _VALUE + dump(value)
    buffers: list[pickle.PickleBuffer] = []
    body = dump(value, buffers)
    filed = _filed(files, _VALUE, body, buffers)
    return filed or _VALUE + (dump(value) if buffers else body)


def encode_error(error: BaseException, text: str | None = None) -> bytes:
    """Return the result for an exception, with the text of its traceback (by default that of the exception here)."""
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
    return _ERROR + pickle.dumps((pickled, represented(error), text), _PROTOCOL)


def encode_outcomes(outcomes: list[bytes], files: ResultFiles | None = None) -> bytes:
    """Return the results of a chunk as one result."""
    body = pickle.dumps(outcomes, _PROTOCOL)
    return (files and _filed(files, _OUTCOMES, body, [])) or _OUTCOMES + body


def encode_result(result: dict[str, Any]) -> bytes:
    """Return the result of a described task: plain data (see `rp_api.values` for its return value)."""
    return _DESCRIBED + codec.pack(result)


def encode_success(value: Any) -> bytes:
    """Return the result of a described task that has succeeded without output, with this plain value (or None).

    It has no target state.
    """
    return write_success(value) or _RETURNED + codec.pack(value)


def join_parts(parts: Sequence[bytes]) -> bytes:
    """Return the result of a call from the results of the ranks that have run it together, in the order of the ranks.

    It is an error if one of them is. Output and return value of a described task become lists with an entry per rank,
    and its exit code is the largest one. Outputs of other calls follow each other.
    """
    results, outs, errs = zip(*map(split_output, parts), strict=True)
    joined = _join_results(results)
    return with_output(joined, ''.join(outs), ''.join(errs)) if any(outs) or any(errs) else joined


def _join_results(parts: Sequence[bytes]) -> bytes:
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


def _opened(payload: bytes) -> tuple[bytes, blobs.Bytes, Sequence[blobs.Bytes]]:
    """Return kind, body and buffers of a result, read from its file if it has one."""
    payload, *_ = split_output(payload)
    kind = payload[:1]
    if kind == CONTENT:
        return blobs.parsed(memoryview(bytearray(memoryview(payload)[1:])))
    if kind not in (_FILE, CARRIED):
        return kind, memoryview(payload)[1:], ()
    path, size, version = codec.unpack(payload[1:])
    if kind == CARRIED:   # its file was removed
        version = 0
    content = reused_files.read(path, size, version)
    release(path, version)
    return content


def _filed(files: ResultFiles, kind: bytes, body: bytes, buffers: list[pickle.PickleBuffer]) -> bytes:
    """Return a result that was written to a file; empty if it has to travel in a message."""
    size = size_of(body, buffers)
    if size <= STORED_BYTES:
        return b''
    try:
        written = files.write(kind, body, buffers, size)
    except OSError as error:
        raise SerializationError(f'cannot write a result of {size} bytes or more: {error}') from error
    if written is None:
        return b''
    path, size, version = written
    return carried_result(path, size, version) if isinstance(version, str) else filed_result(path, size, version)


def _unpickled(data: blobs.Bytes, buffers: Sequence[blobs.Bytes] = ()) -> Any:
    return pickles.restore(data, 'a value', buffers)


def _check_callable(func: Any) -> None:
    if not callable(func):
        raise TypeError(f'only a callable can be sent to workers, not {func!r:.80}')
