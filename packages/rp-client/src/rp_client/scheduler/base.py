"""Base class of task schedulers, which choose the pilot of each task, without I/O or clocks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from rp_client.scheduler.places import Need
from rp_client.scheduler.room import Node


class Request(NamedTuple):
    """A task to bind: its uid, and the pilot or partition that it requests (empty: any)."""

    uid: str
    pilot: str


class Binding(NamedTuple):
    """A task, and the pilot or partition that it is bound to."""

    uid: str
    pilot: str


class TaskScheduler(ABC):
    """Base class of task schedulers: binds tasks to pilots, and holds the tasks that cannot be bound yet.

    It is instantiated without arguments, once for each task manager, and named by an entry point in the group
    `radical_pilot.task_schedulers`. Its methods are called in the session's event loop; they must not block. Most
    schedulers extend `EachTask`.

    Attributes:
        follows: Whether `left` is called for tasks that have left their pilots, and agents that end return the tasks
            that they have not started, to be submitted again.
        pilots: Uids of the pilots in use, in the order in which they were added.
        place: `place(pilot, task)` returns the place of a task in a pilot: the uid of the pilot, or of one of its
            partitions; empty if the pilot cannot take the task now.
        knows: `knows(partition)` returns whether a partition, named by its uid, can take tasks.
        need: `need(task)` returns the resources that a task requests.
    """

    follows = False

    def __init__(self) -> None:
        self._waiting: dict[str, Request] = {}
        self.pilots: list[str] = []
        self.place: Callable[[str, str], str] = lambda pilot, uid: pilot
        self.knows: Callable[[str], bool] = lambda partition: False
        self.need: Callable[[str], Need] = lambda uid: Need()

    @property
    def waiting(self) -> Collection[Request]:
        """The tasks that wait for a pilot."""
        return self._waiting.values()

    def wanted(self, uid: str) -> str:
        """Return the pilot that a task waits for.

        Args:
            uid: Uid of the task.

        Returns:
            The pilot's uid; empty if the task does not wait, or for any pilot.
        """
        request = self._waiting.get(uid)
        return request.pilot if request else ''

    def binds_at_once(self, pilot: str) -> bool:
        """Return whether RAPTOR's calls for a master on this pilot are bound to it without `submit`.

        They need no resources, and come in large numbers. Not called for pilots with partitions.

        Args:
            pilot: Uid of the pilot.
        """
        return False

    @abstractmethod
    def submit(self, requests: Iterable[Request]) -> list[Binding]:
        """Accept tasks, and bind those that can be bound now.

        Args:
            requests: The tasks; those that cannot be bound wait.

        Returns:
            The tasks that were bound, of these and of those that waited.
        """

    @abstractmethod
    def retry(self) -> list[Binding]:
        """Bind the waiting tasks that can be bound now, after places have changed.

        Returns:
            The tasks that were bound.
        """

    def add_pilots(self, pilots: Iterable[str]) -> list[Binding]:
        """Add pilots, and bind waiting tasks to them.

        Args:
            pilots: Uids of the pilots.

        Returns:
            The tasks that were bound.
        """
        self.pilots.extend(pilots)
        return self.retry()

    def remove_pilots(self, pilots: Iterable[str]) -> None:
        """Remove pilots; no more tasks are bound to them.

        Args:
            pilots: Uids of the pilots; unknown ones are ignored.
        """
        gone = set(pilots)
        self.pilots = [pilot for pilot in self.pilots if pilot not in gone]

    def forget(self, uids: Iterable[str]) -> list[str]:
        """Remove waiting tasks.

        Args:
            uids: Uids of the tasks; those that do not wait are ignored.

        Returns:
            Uids of the tasks that were waiting.
        """
        return [uid for uid in uids if self._waiting.pop(uid, None) is not None]

    # for schedulers that follow what becomes of tasks and pilots; the others do nothing here

    def places_changed(self, pilot: str, places: Mapping[str, tuple[int | None, Sequence[Node]]], *,   # noqa: B027
                       pending: bool) -> None:
        """Note the places of a pilot that are active now; `retry` follows.

        Args:
            pilot: Uid of the pilot, which may be one that is not in use.
            places: The nodes of the pilot, by its uid; or number and nodes of its active partitions, by theirs.
            pending: Whether the pilot, or a partition of it, is still to become active.
        """

    def restored(self, uid: str, place: str) -> None:   # noqa: B027
        """Note a task that an earlier application has bound.

        Args:
            uid: Uid of the task.
            place: Uid of its pilot or partition.
        """

    def left(self, uids: Iterable[str]) -> list[Binding]:
        """Note tasks that need no resources of their pilot any more, and bind waiting tasks in their stead.

        Args:
            uids: Uids of the tasks; some may be unknown.

        Returns:
            The tasks that were bound.
        """
        return []

    def returned(self, uids: Iterable[str]) -> None:   # noqa: B027
        """Note tasks whose pilot has ended, and that are submitted again next.

        Args:
            uids: Uids of the tasks.
        """


class EachTask(TaskScheduler):
    """Base class of task schedulers that choose a pilot for each task; a sub-class implements `choose`."""

    def binds_at_once(self, pilot: str) -> bool:
        """Return whether the pilot is in use."""
        return pilot in self.pilots

    def submit(self, requests: Iterable[Request]) -> list[Binding]:
        """Accept tasks, and bind those that can be bound now."""
        new = list(requests)
        self._waiting.update({request.uid: request for request in new})
        return self._bind(new)

    def retry(self) -> list[Binding]:
        """Bind the waiting tasks that can be bound now, in the order of submission."""
        return self._bind(list(self._waiting.values()))

    @abstractmethod
    def choose(self, uid: str) -> str:
        """Choose the place of a task that requests no particular pilot.

        Called with at least one pilot in `pilots`.

        Args:
            uid: Uid of the task.

        Returns:
            The result of `place(pilot, uid)` for one of `pilots`; empty if the task has to wait until pilots or their
            partitions change.
        """

    def _bind(self, requests: Sequence[Request]) -> list[Binding]:
        """Bind those of these waiting tasks that can be bound, and remove them from the waiting tasks."""
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
