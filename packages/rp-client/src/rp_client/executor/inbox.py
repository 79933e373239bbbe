"""A queue of actions for one thread."""

from __future__ import annotations

import threading
from collections.abc import Callable

Action = Callable[[], object]


class Inbox:
    """Actions that other threads post; `take` waits for some."""

    def __init__(self) -> None:
        self._actions: list[Action] = []
        self._news = threading.Condition()

    @property
    def empty(self) -> bool:
        """Return whether no action waits."""
        return not self._actions

    def post(self, action: Action) -> None:
        """Queue an action; never blocks."""
        with self._news:
            self._actions.append(action)
            self._news.notify()

    def take(self, timeout: float | None) -> list[Action]:
        """Return the actions that were posted, in order; none after `timeout` seconds."""
        with self._news:
            if not self._actions:
                self._news.wait(timeout)
            actions, self._actions = self._actions, []
        return actions
