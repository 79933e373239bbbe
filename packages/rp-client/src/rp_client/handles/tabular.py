"""Data frames of the tasks of managers and sweeps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from rp_api.task_usage import expanded
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

        The columns are `uid`, the parameters of sweeps by name, `name`, `program`, `state`, `cause` and `reason` of a
        failure (its kind and sentence), `exit_code`, `cached`, the times of the last attempt, `submitted`, `placed`,
        `started` and `ended` (UTC), `duration` and `waiting` in seconds, what it has used, `cpu` (seconds), `memory`,
        `read`, `written` (bytes), `switches`, `gpu` (0 to 1) and `gpu_memory` (bytes), what was requested, `ranks`,
        `cores`, `gpus` and `requested_memory` (bytes) of all ranks and `timeout` (seconds), `nodes`, `pilot`,
        `attempts`, and `sandbox`. What is not known is missing. A parameter whose name is that of another column gets
        an underscore at its end. Tasks that were forgotten are not included.

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
    own: dict[str, Any] = {'uid': task.uid, 'tmgr': tmgr, 'pilot': pilot.uid if pilot else '', 'state': task.state,
                           'attempts': task.attempts, 'description': description,
                           'submitted': task.common.submitted}
    if pilot:
        own['sandbox'] = pilot.directories.task(task.uid, description.get('sandbox', ''))
    if isinstance(task, RowRecord):
        own['parameters'] = task.chunk.sweep.parameters_of(task.chunk, task.row)
    return {**expanded(dict(task.info or {})), **own}
