"""The tracker: applies state changes to the pilots or tasks of a manager, and announces them.

Runs in the thread of the engine. Every transition goes through the state model. Skipped states are announced once, in
order. The info of an update is readable before the new state is.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

from rp_api import states
from rp_api.coordination.contract import ClientConnection, Mark
from rp_api.errors import StateError, sentence
from rp_api.loop.event_loop import Loop, Timer
from rp_client.engine.callbacks import Dispatcher, Entry, Registered, Registry, arguments, bulk_call, bulk_callbacks
from rp_client.engine.waiting import Board

_log = logging.getLogger('radical.pilot.states')

HEAD_START = 0.001
"""Seconds at least between the return of a call and its first callbacks, in which the application stores the result."""

POLL_S = 0.005
"""Seconds after which the loop looks for returned calls, if nothing else makes it look earlier."""


class Change(NamedTuple):
    """A reported state of an entity, with the info of the update."""

    entity: Any
    state: str
    info: Mapping[str, Any] | None = None


Announced = list[tuple[list[Any], Sequence[str]]]
"""Rows of entities, each with the states that all its entities have passed through."""

_ABRUPT = frozenset({states.FAILED, states.CANCELED})


class Tracker:
    """Applies state changes, wakes waiting threads, and queues callbacks.

    Trackers share a board if their entities are waited for together. `owner` is the entities' owner to the coordinator.
    States of restored entities are kept for the first callback that is registered for them. `handle(entity)` returns
    what the application sees of an entity.
    """

    def __init__(self, model: states.StateModel, metric: str, registry: Registry, dispatcher: Dispatcher,
                 board: Board | None = None, owner: str = '',
                 handle: Callable[[Any], Any] = attrgetter('handle')) -> None:
        self._handle = handle
        self.board = board or Board(model)
        self.owner = owner
        self._model = model
        self._metric = metric
        self._registry = registry
        self._dispatcher = dispatcher
        self._bulk = bulk_callbacks()
        # by uid: restored entities without a callback yet, with the last announced state
        self._untold: dict[str, tuple[Any, str]] = {}
        self._has_told = False
        self.finals = dict.fromkeys(states.FINAL, 0)   # the numbers of entities in these states
        self.is_internal: Callable[[Any], bool] | None = None
        """Tells which entities are not announced to the application, if there are such."""
        self._held: dict[Submission, None] = {}   # submissions that have not returned yet,
        self._held_uids: dict[str, Submission] = {}   # and their entities, once there is something to announce
        self.on_final: Callable[[Sequence[Any]], object] = lambda entities: None
        """Called with entities that have reached a final state."""

    @property
    def tells(self) -> bool:
        """True if no states of restored entities are kept back for a first callback."""
        return self._has_told and not self._untold

    def restored(self, entity: Any, told: str) -> None:
        """Track a restored entity, whose states up to `told` an earlier application has received."""
        if self._model.is_final(entity.state) and not self._is_part(entity):
            self.finals[entity.state] += 1
        if told != entity.state or not self._model.is_final(told):
            self._untold[entity.uid] = entity, told

    def _is_part(self, entity: Any) -> bool:
        """Return whether an entity, or a larger one that it is a part of, is counted elsewhere."""
        return self.is_internal is not None and self.is_internal(getattr(entity, 'chunk', entity))

    def forgotten(self, final: Iterable[str]) -> None:
        """Count entities in these final states no more; may be called in any thread."""
        with self.board.lock:
            for state in final:
                self.finals[state] -= 1

    def forget(self, uids: Collection[str]) -> None:
        """Drop the states that are kept for callbacks of these uids."""
        self._untold = {uid: untold for uid, untold in self._untold.items() if uid not in uids}

    def hold(self, submission: Submission) -> None:
        """Keep the announcements of the submission's entities until `announce_held`."""
        self._held[submission] = None
        if self._held_uids:
            self._held_uids.update(dict.fromkeys([entity.uid for entity in submission.entities], submission))

    def announce_held(self, submission: Submission) -> None:
        """Announce what was kept, in order."""
        self._held.pop(submission, None)
        for entity in submission.entities if self._held_uids else ():
            self._held_uids.pop(entity.uid, None)
        for row in submission.announced:
            self._announce([row])

    def notice(self, entity: Any) -> None:
        """Announce the present state of an entity again, as other data has changed."""
        self._announce([([entity], [entity.state])])

    def release(self, entry: Entry, entity: Any = None) -> None:
        """Pass the states that no application has seen to a new callback for one entity, or for all."""
        _, callback, data, _ = entry
        self._tell(callback, data, None, self._release(entity))

    def release_own(self, entry: Entry, entity: Any) -> None:
        """Pass the states that no application has seen to a new callback in the entity's registry."""
        _, callback, data, _ = entry
        self._dispatcher.call_each(callback, self._calls(self._release(entity), data))

    def _release(self, entity: Any) -> Announced:
        self._has_told = True
        if entity is None:
            released, self._untold = self._untold, {}
        else:
            untold = self._untold.pop(entity.uid, None)
            released = {} if untold is None else {entity.uid: (entity, untold[1])}
        rows: dict[Sequence[str], list[Any]] = {}
        for each, told in released.values():
            rows.setdefault(self._since(each, told), []).append(each)
        return [(row, passed) for passed, row in rows.items() if passed]

    def _since(self, entity: Any, told: str) -> Sequence[str]:
        """Return the states that an entity has passed through since state `told`."""
        passed: Sequence[str] = ()
        reached = getattr(entity, 'reached', None) if entity.state in _ABRUPT else None
        if reached:
            told, passed = self._model.step(told, reached)
        return (*passed, *self._model.step(told, entity.state)[1])

    def apply(self, changes: Iterable[Change]) -> list[Change]:
        """Apply changes, and return those that had an effect, in order."""
        real = []
        announced: Announced = []
        row: list[Any] = []
        before: Sequence[str] = ()
        start = end = ''   # of the last step that a further change may repeat
        with self.board.lock:
            for told in changes:
                entity, state, info = told
                if state == end and entity.state == start and self._repeats(entity, state, info):
                    real.append(told)
                    row.append(entity)
                    continue
                start = entity.state
                change, passed = self._move(told)
                simple = change is told and entity.state == state and state not in _ABRUPT
                end = state if simple and passed and start not in _ABRUPT else ''
                if passed:
                    real.append(change)
                    if passed is not before:   # consecutive changes are mostly equal
                        before, row = passed, []
                        announced.append((row, passed))
                    row.append(change.entity)
            self._changed(announced)
        self._announce(announced)
        return real

    @staticmethod
    def _repeats(entity: Any, state: str, info: Mapping[str, Any] | None) -> bool:
        """Apply a change whose step is known, from the same state to the same state; return False if that fails."""
        if info:
            try:
                entity.learn(info)
            except Exception:   # `_move` reports it
                return False
        entity.state = state
        return True

    def advance(self, entities: Sequence[Any], state: str) -> None:
        """Advance entities to a state, without info."""
        announced: Announced = []
        row: list[Any] = []
        before = target = ''
        passed: Sequence[str] = ()
        with self.board.lock:
            for entity in entities:
                if entity.state != before:   # consecutive entities are mostly in the same state
                    try:
                        target, passed = self._model.step(entity.state, state)
                    except StateError as error:
                        _log.info('update of %s refused: %s', entity.uid, error)
                        continue
                    before, row = entity.state, []
                    if passed:
                        announced.append((row, passed))
                if passed:
                    entity.state = target
                    row.append(entity)
            self._changed(announced)
        self._announce(announced)

    def _changed(self, announced: Announced) -> None:
        for entities, passed in announced:
            self.board.changed(passed[-1], entities)
            if self._model.is_final(passed[-1]):
                self.finals[passed[-1]] += len(entities) if self.is_internal is None else sum(
                    not self._is_part(entity) for entity in entities)
                self.on_final(entities)
        self.board.look()

    def _move(self, change: Change) -> tuple[Change, Sequence[str]]:
        """Apply a change, and return it with the states that its entity has passed.

        An update that raises an exception is replaced by a change that fails its entity, and no other.
        """
        try:
            return change, self._moved(change)
        except Exception as error:
            _log.exception('an update of %s cannot be applied', change.entity.uid)
            failure = Change(change.entity, states.FAILED, {
                'exception': sentence(error),
                'exception_detail': f'the update to {change.state} cannot be applied, see the log'})
            return failure, self._moved(failure)

    def _moved(self, change: Change) -> Sequence[str]:
        entity, state, info = change
        passed: Sequence[str] = ()
        try:
            reached = info.get('reached') if state in _ABRUPT and info else None
            if reached:   # a failure skips no states, so announce those that were really passed first
                entity.state, passed = self._model.step(entity.state, reached)
            target, more = self._model.step(entity.state, state)
        except StateError as error:
            _log.info('update of %s refused: %s', entity.uid, error)
            return passed
        if more and state in _ABRUPT and not self._model.is_final(entity.state):
            info = {**(info or {}), 'reached': entity.state}   # for callbacks that are registered later
        if info and (more or entity.state == state):
            entity.learn(info)
        if more and self._model.is_final(entity.state):   # a cancelled task has ended otherwise
            self.finals[entity.state] -= not self._is_part(entity)
        entity.state = target
        return [*passed, *more] if passed else more

    def _announce(self, announced: Announced) -> None:
        callbacks = self._registry.select(self._metric)
        own = bool(announced) and hasattr(announced[0][0][0], 'callbacks')
        if not announced or not (callbacks or own):
            return
        if self.is_internal is not None:
            internal = self.is_internal
            announced = _only(announced, lambda entity: not internal(entity))
        if self._untold:
            announced = _only(announced, lambda entity: entity.uid not in self._untold)
        if self._held:
            announced = self._keep_held(announced)
        for callback, data, uid in callbacks:
            self._tell(callback, data, uid, announced)
        for entity, passed in _each(announced) if own else ():
            for callback, data, _ in entity.callbacks.select(self._metric) if entity.callbacks else ():
                self._dispatcher.call_each(callback, self._calls([([entity], passed)], data))

    def _keep_held(self, announced: Announced) -> Announced:
        """Keep the announcements of held entities, and return the others."""
        others: Announced = []
        self._held_uids = self._held_uids or {
            entity.uid: submission for submission in self._held for entity in submission.entities}
        for entities, passed in announced:
            for submission, row in groupby(entities, self._holder):
                (others if submission is None else submission.announced).append((list(row), passed))
        return others

    def _holder(self, entity: Any) -> Submission | None:
        """Return the submission that an entity is held for, itself or with the chunk that it is a part of."""
        return self._held_uids.get(getattr(entity, 'chunk', entity).uid)

    def _tell(self, callback: Registered, data: Any, uid: str | None, announced: Announced) -> None:
        if uid is not None:
            announced = _only(announced, lambda entity: entity.uid == uid)
        if announced and self._bulk:
            # some have passed two steps
            last = {self._handle(entity): passed[-1] for entity, passed in _each(announced)}
            self._dispatcher.call_each(callback, bulk_call(last, data))
        elif announced:
            self._dispatcher.call_each(callback, self._calls(announced, data))

    def _calls(self, announced: Announced, data: Any) -> Iterator[tuple[Any, ...]]:
        """Return the arguments of the calls of a callback, which are made one by one: they may wait for long."""
        told = [(list(map(self._handle, entities)), passed) for entities, passed in announced]
        return (arguments(handle, state, data=data) for handle, passed in _each(told) for state in passed)


def _each(announced: Announced) -> Iterator[tuple[Any, Sequence[str]]]:
    return ((entity, passed) for entities, passed in announced for entity in entities)


def _only(announced: Announced, wanted: Callable[[Any], bool]) -> Announced:
    rows = ((list(filter(wanted, entities)), passed) for entities, passed in announced)
    return [(entities, passed) for entities, passed in rows if entities]


class Submission:
    """A call that submits pilots or tasks, and the announcements that wait for its return."""

    __slots__ = ('announced', 'entities', 'mark', 'returned', 'tracker')

    def __init__(self, tracker: Tracker, entities: Sequence[Any]) -> None:
        self.tracker = tracker
        self.entities = entities
        self.announced: Announced = []
        self.mark = Mark()
        self.returned = math.inf   # the time, set by the application's thread as it returns


class Submissions:
    """The submissions of a session whose callbacks are held; runs in the thread of the engine.

    `announced()` is called when callbacks are not held any more.
    """

    def __init__(self, loop: Loop, connection: ClientConnection, announced: Callable[[], object]) -> None:
        self._loop = loop
        self._connection = connection
        self._announced = announced
        self._held: dict[Submission, None] = {}   # the oldest first
        self._returning: dict[Submission, None] = {}
        self._timer: Timer | None = None

    @property
    def mark(self) -> Mark:
        """The last position of the connection whose states have all been announced."""
        return next(iter(self._held)).mark if self._held else self._connection.mark

    def hold(self, submission: Submission) -> None:
        """Hold the callbacks of the entities of a submission until its call has returned."""
        self.look()
        submission.mark = self._connection.mark
        submission.tracker.hold(submission)
        self._held[submission] = None

    def returns(self, submission: Submission) -> None:
        """Watch for the return of a submission, which the application's thread can make from now on."""
        if submission in self._held:
            self._returning[submission] = None
            self._look_later()

    def look(self) -> None:
        """Announce the states of the submissions that have returned; called before new states are announced, too."""
        if not self._returning:
            return
        latest = time.monotonic() - HEAD_START
        due = [submission for submission in self._returning if submission.returned <= latest]
        if due:
            self._announce(due)
            self._announced()

    def announce_all(self) -> None:
        """Announce all states that are held, as the session ends."""
        self._announce(list(self._held))

    def _look_later(self) -> None:
        if self._timer is None:
            self._timer = self._loop.call_later(POLL_S, self._look_again)

    def _look_again(self) -> None:
        self._timer = None
        self.look()
        if self._returning:
            self._look_later()

    def _announce(self, submissions: Sequence[Submission]) -> None:
        for submission in submissions:
            del self._held[submission]
            self._returning.pop(submission, None)
            submission.tracker.announce_held(submission)
