"""The uids of a session's managers, pilots and tasks: which are in use, and which come next.

Uids are unique in a session; those of tasks and those of all else are apart. Applications may give uids, and may
submit from several threads.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Sequence


class Uids:
    """Those of one session."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counters: dict[str, int] = {}
        self._managers: set[str] = set()
        self._pilots: set[str] = set()
        self._tasks: set[str] = set()

    def new(self, kind: str) -> str:
        """A uid for a manager or pilot, such as `pilot.0003`, that is not in use."""
        with self._lock:
            while True:
                number = self._counters.get(kind, 0)
                self._counters[kind] = number + 1
                uid = f'{kind}.{number:04d}'
                if uid not in self._pilots and uid not in self._managers:
                    return uid

    def of_tasks(self, wanted: Sequence[str | None], kind: str = 'task', digits: int = 6) -> list[str]:
        """The uids for tasks: those that are asked for, or fresh ones such as `task.000003`."""
        with self._lock:
            number = self._counters.get(kind, 0)
            given = set(wanted)
            uids = []
            for uid in wanted:
                while not uid:
                    fresh = f'{kind}.{number:0{digits}d}'
                    number += 1
                    uid = fresh if fresh not in self._tasks and fresh not in given else None
                uids.append(uid)
            self._counters[kind] = number
        return uids

    def add_manager(self, uid: str) -> None:
        """Note that a manager has this uid."""
        self._managers.add(uid)

    def claim_tasks(self, uids: Sequence[str]) -> None:
        """Reserve the uids of tasks; `ValueError`, and none reserved, if one is in use."""
        self._claim('task', self._tasks, uids)

    def claim_pilots(self, uids: Sequence[str]) -> None:
        """Reserve the uids of pilots; `ValueError`, and none reserved, if one is in use."""
        self._claim('pilot', self._pilots, uids)

    def restored_tasks(self, uids: Iterable[str]) -> None:
        """Note the uids of tasks that were there before."""
        self._tasks.update(uids)

    def knows_pilot(self, uid: str) -> bool:
        """Whether there is a pilot of that uid."""
        return uid in self._pilots

    def _claim(self, kind: str, known: set[str], uids: Sequence[str]) -> None:
        with self._lock:
            new = set(uids)
            if len(new) < len(uids) or not known.isdisjoint(new):
                used = known & new or {uid for uid, times in Counter(uids).items() if times > 1}
                raise ValueError(f'{kind} uid {min(used)!r} is in use already: uids must be unique in a session')
            known.update(new)
