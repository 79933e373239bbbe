"""Callbacks of the application: who wants to know what, and the thread that tells them.

Callbacks run one after the other, in the order of the events, in a thread of their own: they may call back into the
API, and may wait there, without holding up the event loop. An exception in one is logged and does not stop the others.
A fork of the process that a callback makes ends with that callback, if not before.
"""

from __future__ import annotations

import inspect
import logging
import os
import queue
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from rp_api.system.owner_process import OwnerProcess

_log = logging.getLogger('radical.pilot.callbacks')

Calls = tuple[Callable[..., Any], Iterable[tuple[Any, ...]]]


def bulk_callbacks() -> bool:
    """Whether the application has asked for one call per bulk instead of one per entity (RADICAL_PILOT_BULK_CB)."""
    return os.environ.get('RADICAL_PILOT_BULK_CB', '').lower() in ('true', 'yes', '1')


def told(kind: str) -> tuple[str, ...]:
    """What callbacks for the states of a kind of entity are called with."""
    return (f'{kind}s',) if bulk_callbacks() else (kind, 'state')


class Dispatcher:
    """Runs callbacks in order in one thread, which starts with the first callback."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._queue: queue.SimpleQueue[Calls | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._ended = self._dropped = False
        self._process = OwnerProcess('this queue of callbacks')

    def call(self, callback: Callable[..., Any], *args: Any) -> None:
        """Have `callback(*args)` called after all that was asked for before; only from one thread."""
        self.call_each(callback, (args,))

    def call_each(self, callback: Callable[..., Any], calls: Iterable[tuple[Any, ...]]) -> None:
        """Have `callback(*args)` called for each `args` in `calls`, which are made when it is their turn."""
        if self._ended:
            return
        self._queue.put((callback, calls))
        if self._thread is None:
            self._start()

    def _start(self) -> None:
        """Start the thread; where there cannot be one now, with the next callback."""
        self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        try:
            self._thread.start()
        except (RuntimeError, MemoryError) as error:
            self._thread = None
            _log.error('callbacks have to wait: %s', error)

    @property
    def inside(self) -> bool:
        """Whether this is asked in a callback."""
        return threading.current_thread() is self._thread

    def end(self) -> None:
        """Take no more calls, and end the thread after those that are queued."""
        self._ended = True
        self._queue.put(None)

    def close(self, timeout: float) -> None:
        """Let what is queued run, at most `timeout` seconds long, and end the thread."""
        if self._thread is None:
            return
        self.end()
        if not self.inside:
            self._thread.join(timeout)

    def drop(self) -> None:
        """Make no more calls, also none that are queued."""
        self._dropped = True

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            callback, calls = item
            for args in calls:
                if self._dropped:
                    return
                self._call(callback, args)
                if not self._process.here:   # a fork that the callback has made, and come back from
                    return

    def _call(self, callback: Callable[..., Any], args: tuple[Any, ...]) -> None:
        try:
            callback(*args)
        except BaseException:   # an exit, too: it would end the thread, and nobody would hear anything any more
            if not self._process.here:
                raise
            function = callback.function if isinstance(callback, Registered) else callback
            _log.exception('callback %s failed', getattr(function, '__qualname__', function))


class Registered:
    """Calls a callback as long as that is registered, and nothing afterwards, even if that was asked for before."""

    __slots__ = ('function', 'removed')

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.removed = False

    def __call__(self, *args: Any) -> None:
        if not self.removed:
            self.function(*args)


Entry = tuple[str, Registered, Any, str | None]


class Registry:
    """The callbacks of one manager or entity, by metric; `metrics` has what those of each are called with."""

    __slots__ = ('_entries', '_metrics')

    def __init__(self, metrics: Mapping[str, Sequence[str]]) -> None:
        self._metrics = metrics
        self._entries: list[Entry] = []

    def __bool__(self) -> bool:
        return bool(self._entries)

    def check(self, metric: str) -> None:
        """Refuse a metric that does not exist here."""
        if metric not in self._metrics:
            raise ValueError(f'metric {metric!r} is unknown, allowed are: {", ".join(self._metrics)}')

    def add(self, callback: Callable[..., Any], metric: str, data: Any = None, uid: str | None = None) -> Entry:
        """Remember a callback, for all entities or for one uid; `ValueError` if it cannot be called as it would be."""
        if not callable(callback):
            raise ValueError(f'callback {callback!r} cannot be called')
        self.check(metric)
        _check_arguments(callback, arguments(*self._metrics[metric], data=None if data is None else 'cb_data'))
        # replaced, not changed in place: the event loop may be reading the list
        entry = metric, Registered(callback), data, uid
        self._entries = [*self._entries, entry]
        return entry

    def remove(self, callback: Callable[..., Any] | None, metrics: Sequence[str], uid: str | None = None) -> None:
        """Forget a callback (None: all) for these metrics; `ValueError` if there was no such callback.

        It is not called any more, also not for what has happened already.
        """
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
        """Have no callbacks for these uids any more; those that were asked for before are called."""
        gone = set(uids)
        self._entries = [entry for entry in self._entries if entry[3] not in gone]

    def select(self, metric: str) -> list[tuple[Registered, Any, str | None]]:
        """The callbacks for a metric: (callback, data, uid)."""
        return [entry[1:] for entry in self._entries if entry[0] == metric]


def _check_arguments(callback: Callable[..., Any], names: Sequence[str]) -> None:
    try:
        signature = inspect.signature(callback)
    except (TypeError, ValueError):   # of what is written in C it is not always known
        return
    try:
        signature.bind(*names)
    except TypeError as error:
        name = getattr(callback, '__qualname__', callback)
        raise ValueError(f'callback {name}{signature} cannot be called with ({", ".join(names)}): {error}') from None


def arguments(*args: Any, data: Any) -> tuple[Any, ...]:
    """The arguments of a call: the data that came with the registration is passed only if there is any."""
    return args if data is None else (*args, data)
