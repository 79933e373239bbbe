"""The common part of both connections: a queue of jobs, and an end within limited time."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from pymongo import UpdateOne
from pymongo.errors import BulkWriteError

from rp_api import states
from rp_api.coordination.contract import Connection, Update
from rp_api.coordination.mongodb import documents
from rp_api.coordination.mongodb.change_stream import MAX_POLL_INTERVAL_S, ChangeStream
from rp_api.coordination.mongodb.clock import read_clock
from rp_api.coordination.mongodb.server import Client, Collection, Document
from rp_api.coordination.mongodb.worker import Link, LinkThread, Watcher, Writer, remaining
from rp_api.loop.event_loop import Loop
from rp_profiling.write.host_clock import Moment

POLL_INTERVALS_S = (0.02, 1.0)
"""Seconds between polls of the database: while there are changes, and after a long time without."""

BEATS_PER_LEASE = 6
"""Number of heartbeats per lease."""

MAX_BEAT_INTERVAL_S = 10.0
"""Maximum seconds between two heartbeats."""

CLOSE_TIMEOUT = 2.0
"""Seconds for the remaining jobs at the end, and again for the end of the threads."""

DUPLICATE = 11000


class MongoConnection(Connection):
    """A connection with three threads: one writes, one polls for changes, and one listens for them."""

    def __init__(self, loop: Loop, client: Client, collection: Collection, url: str, lease: float) -> None:
        super().__init__()
        self._loop = loop
        self._client = client
        self._collection = collection
        self._lease = lease
        self._interval = min(lease / BEATS_PER_LEASE, MAX_BEAT_INTERVAL_S)
        self._numbers = documents.Numbers()
        self._unsettled: deque[Sequence[Update]] = deque()
        self._closed = False
        self._link = Link(loop, url, lambda why: self.on_lost(why), lambda: self.on_found())
        self._writer = Writer(self._link, 'mongodb_writer', client.close)
        shortest, longest = POLL_INTERVALS_S
        self._watcher = Watcher(self._link, self._look, (shortest, min(longest, self._interval)), 'mongodb_watcher')
        self._change_stream: ChangeStream | None = None
        self._pulsed = time.monotonic()
        self._timer = loop.call_later(self._interval, self._pulse)

    def _pulse(self) -> None:
        self._pulsed = time.monotonic()
        self._timer = self._loop.call_later(self._interval, self._pulse)

    @property
    def _lives(self) -> bool:
        """True if the loop still runs; otherwise heartbeats of the threads would hide that it hangs."""
        return time.monotonic() - self._pulsed < self._lease

    def when_settled(self, callback: Callable[[], object]) -> None:
        if self._unsettled:
            self._writer.ask(lambda: None, lambda _: callback())   # a job after all others
        else:
            callback()

    def _begin(self, types: Sequence[str], pilot: str) -> None:
        """Start the threads as soon as the loop runs, so that the caller can send something first."""
        usual, slow = (min(seconds, self._interval) for seconds in (POLL_INTERVALS_S[1], MAX_POLL_INTERVAL_S))
        stream = self._change_stream = ChangeStream(self._link, self._collection, types, pilot, self._watcher,
                                                         (usual, slow))
        for thread in (self._writer, self._watcher, stream):
            self._loop.call_soon(self._start, thread)
        self._writer.ask(lambda: read_clock(self._client), lambda reading: self.on_clock(reading))

    def tell_moment(self, moment: Moment) -> None:
        """Ignore the moment: a database keeps no profile."""

    def _start(self, thread: LinkThread) -> None:
        if not self._closed:
            thread.start()

    @abstractmethod
    def _look(self) -> bool:
        """Process changes, in the watcher's thread; return whether there were some."""

    def _send(self, work: Callable[[], Any], updates: Sequence[Update] = ()) -> None:
        """Queue a job that must not be lost."""
        self._unsettled.append(updates)
        self._writer.ask(work, self._settle)

    def _settle(self, _: Any) -> None:
        full = not self.room
        self._unsettled.popleft()
        if full or not self._unsettled:
            self.on_room()

    def _leave(self, last_write: Callable[[], Any]) -> None:
        """End the threads, after a last job if the database is reachable."""
        if self._closed:
            return
        self._closed = True
        self._timer.cancel()
        deadline = time.monotonic() + CLOSE_TIMEOUT
        if self._link.lost:
            self._link.closing.set()
        else:
            self._writer.ask(last_write, lambda _: None)
        self._writer.finish()
        self._writer.join(remaining(deadline))
        self._link.closing.set()
        for thread in (self._writer, self._watcher, self._change_stream):
            if thread is not None:
                thread.join(remaining(deadline + CLOSE_TIMEOUT))


def insert_new(collection: Collection, new: Sequence[Document]) -> None:
    """Insert those documents that do not exist."""
    if not new:
        return
    try:
        collection.insert_many(new, ordered=False)
    except BulkWriteError as error:
        if any(one['code'] != DUPLICATE for one in error.details['writeErrors']) or error.details['writeConcernErrors']:
            raise


def move(collection: Collection, model: states.StateModel, kind: str, updates: Sequence[Update], number: int) -> None:
    """Move pilots or tasks forward where the state model allows it; `number` is that of this change by the client."""
    if updates:
        collection.bulk_write([
            UpdateOne({'_id': update.uid, 'type': kind, **documents.forward(model, update)},
                      documents.moved(model, update, -number))
            for update in updates], ordered=False)
