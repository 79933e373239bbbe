"""Callbacks of the application: their registry, and the dispatcher thread that calls them.

Callbacks run one after the other, in the order of the events, in a separate thread: they may call the API, and block
there, without stopping the event loop. An exception in a callback does not stop the others: the first one of each
callback is logged with its traceback, and the others are counted. A process that a callback forks ends with that
callback.
"""

from __future__ import annotations

import inspect
import logging
import os
import queue
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from rp_api.system.owner_process import OwnerProcess

_log = logging.getLogger('radical.pilot.callbacks')

Calls = tuple[Callable[..., Any], Iterable[tuple[Any, ...]]]


def bulk_callbacks() -> bool:
    """Return whether callbacks are called once per bulk instead of per entity (RADICAL_PILOT_BULK_CB)."""
    return os.environ.get('RADICAL_PILOT_BULK_CB', '').lower() in ('true', 'yes', '1')


class _ShownStates(threading.local):
    """The states of entities that the running callback is told of, in its thread; the others are as they are."""

    states: Mapping[Any, str] = {}


SHOWN_STATES = _ShownStates()


def bulk_call(told_states: Mapping[Any, str], data: Any) -> Iterator[tuple[Any, ...]]:
    """Yield the arguments of one call for all these entities, which show these states until the call returns or waits.

    Their states may change before the call and during it; further calls tell of those changes.
    """
    SHOWN_STATES.states = told_states
    try:
        yield arguments(list(told_states), data=data)
    finally:
        SHOWN_STATES.states = {}


def told(kind: str) -> tuple[str, ...]:
    """Return the argument names of state callbacks for a kind of entity."""
    return (f'{kind}s',) if bulk_callbacks() else (kind, 'state')


class Dispatcher:
    """Runs callbacks in order in one thread, which starts with the first callback."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._queue: queue.SimpleQueue[Calls | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._ended = self._dropped = False
        self._failing: dict[Registered, None] = {}
        self._process = OwnerProcess('this queue of callbacks')

    def call(self, callback: Callable[..., Any], *args: Any) -> None:
        """Queue the call `callback(*args)`; to be called from one thread only."""
        self.call_each(callback, (args,))

    def call_each(self, callback: Callable[..., Any], calls: Iterable[tuple[Any, ...]]) -> None:
        """Queue the call `callback(*args)` for each `args` in `calls`, which is iterated over in the thread."""
        if self._ended:
            return
        self._queue.put((callback, calls))
        if self._thread is None:
            self._start()

    def _start(self) -> None:
        """Start the thread; on failure, the next callback tries again."""
        self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        try:
            self._thread.start()
        except (RuntimeError, MemoryError) as error:
            self._thread = None
            _log.error('callbacks have to wait: %s', error)

    @property
    def ended(self) -> bool:
        """True if no more calls are accepted."""
        return self._ended

    @property
    def inside(self) -> bool:
        """True if the caller is a callback."""
        return threading.current_thread() is self._thread

    def end(self) -> None:
        """Accept no more calls, and end the thread after the queued ones."""
        self._ended = True
        self._queue.put(None)

    def close(self, timeout: float) -> None:
        """Accept no more calls, and wait at most `timeout` seconds for the queued ones."""
        self.end()
        if self._thread is not None and not self.inside:
            self._thread.join(timeout)

    def drop(self) -> None:
        """Drop all queued calls."""
        self._dropped = True

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            callback, calls = item
            for args in calls:
                if self._dropped:
                    return
                self._call(callback, args)
                if not self._process.here:   # the callback has forked, and returned in the child
                    return
        for registered in self._failing:
            registered.log_total()

    def _call(self, callback: Callable[..., Any], args: tuple[Any, ...]) -> None:
        try:
            callback(*args)
        except BaseException as error:   # SystemExit included: it would end the thread, and with it all callbacks
            if not self._process.here:
                raise
            if isinstance(callback, Registered):
                self._failing[callback] = None
                callback.failed(error)
            else:
                _log.exception('callback %s failed', _name(callback))


class Registered:
    """A callback that is no longer called once it is removed, not even by calls that are queued already."""

    __slots__ = ('_failures', '_logged', 'function', 'removed')

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.removed = False
        self._failures = self._logged = 0

    def __call__(self, *args: Any) -> None:
        if not self.removed:
            self.function(*args)

    def failed(self, error: BaseException) -> None:
        """Log the first exception, in its handler, and each tenth, hundredth, ... one."""
        self._failures += 1
        if self._failures == 1:
            self._logged = 1
            _log.exception('callback %s failed; it goes on to be called, and further failures are counted',
                           _name(self.function))
        elif self._failures == 10 * self._logged:
            self._logged = self._failures
            _log.error('callback %s has failed %d times, now with %r', _name(self.function), self._failures, error)

    def log_total(self) -> None:
        """Log how often the callback has failed, unless that was logged already."""
        if self._failures > self._logged:
            self._logged = self._failures
            _log.error('callback %s has failed %d times', _name(self.function), self._failures)


def _name(callback: Callable[..., Any]) -> str:
    return str(getattr(callback, '__qualname__', callback))


Entry = tuple[str, Registered, Any, str | None]


class Registry:
    """The callbacks of a manager or an entity; `metrics` maps the allowed metrics to argument names."""

    __slots__ = ('_entries', '_metrics')

    def __init__(self, metrics: Mapping[str, Sequence[str]]) -> None:
        self._metrics = metrics
        self._entries: list[Entry] = []

    def __bool__(self) -> bool:
        return bool(self._entries)

    def check(self, metric: str) -> None:
        """Raise `ValueError` for an unknown metric."""
        if metric not in self._metrics:
            raise ValueError(f'metric {metric!r} is unknown, allowed are: {", ".join(self._metrics)}')

    def add(self, callback: Callable[..., Any], metric: str, data: Any = None, uid: str | None = None) -> Entry:
        """Register a callback, for all entities or for one uid; raise `ValueError` if its signature does not fit.

        A callback that does not take `data` is called without it, as by RADICAL-Pilot 1, where a metric that was passed
        by position is taken for data.
        """
        if not callable(callback):
            raise ValueError(f'callback {callback!r} cannot be called')
        self.check(metric)
        names = self._metrics[metric]
        if data is not None and not _fits(callback, (*names, 'cb_data')) and _fits(callback, names):
            _log.warning('callback %s takes (%s) and no data: it is called without its cb_data, %.80r',
                         _name(callback), ', '.join(names), data)
            data = None
        _check_arguments(callback, arguments(*names, data=None if data is None else 'cb_data'))
        # replaced, not changed in place: the event loop may be reading the list
        entry = metric, Registered(callback), data, uid
        self._entries = [*self._entries, entry]
        return entry

    def remove(self, callback: Callable[..., Any] | None, metrics: Sequence[str], uid: str | None = None) -> None:
        """Remove a callback (None: all) from these metrics, with its queued calls; raise `ValueError` if unknown."""
        for metric in metrics:
            self.check(metric)

        def matches(entry: Entry) -> bool:
            return entry[0] in metrics and callback in (None, entry[1].function) and uid in (None, entry[3])

        gone = [entry for entry in self._entries if matches(entry)]
        if callback is not None and not gone:
            raise ValueError(f'callback {callback!r} is not registered')
        self._entries = [entry for entry in self._entries if not matches(entry)]
        for _, registered, _, _ in gone:
            registered.removed = True

    def forget(self, uids: Collection[str]) -> None:
        """Remove the callbacks of these uids, but not their queued calls."""
        gone = set(uids)
        self._entries = [entry for entry in self._entries if entry[3] not in gone]

    def select(self, metric: str) -> list[tuple[Registered, Any, str | None]]:
        """Return the callbacks for a metric, as (callback, data, uid)."""
        return [entry[1:] for entry in self._entries if entry[0] == metric]


def _fits(callback: Callable[..., Any], names: Sequence[str]) -> bool:
    try:
        _check_arguments(callback, names)
    except ValueError:
        return False
    return True


def _check_arguments(callback: Callable[..., Any], names: Sequence[str]) -> None:
    try:
        signature = inspect.signature(callback)
    except (TypeError, ValueError):   # some functions written in C have no signature
        return
    try:
        signature.bind(*names)
    except TypeError as error:
        raise ValueError(f'callback {_name(callback)}{signature} cannot be called with ({", ".join(names)}): '
                         f'{error}') from None


def arguments(*args: Any, data: Any) -> tuple[Any, ...]:
    """Return the arguments of a call, with the data of the registration if there is any."""
    return args if data is None else (*args, data)
