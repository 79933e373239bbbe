"""Functions of an executor, and how they are sent to workers.

A function that is called again is defined at the masters once, and calls refer to it. A definition lives as long as the
executor. Lambdas made in a loop must not pile up, and a closure or a callable object may have changed since: these are
sent with each call.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any
from weakref import WeakKeyDictionary

from rp_api import pickles
from rp_raptor import communicators
from rp_raptor.wire.payload import define, encode_call, pickled_apart
from rp_raptor.wire.store import Store
from rp_raptor.worker_methods import WorkerMethod


class Definitions:
    """Turns calls of any functions into payloads; `tell(fid, blob)` sends a definition before its first use."""

    def __init__(self, tell: Callable[[bytes, bytes], object], store: Store | None = None) -> None:
        self._tell = tell
        self._store = store
        self._told: set[bytes] = set()
        self._seen: WeakKeyDictionary[FunctionType, bytes | None] = WeakKeyDictionary()
        self._methods: dict[WorkerMethod, bytes] = {}

    def encode(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        """Return the payload of a call; SerializationError if the function or an argument cannot be serialized."""
        if isinstance(func, WorkerMethod):
            fid = self._methods.get(func)
            if fid is None:
                fid = self._methods[func] = self.define(func)
            return encode_call(fid, args, kwargs or None, self._store)
        if not isinstance(func, FunctionType) or func.__closure__:
            return self._along(func, args, kwargs)
        if func not in self._seen:
            self._seen[func] = None
            return self._along(func, args, kwargs)
        fid = self._seen[func]
        if fid is None:
            fid = self._seen[func] = self.define(func)
        return encode_call(fid, args, kwargs or None, self._store)

    def define(self, func: Callable[..., Any]) -> bytes:
        """Define a function at the masters if needed, and return its identifier."""
        fid, blob = define(func, self._store.results if self._store else '')
        if fid not in self._told:
            self._told.add(fid)
            self._tell(fid, blob)
        return fid

    def _along(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        function, buffers = pickled_apart(func)
        return encode_call(self.define(call_along), (function, buffers, args, kwargs), None, self._store)


def call_along(*given: Any) -> Any:
    """Call a function that was sent with its call, on a worker, which may insert a communicator as first argument."""
    *comm, function, buffers, args, kwargs = given
    for each in comm:
        args, kwargs = communicators.insert(each, args, kwargs) or ([each, *args], kwargs)
    restored: Any = pickles.restore(function, 'a function', buffers)
    return restored(*args, **kwargs)
