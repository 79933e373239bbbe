"""Functions that an executor calls in place of those of the application, on workers."""

from __future__ import annotations

import traceback
from typing import Any

from rp_api import pickles
from rp_raptor import communicators
from rp_raptor.errors import InitializerFailed

_initialized: dict[str, str] = {}
"""Executors whose initializer this rank has called, with the error of one that has failed."""


def call_chunk(fn: bytes, width: int, *args: Any) -> list[Any]:
    """Call a pickled function for each `width` arguments, one call after the other; return the values."""
    call: Any = pickles.restore(fn, 'a function')
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
    for each in comm:
        args, kwargs = communicators.insert(each, args, kwargs) or ([each, *args], kwargs)
    call: Any = pickles.restore(fn, 'a function')
    return call(*args, **kwargs)


def _initialize(initializer: bytes) -> str:
    """Call an initializer; return its error as text."""
    try:
        restored: Any = pickles.restore(initializer, 'the initializer')
        fn, args = restored
        fn(*args)
    except Exception:
        return traceback.format_exc()
    return ''
