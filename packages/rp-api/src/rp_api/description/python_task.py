"""Calls of an application's functions in descriptions of tasks, as users know them and as they are sent.

A `PythonTask` is text: base64 of a pickled dict with `func` (a pickled function), `args` and `kwargs`. Descriptions are
sent with a packed call instead: `function` is the pickled function, which all calls of a batch have in common, and
`args` a pickled dict with `args` and `kwargs`.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, update_wrapper
from typing import Any

from cloudpickle import list_registry_pickle_by_value

from rp_api import pickles
from rp_api.by_value import versions
from rp_api.by_value.pickler import dumps
from rp_api.functions import deserialize_bson, deserialize_obj
from rp_api.values import dump

_CALL = _FUNCTION, _ARGS, _ = 'function', 'args', 'kwargs'   # attributes of descriptions
_FILLERS = b'', b'N0', b'N0N0'   # None that is dropped, in a pickle


class PythonTask(str):
    """A value of `TaskDescription.function`: a function together with its arguments, as text.

    `PythonTask(func, args, kwargs)` takes the arguments as a tuple or list and a dict (or None), positionally or by
    name; both are optional. All other calls have the older form `PythonTask(func, *args, **kwargs)`. A call of the
    older form that looks like the newer one, such as `PythonTask(func, [1, 2])`, is interpreted as the newer one.
    Raises ValueError if `func` is not callable.
    """

    __slots__ = ('arguments', 'function')

    function: bytes
    """The pickled function: the same object in all calls of one version of it."""

    arguments: bytes
    """The pickled arguments."""

    def __new__(cls, func: Callable[..., Any], *args: Any, **kwargs: Any) -> PythonTask:
        """Return the call of a function as it is now; raise SerializationError if it cannot be pickled."""
        _require_callable(func)
        return unpacked_call(versions.pickled(func), pack_arguments(*_call_arguments(args, kwargs)))

    def __reduce__(self) -> tuple[Any, ...]:
        return unpacked_call, (self.function, self.arguments)

    @staticmethod
    def pythontask(func: Callable[..., Any]) -> Callable[..., PythonTask]:
        """Return a function that encodes a call of `func` with its own arguments."""
        _require_callable(func)
        latest = versions.follow(func)

        def encode(*args: Any, **kwargs: Any) -> PythonTask:
            return unpacked_call(latest(), pack_arguments(args, kwargs))
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


def unpacked_call(function: bytes, arguments: bytes) -> PythonTask:
    """Return the `PythonTask` of a packed call."""
    start, stamp = pickles.parted(arguments)
    start = start[:-1]   # without the end of the pickle
    start += _FILLERS[len(start) % 3]   # base64 takes three bytes at a time
    text = binascii.b2a_base64(start, newline=False).decode('ascii') + _end(function, stamp)
    task = str.__new__(PythonTask, text)
    task.function, task.arguments = function, arguments
    return task


def pack_arguments(args: Sequence[Any], kwargs: Mapping[str, Any] | None) -> bytes:
    """Return the packed arguments of a call; raise SerializationError if one cannot be pickled."""
    arguments = {'args': list(args), 'kwargs': dict(kwargs) if kwargs else {}}
    return pickles.stamped(dumps(arguments)) if list_registry_pickle_by_value() else dump(arguments)


def pack_call(description: dict[str, Any], function: bytes = b'') -> tuple[bytes, bytes] | None:
    """Return function and arguments of a description packed; None if the function is that of a worker, or text.

    `function`, if given, is the packed function. Raises SerializationError if the call cannot be pickled.
    """
    func, args, kwargs = (dict.get(description, name) for name in _CALL)
    if isinstance(func, PythonTask):
        return func.function, func.arguments
    return (function or versions.pickled(func), pack_arguments(args or (), kwargs)) if callable(func) else None


def pack_task(function: bytes, task: PythonTask) -> dict[str, Any]:
    """Return the attributes of a packed call, without its function if it is this one, which others have, too."""
    own: dict[str, Any] = {_ARGS: task.arguments}
    return own if task.function == function else {**own, _FUNCTION: task.function}


def shown_call(attributes: dict[str, Any]) -> dict[str, Any]:
    """Return attributes of a description, in which a packed call is a `PythonTask`, as applications know it."""
    function = attributes.get(_FUNCTION)
    if not isinstance(function, bytes):
        return attributes
    rest = {name: value for name, value in attributes.items() if name != _ARGS}
    return {**rest, _FUNCTION: unpacked_call(function, attributes[_ARGS])}


def is_python_task(text: str) -> bool:
    """Return whether the text looks like a `PythonTask` rather than a function name; it is not unpickled."""
    try:
        data = base64.b64decode(text, validate=True)
    except (ValueError, TypeError):
        return False
    return pickles.is_pickle(data)


@lru_cache(maxsize=64)
def _end(function: bytes, stamp: bytes) -> str:
    """Return the end of the text of a function's calls, which adds the function to the dict of the arguments."""
    end = b'X\4\0\0\0funcB%bs.' % (len(function).to_bytes(4, 'little') + function)
    return base64.b64encode(end + (stamp or pickles.parted(function)[1])).decode('ascii')


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
