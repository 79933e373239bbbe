"""Functions that an executor calls in place of those of the application, on workers."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from functools import partial
from types import FunctionType, ModuleType
from typing import Any

from rp_api import pickles
from rp_raptor import definitions
from rp_raptor.errors import InitializerFailed

_initialized: dict[str, str] = {}
"""Executors whose initializer this rank has called, with the error of one that has failed."""

_UNDEFINED = object()

_variables: dict[str, dict[str, Any]] = {}
"""The global variables of initializers that have travelled by value, by the module of the initializer."""


def call_chunk(fn: bytes, width: int, *args: Any) -> list[Any]:
    """Call a pickled function for each `width` arguments, one call after the other; return the values."""
    call = _restored(fn)
    return [call(*args[first:first + width]) for first in range(0, len(args), width)]


def call_initialized(*given: Any) -> Any:
    """Call a function on a rank on which an initializer was called before, once.

    The arguments are a name of the initializer, the pickled initializer with its arguments, the pickled function, and
    its arguments and keyword arguments. A worker may insert a communicator before these.
    """
    *comm, name, initializer, fn, args, kwargs = given
    if name not in _initialized:
        _initialized[name] = _initialize(initializer)
    if _initialized[name]:
        raise InitializerFailed(_initialized[name])
    args, kwargs = definitions.with_communicator(comm, args, kwargs)
    return _restored(fn)(*args, **kwargs)


def _restored(pickled: bytes) -> Callable[..., Any]:
    """Return a function that finds global variables of its module as an initializer of the same module has left them.

    Functions that travel by value have global variables of their own, each of those that it names.
    """
    call: Callable[..., Any] = pickles.restore(pickled, 'a function')   # type: ignore[assignment]
    if _variables:
        function = _function(call)
        if function is not None:
            function.__globals__.update(_variables.get(function.__module__, {}))
    return call


def _function(call: Any) -> FunctionType | None:
    """Return the function that a callable calls, if it has travelled by value."""
    while isinstance(call, partial):
        call = call.func
    call = getattr(call, '__func__', call)
    if not isinstance(call, FunctionType):
        call = type(call).__call__
    if not isinstance(call, FunctionType):
        return None
    return None if call.__globals__ is vars(sys.modules.get(call.__module__, sys)) else call


def _initialize(initializer: bytes) -> str:
    """Call an initializer; return its error as text."""
    try:
        restored: Any = pickles.restore(initializer, 'the initializer')
        fn, args = restored
        function = _function(fn)
        defined = {name: value for name, value in function.__globals__.items()
                   if isinstance(value, (FunctionType, ModuleType, type))} if function is not None else {}
        fn(*args)
        if function is not None:
            _variables.setdefault(function.__module__, {}).update(
                (name, value) for name, value in function.__globals__.items()
                if not name.startswith('__') and defined.get(name, _UNDEFINED) is not value)
    except Exception:
        return traceback.format_exc()
    return ''
