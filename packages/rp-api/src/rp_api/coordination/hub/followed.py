"""The tasks that agents follow: pilots are told once how each of them has ended, by a command.

Commands survive a restart of the hub. That a task is followed does not: agents say so again to a hub that is new.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from rp_api import states
from rp_api.coordination import outcome, wire
from rp_api.coordination.contract import BULK, LEFT_AGENT, Update
from rp_api.coordination.hub.store import Store
from rp_api.wire import codec


class Followed:
    """The followed tasks of one session, and the pilots that follow them."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._pilots: dict[str, tuple[str, ...]] = {}   # by uid of the task
        self._due: set[str] = set()        # tasks to look at
        self._written: set[str] = set()    # tasks whose outcomes are to be committed

    def follow(self, pilot: str, uids: Iterable[str]) -> None:
        """Tell that pilot how these tasks have ended, once they have."""
        known = self._pilots
        for uid in uids:
            pilots = known.get(uid, ())
            if pilot not in pilots:
                known[uid] = (*pilots, pilot)
            self._due.add(uid)

    def changed(self, updates: Iterable[tuple[str, str, bytes | None]]) -> None:
        """Look at those of these tasks, and of the sweeps of these chunks, that are followed at the end of the turn."""
        if self._pilots:
            uids = [uid for uid, _, _ in updates]
            self._due.update(uid for uid in uids if uid in self._pilots)
            sweeps = {uid.rpartition('/')[0] for uid in uids if '/' in uid}
            if sweeps:
                self._due.update(uid for uid in self._pilots if uid.rpartition('.')[0] in sweeps)

    def look_at_all(self) -> None:
        """Look at all followed tasks at the end of the turn: those that were not submitted will never be."""
        self._due.update(self._pilots)

    def forget(self, pilot: str) -> None:
        """Forget a pilot whose agent has ended."""
        for uid in [uid for uid, pilots in self._pilots.items() if pilot in pilots]:
            left = tuple(other for other in self._pilots[uid] if other != pilot)
            if left:
                self._pilots[uid] = left
            else:
                del self._pilots[uid]

    def write(self, *, orphaned: bool) -> list[str]:
        """Write commands with the outcomes of tasks that have ended, and return the pilots that get them.

        `orphaned`: no client will submit tasks that are unknown.
        """
        by_pilot: dict[str, list[Update]] = {}
        for uid in self._due:
            found = self._outcome(uid, orphaned)
            if found is not None:
                self._written.add(uid)
                for pilot in self._pilots.get(uid, ()):
                    by_pilot.setdefault(pilot, []).append(found)
        self._due.clear()
        for pilot, outcomes in by_pilot.items():
            rest = iter(outcomes)
            while bulk := list(islice(rest, BULK)):
                self._store.insert_command(pilot, codec.pack({'cmd': outcome.FOLLOWED, 'tasks': bulk}))
        return list(by_pilot)

    def committed(self) -> None:
        """Forget the tasks whose outcomes have become durable."""
        for uid in self._written:
            self._pilots.pop(uid, None)
        self._written.clear()

    def rolled_back(self) -> None:
        """Look again at the tasks whose outcomes have not become durable."""
        self._due |= self._written
        self._written.clear()

    def _outcome(self, uid: str, orphaned: bool) -> Update | None:
        known = self._store.tasks.end_of(uid)
        if known is None:
            return outcome.lost(uid) if orphaned else None
        state, pilot, info = known
        if states.TASK.value(state) < LEFT_AGENT:
            return None
        return outcome.outcome(uid, state, pilot, wire.unpack_info(info))
