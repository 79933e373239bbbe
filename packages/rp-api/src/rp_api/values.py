"""Return values as plain data: values that msgpack cannot hold are pickled, large ones are stored in files.

Such a value is a dict with one key, `__rp_pickled__` with the bytes or `__rp_file__` with a path. Unpickling executes
code, so only values of the application's own functions may be restored. The receiver knows from its own description of
the task, not from the message, that the task is such a function.
"""

from __future__ import annotations

import io
import json
import os
import pickle
from collections.abc import Callable
from itertools import chain
from typing import Any

from rp_api import blobs, pickles
from rp_api.by_value.out_of_band import BUFFER_BYTES, Dump, out_of_band_pickler
from rp_api.errors import DeserializationError, SerializationError
from rp_api.wire import codec

_PICKLED, _FILE, _MARK = '__rp_pickled__', '__rp_file__', b'__rp_'
_SCALARS: frozenset[type] = frozenset({int, float, bool, type(None)})
_PLAIN = _SCALARS.union((str, bytes))
_NAMES: frozenset[type] = frozenset({str})
_CONTAINERS: frozenset[type] = frozenset({list, dict})
_BUILT_IN: frozenset[type] = _CONTAINERS | {tuple, set, frozenset}
_INTEGERS = range(-1 << 63, 1 << 64)
_MAX_DEPTH = 100   # levels of plain data; msgpack packs and unpacks about 500
_PROTOCOL = 5
_SMALL = 16 << 10   # maximum size in bytes of a pickle whose pickler, which keeps its memory, is used again
_spare: list[Dump] = []

def dump(value: Any, buffers: list[pickle.PickleBuffer] | None = None, smallest: int = BUFFER_BYTES) -> bytes:
    """Return the pickled value; raise SerializationError on failure.

    Buffers of at least `smallest` bytes, and large `bytes`, are moved to `buffers`, if given.
    """
    try:
        if buffers is None:
            data = pickle.dumps(value, _PROTOCOL)
        elif smallest != BUFFER_BYTES:
            data = out_of_band_pickler(smallest=smallest)(value, buffers)
        else:
            try:
                pickler = _spare.pop()   # exclusive: neither another thread nor an object that pickles can use it
            except IndexError:
                pickler = out_of_band_pickler()
            data = pickler(value, buffers)
            if len(data) <= _SMALL:
                _spare.append(pickler)
    except Exception:   # lambdas, local classes, ...: the type of exception depends on the object
        data = b'__main__'
    if data.rfind(b'__main__') < 0:   # which takes a fifth of the time of `in`
        return data
    # objects of the main script are pickled by value, because the receiver has another main script
    from rp_api.by_value.pickler import dumps

    if buffers is not None:
        buffers.clear()
    return pickles.stamped(dumps(value, buffers, smallest))


def size_of(data: bytes, buffers: list[pickle.PickleBuffer]) -> int:
    """Return the size in bytes of a pickle with its buffers."""
    return len(data) + sum(buffer.raw().nbytes for buffer in buffers)


def to_plain(value: Any, directory: str, name: str) -> Any:
    """Return the value as plain data; raise SerializationError if that is impossible.

    A large value is written to a new file in the directory, `<name>.<random>.value`.
    """
    if type(value) in _SCALARS and (type(value) is not int or value in _INTEGERS):
        return value
    if (type(value) is str and len(value) < blobs.LIMIT // 4 and value.isascii()) or _is_plain(value):
        return value
    buffers: list[pickle.PickleBuffer] = []
    data = dump(value, buffers)
    if size_of(data, buffers) > blobs.LIMIT:
        path = os.path.join(directory, f'{name}.{os.urandom(4).hex()}.value')
        try:
            blobs.write(path, b'R', data, buffers)
        except OSError as error:
            raise SerializationError(f'cannot write a value to {path}: {error}') from error
        return {_FILE: path}
    return {_PICKLED: dump(value) if buffers else data}


def from_plain(value: Any) -> Any:
    """Return the value of `to_plain`, or a list of them; raise DeserializationError if one cannot be restored."""
    if type(value) is list:
        return [_restored(each) if type(each) is dict else each for each in value]
    return _restored(value) if type(value) is dict else value


def readable(value: Any) -> Any:
    """Return the value of `to_plain`, or a list of them, restored as far as that runs no code of the sender."""
    if type(value) is list:
        return [readable(each) if type(each) is dict else each for each in value]
    if not _is_pickled(value) or _PICKLED not in value:
        return value
    try:
        found = _OnlyData(io.BytesIO(value[_PICKLED])).load()
    except Exception:   # the type of exception depends on the data
        return value
    return found if type(found) in _PLAIN or _has_plain_parts([found], _BUILT_IN, _PLAIN) else value


def with_files(value: Any, replace: Callable[[str], str]) -> Any:
    """Return the value of `to_plain`, or a list of them, with `replace(path)` for the path of each large one's file."""
    if type(value) is list:
        return [with_files(each, replace) for each in value]
    return {_FILE: replace(value[_FILE])} if _is_pickled(value) and _FILE in value else value


def is_pickled(value: Any) -> bool:
    """Return whether `from_plain` would unpickle something, which executes code of the sender."""
    return any(_is_pickled(each) for each in value) if type(value) is list else _is_pickled(value)


def _is_pickled(value: Any) -> bool:
    return type(value) is dict and len(value) == 1 and (_PICKLED in value or _FILE in value)


def _restored(value: dict[str, Any]) -> Any:
    if not _is_pickled(value):
        return value
    if _PICKLED in value:
        return pickles.restore(value[_PICKLED], 'a value')
    try:
        _, body, buffers = blobs.read(os.fspath(value[_FILE]))
    except TypeError as error:
        raise DeserializationError(f'cannot restore a value: {error!r}', error) from error
    return pickles.restore(body, 'a value', buffers)


def _is_plain(value: Any) -> bool:
    """Return whether msgpack restores the value unchanged, and it is small."""
    if type(value) not in _PLAIN and not (
            type(value) in _CONTAINERS and _has_plain_parts([value], _CONTAINERS, _NAMES)):
        return False
    try:
        packed = codec.pack(value)
    except ValueError:   # integers of more than 64 bits, text that has no bytes
        return False
    return len(packed) <= blobs.LIMIT and _MARK not in packed


def _has_plain_parts(level: list[Any], containers: frozenset[type], keys: frozenset[type]) -> bool:
    """Return whether containers of these types have plain parts, and none is there twice; fast, as it goes by level."""
    seen: set[int] = set()
    for _ in range(_MAX_DEPTH):
        ids = set(map(id, level))
        if len(ids) < len(level) or not ids.isdisjoint(seen):
            return False
        seen |= ids
        dicts = [each for each in level if type(each) is dict]
        others = [each for each in level if type(each) is not dict]
        parts = [*chain.from_iterable(others), *chain.from_iterable(map(dict.values, dicts))]
        kinds = set(map(type, parts)) - _PLAIN
        if not kinds <= containers or not keys.issuperset(map(type, chain.from_iterable(dicts))):
            return False
        if not kinds:
            return True
        level = [each for each in parts if type(each) in kinds]
    return False


def as_json(record: dict[str, Any]) -> str:
    """Return a record as JSON; keys and values that JSON cannot represent, such as payloads of functions, are text."""
    try:
        return json.dumps(record, default=_text)
    except TypeError:   # of a key
        return json.dumps(_with_names(record), default=_text)


def _text(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)


def _with_names(value: Any) -> Any:
    if isinstance(value, dict):
        return {key if isinstance(key, str) else _text(key): _with_names(part) for key, part in value.items()}
    return [_with_names(part) for part in value] if isinstance(value, list | tuple) else value


class _OnlyData(pickle.Unpickler):
    """Restores data of built-in types, which needs no classes and functions."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f'{module}.{name} may be anything')
