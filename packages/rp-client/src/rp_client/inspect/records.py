"""The records of one session, read without a look at all of them: a task by its uid, pages, pilots, notes.

`SessionRecords` reads the directory of a session, `DatabaseRecords` a MongoDB; both are views for reasons
(`rp_api.reasons.view.View`).
"""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from rp_api import states
from rp_api.coordination import sessions
from rp_api.wire import codec

MAX_PEERS = 1000
"""Tasks at most that a task is compared with: those that were submitted before and after it."""

Task = dict[str, Any]
Numbered = tuple[int, Task]
"""A task with its number, which grows in the order of submission."""


class Records(ABC):
    """The records of one session.

    Attributes:
        uid: Uid of the session.
        place: Its directory, or the name of its collection.
        now: The present time, or that of the last sign of life of a session that has ended; in seconds since 1970.
    """

    def __init__(self, uid: str, place: str, now: float) -> None:
        self.uid = uid
        self.place = place
        self.now = now

    @abstractmethod
    def numbered(self, uid: str) -> Numbered | None:
        """Return the task of that uid with its number; None if it is unknown."""

    @abstractmethod
    def page(self, after: int = 0, limit: int = 1000, wanted: Collection[str] = (), pilot: str | None = None) -> list[
            Numbered]:
        """Return tasks in the order of submission, each with its number.

        Args:
            after: Number of the last task that is known; 0 for the first page.
            limit: Number of tasks at most.
            wanted: Only tasks in one of these states; empty for all.
            pilot: Only tasks that are bound to this pilot, or to none if it is empty; None for all.
        """

    @abstractmethod
    def before(self, number: int, limit: int) -> list[Numbered]:
        """Return the last tasks before the one of that number, in the order of submission."""

    @abstractmethod
    def count(self) -> int:
        """Return the number of tasks."""

    @abstractmethod
    def count_on(self, pilot: str) -> int:
        """Return the number of tasks that are bound to a pilot."""

    @abstractmethod
    def uids(self, start: str, limit: int) -> list[str]:
        """Return the first uids of tasks that begin with a text."""

    @abstractmethod
    def counts(self) -> dict[str, int]:
        """Return the number of tasks in each state; it takes a look at all of them."""

    @abstractmethod
    def pilots(self) -> Sequence[Mapping[str, Any]]:
        """Return all pilots, and all partitions, whose `record` has the uid of their pilot."""

    @abstractmethod
    def note(self, key: str) -> Any:
        """Return a note of the session's coordinator, such as `job.<pilot>`; None without it."""

    @abstractmethod
    def close(self) -> None:
        """Close the connection."""

    def task(self, uid: str) -> Task | None:
        """Return a task; None if there is none with that uid."""
        found = self.numbered(uid)
        return found[1] if found else None

    def tasks(self, wanted: Collection[str] = (), pilot: str | None = None, after: int = 0) -> Iterator[Numbered]:
        """Yield tasks, see `page`, page by page."""
        while page := self.page(after, wanted=wanted, pilot=pilot):
            yield from page
            after = page[-1][0]

    def peers(self, task: Mapping[str, Any]) -> Sequence[Task]:
        """Return tasks of the same kind that are done, at most 1,000: those that were submitted before and after it."""
        found = self.numbered(task['uid'])
        if found is None:
            return []
        kind = kind_of(task['description'])
        near = (*self.before(found[0], MAX_PEERS // 2), *self.page(found[0], MAX_PEERS // 2))
        return [each for _, each in near if each['state'] == states.DONE and kind_of(each['description']) == kind]

    def __enter__(self) -> Records:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class SessionRecords(Records):
    """The records of the session in a directory; FileNotFoundError if it has none."""

    def __init__(self, directory: str | Path) -> None:
        self._db = sessions.database(directory)
        meta = dict(self._db.execute("SELECT key, value FROM meta WHERE key != 'probe'"))
        super().__init__(str(meta.get('session', Path(directory).name)), str(directory), _last_sign(directory, meta))

    def numbered(self, uid: str) -> Numbered | None:
        return sessions.find_task(self._db, uid)

    def page(self, after: int = 0, limit: int = 1000, wanted: Collection[str] = (), pilot: str | None = None) -> list[
            Numbered]:
        return sessions.task_page(self._db, after, limit, wanted=wanted, pilot=pilot)

    def before(self, number: int, limit: int) -> list[Numbered]:
        return sessions.tasks_before(self._db, number, limit)

    def count(self) -> int:
        return sessions.count_tasks(self._db)

    def count_on(self, pilot: str) -> int:
        found: int = self._db.execute(f'SELECT count(*) FROM tasks WHERE pilot = ? AND {sessions.NO_CALL}',
                                      (pilot,)).fetchone()[0]
        return found

    def uids(self, start: str, limit: int) -> list[str]:
        found = self._db.execute('SELECT uid FROM tasks WHERE uid >= ? AND uid < ? ORDER BY uid LIMIT ?',
                                 (start, f'{start}\U0010ffff', limit))
        return [uid for uid, in found]

    def counts(self) -> dict[str, int]:
        return dict(sessions.count_states(self._db))

    def pilots(self) -> Sequence[Mapping[str, Any]]:
        return list(sessions.all_pilots(self._db))

    def note(self, key: str) -> Any:
        found = self._db.execute('SELECT value FROM notes WHERE key = ?', (key,)).fetchone()
        return codec.unpack(found[0]) if found else None

    def close(self) -> None:
        self._db.close()


def kind_of(description: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what tasks of one kind have in common: the program or function, and the size."""
    return tuple(description.get(key) or default for key, default in (
        ('mode', ''), ('executable', ''), ('function', ''), ('ranks', 1), ('cores_per_rank', 1), ('gpus_per_rank', 0)))


def _last_sign(directory: str | Path, meta: Mapping[str, Any]) -> float:
    """Return the present time, or that of the last change of a session without hub."""
    state = sessions.state_from(meta)
    if state in (sessions.OPEN, sessions.ORPHANED, sessions.ELSEWHERE):
        return time.time()
    last = float(meta.get('closed') or 0)
    for name in (sessions.DATABASE, f'{sessions.DATABASE}-wal'):
        with suppress(OSError):
            last = max(last, os.stat(Path(directory, name)).st_mtime) if state != sessions.CLOSED else last
    return last or time.time()
