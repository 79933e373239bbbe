"""Base of task schedulers, which decide to which pilot each task goes. No I/O, no clock: values in, values out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple


class Request(NamedTuple):
    """A task that is to be bound: its uid and the pilot it asks for (empty: any)."""

    uid: str
    pilot: str


class Binding(NamedTuple):
    """A task and the pilot, or the partition of one, that it goes to."""

    uid: str
    pilot: str


class TaskScheduler(ABC):
    """Binds tasks to the pilots that were added; what cannot be bound yet waits here.

    Sub-classes are made without arguments and have `choose`. `pilots` are the uids of the pilots in use.
    `place(pilot, task)` is where in a pilot that it has chosen a task goes: the pilot's uid, or that of one of its
    partitions; empty if it cannot go there now. `knows(partition)` tells whether tasks that ask for a partition, by its
    uid, can go there.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, Request] = {}
        self.pilots: list[str] = []
        self.place: Callable[[str, str], str] = lambda pilot, uid: pilot
        self.knows: Callable[[str], bool] = lambda partition: False

    @property
    def waiting(self) -> Collection[Request]:
        """The tasks that wait for a pilot, in the order in which they came."""
        return self._waiting.values()

    def wanted(self, uid: str) -> str:
        """The pilot that a task waits for; empty if it does not wait, or any will do."""
        request = self._waiting.get(uid)
        return request.pilot if request else ''

    def submit(self, requests: Iterable[Request]) -> list[Binding]:
        """Take tasks in; gives those that could be bound now."""
        new = list(requests)
        self._waiting.update((request.uid, request) for request in new)
        return self._bind(new)

    def retry(self) -> list[Binding]:
        """Give the tasks that can be bound now, as places have changed."""
        return self._bind(list(self._waiting.values()))

    def add_pilots(self, pilots: Iterable[str]) -> list[Binding]:
        """Use these pilots from now on; gives the tasks that could be bound because of them."""
        self.pilots.extend(pilots)
        return self.retry()

    def remove_pilots(self, pilots: Iterable[str]) -> None:
        """Do not bind tasks to these pilots any more."""
        gone = set(pilots)
        self.pilots = [pilot for pilot in self.pilots if pilot not in gone]

    def forget(self, uids: Iterable[str]) -> list[str]:
        """Drop waiting tasks; gives those that were waiting."""
        return [uid for uid in uids if self._waiting.pop(uid, None) is not None]

    @abstractmethod
    def choose(self, uid: str) -> str:
        """The place of a task that may go to any pilot; empty if it has to wait until pilots, or their loads, change.

        The place is what `place(pilot, uid)` gives for one of `pilots`, of which there is at least one. The task waits
        if that is empty. Called in the session's event loop, so it must not block.
        """

    def _bind(self, requests: Sequence[Request]) -> list[Binding]:
        """Bind what can be bound of these waiting tasks, and take it out of those that wait."""
        if not self.pilots:
            return []
        bound = []
        for uid, wanted in requests:
            if not wanted:
                pilot = self.choose(uid)
            elif wanted in self.pilots or self.knows(wanted):
                pilot = self.place(wanted, uid)
            else:
                continue
            if pilot:
                bound.append(Binding(uid, pilot))
        for uid, _ in bound:
            del self._waiting[uid]
        return bound
