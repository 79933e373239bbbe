"""How a manager follows the states of its entities: one rule for pilots and tasks.

Runs in the thread of the engine. Every transition goes through the state model; states that were skipped are announced
once, in order; what an update tells about an entity can be read before its new state can be seen.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from rp_api import states
from rp_api.errors import StateError, sentence
from rp_client.callbacks import Dispatcher, Registry, arguments, bulk_callbacks
from rp_client.waiting import Board

_log = logging.getLogger('radical.pilot.states')


class Entity(Protocol):
    """A pilot or a task."""

    _state: str

    @property
    def uid(self) -> str: ...

    @property
    def state(self) -> str: ...

    def _learn(self, info: Mapping[str, Any]) -> None: ...


class Change(NamedTuple):
    """A state that an entity is said to have reached, and what became known with it."""

    entity: Any
    state: str
    info: Mapping[str, Any] | None = None


Announced = list[tuple[list[Any], Sequence[str]]]
"""Entities in a row, with the states that each of them has passed through."""

_ABRUPT = frozenset({states.FAILED, states.CANCELED})


class Tracker:
    """Applies state changes, wakes those who wait and calls those who asked to be called.

    Trackers of entities that are waited for together share a board.
    """

    def __init__(self, model: states.StateModel, metric: str, registry: Registry, dispatcher: Dispatcher,
                 board: Board | None = None) -> None:
        self.board = board or Board(model)
        self._model = model
        self._metric = metric
        self._registry = registry
        self._dispatcher = dispatcher
        self._bulk = bulk_callbacks()
        self._kept: Announced | None = None
        self.on_final: Callable[[Sequence[Any]], object] = lambda entities: None
        """Is told of entities that have reached a final state."""

    def keep(self) -> None:
        """From now on, keep what callbacks have to be told, until `release`."""
        self._kept = []

    def news(self, entity: Any) -> None:
        """The state that an entity is in has not been told to anybody yet."""
        self._announce([([entity], [entity.state])])

    def release(self) -> None:
        """Tell callbacks what was kept for them, and from now on at once what there is to tell."""
        kept, self._kept = self._kept, None
        if kept:
            self._announce(kept)

    def apply(self, changes: Iterable[Change]) -> list[Change]:
        """Move entities forward; gives the changes that were real, in order."""
        real = []
        announced: Announced = []
        row: list[Any] = []
        before: Sequence[str] = ()
        with self.board.lock:
            for told in changes:
                change, passed = self._move(told)
                if passed:
                    real.append(change)
                    if passed is not before:   # most do as the one before
                        before, row = passed, []
                        announced.append((row, passed))
                    row.append(change.entity)
            self._changed(announced)
        self._announce(announced)
        return real

    def advance(self, entities: Sequence[Any], state: str) -> None:
        """Move entities forward to a state that comes without anything to know."""
        announced: Announced = []
        row: list[Any] = []
        before = target = ''
        passed: Sequence[str] = ()
        with self.board.lock:
            for entity in entities:
                if entity._state != before:   # they are alike, as a rule
                    try:
                        target, passed = self._model.step(entity._state, state)
                    except StateError as error:
                        _log.info('update of %s refused: %s', entity.uid, error)
                        continue
                    before, row = entity._state, []
                    if passed:
                        announced.append((row, passed))
                if passed:
                    entity._state = target
                    row.append(entity)
            self._changed(announced)
        self._announce(announced)

    def _changed(self, announced: Announced) -> None:
        for entities, passed in announced:
            self.board.changed(passed[-1], entities)
            if self._model.is_final(passed[-1]):
                self.on_final(entities)

    def _move(self, change: Change) -> tuple[Change, Sequence[str]]:
        """The change, and the states that its entity passes.

        Of an update that cannot be dealt with, another change, which fails its entity: nothing else suffers from it.
        """
        try:
            return change, self._moved(change)
        except Exception as error:
            _log.exception('an update of %s cannot be dealt with', change.entity.uid)
            failure = Change(change.entity, states.FAILED, {
                'exception': sentence(error),
                'exception_detail': f'the news that it is {change.state} cannot be dealt with, see the log'})
            return failure, self._moved(failure)

    def _moved(self, change: Change) -> Sequence[str]:
        entity, state, info = change
        passed: Sequence[str] = ()
        try:
            reached = info.get('reached') if state in _ABRUPT and info else None
            if reached:   # a failure is announced alone: the states that were really passed before come first
                entity._state, passed = self._model.step(entity._state, reached)
            target, more = self._model.step(entity._state, state)
        except StateError as error:
            _log.info('update of %s refused: %s', entity.uid, error)
            return passed
        if info and (more or entity._state == state):
            entity._learn(info)
        entity._state = target
        return [*passed, *more] if passed else more

    def _announce(self, announced: Announced) -> None:
        if not announced:
            return
        if self._kept is not None:
            self._kept += announced
            return
        callbacks = self._registry.select(self._metric)
        for callback, data, uid in callbacks:
            if self._bulk:
                self._announce_bulk(callback, data, uid, announced)
                continue
            for entity, passed in _each(announced):
                if uid is None or uid == entity.uid:
                    for state in passed:
                        self._dispatcher.call(callback, *arguments(entity, state, data=data))
        if not hasattr(announced[0][0][0], 'callbacks'):
            return
        for entity, passed in _each(announced):
            for callback, data, _ in entity.callbacks.select(self._metric) if entity.callbacks else ():
                for state in passed:
                    self._dispatcher.call(callback, *arguments(entity, state, data=data))

    def _announce_bulk(self, callback: Any, data: Any, uid: str | None, announced: Announced) -> None:
        entities = [entity for entity, _ in _each(announced) if uid in (None, entity.uid)]
        if entities:
            self._dispatcher.call(callback, *arguments(entities, data=data))


def _each(announced: Announced) -> Iterator[tuple[Any, Sequence[str]]]:
    return ((entity, passed) for entities, passed in announced for entity in entities)
