"""The registry of a master's workers: status, heartbeats, and waiting for them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from typing import Any

from rp_api import states
from rp_raptor.wire.parts import Part

NEW, ACTIVE, DONE = 'NEW', 'ACTIVE', 'DONE'


class Workers:
    """The workers of a master; a worker is ACTIVE when all its ranks have been.

    `changed(worker, state)` is called with a copy of a worker's entry and the task state that it has reached. May be
    used from any thread.
    """

    def __init__(self, changed: Callable[[dict[str, Any], str], object]) -> None:
        self._changed = changed
        self._entries: dict[str, dict[str, Any]] = {}
        self._parts: dict[str, _Parts] = {}
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

    def came(self, uid: str, part: Part) -> None:
        """Record that a worker, or a part of one, has connected."""
        with self._news:
            parts = self._parts.get(uid)
            if parts is None or part.count == 1 or self._entries[uid]['status'] == DONE:
                self._entries[uid] = {'uid': uid, 'status': NEW, 'heartbeats': {}}
                parts = self._parts[uid] = _Parts(part)
            parts.lost.discard(part.number)
            parts.missing.update(part.numbers)

    def ranks_changed(self, uid: str, ranks: dict[int, str]) -> None:
        """Record ranks of a worker that are ACTIVE or DEAD now."""
        with self._news:
            beats, parts = self._entries[uid]['heartbeats'], self._parts[uid]
            for rank, state in ranks.items():
                beats.pop(rank, None)
                if state == 'ACTIVE':
                    beats[rank] = time.time()
                    parts.missing.discard(rank)
        self._check_active(uid)

    def heard(self, uid: str, part: Part) -> None:
        """Record a heartbeat, for all active ranks of the part."""
        with self._news:
            beats = self._entries[uid]['heartbeats']
            beats.update(dict.fromkeys(beats.keys() & part.numbers, time.time()))

    def part_ended(self, uid: str, part: Part) -> bool:
        """Record the end of a part of a worker; return whether it was the last one."""
        with self._news:
            if uid not in self._entries:
                return False
            parts = self._parts.setdefault(uid, _Parts(part))
            parts.lost.add(part.number)
            parts.missing.difference_update(part.numbers)
            for rank in part.numbers:
                self._entries[uid]['heartbeats'].pop(rank, None)
            last = len(parts.lost) >= part.count
        if not last:
            self._check_active(uid)
        return last

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

    def _check_active(self, uid: str) -> None:
        """Make a worker ACTIVE if all its ranks have been, except those of lost parts."""
        with self._news:
            entry = self._entries[uid]
            complete = entry['status'] == NEW and not self._parts[uid].missing
            if complete:
                entry['status'] = ACTIVE
                self._news.notify_all()
        if complete:
            self._changed(_copy(entry), states.AGENT_EXECUTING)

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


class _Parts:
    """The parts of a worker: `missing` are the ranks that have not been active yet."""

    def __init__(self, part: Part) -> None:
        self.missing = set(range(part.total))
        self.lost: set[int] = set()


def _copy(entry: dict[str, Any]) -> dict[str, Any]:
    return {**entry, 'heartbeats': dict(entry['heartbeats'])}
