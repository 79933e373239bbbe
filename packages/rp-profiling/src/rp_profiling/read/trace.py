"""The trace of a session: the events of all its profiles, with access by entity, event and state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rp_profiling.read.columns import TICKS, Columns
from rp_profiling.read.files import name_of
from rp_profiling.read.match import group
from rp_profiling.read.profile import Row

NEVER = 2**63 - 1
"""The time of events that did not happen."""

Times = NDArray[np.int64]

_ADVANCE = 'advance'


@dataclass(frozen=True)
class ProfileFile:
    """One profile; `place` is its pilot, empty for the side of the application."""

    path: Path
    place: str


@dataclass(frozen=True)
class Writer:
    """The writer of a part of a profile: an extended profile has several."""

    file: int
    number: int


class Trace:
    """The events of a session. Times are in ticks of 100 ns; `columns.uids` numbers the entities."""

    def __init__(self, columns: Columns, files: Sequence[ProfileFile], remarks: Iterable[str] = ()) -> None:
        self.columns = columns
        self.files = list(files)
        self.remarks = list(remarks)
        """Notes on the profiles: incomplete rows, clocks in conflict."""
        self.moved: dict[int, int] = {}
        """Ticks by which the clocks of places were moved so that no effect comes before its cause."""

    def __len__(self) -> int:
        return self.columns.count

    @cached_property
    def by_entity(self) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        """The rows sorted by entity and time, and the index at which each entity starts."""
        return group(self.columns.uid, len(self.columns.uids), self.columns.time)

    @cached_property
    def _by_event(self) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        return group(self.columns.event.astype(np.uint32), len(self.columns.events), None)

    @cached_property
    def places(self) -> list[str]:
        """The pilots with profiles, after the empty name of the application's side."""
        return list(dict.fromkeys(['', *(file.place for file in self.files)]))

    @cached_property
    def place_of_source(self) -> NDArray[np.int32]:
        """For each source, the number of its place.

        A task's own profile is at the place of its executor: tasks of partitions are in the pilot's sandbox.
        """
        numbers = [self.places.index(file.place) for file in self.files]
        started = self.first_row('task_run_start')
        for number, file in enumerate(self.files):
            task = self.columns.uids.find(name_of(file.path))
            if task >= 0 and started[task] >= 0:
                executor: int = self.columns.sources[self.columns.source[started[task]]][0]
                numbers[number] = numbers[executor]
        return np.array([numbers[source[0]] for source in self.columns.sources], np.int32)

    @cached_property
    def writer_of_source(self) -> NDArray[np.int32]:
        """For each source, the number of its writer in `writers`."""
        numbers = {writer: number for number, writer in enumerate(self.writers)}
        return np.array([numbers[Writer(source[0], source[1])] for source in self.columns.sources], np.int32)

    @cached_property
    def writers(self) -> list[Writer]:
        """All writers of all profiles."""
        return list(dict.fromkeys(Writer(source[0], source[1]) for source in self.columns.sources))

    @cached_property
    def ended(self) -> NDArray[np.bool_]:
        """For each writer, whether it has closed its profile."""
        return self._writers_of('END')

    @cached_property
    def reduced(self) -> NDArray[np.bool_]:
        """For each writer, whether it has recorded only the events of the detail `states`."""
        return self._writers_of('trace_detail')

    def _writers_of(self, event: str) -> NDArray[np.bool_]:
        found = np.zeros(len(self.writers), np.bool_)
        found[self.writer_of_source[self.columns.source[self.rows_of(event)]]] = True
        return found

    @cached_property
    def cut_off(self) -> NDArray[np.bool_]:
        """For each entity, whether a process that recorded it has not closed its profile, as it was killed.

        Shells, such as those of tasks, have no profile of their own to close.
        """
        found = np.zeros(len(self.columns.uids), np.bool_)
        sources = (self._writers_of('sync_abs') & ~self.ended)[self.writer_of_source]
        if sources.any():
            found[self.columns.uid[sources[self.columns.source]]] = True
        return found

    @cached_property
    def span(self) -> tuple[int, int]:
        """The times of the first and the last event; zeros without events."""
        times = self.columns.time
        return (int(times.min()), int(times.max())) if len(times) else (0, 0)

    def rows_of(self, event: str, state: str = '') -> NDArray[np.uint32]:
        """Return the rows of an event (with that state, if one is given) in the order of the files."""
        number = self.columns.events.find(event)
        if number < 0:
            return np.zeros(0, np.uint32)
        rows, starts = self._by_event
        found = rows[starts[number]:starts[number + 1]]
        return found[self.columns.state[found] == self.columns.states.find(state)] if state else found

    def first(self, event: str, state: str = '') -> Times:
        """Return for each entity the time of its first such event (and state), NEVER without one."""
        rows = self.rows_of(event, state)
        times = np.full(len(self.columns.uids), NEVER, np.int64)
        np.minimum.at(times, self.columns.uid[rows], self.columns.time[rows])
        return times

    def last(self, event: str, state: str = '') -> Times:
        """Return for each entity the time of its last such event (and state), NEVER without one."""
        rows = self.rows_of(event, state)
        times = np.full(len(self.columns.uids), -1, np.int64)
        np.maximum.at(times, self.columns.uid[rows], self.columns.time[rows])
        times[times < 0] = NEVER
        return times

    def first_row(self, event: str) -> NDArray[np.int64]:
        """Return for each entity the first row of that event in the order of the files, -1 without one."""
        rows = self.rows_of(event)
        found = np.full(len(self.columns.uids), -1, np.int64)
        found[self.columns.uid[rows[::-1]]] = rows[::-1]
        return found

    def entered(self, state: str) -> Times:
        """Return for each entity the time when it first entered a state, NEVER if it did not."""
        return self.first(_ADVANCE, state)

    def entities(self, kind: str) -> NDArray[np.intp]:
        """Return the numbers of all entities of a kind (`task` or `pilot`), identified by states that only it has."""
        return self._entities['pilot' if kind == 'pilot' else 'task']

    @cached_property
    def _entities(self) -> dict[str, NDArray[np.intp]]:
        return {'task': self._in_states(('TMGR_', 'AGENT_')), 'pilot': self._in_states(('PMGR_',))}

    def _in_states(self, prefixes: tuple[str, ...]) -> NDArray[np.intp]:
        """Return the entities that were in states with one of these prefixes."""
        chosen = np.array([self.columns.states[number].startswith(prefixes)
                           for number in range(len(self.columns.states))], np.bool_)
        rows = self.rows_of(_ADVANCE)
        found = np.zeros(len(self.columns.uids), np.bool_)
        found[self.columns.uid[rows[chosen[self.columns.state[rows]]]]] = True
        return np.flatnonzero(found)

    def history(self, uid: str) -> list[Row]:
        """Return all events of an entity, in order of time."""
        number = self.columns.uids.find(uid)
        if number < 0:
            return []
        rows, starts = self.by_entity
        return [self.row(int(row)) for row in rows[starts[number]:starts[number + 1]]]

    def row(self, number: int) -> Row:
        """Return one row as text."""
        columns = self.columns
        _, _, comp, thread = columns.sources[columns.source[number]]
        return Row(int(columns.time[number]) / TICKS, columns.events[columns.event[number]], comp, thread,
                   columns.uids[columns.uid[number]], columns.states[columns.state[number]],
                   columns.messages[columns.message[number]])

    def rows(self) -> Iterator[Row]:
        """Yield all rows as text, in order of time."""
        for number in np.argsort(self.columns.time, kind='stable'):
            yield self.row(int(number))

    def file_of(self, row: int) -> Path:
        """Return the profile of the row."""
        file: int = self.columns.sources[self.columns.source[row]][0]
        return self.files[file].path
