"""The cached tasks of a task manager that are in flight: claimed by those that run, and waited for by equal ones.

A task with `after` is not waited for by tasks of its own session: it may be after one of these.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from rp_api import states
from rp_api.description import task as names

if TYPE_CHECKING:
    from rp_client.cache.claims import Claims
    from rp_client.core.task import TaskRecord


class InFlight:
    """The claims of the tasks of one manager. All methods may be called from any thread.

    `again(task)` is called, in any thread, for a task that is to be looked up again, as an equal one has ended. While
    not `active`, as the manager has no pilot that could run its tasks, nothing is claimed and nothing waits.
    """

    def __init__(self, claims: Callable[[], Claims], again: Callable[[TaskRecord], object]) -> None:
        self._claims = claims
        self._again = again
        self.active = True
        self._claimed: dict[str, bytes] = {}
        self._waiting: dict[str, TaskRecord] = {}
        self._ended: dict[str, bytes] = {}   # whose claims are not released yet
        self._restored: dict[str, bytes] = {}
        self._lock = threading.Lock()

    @property
    def waiting(self) -> int:
        """The number of tasks that wait for equal ones."""
        return len(self._waiting)

    @property
    def any_ended(self) -> bool:
        """True if `release` has something to do."""
        return bool(self._ended)

    @property
    def any_restored(self) -> bool:
        """True if `resume` has something to do."""
        return bool(self._restored)

    def claim(self, tasks: Sequence[tuple[TaskRecord, bytes]], needed: Collection[str],
              stored: Callable[[list[bytes]], Collection[bytes]]) -> set[str]:
        """Claim tasks, which have these identities, and no result; return the uids of those that wait.

        Tasks that are `needed` run anyway. `stored` returns the identities that have a result meanwhile.
        """
        if not self.active or not tasks:
            return set()
        claims = self._claims()
        taken = claims.take([identity for _, identity in tasks])
        ready = set(stored(list(taken))) if taken else set()
        claims.release(ready, stored=True)
        taken -= ready
        waits = {}
        for task, identity in sorted(tasks, key=_is_after):
            if identity in taken:
                taken.remove(identity)
                self._claimed[task.uid] = identity
                if _is_after((task, identity)):
                    claims.unawaited.add(identity)
            elif (task.uid not in needed and self._claimed.get(task.uid) != identity
                  and identity not in claims.unawaited):
                waits[task.uid] = identity
                self._waiting[task.uid] = task
        for uid, identity in waits.items():
            claims.when_free(identity, lambda uid=uid: self._freed(uid))   # type: ignore[misc]
        return set(waits)

    def restored(self, uid: str, identity: bytes) -> None:
        """Note a task that runs, of an earlier application of the session; `resume` claims it."""
        self._restored[uid] = identity

    def resume(self) -> None:
        """Claim restored tasks."""
        restored, self._restored = self._restored, {}
        if self.active and restored:
            taken = self._claims().take(restored.values())
            self._claimed.update((uid, identity) for uid, identity in restored.items() if identity in taken)

    def ended(self, tasks: Iterable[TaskRecord]) -> None:
        """Note that tasks have ended, or do not run."""
        for task in tasks:
            self._waiting.pop(task.uid, None)
            if (identity := self._claimed.pop(task.uid, None)) is not None:
                with self._lock:
                    self._ended[task.uid] = identity

    def take_ended(self) -> list[bytes]:
        """Return the claims of tasks that have ended, for `release`."""
        with self._lock:
            ended, self._ended = self._ended, {}
        return list(ended.values())

    def release(self, ended: Iterable[bytes], stored: Collection[bytes]) -> None:
        """End claims; those of `stored` results wake all tasks that wait, others one."""
        claims = None
        for identity in ended:
            claims = claims or self._claims()
            claims.unawaited.discard(identity)
            claims.release([identity], stored=identity in stored)

    def _freed(self, uid: str) -> bool:
        task = self._waiting.pop(uid, None)
        if task is None or task.state in states.FINAL:
            return False
        self._again(task)
        return True


def _is_after(entry: tuple[TaskRecord, bytes]) -> bool:
    return bool(entry[0].sparse().get(names.AFTER))
