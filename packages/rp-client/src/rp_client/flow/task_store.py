"""The store of a manager's tasks: records while they can change or the application holds their handles.

- Final tasks that the application does not hold are written to a file in blocks, and read from it on access. Such a
  task costs its uid and a reference, about 100 bytes. The count of references tells whether it holds a handle.
- With each task that becomes final, two older ones in memory are checked again: the application may have dropped them.
  A sweep checks them when no task becomes final.
- The handle of a task is a single object as long as there is a reference to it.
- A task of a sweep costs a byte, and a reference once it is final; its uid is made when it is needed.
- The file is in the session's directory, but unlinked, so that it vanishes with the process. If writing fails, tasks
  stay in memory, and writing is retried.
"""

from __future__ import annotations

import logging
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, compress
from operator import not_
from sys import getrefcount
from typing import Any, NamedTuple, Protocol

from rp_api import states
from rp_api.batch import task_uid
from rp_api.wire import codec
from rp_client.common_description import NOTHING, CommonDescription
from rp_client.core.pilot import PilotRecord
from rp_client.core.sweep import ChunkRecord, RowRecord, SweepRecord
from rp_client.core.task import TaskRecord

BLOCK = 64
"""Tasks in a block of the file."""

SWEPT_TASKS = 1024
"""Tasks that one sweep looks at."""

_log = logging.getLogger('radical.pilot.task_manager')

Make = Callable[[TaskRecord], Any]
Opened = Callable[[ChunkRecord, list[TaskRecord]], object]


class HasState(Protocol):
    """A record, or the place of one in the file."""

    @property
    def state(self) -> str: ...


class _Written(NamedTuple):
    """A block of tasks in the file, and their final state."""

    state: str
    offset: int
    size: int


_ENDED = {state: _Written(state, -1, 0) for state in states.FINAL}
"""Stand for the final tasks of sweeps where only states are asked for."""

_FORGOTTEN = _Written('', -1, 0)


class _Block(NamedTuple):
    """The last block that was read from the file."""

    offset: int
    commons: list[CommonDescription]
    rows: dict[str, tuple[Any, ...]]


class TaskStore(Mapping[str, TaskRecord]):
    """All tasks of a manager in the order of submission, for use in any thread.

    `path` is the path of the file, `make(record)` makes a handle; `opened(chunk, tasks)` is called with the tasks of a
    chunk that are tasks of their own from now on.
    """

    def __init__(self, path: str, make: Make, opened: Opened = lambda chunk, tasks: None) -> None:
        self._make = make
        self._opened = opened
        self._file = _File(path)
        self._tasks: dict[str, TaskRecord | _Written] = {}
        self.look: Callable[[str], HasState] = self._tasks.__getitem__
        """Returns a task that is not final, otherwise an object with its state; raises KeyError for an unknown uid."""
        self._final: deque[TaskRecord] = deque()   # final tasks that the application may hold
        self._unheld: list[TaskRecord] = []   # final tasks that it did not hold, to be written next
        self._kept: dict[str, weakref.ref[TaskRecord]] = {}   # tasks in use that are not among `_tasks`
        self._handles: dict[str, weakref.ref[Any]] = {}       # and their handles
        self._kept_most = BLOCK
        self._pilots: dict[PilotRecord | None, int] = {None: 0}   # their numbers in the file
        self._block = _Block(-1, [], {})
        self._lock = threading.RLock()
        self._complained = False
        self.sweeps: dict[str, SweepRecord] = {}
        self._chunks: dict[str, ChunkRecord] = {}
        self._forgotten = 0   # tasks of sweeps

    def __len__(self) -> int:
        if not self.sweeps:
            return len(self._tasks)
        return len(self.singles()) + sum(sweep.size for sweep in self.sweeps.values()) - self._forgotten

    def __iter__(self) -> Iterator[str]:
        if not self.sweeps:
            return iter(list(self._tasks))
        singles = [uid for uid, task in list(self._tasks.items()) if type(task) is not RowRecord]
        return chain(singles, (uid for sweep in list(self.sweeps.values()) for chunk in list(sweep.chunks)
                               for row, uid in enumerate(uids_of(chunk))
                               if not chunk.places or chunk.places[row] is not _FORGOTTEN))

    def __contains__(self, uid: object) -> bool:
        if uid in self._tasks:
            return True
        found = self._locate(str(uid)) if self.sweeps else None
        return found is not None and not _is_forgotten(*found)

    def __getitem__(self, uid: str) -> TaskRecord:
        task = self.find(uid)
        if task is None:
            raise KeyError(uid)
        return task

    def find(self, uid: str) -> TaskRecord | None:
        """Return the task of that uid; None if it is unknown."""
        task = self._tasks.get(uid)
        if task is None and self.sweeps:
            return self._of_sweep(uid)
        return self._again(uid) if type(task) is _Written else task   # type: ignore[return-value]

    def find_each(self, uids: Sequence[str]) -> list[TaskRecord | None]:
        """Return the tasks of these uids, which an agent has; None for each that is unknown."""
        found = list(map(self._tasks.get, uids))
        if self.sweeps and None in found:
            return list(map(self._find_reported, uids))
        return [self.find(uid) for uid in uids] if _Written in set(map(type, found)) else found   # type: ignore

    def _find_reported(self, uid: str) -> TaskRecord | None:
        """Return a task; its chunk is opened, as an agent has it."""
        if uid not in self._tasks:
            found = self._locate(uid)
            if found is not None and found[0].passed_on:
                self.open(found[0])
        return self.find(uid)

    def has_none(self, uids: Iterable[str]) -> bool:
        """Return whether no task has one of these uids."""
        if self.sweeps and any(self._locate(uid) for uid in uids):
            return False
        return self._tasks.keys().isdisjoint(uids)

    def without(self, uids: Iterable[str]) -> set[str]:
        """Return those of these uids that no task has."""
        tasks = self if self.sweeps else self._tasks
        return {uid for uid in uids if uid not in tasks}

    def in_memory(self) -> list[TaskRecord]:
        """Return the tasks in memory, which include all that are not final, and the chunks of others."""
        tasks = [task for task in list(self._tasks.values()) if isinstance(task, TaskRecord)]
        return tasks + [chunk for chunk in list(self._chunks.values()) if chunk.passed_on]

    def singles(self) -> list[str]:
        """Return the uids of the tasks that are in no sweep."""
        return [uid for uid, task in list(self._tasks.items()) if type(task) is not RowRecord]

    # sweeps

    def add_chunk(self, chunk: ChunkRecord) -> None:
        """Add a chunk of a sweep."""
        with self._lock:
            self.look = self._look
            self.sweeps.setdefault(chunk.sweep.uid, chunk.sweep).append(chunk)
            self._chunks[chunk.uid] = chunk

    def drop(self, uid: str, state: str) -> None:
        """Count a task that an earlier application has forgotten in that state, if its sweep is here, and remove it."""
        found = self._locate(uid) if self.sweeps else None
        if found is not None:
            found[0].row_ended(found[1], state)
            self.remove([uid])

    def live_in(self, sweep: SweepRecord) -> list[TaskRecord]:
        """Return the tasks of a sweep that are in memory and not final."""
        return [task for task in list(self._tasks.values()) if type(task) is RowRecord and task.chunk.sweep is sweep
                and task.state not in states.FINAL]

    def chunks_of(self, sweep: SweepRecord) -> list[ChunkRecord]:
        """Return the chunks of a sweep that are passed on like tasks."""
        return [chunk for chunk in sweep.chunks if chunk.passed_on]

    def open(self, chunk: ChunkRecord) -> list[TaskRecord]:
        """Make tasks of a chunk, and return them."""
        with self._lock:
            owns = chunk.unpacked().own()
            rows = enumerate(zip(uids_of(chunk), owns, strict=True))
            tasks: list[TaskRecord] = [self._row(uid, chunk, row, own) for row, (uid, own) in rows]
            for task in tasks:
                task.pilot, task.attempts, task.stored = chunk.pilot, chunk.attempts, chunk.stored
                self._tasks[task.uid] = task
            chunk.opened = True
        self._opened(chunk, tasks)
        return tasks

    def members(self, chunk: ChunkRecord, *, everything: bool) -> list[TaskRecord]:
        """Return tasks of a chunk that has ended as a whole: all of them, or those that the application holds."""
        with self._lock:
            if not everything and not any(type(reference()) is RowRecord for reference in self._kept.values()):
                return []
            owns = chunk.unpacked().own() if everything else []
            return [self._row(uid, chunk, row, owns[row] if everything else None) for row, uid in
                    enumerate(uids_of(chunk)) if everything or self._in_use(uid) is not None]

    def _in_use(self, uid: str) -> TaskRecord | None:
        """Return the record of a task that is not among `_tasks`, but in use, such as by its handle."""
        reference = self._kept.get(uid)
        return reference() if reference else None

    def _row(self, uid: str, chunk: ChunkRecord, row: int, own: bytes | None = None) -> RowRecord:
        """Return the task of a row that is in no file."""
        task = self._in_use(uid)
        if not isinstance(task, RowRecord):
            task = RowRecord(uid, chunk, row, chunk.sweep.own_of(chunk, row) if own is None else own)
            self._keep(task)
        return task

    def _locate(self, uid: str) -> tuple[ChunkRecord, int] | None:
        """Return chunk and row of a task; None if no sweep has it."""
        prefix, _, number = uid.rpartition('.')
        sweep = self.sweeps.get(prefix)
        if sweep is None or not number.isdecimal() or task_uid(prefix, int(number)) != uid:
            return None
        return sweep.locate(int(number))

    def _of_sweep(self, uid: str) -> TaskRecord | None:
        """Return a task of a sweep that is not in memory, or a chunk."""
        found = self._locate(uid)
        if found is None:
            return self._chunks.get(uid)
        chunk, row = found
        with self._lock:
            task = self._tasks.get(uid)
            if isinstance(task, TaskRecord):   # its chunk was opened meanwhile
                return task
            place = chunk.places[row] if chunk.places else None
            if place is not None:
                return None if place is _FORGOTTEN else self._again(uid)
            is_new = self._in_use(uid) is None
            part = self._row(uid, chunk, row)
            if is_new and chunk.state in states.FINAL:
                part.renew(chunk.state, chunk.known, chunk.pilot, chunk.attempts)
            part.follow()
            return part

    def _look(self, uid: str) -> HasState:
        task = self._tasks.get(uid)
        if task is not None:
            return task
        found = self._locate(uid)
        if found is None or _is_forgotten(*found):
            raise KeyError(uid)
        state = found[0].end_of(found[1])
        return _ENDED[state] if state else self[uid]

    def _settle_sweeps(self, tasks: list[TaskRecord]) -> list[TaskRecord]:
        """Count the tasks of sweeps that have ended, and return those to be written."""
        found = []
        for task in tasks:
            if type(task) is ChunkRecord:
                task.ended()
                continue
            if type(task) is RowRecord:
                task.chunk.row_ended(task.row, task.state)
                if not task.chunk.opened:   # its end is that of the chunk
                    continue
            found.append(task)
        return found

    # all tasks

    def add(self, uids: Sequence[str], tasks: Sequence[TaskRecord]) -> None:
        """Add new tasks, which have these uids."""
        self._tasks.update(zip(uids, tasks, strict=True))

    def settled(self, tasks: Collection[TaskRecord]) -> None:
        """Write tasks that became final, as soon as the application does not hold them."""
        with self._lock:
            self._sort(2 * len(tasks))   # not these tasks: the caller still uses them
            while len(self._unheld) >= BLOCK and self._put_away():
                pass
            self._final += self._settle_sweeps(list(tasks)) if self.sweeps else tasks

    def sweep(self) -> bool:
        """Write some of the final tasks that the application has dropped since; return whether there were enough."""
        with self._lock:
            self._sort(SWEPT_TASKS)
            enough = len(self._unheld) >= BLOCK
            while len(self._unheld) >= BLOCK and self._put_away():
                pass
            return enough

    def changed(self, tasks: Collection[TaskRecord]) -> None:
        """Write final tasks that have changed since they became final."""
        with self._lock:
            each = set(tasks)
            self._final = deque(task for task in self._final if task not in each)
            self._unheld = [task for task in self._unheld if task not in each]
            self._final += self._settle_sweeps(list(each)) if self.sweeps else each

    def remove(self, uids: Iterable[str]) -> None:
        """Remove tasks."""
        with self._lock:
            for uid in uids:
                found = self._locate(uid) if self.sweeps else None
                if found is None:
                    task = self._tasks.pop(uid)
                    if isinstance(task, TaskRecord):
                        task.handle = None   # only a handle that is in use goes on
                else:
                    chunk, row = found
                    chunk.places = chunk.places or [None] * chunk.size
                    chunk.places[row] = _FORGOTTEN
                    self._forgotten += 1
                    self._tasks.pop(uid, None)
                self._kept.pop(uid, None)
                self._handles.pop(uid, None)

    def _sort(self, most: int) -> None:
        """Look at the oldest of the final tasks, and select those that only this object refers to."""
        final = self._final
        oldest = [final.popleft() for _ in range(min(most, len(final)))]
        held = list(map(_is_held, oldest))
        self._unheld += compress(oldest, map(not_, held))
        final.extend(compress(oldest, held))

    def _put_away(self) -> bool:
        """Write a block of tasks and drop them from memory; return False if that fails."""
        tasks = [task for task in self._unheld[:BLOCK] if task.uid in self]   # without removed ones
        uids = [task.uid for task in tasks]
        try:
            offset, size = self._file.append(self._pack(uids, tasks))
        except OSError as error:
            if not self._complained:   # log it once
                self._complained = True
                _log.warning('final tasks stay in memory: %s', error)
            return False
        del self._unheld[:BLOCK]
        written = {state: _Written(state, offset, size) for state in states.FINAL}
        for uid, task in zip(uids, tasks, strict=True):
            if type(task) is RowRecord:
                chunk = task.chunk
                chunk.places = chunk.places or [None] * chunk.size
                chunk.places[task.row] = written[task.state]
                self._tasks.pop(uid, None)
            else:
                self._tasks[uid] = written[task.state]
        for task in tasks:
            if task.handle is not None:
                self._handles[task.uid] = weakref.ref(task.handle)   # the application may have got it meanwhile
                task.handle = None
            self._keep(task)
        return True

    def _pack(self, uids: list[str], tasks: list[TaskRecord]) -> bytes:
        """Return a packed block: the shared descriptions, and columns of task data."""
        commons = {common: number for number, common in enumerate({task.common: None for task in tasks})}
        for pilot in {task.pilot for task in tasks}:
            self._pilots.setdefault(pilot, len(self._pilots))
        return codec.pack([[(common.packed, common.submitted) for common in commons], [
            uids, [commons[task.common] for task in tasks], [task.own for task in tasks],
            [task.state for task in tasks], [task.known for task in tasks],
            [self._pilots[task.pilot] for task in tasks], [task.attempts for task in tasks]]])

    def _again(self, uid: str) -> TaskRecord | None:
        with self._lock:
            place = self._place(uid)
            if not isinstance(place, _Written):   # it was removed meanwhile
                return place
            task = self._in_use(uid)
            if task is None:
                task = self._read(uid, place)
                self._keep(task)
            return task

    def handle_of(self, uid: str) -> Any:
        """Return the handle of the task of that uid; raise KeyError if it is unknown."""
        with self._lock:
            return self.handle(self[uid])

    def handle(self, task: TaskRecord) -> Any:
        """Return the handle of a task."""
        known = task.handle
        if known is not None:
            return known
        with self._lock:
            reference = self._handles.get(task.uid)
            handle = reference() if reference else None
            if handle is None:
                handle = self._make(task)
            if self._tasks.get(task.uid) is task:
                task.handle = handle
            else:   # it refers to the task, which does not refer to it
                self._handles[task.uid] = weakref.ref(handle)
            return handle

    def _keep(self, task: TaskRecord) -> None:
        """Remember a task that is not among `_tasks` as long as it is in use."""
        self._kept[task.uid] = weakref.ref(task)
        if len(self._kept) > 2 * self._kept_most:
            self._kept = {uid: reference for uid, reference in self._kept.items() if reference() is not None}
            self._handles = {uid: reference for uid, reference in self._handles.items() if reference() is not None}
            self._kept_most = max(BLOCK, len(self._kept))

    def _place(self, uid: str) -> TaskRecord | _Written | None:
        found = self._locate(uid) if self.sweeps else None
        return found[0].places[found[1]] if found and found[0].places else self._tasks.get(uid)

    def _read(self, uid: str, place: _Written) -> TaskRecord:
        if self._block.offset != place.offset:
            commons, columns = codec.unpack(self._file.read(place.offset, place.size))
            self._block = _Block(place.offset, [CommonDescription(codec.unpack(packed), packed, submitted)
                                                for packed, submitted in commons],
                                 {row[0]: row for row in zip(*columns, strict=True)})
        _, common, own, state, known, pilot, attempts = self._block.rows[uid]
        found = self._locate(uid) if self.sweeps else None
        task = self._row(uid, *found, own) if found else TaskRecord(uid, self._block.commons[common], own)
        task.renew(state, known, list(self._pilots)[pilot], attempts)
        return task


def _is_held(task: TaskRecord) -> bool:
    """Return whether anything but the record refers to the handle of a task."""
    return task.handle is not None and getrefcount(task.handle) > _ALONE


def _references() -> int:
    """Return the count of references to a handle that only its record refers to."""
    task = TaskRecord('', CommonDescription({}, NOTHING))
    task.handle = object()
    return getrefcount(task.handle)


_ALONE = _references()


def uids_of(chunk: ChunkRecord) -> Iterator[str]:
    """Return the uids of the tasks of a chunk."""
    return (task_uid(chunk.sweep.uid, number) for number in range(chunk.first, chunk.first + chunk.size))


def _is_forgotten(chunk: ChunkRecord, row: int) -> bool:
    return bool(chunk.places) and chunk.places[row] is _FORGOTTEN   # type: ignore[index]


class _File:
    """An unlinked file, created with the first write, and closed with the last reference to this object."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._fd = -1
        self._end = 0

    def append(self, data: bytes) -> tuple[int, int]:
        """Append data, and return its position and size. Data that cannot be written as a whole is dropped."""
        if self._fd < 0:
            self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            weakref.finalize(self, os.close, self._fd)
            os.unlink(self._path)
        start = end = self._end
        view = memoryview(data)
        while view:
            written = os.pwrite(self._fd, view, end)
            end += written
            view = view[written:]
        self._end = end
        return start, len(data)

    def read(self, offset: int, size: int) -> bytes:
        """Return the data at a position."""
        return os.pread(self._fd, size, offset)
