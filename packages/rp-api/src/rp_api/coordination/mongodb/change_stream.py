"""A thread that listens to a change stream, if the server supports them, and wakes the watcher.

The stream only signals that there are changes; the watcher reads them. So nothing is lost when the stream breaks, as it
does with each change of the primary: the watcher still polls, less often, and a new stream is opened.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

import pymongo
from pymongo.errors import PyMongoError

from rp_api.coordination.mongodb.server import Collection, Document, brief
from rp_api.coordination.mongodb.worker import Link, LinkThread, Watcher, remaining

ANSWER_DELAY_S = 0.5
"""Seconds for which the server delays an answer without changes."""

MAX_EARLY_ANSWERS = 3
"""Number of consecutive early empty answers after which a server counts as one that does not delay them."""

MAX_POLL_INTERVAL_S = 5.0
"""Maximum seconds between polls of a watcher that a stream wakes, and between attempts to open a stream."""

_log = logging.getLogger('radical.pilot.coordination')


class ChangeStream(LinkThread):
    """Wakes a watcher when a document of one of these types is added (of that pilot, if one is given).

    `intervals`: the watcher's maximum seconds between polls without a stream, and with one.
    """

    def __init__(self, link: Link, collection: Collection, types: Sequence[str], pilot: str, watcher: Watcher,
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
