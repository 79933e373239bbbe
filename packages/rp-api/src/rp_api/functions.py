"""Serialisation of Python functions and objects for workers.

Functions are serialised by value with cloudpickle, including lambdas and functions of the application's
main script; those of modules that the receiver can import are serialised by reference. Reading such data executes code
of its author: read only data of the application itself.
"""

from __future__ import annotations

import base64
import binascii
import os
from typing import Any

from rp_api import pickles
from rp_api.errors import DeserializationError, SerializationError
from rp_api.system import private

_FILE_NAME = 'rp_obj.pkl'


def serialize_obj(obj: Any) -> bytes:
    """Return the pickled object; raise SerializationError, which names the part that cannot be pickled, on failure."""
    from rp_api.by_value.pickler import dumps

    return pickles.stamped(dumps(obj))


def deserialize_obj(data: bytes) -> Any:
    """Return the object that `serialize_obj` serialised; raise DeserializationError if that fails."""
    return pickles.restore(data, 'an object')


def serialize_file(obj: Any, fname: str | os.PathLike[str] | None = None) -> str:
    """Write the object to a file and return its path, by default `rp_obj.pkl` in the temporary directory."""
    data = serialize_obj(obj)
    name, opener = (_default_file(), _own) if fname is None else (os.fspath(fname), None)
    try:
        with open(name, 'wb', opener=opener) as file:
            file.write(data)
    except OSError as error:
        raise SerializationError(f'cannot write {name}: {error}') from error
    return name


def deserialize_file(fname: str | os.PathLike[str] | None = None) -> Any:
    """Return the object that `serialize_file` wrote; raise DeserializationError if that fails."""
    name, opener = (_default_file(), _own) if fname is None else (os.fspath(fname), None)
    try:
        with open(name, 'rb', opener=opener) as file:
            data = file.read()
    except OSError as error:
        raise DeserializationError(f'cannot read {name}: {error}', error) from error
    return deserialize_obj(data)


def serialize_bson(obj: Any) -> str:
    """Return the pickled object as base64 text; raise SerializationError if that fails."""
    return base64.b64encode(serialize_obj(obj)).decode('ascii')


def deserialize_bson(text: str) -> Any:
    """Return the object that `serialize_bson` serialised; raise DeserializationError if that fails."""
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError, TypeError) as error:
        raise DeserializationError(f'cannot restore an object: {error}', error) from error
    return deserialize_obj(data)


def _default_file() -> str:
    import tempfile

    return os.path.join(tempfile.gettempdir(), _FILE_NAME)


def _own(name: str, flags: int) -> int:
    """Open a file of ours in a directory where all users can create files (an opener for `open`)."""
    descriptor = private.open_file(name, flags & ~os.O_TRUNC)
    if flags & os.O_TRUNC:
        os.ftruncate(descriptor, 0)
    return descriptor
