"""Function calls of an executor: they go to one RAPTOR master, over a connection for each kind of requirements."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from importlib import import_module
from typing import Any

from rp_api.distributions import require
from rp_client.executor.requirements import (
    Requirements,
    Shape,
)
from rp_client.handles.raptor import RaptorMaster


def on_workers() -> Any:
    """Return the module of the functions that workers call in place of the application's."""
    require('rp-raptor')
    return import_module('rp_raptor.functions')


def _nothing() -> None:
    """Ignore that no call runs on a connection that is new."""


class ExecutorCalls:
    """The calls to one master. All methods may be called from any thread.

    `idle()` is called, in another thread, whenever no call is left, `widened()` when the workers have to have
    another shape, which `check` may refuse, and `failed(name, error)` with the function and the error of failed calls.
    """

    def __init__(self, master: RaptorMaster, check: Callable[[Shape], object], idle: Callable[[], object],
                 widened: Callable[[], object], failed: Callable[[str, BaseException], object]) -> None:
        self._on_failure = failed
        self.master = master
        self._check = check
        self.shape = Shape()
        self._idle, self._widened = idle, widened
        self._executor = import_module('rp_raptor.client.futures').Executor
        self._open: dict[Requirements, Any] = {}
        self._lock = threading.Lock()
        self._held: Callable[[], object] | None = None
        self._running: set[int] = set()   # those of the connections that have running calls, while calls are held

    @property
    def unfinished(self) -> int:
        """The number of calls without a result."""
        return sum(executor.unfinished for executor in list(self._open.values()))

    @property
    def finished(self) -> int:
        """The number of calls that have got a result from a worker."""
        return sum(executor.finished for executor in list(self._open.values()))

    @property
    def failed(self) -> int:
        """The number of calls whose result is an error."""
        return sum(executor.failed for executor in list(self._open.values()))

    def make(self, requirements: Requirements, fn: Callable[..., Any], args: tuple[Any, ...],
             kwargs: dict[str, Any], name: str) -> Future[Any]:
        """Make a call, whose future fails with a SerializationError if the function or an argument cannot travel.

        `fn` may be what `prepare` returns.
        """
        executor = self._open.get(requirements) or self._connect(requirements)
        future: Future[Any] = executor.call(fn, args, kwargs, name)
        future.task = self.master   # type: ignore[attr-defined]
        return future

    def prepare(self, requirements: Requirements, fn: Callable[..., Any]) -> Any:
        """Return a function as it is now, for calls that are made later; SerializationError if it cannot travel."""
        return (self._open.get(requirements) or self._connect(requirements)).prepare(fn)

    def hold(self, idle: Callable[[], object]) -> None:
        """Hold calls until `release`; `idle` is called, in another thread, when none runs any more."""
        with self._lock:
            self._held = idle
            executors = list(self._open.values())
            self._running = set(map(id, executors))
        for executor in executors:
            executor.hold(lambda executor=executor: self._stopped(executor))
        if not executors:
            idle()

    def release(self) -> None:
        """Start calls again."""
        with self._lock:
            self._held = None
            executors = list(self._open.values())
        for executor in executors:
            executor.release()

    def abandon(self, error: BaseException) -> None:
        """Fail all calls without a result with an error."""
        for executor in list(self._open.values()):
            executor.abandon(error)

    def cancel(self) -> None:
        """Cancel all calls without a result."""
        for executor in list(self._open.values()):
            executor.shutdown(wait=False, cancel_futures=True)

    def close(self) -> None:
        """Close the connections; calls without a result have been cancelled."""
        for executor in list(self._open.values()):
            executor.shutdown(wait=False)

    def _connect(self, requirements: Requirements) -> Any:
        with self._lock:
            found = self._open.get(requirements)
            if found is not None:
                return found
            shape = self.shape.widened(requirements.ranks, requirements.cores_per_rank, requirements.gpus_per_rank)
            self._check(shape)
            executor = self._executor(self.master, **requirements.of_call)
            executor.on_idle(self._idle)
            executor.on_failure(self._on_failure)
            if self._held is not None:
                executor.hold(_nothing)
            widened, self.shape = shape != self.shape, shape
            self._open[requirements] = executor
        if widened:
            self._widened()
        return executor

    def _stopped(self, executor: Any) -> None:
        with self._lock:
            self._running.discard(id(executor))
            idle = None if self._running else self._held
        if idle is not None:
            idle()
