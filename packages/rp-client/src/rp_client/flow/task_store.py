"""The store of a manager's tasks: objects while they can change or the application holds them, otherwise records.

- Final tasks that the application does not hold are written to a file in blocks, and read from it on access. Such a
  task costs its uid and a reference, about 100 bytes. Whether it holds a task, is seen by the count of references.
- With each task that becomes final, two older ones in memory are looked at again: the application may have let them go.
- A task is a single object as long as there is a reference to it.
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
from itertools import compress
from operator import not_
from sys import getrefcount
from typing import Any, NamedTuple, Protocol

from rp_api import states
from rp_api.wire import codec
from rp_client.common_description import CommonDescription
from rp_client.pilot import Pilot
from rp_client.task import Task

BLOCK = 64
"""Tasks in a block of the file."""

_log = logging.getLogger('radical.pilot.task_manager')

Make = Callable[[str, CommonDescription, bytes], Task]


class HasState(Protocol):
    """A task, or the record of one in the file."""

    @property
    def state(self) -> str: ...


class _Written(NamedTuple):
    """A block of tasks in the file, and their final state."""

    state: str
    offset: int
    size: int


class _Block(NamedTuple):
    """The last block that was read from the file."""

    offset: int
    commons: list[CommonDescription]
    rows: dict[str, tuple[Any, ...]]


class TaskStore(Mapping[str, Task]):
    """All tasks of a manager in the order of submission, for use in any thread.

    `path` is the path of the file, `make(uid, common, own)` makes a `Task`.
    """

    def __init__(self, path: str, make: Make) -> None:
        self._make = make
        self._file = _File(path)
        self._tasks: dict[str, Task | _Written] = {}
        self.look: Callable[[str], HasState] = self._tasks.__getitem__
        """Returns a task that is not final, otherwise an object with its state; raises KeyError for an unknown uid."""
        self._final: deque[Task] = deque()   # final tasks that the application may hold
        self._unheld: list[Task] = []   # final tasks that it did not hold, to be written next
        self._kept: dict[str, weakref.ref[Task]] = {}   # written tasks that may still be in memory
        self._kept_most = BLOCK
        self._pilots: dict[Pilot | None, int] = {None: 0}   # their numbers in the file
        self._block = _Block(-1, [], {})
        self._lock = threading.RLock()
        self._complained = False

    def __len__(self) -> int:
        return len(self._tasks)

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._tasks))

    def __contains__(self, uid: object) -> bool:
        return uid in self._tasks

    def __getitem__(self, uid: str) -> Task:
        task = self.find(uid)
        if task is None:
            raise KeyError(uid)
        return task

    def find(self, uid: str) -> Task | None:
        """Return the task of that uid; None if it is unknown."""
        task = self._tasks.get(uid)
        return self._again(uid) if type(task) is _Written else task   # type: ignore[return-value]

    def find_each(self, uids: Sequence[str]) -> list[Task | None]:
        """Return the tasks of these uids; None for each that is unknown."""
        found = list(map(self._tasks.get, uids))
        return [self.find(uid) for uid in uids] if _Written in set(map(type, found)) else found   # type: ignore

    def has_none(self, uids: Iterable[str]) -> bool:
        """Return whether no task has one of these uids."""
        return self._tasks.keys().isdisjoint(uids)

    def without(self, uids: Iterable[str]) -> set[str]:
        """Return those of these uids that no task has."""
        tasks = self._tasks
        return {uid for uid in uids if uid not in tasks}

    def in_memory(self) -> list[Task]:
        """Return the tasks in memory, which include all that are not final."""
        return [task for task in list(self._tasks.values()) if isinstance(task, Task)]

    def add(self, uids: Sequence[str], tasks: Sequence[Task]) -> None:
        """Add new tasks, which have these uids."""
        self._tasks.update(zip(uids, tasks, strict=True))

    def settled(self, tasks: Collection[Task]) -> None:
        """Have tasks written that became final, as soon as the application does not hold them."""
        with self._lock:
            self._sort(2 * len(tasks))   # not these tasks: the caller still uses them
            while len(self._unheld) >= BLOCK and self._put_away():
                pass
            self._final += tasks

    def changed(self, tasks: Collection[Task]) -> None:
        """Have final tasks written that have changed since they became final."""
        with self._lock:
            each = set(tasks)
            self._final = deque(task for task in self._final if task not in each)
            self._unheld = [task for task in self._unheld if task not in each]
            self._final += each

    def remove(self, uids: Iterable[str]) -> None:
        """Remove tasks."""
        with self._lock:
            for uid in uids:
                del self._tasks[uid]
                self._kept.pop(uid, None)

    def _sort(self, most: int) -> None:
        """Look at the oldest of the final tasks, and select those that only this object refers to."""
        final = self._final
        oldest = [final.popleft() for _ in range(min(most, len(final)))]
        held = _held(oldest, 1)   # that of `_tasks`
        self._unheld += compress(oldest, map(not_, held))
        final.extend(compress(oldest, held))

    def _put_away(self) -> bool:
        """Write a block of tasks and drop them from memory; return False if that fails."""
        tasks = [task for task in self._unheld[:BLOCK] if task._uid in self._tasks]   # without removed ones
        uids = [task._uid for task in tasks]
        try:
            offset, size = self._file.append(self._pack(uids, tasks))
        except OSError as error:
            if not self._complained:   # log it once
                self._complained = True
                _log.warning('final tasks stay in memory: %s', error)
            return False
        del self._unheld[:BLOCK]
        written = {state: _Written(state, offset, size) for state in states.FINAL}
        self._tasks.update(zip(uids, [written[task._state] for task in tasks], strict=True))
        # the application may have got some of them meanwhile
        self._keep(compress(tasks, _held(tasks, 0)))
        return True

    def _pack(self, uids: list[str], tasks: list[Task]) -> bytes:
        """Return a packed block: the shared descriptions, and columns of task data."""
        commons = {common: number for number, common in enumerate({task._common: None for task in tasks})}
        for pilot in {task._pilot for task in tasks}:
            self._pilots.setdefault(pilot, len(self._pilots))
        return codec.pack([[common.packed for common in commons], [
            uids, [commons[task._common] for task in tasks], [task._own for task in tasks],
            [task._state for task in tasks], [task._known for task in tasks],
            [self._pilots[task._pilot] for task in tasks], [task._attempts for task in tasks]]])

    def _again(self, uid: str) -> Task | None:
        with self._lock:
            place = self._tasks.get(uid)
            if not isinstance(place, _Written):   # it was removed meanwhile
                return place
            reference = self._kept.get(uid)
            task = reference() if reference else None
            if task is None:
                task = self._read(uid, place)
                self._keep([task])
            return task

    def _keep(self, tasks: Iterable[Task]) -> None:
        """Remember written tasks that are still in memory."""
        self._kept.update((task._uid, weakref.ref(task)) for task in tasks)
        if len(self._kept) > 2 * self._kept_most:
            self._kept = {uid: reference for uid, reference in self._kept.items() if reference() is not None}
            self._kept_most = max(BLOCK, len(self._kept))

    def _read(self, uid: str, place: _Written) -> Task:
        if self._block.offset != place.offset:
            commons, columns = codec.unpack(self._file.read(place.offset, place.size))
            self._block = _Block(place.offset, [CommonDescription(codec.unpack(packed), packed) for packed in commons],
                                 {row[0]: row for row in zip(*columns, strict=True)})
        _, common, own, state, known, pilot, attempts = self._block.rows[uid]
        task = self._make(uid, self._block.commons[common], own)
        task._renew(state, known, list(self._pilots)[pilot], attempts)
        return task


def _held(tasks: list[Task], known: int) -> list[bool]:
    """Return for each task whether it has more references than that of the list and `known` others."""
    (alone,) = map(getrefcount, [object()])
    return [count > alone + known for count in map(getrefcount, tasks)]


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
