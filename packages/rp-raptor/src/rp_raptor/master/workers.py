"""The registry of a master's workers: status, heartbeats, and waiting for them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from typing import Any

from rp_api import states

NEW, ACTIVE, DONE = 'NEW', 'ACTIVE', 'DONE'


class Workers:
    """The workers of a master; a worker is ACTIVE when all its ranks have been.

    `changed(worker, state)` is called with a copy of a worker's entry and the task state that it has reached. May be
    used from any thread.
    """

    def __init__(self, changed: Callable[[dict[str, Any], str], object]) -> None:
        self._changed = changed
        self._entries: dict[str, dict[str, Any]] = {}
        self._ranks: dict[str, int] = {}
        self._seen: dict[str, set[int]] = {}   # ranks that have been active
        self._ends: dict[str, str] = {}   # reasons of workers that have failed
        self._over = ''
        self._news = threading.Condition()

    def all(self) -> dict[str, dict[str, Any]]:
        """Return a copy of all entries: {uid: {'uid', 'status', 'heartbeats': {rank: time}}}."""
        with self._news:
            return {uid: _copy(entry) for uid, entry in self._entries.items()}

    def expect(self, uid: str) -> None:
        """Add a worker that was submitted."""
        with self._news:
            self._entries.setdefault(uid, {'uid': uid, 'status': NEW, 'heartbeats': {}})

    def knows(self, uid: str) -> bool:
        """Return whether the worker was ever submitted or connected."""
        with self._news:
            return uid in self._entries

    def came(self, uid: str, ranks: int) -> None:
        """Record that a worker has connected."""
        with self._news:
            self._entries[uid] = {'uid': uid, 'status': NEW, 'heartbeats': {}}
            self._ranks[uid] = ranks
            self._seen[uid] = set()

    def ranks_changed(self, uid: str, ranks: dict[int, str]) -> None:
        """Record ranks of a worker that are ACTIVE or DEAD now."""
        with self._news:
            entry, seen = self._entries[uid], self._seen[uid]
            for rank, state in ranks.items():
                entry['heartbeats'].pop(rank, None)
                if state == 'ACTIVE':
                    entry['heartbeats'][rank] = time.time()
                    seen.add(rank)
            complete = entry['status'] == NEW and len(seen) >= self._ranks[uid]
            if complete:
                entry['status'] = ACTIVE
                self._news.notify_all()
        if complete:
            self._changed(_copy(entry), states.AGENT_EXECUTING)

    def heard(self, uid: str) -> None:
        """Record a heartbeat, for all active ranks of the worker."""
        with self._news:
            beats = self._entries[uid]['heartbeats']
            beats.update(dict.fromkeys(beats, time.time()))

    def ended(self, uid: str, state: str, reason: str) -> None:
        """Record the end of a worker with that final state."""
        with self._news:
            entry = self._entries.get(uid)
            if entry is None or entry['status'] == DONE:
                return
            entry['status'] = DONE
            if state != states.DONE:
                self._ends[uid] = reason or state
            self._news.notify_all()
        self._changed(_copy(entry), state)

    def close(self, reason: str) -> None:
        """End all waits with an error."""
        with self._news:
            self._over = reason
            self._news.notify_all()

    def wait(self, count: int | None, uids: Collection[str] | None) -> None:
        """Wait until `count` workers are active, or those in `uids`, or all that were submitted.

        RuntimeError as soon as that cannot happen any more.
        """
        if uids is not None:
            unknown = sorted(set(uids) - self._entries.keys())
            if unknown:
                raise ValueError(f'there are no workers {", ".join(unknown)}: submitted were '
                                 f'{", ".join(self._entries) or "none"}')
        with self._news:
            while not self._are_active(count, uids):
                self._news.wait()

    def _are_active(self, count: int | None, uids: Collection[str] | None) -> bool:
        if self._over:
            raise RuntimeError(f'cannot wait for workers: {self._over}')
        wanted = self._entries.keys() if uids is None else uids
        by_status: dict[str, list[str]] = {NEW: [], ACTIVE: [], DONE: []}
        for uid in wanted:
            by_status[self._entries[uid]['status']].append(uid)
        needed = len(wanted) if count is None else count
        if len(by_status[ACTIVE]) >= needed:
            return True
        ended = [f'{uid}: {self._ends.get(uid, "it has ended")}' for uid in by_status[DONE]]
        if ended and len(by_status[ACTIVE]) + len(by_status[NEW]) < needed:
            raise RuntimeError(f'{needed} workers will not be active, as some have ended: {"; ".join(ended)}')
        return False


def _copy(entry: dict[str, Any]) -> dict[str, Any]:
    return {**entry, 'heartbeats': dict(entry['heartbeats'])}
