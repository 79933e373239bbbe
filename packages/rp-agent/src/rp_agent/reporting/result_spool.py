"""The result spool: a file of results that wait for the coordinator."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence

from rp_api.coordination.contract import Update
from rp_api.coordination.spool_file import SpoolFile

_log = logging.getLogger('radical.pilot.agent')


class ResultSpool:
    """Updates of tasks in a file, first in, first out.

    The file exists as long as an update in it may not have arrived. No update is lost if the disk fails: `put` returns
    False, and the caller keeps the updates.
    """

    def __init__(self, path: str) -> None:
        if os.path.lexists(path):   # left by a pilot of the same name, in another session of the same name
            os.replace(path, f'{path}.old')
        self._file = SpoolFile(path)
        self._unreadable = False
        self._complained = False

    @property
    def waiting(self) -> bool:
        """True if there are updates to take."""
        return self._file.end > self._file.read and not self._unreadable   # asked for each message, mostly in vain

    def put(self, updates: Sequence[Update]) -> bool:
        """Append updates; return False if they cannot be written."""
        try:
            self._file.append(updates)
        except OSError as error:
            if not self._complained:   # log the error once
                self._complained = True
                _log.error('results that cannot be sent stay in memory, as %s cannot be written: %s', self._file.path,
                           error.strerror)
            return False
        return True

    def note(self, updates: Sequence[Update]) -> bool:
        """Append copies of updates that are sent from memory; return False if they cannot be written.

        They are not taken, unless others before them are to be.
        """
        waiting = self._file.waiting
        if updates and not self.put(updates):
            return False
        if not waiting:
            self._file.skip()
        return True

    def take(self, count: int) -> list[Update]:
        """Return the next updates, at most `count`. They stay in the file until `accepted`."""
        try:
            updates = self._file.take(count)
            reason = 'it was changed'
        except OSError as error:
            updates = []
            reason = str(error)
        if not updates and not self._unreadable:
            self._unreadable = True
            _log.error('results in %s cannot be sent and stay in the file: %s', self._file.path, reason)
        return updates

    @property
    def taken(self) -> int:
        """Position in the file behind the updates that were taken, for `accepted`."""
        return self._file.read

    def accepted(self, taken: int) -> None:
        """Remove the file if the coordinator has acknowledged all of it: up to the position `taken`."""
        if taken == self._file.end:
            self._file.remove()

    def discard(self) -> None:
        """Remove the file: the coordinator has acknowledged everything. It stays if updates in it could not be read."""
        if not self._unreadable:
            self._file.remove()

    def keep(self, tasks: Sequence[Update], pilot: Update | None) -> None:
        """Write the updates that are not acknowledged at the end of the agent, to stay there."""
        try:
            self._file.append(tasks, [pilot] if pilot else [])
            self._file.sync()
        except OSError as error:
            _log.error('%d updates of tasks are lost, as %s cannot be written: %s', len(tasks), self._file.path,
                       error.strerror)
        else:
            _log.warning('the coordinator has not acknowledged all updates; they are in %s', self._file.path)

    def close(self) -> None:
        """Close the file, which stays."""
        self._file.close()
