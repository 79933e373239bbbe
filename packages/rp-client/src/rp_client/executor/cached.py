"""Cached results of an executor's calls, in the store of the base directory."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rp_api import pickles, values
from rp_api.errors import PilotError, sentence
from rp_api.wire import codec
from rp_client.executor.futures import DroppableFuture

if TYPE_CHECKING:
    from rp_client.cache.store import Result, ResultStore

_log = logging.getLogger('radical.pilot.cache')

_VALUE = 'value'
_APART = 1 << 20   # bytes from which on a value is a file

Call = tuple[Callable[..., Any], tuple[Any, ...], Mapping[str, Any]]


class CallCache:
    """The cached results of calls. All methods may be called from any thread.

    `initializer` is what runs before the calls, with its arguments. `post` runs an action in another thread.
    """

    def __init__(self, base: Callable[[], str], initializer: Any,
                 post: Callable[[Callable[[], object]], object]) -> None:
        self._base = base
        self._initializer = initializer
        self._post = post
        self._lock = threading.Lock()
        self._opened: ResultStore | None = None
        self._results: list[tuple[bytes, str, bytes]] = []   # that are not stored yet

    def call(self, key: bool | str, ranks: int) -> CachedCall:
        """Return a call whose result is cached; see `TaskDescription.cache` for the key."""
        return CachedCall(self, key, (ranks, self._initializer))

    def find(self, identity: bytes) -> Future[Any] | None:
        """Return a future with the value of a result; None without one."""
        self.flush()
        store = self._store()
        result = store.find([identity]).get(identity)
        if result is None:
            return None
        future = DroppableFuture(lambda: None)
        future.set_result(_value(store, result))
        return future

    def keep(self, identity: bytes, label: str, value: Any) -> None:
        """Store a value, soon."""
        with self._lock:
            self._results.append((identity, label, values.dump(value)))
            first = len(self._results) == 1
        if first:
            self._post(self._flush)

    def flush(self) -> None:
        """Store the values that are not stored yet."""
        if not self._results:
            return
        store = self._store()
        with self._lock:
            results, self._results = self._results, []
            store.add([_entry(store, *result) for result in results])

    def close(self) -> None:
        """Store what is left, and close the store."""
        self._flush()
        with self._lock:
            if self._opened is not None:
                self._opened.close()
                self._opened = None

    def _flush(self) -> None:
        try:
            self.flush()
        except (PilotError, OSError) as error:
            _log.warning('results are not cached: %s', sentence(error))

    def _store(self) -> ResultStore:
        from rp_client.cache.store import NAME, ResultStore  # few executors need it

        with self._lock:
            if self._opened is None:
                self._opened = ResultStore(Path(self._base(), NAME))
            return self._opened


class CachedCall:
    """A call whose result is cached."""

    def __init__(self, cache: CallCache, key: bool | str, others: tuple[Any, ...]) -> None:
        self._cache = cache
        self._key = key
        self._others = others   # what the result depends on besides the call
        self._identity: bytes | None = None
        self._label = ''

    def find(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Future[Any] | None:
        """Return a future with the cached value; None if the call has to be made."""
        from rp_client.cache.digest import DigestError
        from rp_client.cache.identity import call_identity

        self._label = getattr(fn, '__qualname__', '') or type(fn).__qualname__
        try:
            self._identity = call_identity(fn, args, kwargs, self._others, self._key)
            return self._cache.find(self._identity)
        except (DigestError, PilotError, OSError) as error:
            _log.warning('a call of %s runs without the cache: %s', self._label, error)
            return None

    def keep(self, value: Any) -> None:
        """Store the value of the call."""
        if self._identity is None:
            return
        try:
            self._cache.keep(self._identity, self._label, value)
        except PilotError as error:   # it cannot be serialized here
            _log.warning('the result of a call of %s is not cached: %s', self._label, error)


def _entry(store: ResultStore, identity: bytes, label: str, value: bytes) -> tuple[bytes, str, bytes, Path | None]:
    if len(value) < _APART:
        return identity, label, codec.pack({_VALUE: value}), None
    directory = store.new_directory()
    (directory / _VALUE).write_bytes(value)
    return identity, label, codec.pack({}), directory


def _value(store: ResultStore, result: Result) -> Any:
    packed = codec.unpack(result.info).get(_VALUE)
    if packed is None:
        packed = (store.path(result) / _VALUE).read_bytes()
    return pickles.restore(packed, 'a value')
