"""The graph of dependencies among tasks that wait, as plain data.

An edge costs one reference: each task that others wait for has a list of these. Each waiting task counts the conditions
that are still to be met. A list is freed when its task ends, so each edge is looked at once when it is added and once
when it is resolved. A waiting task that was taken out stays in lists until these are freed, without its description.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from rp_agent.dependencies.reasons import not_run
from rp_api import states
from rp_api.description.after import DONE, FAILED, Value


class End(NamedTuple):
    """How a task has ended: its final state, and unless that is DONE, the reason (see `reasons.ending`)."""

    state: str
    reason: str = ''

    def meets(self, condition: str) -> bool:
        """Return whether a task may run that is after this one under that condition."""
        if condition == DONE:
            return self.state == states.DONE
        return condition != FAILED or self.state != states.DONE


class Waiting:
    """A task that waits: its description, and the number of conditions to be met; -1 if it does not wait any more."""

    __slots__ = ('description', 'missing', 'uid')

    def __init__(self, uid: str, description: dict[str, Any]) -> None:
        self.uid = uid
        self.description = description
        self.missing = 0


class Resolved(NamedTuple):
    """The tasks that wait no more: those that may run, and those that will not, with the reasons."""

    released: list[Waiting]
    doomed: list[tuple[Waiting, str]]


class Graph:
    """Tasks that wait, and those that they wait for."""

    def __init__(self) -> None:
        self._waiting: dict[str, Waiting] = {}
        # by uid of the task that is waited for; with the condition, if it is not DONE
        self._dependents: dict[str, list[Waiting | tuple[Waiting, str]]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, uid: object) -> bool:
        return uid in self._waiting

    def __iter__(self) -> Iterator[Waiting]:
        return iter(self._waiting.values())

    def dependents(self, uid: str) -> list[Waiting]:
        """Return the tasks that wait for this one."""
        entries = (entry if isinstance(entry, Waiting) else entry[0] for entry in self._dependents.get(uid, ()))
        return [waiting for waiting in entries if waiting.missing > 0]

    def add(self, tasks: Iterable[tuple[str, Value, dict[str, Any]]],
            end_of: Callable[[str], End | None]) -> Resolved:
        """Add tasks (uid, `after`, description), and return those that need not wait.

        `end_of(uid)` returns how a task has ended, or None; it is called for tasks that are not waited for yet, and do
        not wait. So it learns of all tasks whose end has to be passed to `settle`.
        """
        new = []
        for uid, after, description in tasks:   # all first: they may be after each other, in any order
            self._waiting[uid] = waiting = Waiting(uid, description)
            new.append((waiting, after))
        released: list[Waiting] = []
        doomed: list[tuple[Waiting, str]] = []
        for waiting, after in new:
            reason = self._link(waiting, after, end_of)
            if reason:
                doomed.append((waiting, reason))
            elif not waiting.missing:
                released.append(waiting)
        for waiting in (*released, *[waiting for waiting, _ in doomed]):
            self._drop(waiting)
        return self._spread(released, doomed)

    def settle(self, ends: Iterable[tuple[str, End]]) -> Resolved:
        """Resolve the conditions on tasks that have ended; of several ends of a task, the first one counts."""
        released: list[Waiting] = []
        doomed: list[tuple[Waiting, str]] = []
        for uid, end in ends:
            self._settle(uid, end, released, doomed)
        return self._spread(released, doomed)

    def take(self, uids: Iterable[str]) -> list[Waiting]:
        """Remove those of these tasks that wait, and return them."""
        taken = [waiting for uid in uids if (waiting := self._waiting.get(uid)) is not None]
        for waiting in taken:
            self._drop(waiting)
        return taken

    def _link(self, waiting: Waiting, after: Value, end_of: Callable[[str], End | None]) -> str:
        """Add the edges of a task; return why it will not run, if that is known."""
        dependents, others = self._dependents, self._waiting
        conditions = after if isinstance(after, dict) else None
        for uid in after:
            entry = waiting if conditions is None or conditions[uid] == DONE else (waiting, conditions[uid])
            found = dependents.get(uid)
            if found is not None:
                found.append(entry)
                waiting.missing += 1
                continue
            end = None if uid in others else end_of(uid)
            if end is None:
                dependents[uid] = [entry]
                waiting.missing += 1
            elif not end.meets(DONE if conditions is None else conditions[uid]):
                return not_run(waiting.uid, uid, end.reason or f'is {end.state}')
        return ''

    def _settle(self, uid: str, end: End, released: list[Waiting], doomed: list[tuple[Waiting, str]]) -> None:
        dependents = self._dependents.pop(uid, None)
        if dependents is None:
            return
        done = end.state == states.DONE
        for entry in dependents:
            waiting, condition = (entry, DONE) if isinstance(entry, Waiting) else entry
            if waiting.missing < 0:
                continue
            if done if condition is DONE else end.meets(condition):
                waiting.missing -= 1
                if not waiting.missing:
                    self._drop(waiting)
                    released.append(waiting)
            else:
                self._drop(waiting)
                doomed.append((waiting, not_run(waiting.uid, uid, end.reason or f'is {end.state}')))

    def _spread(self, released: list[Waiting], doomed: list[tuple[Waiting, str]]) -> Resolved:
        """Resolve the conditions on tasks that will not run, too, and so on; `doomed` grows meanwhile."""
        for waiting, reason in doomed:
            self._settle(waiting.uid, End(states.CANCELED, reason[len(waiting.uid) + 1:]), released, doomed)
        return Resolved(released, doomed)

    def _drop(self, waiting: Waiting) -> None:
        del self._waiting[waiting.uid]
        waiting.missing = -1
