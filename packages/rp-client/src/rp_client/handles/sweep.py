"""Sweeps, as applications see them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, overload

from rp_api import states, units
from rp_api.batch import task_uid
from rp_api.description.html_table import html_table
from rp_client.core.sweep import FINAL, ChunkRecord, SweepRecord
from rp_client.handles.tabular import Tabular
from rp_client.handles.task import Task

if TYPE_CHECKING:
    from rp_client.service.task_requests import TaskRequests


class Sweep(Tabular):
    """The tasks of one `TaskManager.submit_sweep`: a sequence of `Task` objects, made when they are asked for.

    A task is NEW until its agent has taken it, and then has all other states in order. Tasks that were forgotten count
    in the length and in `states`, but `in_state` does not yield them, and a sweep does not stand for them.
    """

    def __init__(self, owner: TaskRequests, record: SweepRecord) -> None:
        self._owner = owner
        self._record = record

    def __repr__(self) -> str:
        counts = ', '.join(f'{count} {state}' for state, count in self.states.items())
        return f'<Sweep {self._record.uid} of {self._record.size} tasks: {counts}>'

    def _repr_html_(self) -> str:
        """Return a table of the states of the tasks, for notebooks."""
        return html_table(f'Sweep {self._record.uid}', {'tasks': self._record.size, **self.states})

    @property
    def uid(self) -> str:
        """The unique id of the sweep; the uid of its first task is `<uid>.000000`."""
        return self._record.uid

    @property
    def states(self) -> dict[str, int]:
        """The number of tasks in each state."""
        with self._owner.board.lock:
            found = Counter(task.state for task in self._owner.tasks.live_in(self._record))
            found.update(self._record.ended)
        found[states.NEW] += self._record.size - sum(found.values())
        return {state: found[state] for state in states.TASK.names if found[state]}

    @property
    def unfinished(self) -> int:
        """The number of tasks that are not final."""
        return self._record.unfinished

    def __len__(self) -> int:
        return self._record.size

    @overload
    def __getitem__(self, index: int) -> Task: ...

    @overload
    def __getitem__(self, index: slice) -> list[Task]: ...

    def __getitem__(self, index: int | slice) -> Task | list[Task]:
        """Return the task of a row, or a list of tasks for a slice.

        Raises:
            IndexError: There is no such row.
            ValueError: The task was forgotten.
        """
        if isinstance(index, slice):
            return [self._task(number) for number in range(*index.indices(self._record.size))]
        if not -self._record.size <= index < self._record.size:
            raise IndexError(f'{self._record.uid} has no row {index}, it has {self._record.size}')
        return self._task(index % self._record.size)

    def __iter__(self) -> Iterator[Task]:
        return map(self._task, range(self._record.size))

    def in_state(self, *wanted: str) -> Iterator[Task]:
        """Yield the tasks that are in one of these states now, in the order of the rows.

        Args:
            *wanted: States, such as `rp.FAILED`.

        Raises:
            StateError: A state is unknown.
        """
        for state in wanted:
            states.TASK.value(state)
        with self._owner.board.lock:
            live = {task.uid: task.state for task in self._owner.tasks.live_in(self._record)}
            ends = b''.join(chunk.ends or bytes(chunk.size) for chunk in self._record.chunks)
        for number, end in enumerate(ends):
            uid = task_uid(self._record.uid, number)
            state = FINAL[end - 1] if end else live.get(uid, states.NEW)
            if state in wanted and uid in self._owner.tasks:
                yield self._task(number)

    def failed(self) -> Iterator[Task]:
        """Yield the tasks that have failed until now, in the order of the rows."""
        return self.in_state(states.FAILED)

    def wait(self, timeout: units.Time | None = None) -> dict[str, int]:
        """Wait until all tasks are final, and return their number in each state.

        Args:
            timeout: Seconds to wait at most; default: no limit. The result has states that are not final then.

        Raises:
            RuntimeError: The session was closed or has failed.
        """
        self._owner.wait_for_sweep(self._record, timeout)
        return self.states

    def cancel(self) -> None:
        """Request the cancellation of all tasks that are not final, and return at once."""
        self._owner.cancel_sweep(self._record)

    def _task_uids(self) -> Iterator[str]:
        """Yield the uids of all tasks that were not forgotten."""
        uids = (task_uid(self._record.uid, number) for number in range(self._record.size))
        return filter(self._owner.tasks.__contains__, uids)

    def _table_uids(self) -> Iterator[str]:
        return self._task_uids()

    def _table_chunks(self) -> list[ChunkRecord]:
        return list(self._record.chunks)

    def _task(self, number: int) -> Task:
        return self._owner.get(task_uid(self._record.uid, number))   # type: ignore[no-any-return]
