"""Calls and programs that are not made at once: they wait for futures, are repeated, or need an initializer."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import Any

from rp_api.errors import SerializationError, sentence
from rp_api.failures.kinds import DEPENDENCY
from rp_api.failures.task_error import TaskError
from rp_api.functions import serialize_obj
from rp_client.executor.cached import CachedCall
from rp_client.executor.calls import on_workers
from rp_client.executor.futures import DroppableFuture
from rp_client.executor.manager import Manager
from rp_client.executor.programs import Program, texts
from rp_client.executor.requirements import Requirements
from rp_client.handles.task import Task

Call = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]
_COLLECTIONS = (list, tuple, dict)


class Initializer:
    """A function that each rank calls before its first call."""

    def __init__(self, fn: Callable[..., Any], args: Sequence[Any]) -> None:
        self.name = os.urandom(8).hex()
        self._pickled = serialize_obj((fn, tuple(args)))
        functions = on_workers()
        self._call, self._error = functions.call_initialized, functions.InitializerFailed

    def before(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that prepares calls of `fn`, as it is now: each runs the initializer if needed."""
        pickled = serialize_obj(fn)
        return lambda args, kwargs: (self._call, (self.name, self._pickled, pickled, args, kwargs), {})

    def failed(self, error: BaseException | None) -> bool:
        """Return whether a call was not made, as the initializer has failed."""
        return isinstance(error, self._error)


class DeferredCall:
    """A call that is made by the manager: when its dependencies are done, and again if it fails and may be retried.

    Its function is called as it was when the call was requested.
    """

    def __init__(self, manager: Manager, requirements: Requirements, call: Call, name: str,
                 initializer: Initializer | None, cached: CachedCall | None) -> None:
        self.future = DroppableFuture(self._dropped)
        self._manager = manager
        self._requirements = requirements._replace(retries=0, cache=False)
        self._retries = requirements.retries
        self._call: Call | None = call
        self._name = name
        self._prepared: Callable[[tuple[Any, ...], dict[str, Any]], Call] | None = None
        self._requested = b''   # the function at the request, if a cached result is looked for later
        self._initializer = initializer
        self._cached = cached
        self._inner: Future[Any] | None = None
        if cached is not None:
            self.future.add_done_callback(lambda _: cached.end())
        manager.defer(self)

    @property
    def waits(self) -> bool:
        """True if the call was not made yet."""
        return self._inner is None

    def start(self, dependencies: Sequence[Future[Any]]) -> None:
        """Make the call when these futures are done."""
        try:
            self._prepare(bool(dependencies) or (self._cached is not None and self._cached.waits))
            if not dependencies:
                self._make_or_wait()
        except SerializationError as error:
            self.future.set_exception(error)
        except BaseException:   # the caller gets the error, but never the future
            self.future.drop()
            raise
        else:
            if dependencies:
                Waiting(dependencies, self._manager.post, self._ready, lambda done: fail(self.future, self._name, done))

    def _prepare(self, waits: bool) -> None:
        """Keep the function as it is now, if it is called later."""
        assert self._call
        fn = self._call[0]
        if self._initializer:
            self._prepared = self._initializer.before(fn)
        elif waits or self._retries:
            prepared = self._manager.open_calls().prepare(self._requirements, fn)
            self._prepared = lambda args, kwargs: (prepared, args, kwargs)
        if waits and self._cached:
            self._requested = serialize_obj(fn)

    def _ready(self) -> None:
        self._try(self._make_with_values)

    def _again(self) -> None:
        self._try(self._make)

    def _make_with_values(self) -> None:
        if self._call:
            fn, args, kwargs = self._call
            fn, args, kwargs = self._call = fn, *with_values(args, kwargs)
            self._look()
        self._make_or_wait()

    def _look(self) -> None:
        """Take the cached value, if there is one."""
        if self._cached and self._call and serialize_obj(self._call[0]) != self._requested:
            self._cached = None   # its identity is not that of the request
        found = self._cached.find(*self._call) if self._cached and self._call else None
        if found is not None:
            self._call = None
            self.future.copy(found)

    def _make_or_wait(self) -> None:
        """Make the call, or wait for an equal one that is in flight."""
        if self._cached and self._cached.waits and self._call:
            self._cached.when_free(self._equal_ended)
        else:
            self._make()

    def _equal_ended(self) -> bool:
        if self.future.done():
            return False
        self._manager.post(lambda: self._try(self._look_again))
        return True

    def _look_again(self) -> None:
        self._look()
        self._make_or_wait()

    def _try(self, make: Callable[[], object]) -> None:
        try:
            make()
        except Exception as error:   # such as an argument that cannot travel
            with suppress(InvalidStateError):
                self.future.set_exception(error)

    def _make(self) -> None:
        if self._call is None:   # cancelled
            return
        call = self._prepared(*self._call[1:]) if self._prepared else self._call
        inner = self._inner = self._manager.open_calls().make(self._requirements, *call, self._name)
        if self._cached:
            self._cached.sent(*self._call)
        if not self._retries:
            self._call = self._prepared = None
        self.future.task = inner.task   # type: ignore[attr-defined]
        self._manager.called()
        if self.future.cancelled():
            inner.cancel()
        inner.add_done_callback(self._ended)

    def _ended(self, inner: Future[Any]) -> None:
        error = None if inner.cancelled() else inner.exception()
        if self._initializer and self._initializer.failed(error):
            self._manager.fail(f'the initializer has failed:\n{error}')   # with this call
            return
        again = self._retries and not (self._manager.broken or self._manager.leaving)
        if again and isinstance(error, Exception) and not isinstance(error, SerializationError):
            self._retries -= 1
            self._manager.progress.repeats(self._name, error)
            self._manager.post(self._again)
            return
        self._call = self._prepared = self._inner = None
        if self._cached and error is None and not inner.cancelled():
            self._cached.keep(inner.result())
        self.future.copy(inner)

    def _dropped(self) -> None:
        self._call = self._prepared = None
        if self._inner is not None:
            self._inner.cancel()


class DeferredProgram:
    """A program whose arguments wait for futures."""

    def __init__(self, manager: Manager, program: Program, args: tuple[Any, ...]) -> None:
        self.future = program.future
        self.waits = True
        self._manager, self._program, self._args = manager, program, args
        manager.defer(self)

    def start(self, dependencies: Sequence[Future[Any]]) -> None:
        """Submit the program when these futures are done."""
        name = self._program.description.executable
        Waiting(dependencies, self._manager.post, self._ready, lambda other: fail(self._program.future, name, other))

    def _ready(self) -> None:
        try:
            self._program.description.arguments = texts(with_values(self._args, {})[0])
            self.waits = False
            self._manager.queue(self._program)
        except Exception as error:
            with suppress(InvalidStateError):
                self._program.future.set_exception(error)


def fail(future: DroppableFuture, name: str, dependency: Future[Any]) -> None:
    """Cancel a future whose dependency was cancelled, or have it fail with the error of the dependency as the cause."""
    if dependency.cancelled():
        future.cancel()
        return
    cause = dependency.exception()
    assert cause is not None
    error = TaskError(name, DEPENDENCY, f'an argument has no value: {sentence(cause)}')
    error.__cause__ = cause
    with suppress(InvalidStateError):
        future.set_exception(error)


def futures_in(args: Iterable[Any], kwargs: Mapping[str, Any]) -> list[Future[Any]]:
    """Return the futures among the arguments, each once."""
    found: dict[int, Future[Any]] = {}
    for values in (args, kwargs.values()) if kwargs else (args,):
        for value in values:
            if isinstance(value, (Future, Task)):
                _add(value, found)
            elif type(value) in _COLLECTIONS:
                for item in value.values() if type(value) is dict else value:
                    if isinstance(item, (Future, Task)):
                        _add(item, found)
    return list(found.values())


def with_values(args: Iterable[Any], kwargs: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments with values in place of futures, which are all done."""
    return tuple(map(_resolved, args)), {name: _resolved(value) for name, value in kwargs.items()}


def copied(args: Iterable[Any], kwargs: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments with copies of the collections that may have futures, and change before these are done."""
    return tuple(map(_copy, args)), {name: _copy(value) for name, value in kwargs.items()}


def _copy(value: Any) -> Any:
    return value.copy() if type(value) in (list, dict) else value


def _add(item: Any, found: dict[int, Future[Any]]) -> None:
    future = item.future() if isinstance(item, Task) else item
    found[id(future)] = future


def _resolved(value: Any) -> Any:
    if type(value) is dict:
        return {key: _value(item) for key, item in value.items()}
    if type(value) in _COLLECTIONS:
        return type(value)(map(_value, value))
    return _value(value)


def _value(item: Any) -> Any:
    if isinstance(item, Task):
        item = item.future()
    return item.result(0) if isinstance(item, Future) else item


class Waiting:
    """Waits for futures; then calls `ready()`, or `failed(future)` with the first that has failed or was cancelled.

    Futures report their end through `post`, which runs an action in one thread: a chain of any length needs no stack.
    """

    def __init__(self, futures: Iterable[Future[Any]], post: Callable[[Callable[[], object]], object],
                 ready: Callable[[], object], failed: Callable[[Future[Any]], object]) -> None:
        self._left = list(futures)
        self._ready, self._failed = ready, failed
        self._missing = len(self._left)
        for future in self._left:
            future.add_done_callback(lambda done: post(lambda: self._ended(done)))

    def _ended(self, future: Future[Any]) -> None:
        if not self._missing:   # another one has failed
            return
        if future.cancelled() or future.exception() is not None:
            self._missing = 0
            self._failed(future)
            return
        self._missing -= 1
        if not self._missing:
            self._ready()
