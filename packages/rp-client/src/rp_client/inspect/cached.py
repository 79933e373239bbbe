"""A view of a session for many tasks: pilots, notes and what tasks are compared with are read once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rp_client.inspect.records import Records, Task, kind_of


class CachedView:
    """The session of some records, as it was at the first look at each of its parts."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self.now = records.now
        self._pilots: Sequence[Mapping[str, Any]] | None = None
        self._notes: dict[str, Any] = {}
        self._peers: dict[tuple[Any, ...], Sequence[Task]] = {}
        self._tasks: dict[str, Task | None] = {}

    def task(self, uid: str) -> Task | None:
        if uid not in self._tasks:   # that many tasks wait for
            self._tasks[uid] = self._records.task(uid)
        return self._tasks[uid]

    def pilots(self) -> Sequence[Mapping[str, Any]]:
        if self._pilots is None:
            self._pilots = self._records.pilots()
        return self._pilots

    def peers(self, task: Mapping[str, Any]) -> Sequence[Task]:
        kind = kind_of(task['description'])
        if kind not in self._peers:
            self._peers[kind] = self._records.peers(task)
        return self._peers[kind]

    def note(self, key: str) -> Any:
        if key not in self._notes:
            self._notes[key] = self._records.note(key)
        return self._notes[key]
