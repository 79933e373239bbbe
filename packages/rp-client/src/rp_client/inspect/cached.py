"""A view of a session for many tasks: pilots, notes and what tasks are compared with are read once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from rp_api.coordination.records import kind_of
from rp_api.reasons.view import View


class CachedView:
    """The session of a view, as it was at the first look at each of its parts."""

    def __init__(self, view: View) -> None:
        self.now = view.now
        self.task, self.pilots, self.note = cache(view.task), cache(view.pilots), cache(view.note)
        self._view = view
        self._peers: dict[tuple[Any, ...], Sequence[Mapping[str, Any]]] = {}

    def peers(self, task: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
        """Return those of the first task of its kind."""
        kind = kind_of(task['description'])
        if kind not in self._peers:
            self._peers[kind] = self._view.peers(task)
        return self._peers[kind]
