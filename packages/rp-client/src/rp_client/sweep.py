"""Sweeps: very many tasks that differ only in the parameters of one description.

Rows are kept in chunks, packed as they were sent. A chunk is passed on like one task (`ChunkTask`) until an agent takes
its tasks: then it is opened, and each row is a task like any other. Before and after that, a task of a sweep is an
object only while the application holds it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, overload

from rp_api import states, units
from rp_api.batch import Chunk, task_uid
from rp_api.coordination.contract import BULK
from rp_api.description.html_table import html_table
from rp_api.wire import codec
from rp_client.task import Task

if TYPE_CHECKING:
    from rp_client.common_description import CommonDescription
    from rp_client.task_manager import TaskManager

_FINAL = tuple(states.FINAL)


class SweepTask(Task):
    """A task of a sweep."""

    __slots__ = ('_chunk', '_row')

    _chunk: ChunkTask
    _row: int

    def _follow(self) -> None:
        """Take over where the chunk is, while the task is a part of it."""
        if self._chunk.passed_on:
            self._pilot, self._attempts, self._stored = self._chunk._pilot, self._chunk._attempts, self._chunk._stored


class ChunkTask(Task):
    """The rows of a chunk, which client and coordinator handle like one task until an agent takes them.

    Attributes:
        opened: Whether each row is a task of its own.
        whole: Whether the coordinator keeps the chunk as such.
        places: Where the final task of each row is kept, see `TaskStore`; None while none is.
        ends: The final state of each row, as its position in `states.FINAL`, from 1.
    """

    __slots__ = ('ends', 'first', 'opened', 'packed', 'places', 'size', 'sweep', 'whole')

    _traced = False

    first: int
    packed: bytes
    size: int
    sweep: Sweep

    def _start(self) -> None:
        self.opened = False
        self.whole = False
        self.places: list[Any] | None = None
        self.ends = bytearray()

    @classmethod
    def of(cls, tmgr: TaskManager, common: CommonDescription, chunk: Chunk, sweep: Sweep) -> ChunkTask:
        """Return a chunk of a sweep."""
        task = cls(tmgr, chunk.uid, common)
        task.first, task.size = chunk.first, chunk.size
        task.packed = codec.pack(list(chunk))
        task.sweep = sweep
        return task

    @property
    def passed_on(self) -> bool:
        """True while the chunk is handled like one task."""
        return not self.opened and self._state not in states.FINAL

    def unpacked(self) -> Chunk:
        """Return the rows."""
        return Chunk(*codec.unpack(self.packed))

    def end_of(self, row: int) -> str | None:
        """Return the final state of a row; None if it is not final."""
        return _FINAL[self.ends[row] - 1] if self.ends and self.ends[row] else None


class Sweep:
    """The tasks of one `TaskManager.submit_sweep`: a sequence of `Task` objects, made when they are asked for.

    A task is NEW until its agent has taken it, and then has all other states in order. Tasks that were forgotten count
    in the length and in `states`, but `in_state` does not yield them, and a sweep does not stand for them.
    """

    def __init__(self, tmgr: TaskManager, uid: str) -> None:
        self._tmgr = tmgr
        self._uid = uid
        self._size = 0
        self._ended: Counter[str] = Counter()
        self._last: tuple[ChunkTask, Chunk] | None = None
        self._chunks: list[ChunkTask] = []

    def __repr__(self) -> str:
        counts = ', '.join(f'{count} {state}' for state, count in self.states.items())
        return f'<Sweep {self._uid} of {self._size} tasks: {counts}>'

    def _repr_html_(self) -> str:
        """Return a table of the states of the tasks, for notebooks."""
        return html_table(f'Sweep {self._uid}', {'tasks': self._size, **self.states})

    @property
    def uid(self) -> str:
        """The unique id of the sweep; the uid of its first task is `<uid>.000000`."""
        return self._uid

    @property
    def states(self) -> dict[str, int]:
        """The number of tasks in each state."""
        with self._tmgr._unchanged():
            found = Counter(task.state for task in self._tmgr._live_in(self))
            found.update(self._ended)
        found[states.NEW] += self._size - sum(found.values())
        return {state: found[state] for state in states.TASK.names if found[state]}

    @property
    def unfinished(self) -> int:
        """The number of tasks that are not final."""
        return self._size - sum(self._ended.values())

    def __len__(self) -> int:
        return self._size

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
            return [self._task(number) for number in range(*index.indices(self._size))]
        if not -self._size <= index < self._size:
            raise IndexError(f'{self._uid} has no row {index}, it has {self._size}')
        return self._task(index % self._size)

    def __iter__(self) -> Iterator[Task]:
        return map(self._task, range(self._size))

    def in_state(self, *wanted: str) -> Iterator[Task]:
        """Yield the tasks that are in one of these states now, in the order of the rows.

        Args:
            *wanted: States, such as `rp.FAILED`.

        Raises:
            StateError: A state is unknown.
        """
        for state in wanted:
            states.TASK.value(state)
        with self._tmgr._unchanged():
            live = {task.uid: task.state for task in self._tmgr._live_in(self)}
            ends = b''.join(chunk.ends or bytes(chunk.size) for chunk in self._chunks)
        for number, end in enumerate(ends):
            uid = task_uid(self._uid, number)
            state = _FINAL[end - 1] if end else live.get(uid, states.NEW)
            if state in wanted and self._tmgr._has(uid):
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
        self._tmgr._wait_for_sweep(self, timeout)
        return self.states

    def cancel(self) -> None:
        """Request the cancellation of all tasks that are not final, and return at once."""
        self._tmgr._cancel_sweep(self)

    def _task_uids(self) -> Iterator[str]:
        """Yield the uids of all tasks that were not forgotten."""
        return filter(self._tmgr._has, (task_uid(self._uid, number) for number in range(self._size)))

    def _task(self, number: int) -> Task:
        return self._tmgr.get_tasks(task_uid(self._uid, number))   # type: ignore[no-any-return]

    # for the store of tasks

    def _append(self, chunk: ChunkTask) -> None:
        """Add the next chunk."""
        self._chunks.append(chunk)
        self._size += chunk.size

    def _locate(self, number: int) -> tuple[ChunkTask, int] | None:
        """Return chunk and row of the task with that number; None if there is none."""
        if not 0 <= number < self._size:
            return None
        return self._chunks[number // BULK], number % BULK

    def _own_of(self, chunk: ChunkTask, row: int) -> bytes:
        """Return the packed attributes of a row that differ from the common description."""
        if self._last is None or self._last[0] is not chunk:   # consecutive accesses are mostly to one chunk
            self._last = chunk, chunk.unpacked()
        return codec.pack(self._last[1].own_of(row))

    def _row_ended(self, chunk: ChunkTask, row: int, state: str) -> None:
        """Count the task of a row that has reached a final state, possibly another one than before."""
        before = chunk.end_of(row)
        if not chunk.ends:
            chunk.ends = bytearray(chunk.size)
        if before:
            self._ended[before] -= 1
        self._ended[state] += 1
        chunk.ends[row] = _FINAL.index(state) + 1

    def _chunk_ended(self, chunk: ChunkTask) -> None:
        """Count the tasks of a chunk that has reached a final state before it was opened."""
        ends = chunk.ends or bytearray(chunk.size)
        self._ended[chunk._state] += ends.count(0)
        chunk.ends = ends.replace(b'\0', bytes([_FINAL.index(chunk._state) + 1]))

