"""The chunks of sweeps in the flow of a task manager's tasks.

A chunk is scheduled, sent and bound like one task. It ends, or goes to another pilot, as a whole if no agent has taken
its tasks, which the coordinator knows: it is requested back (`recall`), and the coordinator answers. Otherwise it is
opened: its tasks are handled one by one.

Chunks whose tasks cannot be bound together are opened here, one after the other (`feed`): if the task scheduler binds
tasks as resources become free, if the client stages their input, or if there are more pilots than chunks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from rp_api import states
from rp_api.coordination.contract import BULK
from rp_client.core.sweep import ChunkRecord
from rp_client.core.task import TaskRecord

if TYPE_CHECKING:
    from rp_client.engine.engine import Engine

QUEUE = 2 * BULK
"""Tasks that wait in the client above which no further chunk is opened."""


class ChunkFlow:
    """The chunks of one task manager.

    `open_chunk` makes tasks of a chunk; `waiting` returns how many tasks wait in the client, and `schedule` gets more.
    """

    def __init__(self, engine: Engine, open_chunk: Callable[[ChunkRecord], list[TaskRecord]],
                 waiting: Callable[[], int], schedule: Callable[[list[TaskRecord]], object]) -> None:
        self._engine = engine
        self.open_chunk = open_chunk
        self._waiting = waiting
        self._schedule = schedule
        self._unfed: deque[ChunkRecord] = deque()
        self._asked: dict[str, ChunkRecord] = {}   # requested back
        self._feeding = False
        self.used = False   # `feed` and `answers` need not be called before

    def add(self, chunks: Iterable[ChunkRecord]) -> None:
        """Feed the tasks of these chunks to the task scheduler, as it can take them."""
        self.used = True
        self._unfed.extend(chunks)
        self.feed()

    def feed(self) -> None:
        """Open the next chunk, if few enough tasks wait."""
        while self._unfed and not self._unfed[0].passed_on:
            self._unfed.popleft()
        if self._unfed and not self._feeding and self._unfed[0].stored and self._waiting() < QUEUE:
            self._feeding = True
            self._schedule(self.open_chunk(self._unfed.popleft()))
            self._engine.loop.call_soon(self._fed)

    def _fed(self) -> None:
        self._feeding = False
        self.feed()

    def recall(self, tasks: Iterable[TaskRecord]) -> list[TaskRecord]:
        """Return those of the tasks that can be handled now: instead of chunks that pilots have, their tasks.

        Chunks whose tasks an agent may have taken are requested back.
        """
        found: list[TaskRecord] = []
        asked: list[str] = []
        for task in tasks:
            if not isinstance(task, ChunkRecord) or task.pilot is None or not task.stored:
                found.append(task)
            elif not task.whole:
                found += self.open_chunk(task)
            elif task.uid not in self._asked:
                self.used = True
                self._asked[task.uid] = task
                asked.append(task.uid)
        for first in range(0, len(asked), BULK):
            self._engine.connection.withdraw(asked[first:first + BULK])
        return found

    def answers(self, changes: Iterable[tuple[Any, Any, Any]]) -> list[ChunkRecord]:
        """Handle the coordinator's answers among the reports, and return the chunks that it has given back."""
        given_back = []
        for chunk, _, info in changes if self._asked else ():
            if not isinstance(chunk, ChunkRecord) or chunk.uid not in self._asked or chunk.opened:
                continue
            back = bool(info and info.get('returned'))
            if chunk.state in states.FINAL:   # its manager was closed meanwhile
                del self._asked[chunk.uid]
                if not back and chunk.place:
                    uids = chunk.unpacked().uids
                    self._engine.connection.command(chunk.place, {'cmd': 'cancel_tasks', 'uids': uids})
            elif back:
                del self._asked[chunk.uid]
                given_back.append(chunk)
            else:
                self.open_chunk(chunk)
        return given_back

    def was_asked(self, chunk: ChunkRecord) -> bool:
        """Return whether the chunk, which was opened, had been requested back; it is not any more."""
        return self._asked.pop(chunk.uid, None) is not None
