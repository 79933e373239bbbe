"""The tasks of one manager: objects as long as something can happen to them or the application has them, else records.

- Tasks that are final are written to a file, some at a time, and referred to weakly from then on. One that the
  application does not keep costs its uid and a reference, about 100 bytes; it is made again when it is asked for.
- A task is one object for as long as there is a reference to it.
- The file is in the session's directory, but has no name there, so nothing is left of it. If it cannot be written,
  tasks stay in memory, and it is tried again.
"""

from __future__ import annotations

import logging
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from rp_api import states
from rp_api.wire import codec
from rp_client.common_description import CommonDescription
from rp_client.pilot import Pilot
from rp_client.task import Task

BLOCK = 64
"""Tasks that are written and read together."""

_log = logging.getLogger('radical.pilot.task_manager')

Make = Callable[[str, CommonDescription, bytes], Task]


class HasState(Protocol):
    """A task, or what is known of one that has to be read."""

    @property
    def state(self) -> str: ...


class _Written(NamedTuple):
    """Where tasks are in the file, and the final state that they have."""

    state: str
    offset: int
    size: int


class _Block(NamedTuple):
    """A part of the file that was read."""

    offset: int
    commons: list[CommonDescription]
    rows: dict[str, tuple[Any, ...]]


class TaskStore(Mapping[str, Task]):
    """All tasks of a manager in the order of their submission; usable from any thread.

    `path` is that of the file, `make(uid, common, own)` makes a task again.
    """

    def __init__(self, path: str, make: Make) -> None:
        self._make = make
        self._file = _File(path)
        self._tasks: dict[str, Task | _Written] = {}
        self.look: Callable[[str], HasState] = self._tasks.__getitem__
        """What has the state of a task, the task itself if it is not final; KeyError if there is none of that uid."""
        self._final: list[Task] = []   # those that are written next
        self._kept: dict[str, weakref.ref[Task]] = {}   # those that were written and may still be there
        self._kept_most = BLOCK
        self._pilots: dict[Pilot | None, int] = {None: 0}   # the numbers that stand for them in the file
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
        """The task of that uid; None if there is none."""
        task = self._tasks.get(uid)
        return self._again(uid) if type(task) is _Written else task   # type: ignore[return-value]

    def has_none(self, uids: set[str]) -> bool:
        """Whether there is no task of these uids."""
        return self._tasks.keys().isdisjoint(uids)

    def in_memory(self) -> list[Task]:
        """Those tasks that need not be read, among them all that are not final."""
        return [task for task in list(self._tasks.values()) if isinstance(task, Task)]

    def add(self, uids: Sequence[str], tasks: Sequence[Task]) -> None:
        """Take new tasks, which have these uids."""
        self._tasks.update(zip(uids, tasks, strict=True))

    def settled(self, tasks: Iterable[Task]) -> None:
        """Take note that tasks are final, or that more is known about some that are."""
        with self._lock:
            while len(self._final) >= BLOCK and self._put_away():   # not these ones yet: the caller has them
                pass
            self._final += tasks

    def remove(self, uids: Iterable[str]) -> None:
        """Have no such tasks any more."""
        with self._lock:
            for uid in uids:
                del self._tasks[uid]
                self._kept.pop(uid, None)

    def _put_away(self) -> bool:
        """Write a block of tasks, and let go of them; False if that fails."""
        tasks = [task for task in self._final[:BLOCK] if task._uid in self._tasks]   # else removed meanwhile
        uids = [task._uid for task in tasks]
        try:
            offset, size = self._file.append(self._pack(uids, tasks))
        except OSError as error:
            if not self._complained:   # once is enough
                self._complained = True
                _log.warning('final tasks stay in memory: %s', error)
            return False
        del self._final[:BLOCK]
        written = {state: _Written(state, offset, size) for state in states.FINAL}
        self._tasks.update(zip(uids, [written[task._state] for task in tasks], strict=True))
        self._kept.update(zip(uids, map(weakref.ref, tasks), strict=True))
        if len(self._kept) > 2 * self._kept_most:
            self._kept = {uid: reference for uid, reference in self._kept.items() if reference() is not None}
            self._kept_most = max(BLOCK, len(self._kept))
        return True

    def _pack(self, uids: list[str], tasks: list[Task]) -> bytes:
        """Tasks as they are in the file: what their descriptions have in common, and columns."""
        commons = {common: number for number, common in enumerate({task.common: None for task in tasks})}
        for pilot in {task._pilot for task in tasks}:
            self._pilots.setdefault(pilot, len(self._pilots))
        return codec.pack([[common.packed for common in commons], [
            uids, [commons[task.common] for task in tasks], [task.own for task in tasks],
            [task._state for task in tasks], [task._known for task in tasks],
            [self._pilots[task._pilot] for task in tasks], [task._attempts for task in tasks]]])

    def _again(self, uid: str) -> Task | None:
        with self._lock:
            place = self._tasks.get(uid)
            if not isinstance(place, _Written):   # it was forgotten meanwhile
                return place
            reference = self._kept.get(uid)
            task = reference() if reference else None
            if task is None:
                task = self._read(uid, place)
                self._kept[uid] = weakref.ref(task)
            return task

    def _read(self, uid: str, place: _Written) -> Task:
        if self._block.offset != place.offset:
            commons, columns = codec.unpack(self._file.read(place.offset, place.size))
            self._block = _Block(place.offset, [CommonDescription(codec.unpack(packed), packed) for packed in commons],
                                 {row[0]: row for row in zip(*columns, strict=True)})
        _, common, own, state, known, pilot, attempts = self._block.rows[uid]
        task = self._make(uid, self._block.commons[common], own)
        task.renew(state, known, list(self._pilots)[pilot], attempts)
        return task


class _File:
    """A file without a name, which is made when something is written, and closed with the last reference to this."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._fd = -1
        self._end = 0

    def append(self, data: bytes) -> tuple[int, int]:
        """Write at the end; gives position and size. Of what cannot be written as a whole nothing is kept."""
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
        """What was written there."""
        return os.pread(self._fd, size, offset)
