"""The registry of uids of a session's managers, pilots and tasks.

Uids are unique in a session, tasks and all other entities apart. Applications may choose uids, and may submit from
several threads.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from rp_api.uid_set import UidSet
from rp_client.ids import TASK, Form

if TYPE_CHECKING:
    from rp_client.core.task import TaskRecord
    from rp_client.flow.task_store import TaskStore


class Uids:
    """The uids of one session."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counters: dict[str, int] = {}
        self._managers: set[str] = set()
        self._pilots: set[str] = set()
        self._sweeps: set[str] = set()
        self.tasks: list[TaskStore] = []
        """The tasks of all managers."""
        self._removed = UidSet()    # uids of removed tasks
        self._reserved = UidSet()   # of calls, and of the services of pilots
        self.endless: set[str] = set()
        """Uids of services, and of RAPTOR's masters and workers."""

    def new(self, kind: str) -> str:
        """Return an unused uid for a manager or pilot, such as `pilot.0003`."""
        with self._lock:
            while True:
                number = self._counters.get(kind, 0)
                self._counters[kind] = number + 1
                uid = f'{kind}.{number:04d}'
                if uid not in self._pilots and uid not in self._managers:
                    return uid

    def new_sweep(self) -> str:
        """Return an unused uid for a sweep, such as `sweep.0003`: no task has a uid that begins with it and a dot."""
        while True:
            uid = self.new('sweep')
            if uid not in self._sweeps and not any(
                    task.startswith(f'{uid}.') for tasks in self.tasks for task in tasks.singles()):
                return uid

    def reserve_sweep(self, uid: str) -> None:
        """Reserve the uid of a sweep that an earlier application has submitted."""
        self._sweeps.add(uid)

    def of_tasks(self, wanted: Sequence[str | None], form: Form = TASK) -> list[str]:
        """Return the uids for new tasks: the wanted ones, or fresh ones such as `task.000003`."""
        with self._lock:
            given = set(filter(None, wanted))
            fresh = iter(self._fresh(*form, sum(not uid for uid in wanted), given))
            return [uid or next(fresh) for uid in wanted]

    def add_manager(self, uid: str) -> None:
        """Register the uid of a manager."""
        self._managers.add(uid)

    def claim_tasks(self, uids: Sequence[str], add: Callable[[], object]) -> None:
        """Add tasks by calling `add`, unless one of the uids is in use: that raises `ValueError`."""
        with self._lock:
            _check_unused('task', uids, self._used(uids))
            add()

    def claim_pilots(self, uids: Sequence[str]) -> None:
        """Reserve the uids of pilots, unless one of them is in use: that raises `ValueError`."""
        with self._lock:
            _check_unused('pilot', uids, self._pilots.intersection(uids))
            self._pilots.update(uids)

    def removed_tasks(self, uids: Iterable[str]) -> None:
        """Note tasks that were removed; no further ones may have their uids."""
        self._removed.update(uids)

    def reserve_tasks(self, uids: Iterable[str]) -> None:
        """Reserve uids that no task may have: those of calls, and of the services of pilots."""
        self._reserved.update(uids)

    def unknown_tasks(self, uids: Iterable[str]) -> set[str]:
        """Return those of these uids that no task of the session has or had."""
        unknown = set(uids)
        for tasks in self.tasks:
            unknown = tasks.without(unknown)
        return {uid for uid in unknown if uid not in self._removed} if self._removed else unknown

    def find_task(self, uid: str) -> TaskRecord | None:
        """Return the task of any manager with that uid; None if there is none."""
        return next((tasks.find(uid) for tasks in self.tasks if uid in tasks), None)

    def state_of(self, uid: str) -> str:
        """Return the state of a task of any manager; empty if it was removed."""
        return next((tasks.look(uid).state for tasks in self.tasks if uid in tasks), '')

    def knows_pilot(self, uid: str) -> bool:
        """Return whether a pilot has that uid."""
        return uid in self._pilots

    def _fresh(self, kind: str, digits: int, count: int, but: set[str]) -> list[str]:
        """Return the next uids of a kind, without those in `but`."""
        first, size = self._counters.get(kind, 0), count
        found: list[str] = []
        while len(found) < count:
            uids = [f'{kind}.{number:0{digits}d}' for number in range(first, first + size)]
            used = self._used(uids) | but
            found += [uid for uid in uids if uid not in used] if used else uids
            first += size
            size *= 2   # an attached session may have used many
        del found[count:]
        if found:
            self._counters[kind] = int(found[-1].rpartition('.')[2]) + 1
        return found

    def _used(self, uids: Sequence[str]) -> set[str]:
        """Return those of these uids that tasks have or had."""
        used = {uid for kept in (self._removed, self._reserved) if kept for uid in uids if uid in kept}
        for tasks in self.tasks:
            if not tasks.has_none(uids):
                used |= {uid for uid in uids if uid in tasks}
        return used


def _check_unused(kind: str, uids: Sequence[str], used: set[str]) -> None:
    if not used and len(set(uids)) < len(uids):
        used = {uid for uid, times in Counter(uids).items() if times > 1}
    if used:
        raise ValueError(f'{kind} uid {min(used)!r} is in use already: uids must be unique in a session; without a uid '
                         f'in its description, a {kind} gets a new one')
