"""The trace of a rank: the events of described tasks in its profile, and a record of each call."""

from __future__ import annotations

from rp_profiling.levels import DEFAULT, FULL
from rp_profiling.write.calls import CallFile
from rp_raptor.own_profile import Profile, worker_detail
from rp_raptor.rank.recorder import CallRecorder

FLUSH = 1.0
"""Seconds that events and records stay in memory at most while the rank is between calls: a killed rank loses them."""

_FLUSH = int(FLUSH * 1e9)


class RankTrace:
    """The traces of a rank, in the sandbox of its worker: `<worker>.<rank>.prof` and `<worker>.<rank>.calls`."""

    def __init__(self, directory: str, profile: Profile, uid: str, rank: int) -> None:
        wanted = directory and worker_detail().events in (DEFAULT, FULL)
        self._profile = profile
        self._file = CallFile(directory, uid, rank) if wanted else None
        self.recorder = CallRecorder(self._file.write if self._file else None)
        self._profile.open()
        self.flush()

    @property
    def pending(self) -> bool:
        """True if calls have run since the last flush."""
        return self.recorder.total != self._written

    def flush_if_due(self) -> None:
        """Write everything if the last flush was a second ago."""
        if self.recorder.now() > self._due:
            self.flush()

    def flush(self) -> None:
        """Write everything."""
        self._written = self.recorder.total
        self._due = self.recorder.begin() + _FLUSH
        self._profile.flush()
        self.recorder.flush()

    def close(self, in_handler: bool = False) -> None:
        """Write everything, and that this is the end; `in_handler` is true in the handler of a signal."""
        if in_handler:
            self._profile.close_in_handler()
        else:
            self._profile.close()
        self.recorder.close()
        if self._file is not None:
            self._file.close()
