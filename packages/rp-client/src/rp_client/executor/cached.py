"""Cached results of an executor's calls, in the store of the base directory."""

from __future__ import annotations

import logging
import pickle
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Any

from rp_api import pickles, values
from rp_api.errors import PilotError, sentence
from rp_api.wire import codec
from rp_client.cache.files import Seen
from rp_client.cache.notes import DECIDES, PARTS, Identity
from rp_client.executor.futures import DroppableFuture

if TYPE_CHECKING:
    from rp_client.cache.claims import Claims
    from rp_client.cache.store import CachedResult, ResultStore

_log = logging.getLogger('radical.pilot.cache')

_VALUE = 'value'
UNCACHED = 'the result of a call of %s is not cached'
_FILE_BYTES = 1 << 20   # bytes from which on a value is a file

Call = tuple[Callable[..., Any], tuple[Any, ...], Mapping[str, Any]]


class CallCache:
    """The cached results of calls. All methods may be called from any thread.

    `initializer` is what runs before the calls, with its arguments. `post` runs an action in another thread. `unlike`
    returns why the calls ran elsewhere than the application could judge; empty if they did not.
    """

    def __init__(self, base: Callable[[], str], initializer: Any,
                 post: Callable[[Callable[[], object]], object], unlike: Callable[[], str]) -> None:
        self._base = base
        self.unlike = unlike
        self._said: set[str] = set()   # reasons why calls are not cached
        self._initializer = initializer
        self._post = post
        self._lock = threading.Lock()
        self._opened: ResultStore | None = None
        self._claimed: Claims | None = None
        self._over: list[bytes] = []   # claims that end when the results are stored
        self._results: list[tuple[Identity, str, bytes]] = []   # that are not stored yet

    def call(self, key: bool | str, ranks: int) -> CachedCall:
        """Return a call whose result is cached; see `TaskDescription.cache` for the key."""
        return CachedCall(self, key, (ranks, self._initializer))

    def find(self, identity: Identity) -> Future[Any] | None:
        """Return a future with the value of a result; None without one."""
        self.flush()
        store = self._store()
        result = store.find([identity.value]).get(identity.value)
        if result is None:
            return None
        value = _value(store, result)
        if changed := identity.changed:
            raise PilotError(f'{changed} has changed meanwhile')
        future = DroppableFuture(lambda: None)
        future.set_result(value)
        return future

    def say(self, sentence: str, label: str, reason: str) -> None:
        """Say why a call is not cached, the first time."""
        if reason not in self._said:
            self._said.add(reason)
            _log.warning(f'{sentence}: %s (said once; %s)', label, reason, DECIDES)

    def keep(self, identity: Identity, label: str, value: Any) -> None:
        """Store a value, soon."""
        with self._lock:
            self._results.append((identity, label, _pickled(value)))
            first = len(self._results) == 1
        if first:
            self._post(self._flush)

    def claim(self, identity: bytes) -> bool:
        """Claim a call; return False if an equal one is in flight."""
        return bool(self._claims().take([identity]))

    def when_free(self, identity: bytes, freed: Callable[[], bool]) -> None:
        """Call `freed` when an equal call may have ended; see `Claims.when_free`."""
        self._claims().when_free(identity, freed)

    def end(self, identity: bytes) -> None:
        """End a claim, once the value of the call is stored if it has one."""
        self._over.append(identity)
        self._post(self._flush)

    def flush(self) -> None:
        """Store the values that are not stored yet, and end the claims of calls that are over."""
        over, self._over = self._over, []
        stored = {identity.value for identity, *_ in self._results}
        try:
            self._flush_values()
        finally:
            for identity in over:
                self._claims().release([identity], stored=identity in stored)

    def _flush_values(self) -> None:
        if not self._results:
            return
        store = self._store()
        with self._lock:
            results, self._results = self._results, []
            store.add([_entry(store, *result) for result in results])

    def close(self) -> None:
        """Store what is left, and close the store."""
        self._flush()
        if self._claimed is not None:
            self._claimed.close()
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


    def _claims(self) -> Claims:
        from rp_client.cache.claims import Claims  # few executors need it

        directory = self._store().directory
        with self._lock:
            if self._claimed is None:
                self._claimed = Claims(directory)
            return self._claimed


class CachedCall:
    """A call whose result is cached. `identity` is None if it has none."""

    def __init__(self, cache: CallCache, key: bool | str, others: tuple[Any, ...]) -> None:
        self._cache = cache
        self._key = key
        self._others = others   # what the result depends on besides the call
        self.identity: Identity | None = None
        self._label = ''
        self._claimed: bytes | None = None
        self.waits = False
        """True if an equal call is in flight, so that this one is to be looked up again (`when_free`)."""

    def find(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Future[Any] | None:
        """Return a future with the cached value; None if the call has to be made, or `waits`."""
        from rp_client.cache.digest import DigestError  # few executors need it

        self.waits = False
        self._label = getattr(fn, '__qualname__', '') or type(fn).__qualname__
        try:
            self.identity = self._identify(fn, args, kwargs)
            found = self._cache.find(self.identity)
            if found is None and self._claimed is None:
                found = self._claim(self.identity)
            return found
        except (DigestError, PilotError, OSError) as error:
            self._cache.say('a call of %s runs without the cache', self._label,
                            f'its result depends on {error}' if isinstance(error, DigestError) else sentence(error))
            return None

    def _claim(self, identity: Identity) -> Future[Any] | None:
        """Claim the call, and look for a result that was stored meanwhile."""
        if self._cache.claim(identity.value):
            self._claimed = identity.value
            found = self._cache.find(identity)
            if found is not None:
                self.end()
            return found
        self.waits = True
        return None

    def when_free(self, freed: Callable[[], bool]) -> None:
        """Call `freed` when an equal call may have ended; it returns False if it is not interested any more."""
        assert self.identity is not None
        self._cache.when_free(self.identity.value, freed)

    def end(self) -> None:
        """Wake equal calls that wait, as this one is over."""
        claimed, self._claimed = self._claimed, None
        if claimed is not None:
            self._cache.end(claimed)

    def sent(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Forget the identity if the call was sent with something that has changed since it was looked up."""
        if self.identity is None:
            return
        try:
            same = self._identify(fn, args, kwargs, self.identity.seen).value == self.identity.value
        except (ValueError, OSError):
            same = False
        if not same:
            self._drop('its function or an argument has changed since it was submitted')

    def keep(self, value: Any) -> None:
        """Store the value of the call, unless it may be that of another identity."""
        if self.identity is None:
            return
        if changed := self.identity.changed:   # before the application has the value
            self._drop(f'{changed} has changed since the call was submitted')
        elif not self.identity.by_key and (reason := self._cache.unlike()):
            self._drop(reason)
        else:
            try:
                self._cache.keep(self.identity, self._label, value)
            except PilotError as error:   # it cannot be serialized here
                self._drop(sentence(error))

    def _identify(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any],
                  seen: Seen | None = None) -> Identity:
        from rp_client.cache.identity import call_identity  # few executors need it

        return call_identity(fn, args, kwargs, self._others, self._key, seen)

    def _drop(self, reason: str) -> None:
        self.identity = None
        self._cache.say(UNCACHED, self._label, reason)


def _pickled(value: Any) -> bytes:
    """Return a value as it is stored: with references to classes of the script, which its next run has, too."""
    try:
        return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    except Exception:   # the type of exception depends on the object
        return values.dump(value)


def _entry(store: ResultStore, identity: Identity, label: str, value: bytes) -> tuple[bytes, str, bytes, Path | None]:
    if len(value) < _FILE_BYTES:
        return identity.value, label, codec.pack({_VALUE: value, PARTS: identity.parts}), None
    directory = store.new_directory()
    (directory / _VALUE).write_bytes(value)
    return identity.value, label, codec.pack({PARTS: identity.parts}), directory


def _value(store: ResultStore, result: CachedResult) -> Any:
    packed = codec.unpack(result.info).get(_VALUE)
    if packed is None:
        directory = store.take(result)
        packed = (directory / _VALUE).read_bytes()
        rmtree(directory, ignore_errors=True)
    return pickles.restore(packed, 'a value')
