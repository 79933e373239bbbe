"""Tables of the tasks of sessions, from the records that `rp session export` writes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from rp_api.batch import Chunk, unpacked
from rp_api.coordination import sessions
from rp_api.description.partitions import WHOLE
from rp_api.wire import codec
from rp_client.inspect.table import Table, parameter_kinds, row, table


def stored_table(records: Iterable[Mapping[str, Any]], directory: str | Path | None) -> Table:
    """Return the table of a session's tasks.

    Args:
        records: All records of the session, each with a `type`; pilots come before tasks.
        directory: The directory of the session, which has the parameters of its sweeps; None if it has none.
    """
    if directory is None:
        return table(_located(records, {}), {})
    chunks = _Chunks(directory)
    found = ({**task, 'parameters': chunks.parameters_of(task['uid'])}
             for task in _located(records, sessions.launches(directory)))
    return table(found, parameter_kinds(chunks.read('')) if chunks.sweeps else {})


def stored_rows(directory: str | Path) -> Iterator[dict[str, Any]]:
    """Yield the tasks of the session in a directory as rows, see `table.row`; none if there is no session."""
    if sessions.is_session(directory):
        yield from map(row, _located(sessions.export(directory), sessions.launches(directory)))


def _located(records: Iterable[Mapping[str, Any]], launches: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the tasks among the records, with their pilot in place of its partition, and their sandbox.

    `launches` has what the launcher has noted about pilots, by uid; the records of a MongoDB have it, too.
    """
    wholes: dict[str, str] = {}
    sandboxes = {uid: launch['sandboxes']['pilot'] for uid, launch in launches.items() if launch}
    for record in records:
        kind, uid = record['type'], record.get('uid', '')
        if kind == 'note' and record['key'].startswith('job.') and record['content']:
            sandboxes[record['key'].removeprefix('job.')] = record['content']['sandboxes']['pilot']
        elif kind == 'pilot' and 'sandboxes' in record['record']:
            sandboxes.setdefault(uid, record['record']['sandboxes']['pilot'])
        elif kind == 'partition':
            wholes[uid] = record['record'][WHOLE]
        elif kind == 'task':
            pilot = wholes.get(record['pilot'], record['pilot'])
            own = record['description'].get('sandbox') or uid
            sandbox = os.path.normpath(os.path.join(sandboxes[pilot], own)) if pilot in sandboxes else None
            yield {**record, 'pilot': pilot, 'sandbox': sandbox}


class _Chunks:
    """The chunks of sweeps in the database of a session; `sweeps` are the uids of the sweeps."""

    def __init__(self, directory: str | Path) -> None:
        self._directory = directory
        self._last: Chunk | None = None
        with closing(sessions.database(directory)) as db:
            has_any = db.execute("SELECT 1 FROM sqlite_master WHERE name = 'chunks'").fetchone()
            self.sweeps = {sweep for sweep, in db.execute('SELECT DISTINCT sweep FROM chunks')} if has_any else set()

    def read(self, condition: str, *values: Any) -> Iterator[Chunk]:
        """Yield the chunks that fulfil an SQL condition."""
        with closing(sessions.database(self._directory)) as db:
            for description, in db.execute(f'SELECT description FROM chunks {condition} ORDER BY id', values):
                yield unpacked(codec.unpack(description))

    def parameters_of(self, uid: str) -> dict[str, Any]:
        """Return the parameters of a task by name; none if it belongs to no sweep."""
        sweep, _, text = uid.rpartition('.')
        if sweep not in self.sweeps or not text.isdecimal():
            return {}
        chunk, number = self._last, int(text)
        if chunk is None or chunk.sweep != sweep or not 0 <= number - chunk.first < chunk.size:
            where = 'WHERE sweep = ? AND first <= ? AND ? < first + count'
            self._last = chunk = next(self.read(where, sweep, number, number), None)   # that of the next tasks, too
        return chunk.parameters_of(number - chunk.first) if chunk else {}
