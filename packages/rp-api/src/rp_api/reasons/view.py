"""Read access to the tasks and pilots of a session, from which reasons are made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol


class View(Protocol):
    """A session as it is now, or as its files have it.

    Tasks and pilots are mappings as those of `rp_api.coordination.sessions.tasks` and `pilots`: an item that is not
    known is missing or None.
    """

    @property
    def now(self) -> float:
        """The present time, or that of the last sign of life of a session that has ended; in seconds since 1970."""

    def task(self, uid: str) -> Mapping[str, Any] | None:
        """Return a task; None if there is none with that uid."""

    def pilots(self) -> Sequence[Mapping[str, Any]]:
        """Return all pilots, and all partitions, whose `record` has the uid of their pilot."""

    def peers(self, task: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
        """Return tasks of the same kind that are done, at most 1,000."""

    def note(self, key: str) -> Any:
        """Return a note of the session's coordinator, such as `job.<pilot>`; None without it."""
