"""Holds the callbacks of a submission until the call that submits has returned to the application.

Applications fill their tables from the return value, and their callbacks look entities up in these tables. The states
of new pilots and tasks are therefore announced after the call has returned; they can be waited for at once. A call
inside a callback needs no hold: the thread of the callbacks is busy until it has returned.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from rp_api.coordination.contract import ClientConnection, Mark
from rp_api.loop.event_loop import Loop, Timer

if TYPE_CHECKING:
    from rp_client.engine.tracker import Announced, Tracker

HEAD_START = 0.001
"""Seconds at least between the return of a call and its first callbacks, in which the application stores the result."""


class Submission:
    """A call that submits pilots or tasks, and the announcements that wait for its return."""

    __slots__ = ('announced', 'due', 'entities', 'mark', 'returned', 'tracker')

    def __init__(self, tracker: Tracker, entities: Sequence[Any]) -> None:
        self.tracker = tracker
        self.entities = entities
        self.announced: Announced = []
        self.mark = Mark()
        self.returned = False   # set by the application's thread, which returns right after that
        self.due = False


class Submissions:
    """The submissions of a session whose callbacks are held; runs in the thread of the engine."""

    def __init__(self, loop: Loop, connection: ClientConnection) -> None:
        self._loop = loop
        self._connection = connection
        self._held: list[Submission] = []   # the oldest first
        self._timer: Timer | None = None
        self.on_announced: Callable[[], object] = lambda: None
        """Called when callbacks are not held any more."""

    @property
    def mark(self) -> Mark:
        """The last position of the connection whose states have all been announced."""
        return self._held[0].mark if self._held else self._connection.mark

    def hold(self, submission: Submission) -> None:
        """Hold the callbacks of the entities of a submission until its call has returned."""
        submission.mark = self._connection.mark
        submission.tracker.hold(submission)
        self._held.append(submission)
        self._look_later()

    def announce_all(self) -> None:
        """Announce all states that are held, as the session ends."""
        held, self._held = self._held, []
        for submission in held:
            submission.tracker.announce_held(submission)

    def _look_later(self) -> None:
        if self._timer is None and self._held:
            self._timer = self._loop.call_later(HEAD_START, self._look)

    def _look(self) -> None:
        """Announce the states of the submissions that had returned when this was called the last time."""
        self._timer = None
        due = [submission for submission in self._held if submission.due]
        if due:
            self._held = [submission for submission in self._held if not submission.due]
        for submission in self._held:
            submission.due = submission.returned
        for submission in due:
            submission.tracker.announce_held(submission)
        if due:
            self.on_announced()
        self._look_later()
