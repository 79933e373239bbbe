"""Results that wait on disk for the coordinator."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence

from rp_api.coordination.contract import Update
from rp_api.coordination.spool_file import SpoolFile

_log = logging.getLogger('radical.pilot.agent')


class ResultSpool:
    """Updates of tasks in a file, in the order in which they came.

    The file is there for as long as something in it may not have arrived. A disk that fails costs no updates: those
    that cannot be written stay with the caller, which is told.
    """

    def __init__(self, path: str) -> None:
        if os.path.lexists(path):   # left by a pilot of the same name, in another session of the same name
            os.replace(path, f'{path}.old')
        self._file = SpoolFile(path)
        self._unreadable = False
        self._complained = False

    @property
    def waiting(self) -> bool:
        """Whether there is something to take."""
        return self._file.waiting and not self._unreadable

    def put(self, updates: Sequence[Update]) -> bool:
        """Take updates; False if they cannot be written."""
        try:
            self._file.append(updates)
        except OSError as error:
            if not self._complained:   # once is enough
                self._complained = True
                _log.error('results that cannot be sent stay in memory, as %s cannot be written: %s', self._file.path,
                           error.strerror)
            return False
        return True

    def take(self, count: int) -> list[Update]:
        """The next updates, at most `count`, which stay in the file until it is `accepted`."""
        try:
            updates = self._file.take(count)
            reason = 'it was changed'
        except OSError as error:
            updates = []
            reason = str(error)
        if not updates and not self._unreadable:
            self._unreadable = True
            _log.error('results in %s cannot be sent, they stay there: %s', self._file.path, reason)
        return updates

    @property
    def taken(self) -> int:
        """How much was taken, as a number for `accepted`."""
        return self._file.read

    def accepted(self, taken: int) -> None:
        """The coordinator has what was taken until then: the file can go if that is all there is."""
        if taken == self._file.end:
            self._file.remove()

    def discard(self) -> None:
        """The coordinator has everything: the file can go, unless there is something that could not be taken."""
        if not self._unreadable:
            self._file.remove()

    def keep(self, tasks: Sequence[Update], pilot: Update | None) -> None:
        """Write what has not been accepted until the end, to stay there."""
        try:
            self._file.append(tasks, [pilot] if pilot else [])
            self._file.sync()
        except OSError as error:
            _log.error('%d updates of tasks are lost, as %s cannot be written: %s', len(tasks), self._file.path,
                       error.strerror)
        else:
            _log.warning('nobody has taken everything: it is in %s', self._file.path)

    def close(self) -> None:
        """Leave the file, if there is one."""
        self._file.close()
