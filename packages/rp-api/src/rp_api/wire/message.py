"""Messages as bytes: one msgpack list each, a kind and the fields that the kind has. What arrives is checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rp_api.errors import CoordinationError
from rp_api.wire.codec import pack, unpack

Shapes = Mapping[str, tuple[type, ...]]
"""The types of the fields of each kind. Numbers count from 0; a list is a bulk, which has at least one body."""

_MOST = 2**62   # largest number in a message: with a credit on top it can still be sent


def encode(kind: str, *fields: Any) -> bytes:
    """A message as bytes."""
    return pack([kind, *fields])


def decode(data: bytes, shapes: Shapes) -> tuple[str, list[Any]]:
    """Kind and fields of a message; CoordinationError if it has none of those shapes."""
    message = unpack(data)
    if not isinstance(message, list) or not message or not isinstance(message[0], str):
        raise CoordinationError('malformed message: it has no kind')
    kind, *fields = message
    if tuple(map(type, fields)) != shapes.get(kind):
        raise CoordinationError(f'malformed message: {kind!r:.20} with {len(fields)} fields')
    for field in fields:
        if type(field) is int and not 0 <= field <= _MOST:
            raise CoordinationError(f'malformed message: {kind!r} with a number out of range')
        if type(field) is list and {*map(type, field)} != {bytes}:
            raise CoordinationError('malformed message: a bulk has one or more bodies, all of them bytes')
    return kind, fields
