"""Tables of the tasks of sessions, from the records that `rp session export` writes."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from rp_api.batch import Chunk, unpacked
from rp_api.coordination import sessions
from rp_api.description.partitions import WHOLE
from rp_api.wire import codec
from rp_client.inspect.table import Table, parameter_kinds, row, table
from rp_client.launcher.sandbox import PilotSandboxes


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
    return table(found, chunks.kinds())


def stored_rows(directory: str | Path) -> Iterator[dict[str, Any]]:
    """Yield the tasks of the session in a directory as rows, see `table.row`; none if there is no session."""
    if sessions.is_session(directory):
        yield from map(row, _located(sessions.export(directory), sessions.launches(directory)))


def _located(records: Iterable[Mapping[str, Any]], launches: Mapping[str, Mapping[str, Any]]) -> Iterator[
        dict[str, Any]]:
    """Yield the tasks among the records, with their pilot in place of its partition, and their sandbox.

    `launches` has what the launcher has noted about pilots, by uid.
    """
    wholes: dict[str, str] = {}
    sandboxes = {uid: PilotSandboxes(**launch['sandboxes']) for uid, launch in launches.items() if launch}
    for record in records:
        kind, uid = record['type'], record.get('uid', '')
        if kind == 'note' and str(record['key']).startswith('job.') and record['content']:
            sandboxes[record['key'].removeprefix('job.')] = PilotSandboxes(**record['content']['sandboxes'])
        elif kind == 'pilot' and 'sandboxes' in record['record']:
            sandboxes.setdefault(uid, PilotSandboxes(**record['record']['sandboxes']))
        elif kind == 'partition':
            wholes[uid] = record['record'][WHOLE]
        elif kind == 'task':
            pilot = wholes.get(record['pilot'], record['pilot'])
            place = sandboxes.get(pilot)
            sandbox = place.task(uid, record['description'].get('sandbox', '')) if place else None
            yield {**record, 'pilot': pilot, 'sandbox': sandbox}


class _Chunks:
    """The chunks of sweeps in the database of a session."""

    def __init__(self, directory: str | Path) -> None:
        self._directory = directory
        self._last: Chunk | None = None
        with closing(sessions.database(directory)) as db:
            has_any = db.execute("SELECT 1 FROM sqlite_master WHERE name = 'chunks'").fetchone()
            found = db.execute('SELECT DISTINCT sweep FROM chunks').fetchall() if has_any else []
        self._sweeps = {sweep for sweep, in found}

    def kinds(self) -> dict[str, str]:
        """Return the kinds of all parameters, see `parameter_kinds`."""
        if not self._sweeps:
            return {}
        with closing(sessions.database(self._directory)) as db:
            return parameter_kinds(map(_chunk, db.execute('SELECT description FROM chunks ORDER BY id')))

    def parameters_of(self, uid: str) -> dict[str, Any]:
        """Return the parameters of a task by name; none if it belongs to no sweep."""
        sweep, _, number = uid.rpartition('.')
        if sweep not in self._sweeps or not number.isdecimal():
            return {}
        chunk = self._last
        if chunk is None or chunk.sweep != sweep or not 0 <= int(number) - chunk.first < chunk.size:
            with closing(sessions.database(self._directory)) as db:   # consecutive tasks are mostly of one chunk
                self._last = chunk = _find(db, sweep, int(number))
        return chunk.parameters_of(int(number) - chunk.first) if chunk else {}


def _find(db: sqlite3.Connection, sweep: str, number: int) -> Chunk | None:
    found = db.execute('SELECT description FROM chunks WHERE sweep = ? AND first <= ? AND ? < first + count '
                       'ORDER BY first DESC LIMIT 1', (sweep, number, number)).fetchone()
    return _chunk(found) if found else None


def _chunk(values: tuple[bytes]) -> Chunk:
    return unpacked(codec.unpack(values[0]))
