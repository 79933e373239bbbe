"""Data frames of the tasks of managers and sweeps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from rp_api.task_info.usage import expanded
from rp_client.core.sweep import ChunkRecord, RowRecord
from rp_client.core.task import TaskRecord

if TYPE_CHECKING:
    from rp_client.service.task_requests import TaskRequests

# `inspect` is imported when the first table is made, as most applications make none


class Tabular:
    """Tasks that can be shown as a data frame."""

    _owner: TaskRequests

    def to_frame(self, library: str | None = None) -> Any:
        """Return a data frame of pandas or polars with a row for each task, those of sweeps last.

        The columns are the parameters of sweeps, and those of `rp_client.inspect.table` (docs/guides/sweeps.md): uid,
        state, cause of a failure, times (UTC), usage and requests (seconds and bytes), nodes, sandbox, and others. What
        is not known is missing. Tasks that were forgotten are not included.

        Args:
            library: `'pandas'` or `'polars'`; default: pandas if it is installed, otherwise polars.

        Raises:
            ImportError: The library is not installed, or neither is.
            ValueError: There is no such library.
        """
        from rp_client.inspect.frames import frame
        from rp_client.inspect.table import parameter_kinds, table

        kinds = parameter_kinds(chunk.unpacked() for chunk in self._table_chunks())
        return frame(table(self._table_records(), kinds), library)

    def _table_uids(self) -> Iterable[str]:
        """Return the uids of the tasks."""
        return self._owner.tasks

    def _table_chunks(self) -> Iterable[ChunkRecord]:
        """Return the chunks of sweeps."""
        return [chunk for sweep in list(self._owner.tasks.sweeps.values()) for chunk in sweep.chunks]

    def _table_records(self) -> Iterator[dict[str, Any]]:
        for uid in self._table_uids():
            task = self._owner.tasks.find(uid)
            if task is not None:   # it may have been forgotten meanwhile
                yield _record(task, self._owner.uid)


def _record(task: TaskRecord, tmgr: str) -> dict[str, Any]:
    """Return a task as `rp_client.inspect.table` takes it."""
    description, pilot = task.sparse(), task.pilot.whole if task.pilot else None
    parameters = task.chunk.sweep.rows_of(task.chunk).parameters_of(task.row) if isinstance(task, RowRecord) else {}
    return {**expanded(dict(task.info or {})), 'uid': task.uid, 'tmgr': tmgr, 'pilot': pilot and pilot.uid,
            'state': task.state, 'attempts': task.attempts, 'description': description,
            'submitted': task.common.submitted,
            'sandbox': pilot and pilot.directories.task(task.uid, description.get('sandbox', '')),
            'parameters': parameters}
