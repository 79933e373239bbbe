"""The records of sweeps: very many tasks that differ only in the parameters of one description.

Rows are kept in chunks, packed as they were sent. A chunk is passed on as one until an agent takes its tasks: then it
is opened, and each row is a task like any other. Before and after that, a row has a record only while it is in use.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from rp_api import states
from rp_api.batch import Chunk
from rp_api.coordination.contract import BULK
from rp_api.wire import codec
from rp_client.common_description import NOTHING, CommonDescription
from rp_client.core.task import TaskRecord

FINAL = tuple(states.FINAL)


class RowRecord(TaskRecord):
    """A task of a sweep: a row of a chunk."""

    __slots__ = ('chunk', 'row')

    def __init__(self, uid: str, chunk: ChunkRecord, row: int, own: bytes = NOTHING) -> None:
        super().__init__(uid, chunk.common, own)
        self.chunk = chunk
        self.row = row

    def follow(self) -> None:
        """Take over where the chunk is, while the task is a part of it."""
        if self.chunk.passed_on:
            self.pilot, self.attempts, self.stored = self.chunk.pilot, self.chunk.attempts, self.chunk.stored


class ChunkRecord(TaskRecord):
    """The rows of a chunk, which client and coordinator handle as one until an agent takes them.

    Attributes:
        opened: Whether each row is a task of its own.
        whole: Whether the coordinator keeps the chunk as such.
        places: Where the final task of each row is kept, see `TaskStore`; None while none is.
        ends: The final state of each row, as its position in `FINAL`, from 1.
    """

    __slots__ = ('ends', 'first', 'opened', 'packed', 'places', 'size', 'sweep', 'whole')

    traced = False

    def __init__(self, common: CommonDescription, chunk: Chunk, sweep: SweepRecord) -> None:
        super().__init__(chunk.uid, common)
        self.first, self.size = chunk.first, chunk.size
        self.packed = codec.pack(list(chunk))
        self.sweep = sweep
        self.opened = False
        self.whole = False
        self.places: list[Any] | None = None
        self.ends = bytearray()

    @property
    def passed_on(self) -> bool:
        """True while the chunk is handled as one."""
        return not self.opened and self.state not in states.FINAL

    def unpacked(self) -> Chunk:
        """Return the rows."""
        return Chunk(*codec.unpack(self.packed))

    def end_of(self, row: int) -> str | None:
        """Return the final state of a row; None if it is not final."""
        return FINAL[self.ends[row] - 1] if self.ends and self.ends[row] else None

    def row_ended(self, row: int, state: str) -> None:
        """Count the task of a row that has reached a final state, possibly another one than before."""
        before = self.end_of(row)
        if not self.ends:
            self.ends = bytearray(self.size)
        if before:
            self.sweep.ended[before] -= 1
        self.sweep.ended[state] += 1
        self.ends[row] = FINAL.index(state) + 1

    def ended(self) -> None:
        """Count the tasks of a chunk that has reached a final state before it was opened."""
        ends = self.ends or bytearray(self.size)
        self.sweep.ended[self.state] += ends.count(0)
        self.ends = ends.replace(b'\0', bytes([FINAL.index(self.state) + 1]))


class SweepRecord:
    """The data of a sweep.

    Attributes:
        size: The number of its tasks.
        ended: The number of tasks in each final state.
    """

    def __init__(self, uid: str) -> None:
        self.uid = uid
        self.size = 0
        self.ended: Counter[str] = Counter()
        self.chunks: list[ChunkRecord] = []
        self._last: tuple[ChunkRecord, Chunk] | None = None

    @property
    def unfinished(self) -> int:
        """The number of tasks that are not final."""
        return self.size - sum(self.ended.values())

    def append(self, chunk: ChunkRecord) -> None:
        """Add the next chunk."""
        self.chunks.append(chunk)
        self.size += chunk.size

    def locate(self, number: int) -> tuple[ChunkRecord, int] | None:
        """Return chunk and row of the task with that number; None if there is none."""
        if not 0 <= number < self.size:
            return None
        return self.chunks[number // BULK], number % BULK

    def own_of(self, chunk: ChunkRecord, row: int) -> bytes:
        """Return the packed attributes of a row that differ from the common description."""
        return codec.pack(self.rows_of(chunk).own_of(row))

    def rows_of(self, chunk: ChunkRecord) -> Chunk:
        """Return the rows of a chunk."""
        if self._last is None or self._last[0] is not chunk:   # consecutive accesses are mostly to one chunk
            self._last = chunk, chunk.unpacked()
        return self._last[1]
