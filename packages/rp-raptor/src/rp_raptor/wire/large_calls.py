"""Calls with large arguments: kind B.

Such a call is B and a packed list `[start, body, buffers]`: the first bytes of the call as it would be without files
(its kind and the identifier of the function), the pickle of the arguments, and its out-of-band buffers. The body and
each buffer are either bytes, or `[path, size, version]` of a file in the caller's store, which is valid for processes
that see the same files (`rp_api.system.shared_directory.place`). On the way to others, `sent_to_others` replaces files
by their content: bytes, or `[content]` if the rank needs memory that can be changed. A master that has got calls so
writes the content to files of its own for those of its workers that see them, by `stored_again`.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from typing import Any

from rp_api import blobs
from rp_api.errors import DeserializationError, SerializationError
from rp_api.values import dump
from rp_api.wire import codec
from rp_api.wire.codec import MAX_BYTES
from rp_raptor.wire import reused_files
from rp_raptor.wire.batch import Payloads
from rp_raptor.wire.protocol import Message
from rp_raptor.wire.store import STORED_BYTES, Lease, ValueStore

LARGE_CALL = b'B'

_MESSAGE = 4 << 20   # bytes of contents at which a message to another host is full
_MAX_PAYLOAD_BYTES = MAX_BYTES - (1 << 20)


class StoredCall(bytes):
    """A call with files. The caller keeps the lease of the files until it has the result."""

    lease: Lease


def encode_large(start: bytes, arguments: Any, store: ValueStore) -> bytes:
    """Return a call with these arguments; SerializationError if one cannot be serialized or stored."""
    buffers: list[pickle.PickleBuffer] = []
    body = dump(arguments, buffers)
    return stored_call(start, body, buffers, store) if buffers or len(body) > STORED_BYTES else start + body


def stored_call(start: bytes, body: bytes, buffers: list[pickle.PickleBuffer], store: ValueStore) -> bytes:
    """Return a call whose buffers are in files, and its body, too, if it is large; SerializationError if that fails."""
    large = len(body) > STORED_BYTES
    try:
        lease = store.hold([*buffers, pickle.PickleBuffer(body)] if large else buffers)
    except OSError as error:
        raise SerializationError(f'large arguments cannot be stored: {error}') from error
    files = [file.place for file in lease.files]
    call = StoredCall(LARGE_CALL + codec.pack([start, files.pop() if large else body, files]))
    call.lease = lease
    return call


def size_of_call(call: bytes) -> int:
    """Return the bytes of a call, with those that were written for it."""
    return len(call) + (call.lease.size if type(call) is StoredCall else 0)


def lease_of(call: bytes) -> Lease | None:
    """Return the lease of the files of a call that was just made, None if it has no files."""
    return call.lease if type(call) is StoredCall else None


def opened_call(call: bytes) -> tuple[bytes, blobs.Bytes, list[blobs.Bytes]]:
    """Return start, body and buffers of a call of kind B; DeserializationError if a file cannot be read."""
    start, body, buffers = codec.unpack(call[1:])
    return start, _content(body), [_content(buffer) for buffer in buffers]


def sent_to_others(message: Message) -> Iterator[Message]:
    """Yield a message with calls as messages for a process that does not see the files here."""
    operation, numbers, calls, attributes = message
    if not calls.has(LARGE_CALL[0]):
        yield message
        return
    first, size = 0, 0
    contents: list[bytes] = []
    for index, call in enumerate(calls):
        contents.append(with_contents(call))
        size += len(contents[-1])
        if size >= _MESSAGE or index == len(calls) - 1:
            ids = numbers[first:index + 1]
            each = {id: attributes[id] for id in ids if id in attributes} if attributes else None
            yield [operation, ids, Payloads(contents), each]
            first, size, contents = index + 1, 0, []


def stored_again(message: Message, store: ValueStore) -> tuple[Message, dict[int, Lease]]:
    """Return a message with calls, whose large contents are in files of this store, and the leases of these by number.

    Contents stay where they are if they cannot be stored.
    """
    operation, numbers, calls, attributes = message
    if not store.path or not calls.has(LARGE_CALL[0]):
        return message, {}
    stored = [_with_files(call, store) for call in calls]
    leases = {number: lease for number, call in zip(numbers, stored, strict=True) if (lease := lease_of(call))}
    return [operation, numbers, Payloads(map(bytes, stored)), attributes] if leases else message, leases


def _with_files(call: bytes, store: ValueStore) -> bytes:
    if call[:1] != LARGE_CALL or len(call) <= STORED_BYTES:
        return call
    start, body, buffers = codec.unpack(call[1:])
    if any(map(_is_filed, (body, *buffers))):
        return call
    try:
        return stored_call(start, body, [*map(_buffer, buffers)], store)
    except SerializationError:   # there is no room
        return call


def _buffer(part: bytes | Sequence[bytes]) -> pickle.PickleBuffer:
    return pickle.PickleBuffer(part if isinstance(part, bytes) else memoryview(part[0]))   # as `_sent` has found it


def with_contents(call: bytes) -> bytes:
    """Return a call without files; the call as it is, with which the rank will fail, if that is impossible."""
    if call[:1] != LARGE_CALL:
        return call
    start, body, buffers = codec.unpack(call[1:])
    if sum(part[1] for part in (body, *buffers) if _is_filed(part)) > _MAX_PAYLOAD_BYTES:
        return call
    try:
        return LARGE_CALL + codec.pack([start, _sent(body), [_sent(buffer) for buffer in buffers]])
    except (DeserializationError, ValueError):   # the caller has left, or the call is too large
        return call


def _is_filed(part: bytes | Sequence[Any]) -> bool:
    return not isinstance(part, bytes) and len(part) > 1


def _sent(part: bytes | Sequence[Any]) -> bytes | Sequence[Any]:
    if not _is_filed(part):
        return part
    content = _content(part)
    return content if isinstance(content, bytes) else [content]


def _content(part: bytes | Sequence[Any]) -> blobs.Bytes:
    if isinstance(part, bytes):
        return part
    if not _is_filed(part):
        return memoryview(bytearray(part[0]))
    _, _, (content,) = reused_files.read(*part)
    return content
