"""Plain data as msgpack bytes: single values, and bulks of similar items with a common shared part.

Supported are None, bool, integers of at most 64 bits, float, str, bytes, lists (tuples become lists) and dicts whose
keys are scalars or tuples of scalars. Paths are packed as text, objects with `as_dict()` as its result. Text from the
file system that is not valid UTF-8 is restored unchanged. Unpacking never executes or instantiates anything.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgpack

from rp_api.errors import CoordinationError

MAX_BYTES = 256 << 20
"""Maximum size of a message in bytes, for packing and unpacking."""

MAX_ENTRIES = 1 << 22
"""Maximum number of entries of an unpacked list or dict: a short message cannot claim a huge one."""

NOTHING = b'\x80'
"""A packed empty dict: the body of an item that does not differ from the shared part."""

_SMALL = 64 << 10   # maximum size in bytes of a message whose packer, which keeps its buffer, is reused
_TEXT = 'surrogateescape'
_ONE_ENTRY, _SHORT_TEXT = b'\x81', 0xa0   # the starts of a dict, and of a text of less than 32 bytes (and its size)
_EXACT = frozenset({str, int, bool, bytes, type(None)})  # equal values of one of these types have equal bytes
_MISSING = object()
_SIZE = {'buf_size': 1024} if msgpack.version >= (1, 1) else {}  # allocating the default size takes longer than packing


def pack(obj: Any) -> bytes:
    """Return a value as bytes; raise TypeError or ValueError if it cannot be packed."""
    try:
        packer = _spare.pop()   # exclusive: neither another thread nor an `as_dict()` that packs can use it
    except IndexError:
        packer = msgpack.Packer(default=_plain, **_SIZE)
    try:
        data: bytes = packer.pack(obj)
    except UnicodeEncodeError:   # text of the file system, which is rare: its error handler slows down all text
        data = _packer().pack(obj)
    if len(data) > MAX_BYTES:
        raise ValueError(f'a message of {len(data)} bytes is too large: at most {MAX_BYTES} are allowed')
    if len(data) <= _SMALL:
        _spare.append(packer)
    return data


def unpack(data: bytes) -> Any:
    """Return the packed value; raise CoordinationError for malformed or too large data."""
    size = len(data)
    if size > MAX_BYTES:
        raise CoordinationError(f'malformed message: {size} bytes, at most {MAX_BYTES} are allowed')
    try:
        try:
            return _unpacked(data, None)
        except TypeError:   # of a key that is a list: it was a tuple, as lists are no keys
            return _unpacked(data, _with_tuples_as_keys)
    except (ValueError, TypeError, OverflowError) as error:
        raise CoordinationError(f'malformed message: {str(error) or type(error).__name__}') from error


def pack_all(values: Iterable[Any]) -> list[bytes]:
    """Return each of many small values as bytes; raise TypeError or ValueError like `pack`, except for the size."""
    return list(map(_packer().pack, values))


def unpack_dict(data: bytes) -> dict[str, Any]:
    """Return the packed dict; raise CoordinationError for other or malformed data."""
    value = unpack(data)
    if not isinstance(value, dict):
        raise CoordinationError(f'malformed message: an item is a mapping, not {type(value).__name__}')
    return value


def keys_of(data: bytes) -> Collection[str]:
    """Return the keys of a packed dict; those of one with a single short key, as most bodies are, without unpacking it.

    Raises CoordinationError for other data.
    """
    if data[:1] == _ONE_ENTRY and len(data) > 1 and _SHORT_TEXT <= data[1] < _SHORT_TEXT + 32:
        return _single_key(data[2:2 + data[1] - _SHORT_TEXT])
    return unpack_dict(data).keys()


@lru_cache(maxsize=256)
def _single_key(key: bytes) -> Collection[str]:
    return frozenset({key.decode(errors=_TEXT)})


def pack_bulk(items: Sequence[Mapping[str, Any]]) -> tuple[bytes, list[bytes]]:
    """Return the shared part of the items, and one body per item with the rest.

    Shared are the keys whose value is identical in all items, including its type. A single item shares nothing.
    """
    for kind in set(map(type, items)):
        if not issubclass(kind, Mapping):
            raise TypeError(f'items of a bulk are mappings, not {kind.__name__}')
    packer = _packer()
    if len(items) > 1 and len(set(map(id, items))) == 1:
        return packer.pack(items[0]), [NOTHING] * len(items)
    shared = _shared_part(items, packer)
    bodies = [NOTHING if len(item) == len(shared) else
              packer.pack({key: item[key] for key in item if key not in shared}) for item in items]
    return packer.pack(shared), bodies


def unpack_bulk(shared: bytes, bodies: Iterable[bytes]) -> list[dict[str, Any]]:
    """Return the items of a bulk; they do not share mutable values."""
    common = unpack_dict(shared)
    fixed = {key: value for key, value in common.items() if not isinstance(value, (list, dict))}
    if len(fixed) == len(common):
        return [fixed.copy() if body == NOTHING else {**fixed, **unpack_dict(body)} for body in bodies]
    try:
        mutable = pack({key: value for key, value in common.items() if key not in fixed})
    except ValueError as error:   # some releases of msgpack can unpack deeper nesting than they can pack
        raise CoordinationError(f'malformed message: {error}') from error
    return [{**fixed, **unpack(mutable), **unpack_dict(body)} for body in bodies]


def _unpacked(data: bytes, pairs: Callable[[list[tuple[Any, Any]]], dict[Any, Any]] | None) -> Any:
    entries = min(len(data), MAX_ENTRIES)
    return msgpack.unpackb(data, strict_map_key=False, unicode_errors=_TEXT, max_ext_len=0, object_pairs_hook=pairs,
                           max_array_len=entries, max_map_len=entries)


def _with_tuples_as_keys(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    return {_as_key(key): value for key, value in pairs}


def _as_key(key: Any) -> Any:
    return tuple(map(_as_key, key)) if type(key) is list else key


def _packer() -> msgpack.Packer:
    return msgpack.Packer(default=_plain, unicode_errors=_TEXT, **_SIZE)


_spare: list[msgpack.Packer] = []   # creating a packer takes longer than packing a small value


def _plain(obj: Any) -> Any:
    """Return plain data for an object that msgpack does not support."""
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
    """Return whether all items have this value with the same type: 1, 1.0 and True differ here."""
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
