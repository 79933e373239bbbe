"""The common part of both connections: a queue of jobs, and an end within limited time."""

from __future__ import annotations

import logging
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from time import time_ns
from typing import Any

import pymongo
from pymongo import UpdateOne
from pymongo.errors import BulkWriteError, PyMongoError

from rp_api import states
from rp_api.coordination.contract import Connection, Update
from rp_api.coordination.mongodb import documents
from rp_api.coordination.mongodb.server import Client, Collection, Document, brief
from rp_api.coordination.mongodb.worker import LinkThread, Watcher, WorkerLink, Writer, remaining
from rp_api.loop.event_loop import Loop
from rp_api.transport.clocks import ROUNDS
from rp_profiling.write.host_clock import SAME, Moment, Reading

POLL_INTERVALS_S = (0.02, 1.0)
"""Seconds between polls of the database: while there are changes, and after a long time without."""

BEATS_PER_LEASE = 6
"""Number of heartbeats per lease."""

MAX_BEAT_INTERVAL_S = 10.0
"""Maximum seconds between two heartbeats."""

CLOSE_TIMEOUT = 2.0
"""Seconds for the remaining jobs at the end, and again for the end of the threads."""

DUPLICATE = 11000

TICK = 1_000_000
"""Nanoseconds in the resolution of a server's time (1 ms); the rest is cut off."""

ANSWER_DELAY_S = 0.5
"""Seconds for which the server delays an answer without changes."""

MAX_EARLY_ANSWERS = 3
"""Number of consecutive early empty answers after which a server counts as one that does not delay them."""

MAX_POLL_INTERVAL_S = 5.0
"""Maximum seconds between polls of a watcher that a stream wakes, and between attempts to open a stream."""

_log = logging.getLogger('radical.pilot.coordination')


class MongoConnection(Connection):
    """A connection with three threads: one writes, one polls for changes, and one listens for them."""

    def __init__(self, loop: Loop, client: Client, collection: Collection, url: str, lease: float) -> None:
        self._loop = loop
        self._client = client
        self._collection = collection
        self._lease = lease
        self._interval = min(lease / BEATS_PER_LEASE, MAX_BEAT_INTERVAL_S)
        self._numbers = documents.Numbers()
        self._unsettled: deque[Sequence[Update]] = deque()
        self._closed = False
        self._link = WorkerLink(loop, url, lambda why: self._handler.on_lost(why),
                                lambda: self._handler.on_found())
        self._writer = Writer(self._link, 'mongodb_writer', client.close)
        shortest, longest = POLL_INTERVALS_S
        self._watcher = Watcher(self._link, self._look, (shortest, min(longest, self._interval)), 'mongodb_watcher',
                                lambda: self._expects)
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

    @property
    def _expects(self) -> bool:
        """True if changes are expected of which no stream tells."""
        return False

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
        self._writer.ask(lambda: read_clock(self._client), lambda reading: self._handler.on_clock(reading))

    def tell_moment(self, moment: Moment) -> None:
        """Ignore the moment: a database keeps no profile."""

    def _start(self, thread: LinkThread) -> None:
        if not self._closed:
            thread.start()

    def _tell(self, call: Callable[..., object], *arguments: Any) -> None:
        """Make a call of the handler in the loop, unless the connection is closed by then; for any thread."""
        self._loop.call_soon(lambda: self._closed or call(*arguments))

    def _refuse(self, reason: str) -> None:
        self._link.closing.set()
        self._tell(self._handler.on_refused, reason)

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
            self._handler.on_room()

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


def read_clock(client: Client) -> Reading:
    """Return the best of several readings."""
    return min((_reading(client) for _ in range(ROUNDS)), key=lambda reading: reading.within)


def _reading(client: Client) -> Reading:
    sent = time_ns()
    there = client.admin.command('hello').get('localTime')
    now = time_ns()
    if not isinstance(there, datetime):   # not every compatible server sends it
        return SAME
    milliseconds = round(there.replace(tzinfo=timezone.utc).timestamp() * 1000)
    return Reading((sent + now) // 2 - milliseconds * TICK - TICK // 2, max(0, now - sent) // 2 + TICK // 2)


class ChangeStream(LinkThread):
    """Wakes a watcher when a document of one of these types is added (of that pilot, if one is given).

    `intervals`: the watcher's maximum seconds between polls without a stream, and with one.
    """

    def __init__(self, link: WorkerLink, collection: Collection, types: Sequence[str], pilot: str, watcher: Watcher,
                 intervals: tuple[float, float]) -> None:
        super().__init__(link, 'mongodb_bell')
        match: Document = {'operationType': 'insert', 'fullDocument.type': {'$in': list(types)}}
        if pilot:
            match['fullDocument.pilot'] = pilot
        self._pipeline = [{'$match': match}]
        self._collection = collection
        self._watcher = watcher
        self._usual, self._slow = intervals

    def _run(self) -> None:
        while not self._link.closing.is_set():
            try:
                if not self._listen():
                    return
            except pymongo.errors.OperationFailure as error:
                _log.debug('no change stream: %s', brief(error))
                return
            except PyMongoError as error:
                _log.debug('the change stream broke off: %s', brief(error))
            self._watcher.slow_down(self._usual)
            self._watcher.call()
            self._link.closing.wait(MAX_POLL_INTERVAL_S)

    def _listen(self) -> bool:
        """Listen until the stream breaks; return False if the server does not delay empty answers."""
        with self._collection.watch(self._pipeline, max_await_time_ms=int(1000 * ANSWER_DELAY_S)) as stream:
            early, slow = 0, False
            while stream.alive and not self._link.closing.is_set():
                deadline = time.monotonic() + ANSWER_DELAY_S / 2
                if stream.try_next() is not None:
                    self._watcher.call()
                elif remaining(deadline) > 0:
                    early += 1
                    if early == MAX_EARLY_ANSWERS:   # polling would be continuous
                        self._watcher.slow_down(self._usual)
                        return False
                    continue
                early = 0
                if not slow:
                    slow = True
                    self._watcher.slow_down(self._slow)
                    self._watcher.call()   # for changes before the start of the stream
        return True
