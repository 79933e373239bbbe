"""Plain data as msgpack bytes, one value or a bulk of like items that carries its shared part once.

What travels: None, bool, integers of at most 64 bits, float, str, bytes, lists (tuples arrive as lists) and
dicts with scalar keys. Paths travel as text, objects with `as_dict()` as what that gives. Text that came from
the file system and is not valid UTF-8 survives the round trip. Nothing that is executed or instantiated on
arrival is ever accepted.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgpack

from rp_api.errors import CoordinationError

MAX_BYTES = 256 << 20
"""Size of the largest message, in bytes; larger ones are neither packed nor unpacked."""

MAX_ENTRIES = 1 << 22
"""Entries of the largest list or dict that is unpacked: a short message cannot claim a huge one."""

NOTHING = b'\x80'
"""An empty dict, packed: what an item of a bulk has of its own that differs in nothing from what is shared."""

_SMALL = 64 << 10   # bytes of a message after which its packer, which keeps the memory, is used again
_TEXT = 'surrogateescape'
_EXACT = frozenset({str, int, bool, bytes, type(None)})  # equal values of one of these types have equal bytes
_MISSING = object()
_SIZE = {'buf_size': 1024} if msgpack.version >= (1, 1) else {}  # it grows; to reserve more costs more than to pack


def pack(obj: Any) -> bytes:
    """The bytes of a value; raises TypeError or ValueError for what cannot travel."""
    try:
        packer = _spare.pop()   # which nobody else has then: no other thread, and no `as_dict()` that packs something
    except IndexError:
        packer = msgpack.Packer(default=_plain, **_SIZE)
    try:
        data: bytes = packer.pack(obj)
    except UnicodeEncodeError:   # text of the file system, which is rare: what can pack it copies each text first
        data = _packer().pack(obj)
    if len(data) > MAX_BYTES:
        raise ValueError(f'a message of {len(data)} bytes is too large: at most {MAX_BYTES} are allowed')
    if len(data) <= _SMALL:
        _spare.append(packer)
    return data


def unpack(data: bytes) -> Any:
    """The value that was packed; CoordinationError for what is broken, too large or not plain data."""
    size = len(data)
    if size > MAX_BYTES:
        raise CoordinationError(f'malformed message: {size} bytes, at most {MAX_BYTES} are allowed')
    entries = min(size, MAX_ENTRIES)
    try:
        return msgpack.unpackb(data, strict_map_key=False, unicode_errors=_TEXT, max_ext_len=0,
                               max_array_len=entries, max_map_len=entries)
    except (ValueError, TypeError, OverflowError) as error:
        raise CoordinationError(f'malformed message: {str(error) or type(error).__name__}') from error


def pack_all(values: Iterable[Any]) -> list[bytes]:
    """The bytes of each of many small values; raises what `pack` does, but for their size."""
    return list(map(_packer().pack, values))


def unpack_dict(data: bytes) -> dict[str, Any]:
    """The dict that was packed; CoordinationError as of `unpack`, and for anything else."""
    value = unpack(data)
    if not isinstance(value, dict):
        raise CoordinationError(f'malformed message: an item is a mapping, not {type(value).__name__}')
    return value


def pack_bulk(items: Sequence[Mapping[str, Any]]) -> tuple[bytes, list[bytes]]:
    """The shared part of the items, and one body per item with what is its own.

    Shared are the keys whose value is the same in all items, down to the type. One item alone shares nothing.
    """
    for kind in set(map(type, items)):
        if not issubclass(kind, Mapping):
            raise TypeError(f'items of a bulk are mappings, not {kind.__name__}')
    packer = _packer()
    shared = _shared_part(items, packer)
    bodies = [NOTHING if len(item) == len(shared) else
              packer.pack({key: item[key] for key in item if key not in shared}) for item in items]
    return packer.pack(shared), bodies


def unpack_bulk(shared: bytes, bodies: Iterable[bytes]) -> list[dict[str, Any]]:
    """The items of a bulk; no two of them have a mutable value in common."""
    common = unpack_dict(shared)
    fixed = {key: value for key, value in common.items() if not isinstance(value, (list, dict))}
    if len(fixed) == len(common):
        return [fixed.copy() if body == NOTHING else {**fixed, **unpack_dict(body)} for body in bodies]
    try:
        mutable = pack({key: value for key, value in common.items() if key not in fixed})
    except ValueError as error:   # in some releases of msgpack, what is nested too deeply to be packed can be unpacked
        raise CoordinationError(f'malformed message: {error}') from error
    return [{**fixed, **unpack(mutable), **unpack_dict(body)} for body in bodies]


def _packer() -> msgpack.Packer:
    return msgpack.Packer(default=_plain, unicode_errors=_TEXT, **_SIZE)


_spare: list[msgpack.Packer] = []   # to make one takes longer than to pack something small


def _plain(obj: Any) -> Any:
    """Plain data for an object that msgpack does not take."""
    if isinstance(obj, int):
        raise ValueError(f'an integer of more than 64 bits cannot be sent: {obj!r:.80}')
    if isinstance(obj, os.PathLike):
        return os.fspath(obj)
    as_dict = getattr(obj, 'as_dict', None)
    if callable(as_dict):
        return as_dict()
    raise TypeError(f'a value of type {type(obj).__qualname__} cannot be sent: {obj!r:.80}')


def _shared_part(items: Sequence[Mapping[str, Any]], packer: msgpack.Packer) -> dict[str, Any]:
    if len(items) < 2:
        return {}
    rest = items[1:]
    return {key: value for key, value in items[0].items() if _in_all(key, value, rest, packer)}


def _in_all(key: str, value: Any, items: Sequence[Mapping[str, Any]], packer: msgpack.Packer) -> bool:
    """Whether all items have this very value: 1, 1.0 and True are equal in Python, but not the same here."""
    kind = type(value)
    if kind in _EXACT:
        for item in items:
            other = item.get(key, _MISSING)
            if other is not value and (type(other) is not kind or other != value):
                return False
        return True
    image = packer.pack(value)
    others = (item.get(key, _MISSING) for item in items)
    return all(other is value or (other is not _MISSING and packer.pack(other) == image) for other in others)
