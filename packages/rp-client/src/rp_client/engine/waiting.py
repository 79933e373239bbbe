"""Waiting for states without polling.

A state that was passed counts as reached, and a final state ends every wait. The event loop calls `changed` for each
bulk of state changes under the board's lock; a waiter reads the states and registers under the same lock, so that it
misses no change.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

from rp_api import states, units
from rp_api.system.owner_process import OwnerProcess
from rp_client.engine.callbacks import SHOWN_STATES

WAIT_MAX_S = 1.0
"""Seconds of one wait at most: Python handles a signal that arrives as a wait begins only at its end."""


REFRESH = 0.5
"""Seconds between two calls of a function that shows a wait."""

Show = Callable[[int, int], object]
"""Shows a wait, given the number of entities that have arrived and of all."""


class Stateful(Protocol):
    """An entity whose states can be waited for."""

    @property
    def uid(self) -> str: ...

    @property
    def state(self) -> str: ...


class Listener(Protocol):
    """Is told when an entity becomes final; called under the board's lock, mostly by the event loop."""

    @property
    def closed(self) -> bool:
        """True if the listener is not interested any more."""

    def ended(self, entity: Any) -> None:
        """Note that an entity is final."""

    def broke(self, error: BaseException) -> None:
        """Note that no state will change any more."""


class Stall(NamedTuple):
    """Entities that cannot go on unless the application acts, and the error for those who wait for them."""

    includes: Callable[[str], bool]
    error: Callable[[], BaseException]


class _Waiter:
    __slots__ = ('done', 'pending', 'value')

    def __init__(self, value: int, pending: set[str]) -> None:
        self.value = value
        self.pending = pending
        self.done = threading.Event()


class _Watcher(NamedTuple):
    condition: Callable[[], bool]
    done: threading.Event
    stalls: Callable[[], bool]


class Board:
    """The threads that wait for states, or for other data, of one kind of entity, and listeners for final states."""

    def __init__(self, model: states.StateModel) -> None:
        self._model = model
        self._waiters: list[_Waiter] = []
        self._watchers: list[_Watcher] = []
        self._listeners: dict[str, list[tuple[Stateful, Listener]]] = {}   # with what they listen to
        self._broken: BaseException | None = None
        self._stall: Stall | None = None
        self._process = OwnerProcess('the session')
        self.lock = threading.RLock()

    def value(self, wanted: str | Iterable[str] | None) -> int:
        """Return the value of the earliest wanted state (None: any final state); raise `StateError` if unknown."""
        if wanted is None:
            wanted = states.FINAL
        names = [wanted] if isinstance(wanted, str) else list(wanted)
        return min((self._model.value(name) for name in names), default=self._model.value(states.DONE))

    def wait(self, entities: Sequence[Stateful], wanted: str | Iterable[str] | None, timeout: units.Time | None,
             show: Show | None = None) -> bool:
        """Wait until all entities have reached a wanted state; return False after `timeout` seconds.

        If the wait takes longer than `WAIT_MAX_S`, `show` is called every `REFRESH` seconds.
        """
        self._process.check()   # first: in a fork, a lock that another thread held is never released
        SHOWN_STATES.states = {}
        value = self.value(wanted)
        timeout = units.limit(timeout)
        with self.lock:
            pending = {entity.uid for entity in entities if self._model.value(entity.state) < value}
            if not pending:
                return True
            waiter = _Waiter(value, pending)
            self._waiters.append(waiter)
            stalled = self._stalls(pending)
        try:
            if self._broken is None and not stalled:
                wait_for_event(waiter.done, math.inf if timeout is None else timeout, show and partial(
                    _show, show, waiter, len(entities)))
            with self.lock:
                if waiter.pending and self._broken is not None:
                    raise self._failure(self._broken)
                if self._stall is not None and self._stalls(waiter.pending):
                    raise self._stall.error()
                return not waiter.pending
        finally:
            with self.lock:
                self._waiters.remove(waiter)

    def wait_until(self, condition: Callable[[], bool], timeout: units.Time | None,
                   stalls: Callable[[], bool] = lambda: False) -> bool:
        """Wait until a condition on entities is true; return False after `timeout` seconds.

        It is evaluated after each bulk of changes, under the board's lock, and so is `stalls`, which tells whether the
        condition depends on entities that are stalled, if some are.
        """
        self._process.check()
        SHOWN_STATES.states = {}
        timeout = units.limit(timeout)
        watcher = _Watcher(condition, threading.Event(), stalls)
        with self.lock:
            if condition():
                return True
            self._watchers.append(watcher)
            stalled = self._stall is not None and stalls()
        try:
            if self._broken is None and not stalled:
                wait_for_event(watcher.done, math.inf if timeout is None else timeout)
            met = condition()
            if not met and self._broken is not None:
                raise self._failure(self._broken)
            with self.lock:
                if not met and self._stall is not None and stalls():
                    raise self._stall.error()
            return met
        finally:
            with self.lock:
                self._watchers.remove(watcher)

    def listen(self, entity: Stateful, listener: Listener) -> None:
        """Call `listener.ended(entity)` when the entity is final, or now if it is."""
        self._process.check()
        SHOWN_STATES.states = {}
        with self.lock:
            if self._model.is_final(entity.state):
                listener.ended(entity)
            elif self._broken is not None:
                listener.broke(self._failure(self._broken))
            elif self._stall is not None and self._stall.includes(entity.uid):
                listener.broke(self._stall.error())
            else:
                others = [other for other in self._listeners.get(entity.uid, ()) if not other[1].closed]
                self._listeners[entity.uid] = [*others, (entity, listener)]

    def look(self) -> None:
        """Wake the threads whose conditions have become true; the caller holds the lock."""
        for watcher in self._watchers:
            if watcher.condition():
                watcher.done.set()

    def changed(self, state: str, entities: Iterable[Stateful]) -> None:
        """Wake the threads that waited for these entities to reach this state; the caller holds the lock."""
        value = self._model.value(state)
        for waiter in self._waiters:
            if value >= waiter.value:
                waiter.pending.difference_update([entity.uid for entity in entities])
                if not waiter.pending:
                    waiter.done.set()
        if self._listeners and self._model.is_final(state):
            for entity in entities:
                for told, listener in self._listeners.pop(entity.uid, ()):
                    listener.ended(told)

    def stalled(self, stall: Stall | None) -> None:
        """End present and later waits for stalled entities with their error; None if the entities go on."""
        with self.lock:
            self._stall = stall
            if stall is None:
                return
            for waiter in self._waiters:
                if self._stalls(waiter.pending):
                    waiter.done.set()
            for watcher in self._watchers:
                if watcher.stalls():
                    watcher.done.set()
            told = [each for uid in list(self._listeners) if stall.includes(uid)
                    for _, each in self._listeners.pop(uid)]
            for listener in {id(each): each for each in told}.values():
                listener.broke(stall.error())

    def _stalls(self, uids: Iterable[str]) -> bool:
        """Return whether one of these entities is stalled."""
        return self._stall is not None and any(map(self._stall.includes, uids))

    def broke(self, error: BaseException) -> None:
        """End all present and later waits with an error, as no state will change any more."""
        with self.lock:
            self._broken = error
            for done in [each.done for each in self._waiters] + [each.done for each in self._watchers]:
                done.set()
            listeners = {id(each): each for row in self._listeners.values() for _, each in row}
            self._listeners.clear()
            for listener in listeners.values():
                listener.broke(self._failure(error))

    @staticmethod
    def _failure(error: BaseException) -> RuntimeError:
        failure = RuntimeError(f'the session cannot go on: {error}')
        failure.__cause__ = error
        return failure


def wait_for_event(event: threading.Event, timeout: float, show: Callable[[], object] | None = None) -> None:
    """Wait until an event is set, for at most `timeout` seconds; `show` is called every `REFRESH` seconds."""
    end, longest = time.monotonic() + timeout, WAIT_MAX_S
    while (left := end - time.monotonic()) > 0 and not event.wait(min(left, longest)):
        if show is not None and time.monotonic() < end:
            show()
            longest = REFRESH


def _show(show: Show, waiter: _Waiter, total: int) -> None:
    show(total - len(waiter.pending), total)
