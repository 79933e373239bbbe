"""Serialisation of Python functions and objects for workers.

A `PythonTask` is text that holds a function with its arguments: base64 of a pickled dict with `func` (bytes), `args`
and `kwargs`. Functions are serialised by value with cloudpickle, including lambdas and functions of the application's
main script; those of modules that the receiver can import are serialised by reference. Reading such data executes code
of its author: read only data of the application itself.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Callable
from typing import Any

from rp_api import pickles
from rp_api.errors import DeserializationError, SerializationError
from rp_api.system import private

_FILE_NAME = 'rp_obj.pkl'


class PythonTask:
    """A factory for values of `TaskDescription.function`: a function together with its arguments, as text.

    `PythonTask(func, args, kwargs)` takes the arguments as a tuple or list and a dict (or None), positionally or by
    name; both are optional. All other calls have the older form `PythonTask(func, *args, **kwargs)`. A call of the
    older form that looks like the newer one, such as `PythonTask(func, [1, 2])`, is interpreted as the newer one.
    Raises ValueError if `func` is not callable.
    """

    def __new__(cls, func: Callable[..., Any], *args: Any, **kwargs: Any) -> str:  # type: ignore[misc]
        return _encode(func, *_call_arguments(args, kwargs))

    @staticmethod
    def pythontask(func: Callable[..., Any]) -> Callable[..., str]:
        """Return a function that encodes a call of `func` with its own arguments."""
        from functools import update_wrapper

        _require_callable(func)

        def encode(*args: Any, **kwargs: Any) -> str:
            return _encode(func, args, kwargs)
        return update_wrapper(encode, func)

    @staticmethod
    def get_func_attr(text: str) -> tuple[Callable[..., Any], list[Any], dict[str, Any]]:
        """Return the function, the arguments and the keyword arguments of an encoded call.

        Raises:
            ValueError: `text` is not a string.
            DeserializationError: The text cannot be decoded.
            TypeError: The text does not encode a function call.
        """
        if not isinstance(text, str):
            raise ValueError(f'a PythonTask is text, not {type(text).__name__}')
        call = deserialize_bson(text)
        if not isinstance(call, dict) or set(call) != {'func', 'args', 'kwargs'}:
            raise TypeError('this text holds no function call: it was not made by PythonTask')
        func = deserialize_obj(call['func'])
        if not callable(func):
            raise TypeError(f'this text holds {type(func).__name__}, which cannot be called')
        return func, list(call['args']), dict(call['kwargs'])


pythontask = PythonTask.pythontask


def is_python_task(text: str) -> bool:
    """Return whether the text looks like a `PythonTask` rather than a function name; it is not unpickled."""
    try:
        data = base64.b64decode(text, validate=True)
    except (ValueError, TypeError):
        return False
    return pickles.is_pickle(data)


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


def _encode(func: Callable[..., Any], args: tuple[Any, ...] | list[Any], kwargs: dict[str, Any] | None) -> str:
    _require_callable(func)
    return serialize_bson({'func': serialize_obj(func), 'args': list(args), 'kwargs': dict(kwargs or {})})


def _call_arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
    """Return the arguments of the function, given to `PythonTask` in either form."""
    given = dict(zip(('args', 'kwargs'), args, strict=False))
    if len(args) <= 2 and not given.keys() & kwargs and kwargs.keys() <= {'args', 'kwargs'}:
        given |= kwargs
        positional, keywords = given.get('args', ()), given.get('kwargs')
        if isinstance(positional, tuple | list) and isinstance(keywords, dict | None):
            return positional, keywords
    return args, kwargs


def _require_callable(func: object) -> None:
    if not callable(func):
        raise ValueError(f'a PythonTask needs something that can be called, not {func!r}')


def _default_file() -> str:
    import tempfile

    return os.path.join(tempfile.gettempdir(), _FILE_NAME)


def _own(name: str, flags: int) -> int:
    """Open a file of ours in a directory where all users can create files (an opener for `open`)."""
    descriptor = private.open_file(name, flags & ~os.O_TRUNC)
    if flags & os.O_TRUNC:
        os.ftruncate(descriptor, 0)
    return descriptor
