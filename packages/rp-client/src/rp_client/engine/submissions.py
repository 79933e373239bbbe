"""Holds the callbacks of a submission until the call that submits has returned to the application.

Applications fill their tables from the return value, and their callbacks look entities up in these tables. The states
of new pilots and tasks are therefore announced after the call has returned; they can be waited for at once. A call
inside a callback needs no hold: the thread of the callbacks is busy until it has returned.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from rp_api.coordination.contract import ClientConnection, Mark
from rp_api.loop.event_loop import Loop, Timer

if TYPE_CHECKING:
    from rp_client.engine.tracker import Announced, Tracker

HEAD_START = 0.001
"""Seconds at least between the return of a call and its first callbacks, in which the application stores the result."""

LOOK = 0.005
"""Seconds after which the loop looks for returned calls, if nothing else makes it look earlier."""


class Submission:
    """A call that submits pilots or tasks, and the announcements that wait for its return."""

    __slots__ = ('announced', 'entities', 'mark', 'returned', 'tracker')

    def __init__(self, tracker: Tracker, entities: Sequence[Any]) -> None:
        self.tracker = tracker
        self.entities = entities
        self.announced: Announced = []
        self.mark = Mark()
        self.returned = math.inf   # the time, set by the application's thread as it returns


class Submissions:
    """The submissions of a session whose callbacks are held; runs in the thread of the engine."""

    def __init__(self, loop: Loop, connection: ClientConnection) -> None:
        self._loop = loop
        self._connection = connection
        self._held: dict[Submission, None] = {}   # the oldest first
        self._returning: dict[Submission, None] = {}
        self._timer: Timer | None = None
        self.on_announced: Callable[[], object] = lambda: None
        """Called when callbacks are not held any more."""

    @property
    def mark(self) -> Mark:
        """The last position of the connection whose states have all been announced."""
        return next(iter(self._held)).mark if self._held else self._connection.mark

    def hold(self, submission: Submission) -> None:
        """Hold the callbacks of the entities of a submission until its call has returned."""
        self.look()
        submission.mark = self._connection.mark
        submission.tracker.hold(submission)
        self._held[submission] = None

    def returns(self, submission: Submission) -> None:
        """Watch for the return of a submission, which the application's thread can make from now on."""
        if submission in self._held:
            self._returning[submission] = None
            self._look_later()

    def look(self) -> None:
        """Announce the states of the submissions that have returned; called before new states are announced, too."""
        if not self._returning:
            return
        latest = time.monotonic() - HEAD_START
        due = [submission for submission in self._returning if submission.returned <= latest]
        if due:
            self._announce(due)
            self.on_announced()

    def announce_all(self) -> None:
        """Announce all states that are held, as the session ends."""
        self._announce(list(self._held))

    def _look_later(self) -> None:
        if self._timer is None:
            self._timer = self._loop.call_later(LOOK, self._look_again)

    def _look_again(self) -> None:
        self._timer = None
        self.look()
        if self._returning:
            self._look_later()

    def _announce(self, submissions: Sequence[Submission]) -> None:
        for submission in submissions:
            del self._held[submission]
            self._returning.pop(submission, None)
            submission.tracker.announce_held(submission)
