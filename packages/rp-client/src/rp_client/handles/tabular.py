"""Data frames of the tasks of managers and sweeps."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

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

        The columns are the parameters of sweeps, and those of `rp_client.inspect.rows` (docs/guides/sweeps.md): uid,
        state, why it waits or has failed, times (UTC), usage and requests (seconds and bytes), node, sandbox, and
        others. What is not known is missing. Tasks that were forgotten are not included.

        Args:
            library: `'pandas'` or `'polars'`; default: pandas if it is installed, otherwise polars.

        Raises:
            ImportError: The library is not installed, or neither is.
            ValueError: There is no such library.
        """
        from rp_client.inspect.frames import frame
        from rp_client.inspect.table import parameter_kinds, table
        from rp_client.service.view import LiveView

        view = LiveView(self._owner.session)
        found = (record for uid in self._table_uids() if (record := self._owner.tasks.find(uid)))   # not forgotten
        tasks = ({**view.of_task(record, self._owner.uid), 'parameters': _parameters(record)} for record in found)
        kinds = parameter_kinds(chunk.unpacked() for chunk in self._table_chunks())
        return frame(table(tasks, view, kinds), library)

    def _table_uids(self) -> Iterable[str]:
        """Return the uids of the tasks."""
        return self._owner.tasks

    def _table_chunks(self) -> Iterable[ChunkRecord]:
        """Return the chunks of sweeps."""
        return [chunk for sweep in list(self._owner.tasks.sweeps.values()) for chunk in sweep.chunks]


def _parameters(task: TaskRecord) -> dict[str, Any]:
    return task.chunk.sweep.rows_of(task.chunk).parameters_of(task.row) if isinstance(task, RowRecord) else {}
