"""Read access to the directories of sessions, as their hubs have stored them, without disturbing the sessions.

Files are opened read-only, and locks are held only during a query, so this works while a session runs, after its end,
and after all its processes died.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, NamedTuple

from rp_api.coordination.presence import CLIENT, HUB, Where, read_note
from rp_api.coordination.records import SessionRecords, Task
from rp_api.description.partitions import WHOLE

DATABASE = 'hub.db'

OPEN = 'open'
"""The application runs."""

ORPHANED = 'orphaned'
"""The hub runs without an application: pilots continue, and the session can be attached to."""

CRASHED = 'crashed'
"""Neither hub nor application runs, and the session was not closed: it can be attached to."""

RESTING = 'resting'
"""The hub has ended regularly, because no pilot was left; attaching to the session delivers the results."""

CLOSED = 'closed'
"""The application has closed the session."""

ELSEWHERE = 'elsewhere'
"""The hub was started on another host; its status is known only there."""


class Summary(NamedTuple):
    """The summary of a session; `tasks` and `pilots` count states, `size` is in bytes.

    `created` and `closed` are in seconds since 1970; `closed` is 0 if the session was not closed.
    """

    uid: str
    directory: str
    created: float
    closed: float
    state: str
    hub: Where | None
    client: Where | None
    pilots: dict[str, int]
    tasks: dict[str, int]
    size: int

    def as_dict(self) -> dict[str, Any]:
        """Return the summary as plain data."""
        return {'uid': self.uid, 'where': self.directory, 'created': self.created, 'closed': self.closed,
                'state': self.state, 'hub': _place(self.hub), 'application': _place(self.client),
                'pilots': self.pilots, 'tasks': self.tasks, 'size': self.size}


def find(base: str | Path) -> list[Path]:
    """Return the directories of sessions directly below `base`, sorted; empty if `base` cannot be read."""
    return sorted(path.parent for path in Path(base).glob(f'*/{DATABASE}'))


def is_session(directory: str | Path) -> bool:
    """Return whether the directory is that of a session."""
    return (Path(directory) / DATABASE).is_file()


def database(directory: str | Path) -> sqlite3.Connection:
    """Return the session's database, opened read-only; raise `FileNotFoundError` if there is none."""
    if not is_session(directory):
        raise FileNotFoundError(f'{directory} is not the directory of a session: it has no {DATABASE}')
    path = Path(directory).absolute() / DATABASE
    # without a running hub, SQLite must not create its shared files: the directory may be an archive
    frozen = '' if path.with_name(f'{DATABASE}-wal').exists() else '&immutable=1'
    return sqlite3.connect(f'{path.as_uri()}?mode=ro{frozen}', uri=True)


def records(directory: str | Path) -> SessionRecords:
    """Open the records of a session for reading; raise `FileNotFoundError` if there is none."""
    db = database(directory)
    meta = _properties(db)
    return SessionRecords(db, str(meta.get('session', Path(directory).name)), str(directory),
                          _last_sign(directory, meta))


def summary(directory: str | Path) -> Summary:
    """Return the summary of a session."""
    with records(directory) as found:
        tasks = found.counts()
        pilots = Counter(pilot['state'] for pilot in found.pilots() if WHOLE not in pilot['record'])
    meta, path = properties(directory), Path(directory)
    created = float(meta.get('created') or (path / DATABASE).stat().st_mtime)
    return Summary(found.uid, str(path), created, float(meta.get('closed') or 0), state_from(meta),
                   read_note(meta.get(HUB)), read_note(meta.get(CLIENT)), dict(pilots), tasks, _size(path))


def properties(directory: str | Path) -> dict[str, Any]:
    """Return the properties of a session, such as `created` and `closed`, from its database."""
    with closing(database(directory)) as db:
        return _properties(db)


def _properties(db: sqlite3.Connection) -> dict[str, Any]:
    return dict(db.execute("SELECT key, value FROM meta WHERE key != 'probe'"))


def state_of(directory: str | Path) -> str:
    """Return the state of a session alone; empty if the directory has no session that can be read."""
    try:
        meta = properties(directory)
    except (OSError, sqlite3.Error):   # a hub may be starting, or the session is in a MongoDB
        return ''
    return state_from(meta)


def state_from(meta: Mapping[str, Any]) -> str:
    """Return the state of a session, given the properties in its database."""
    hub, client = read_note(meta.get(HUB)), read_note(meta.get(CLIENT))
    if float(meta.get('closed') or 0):
        return CLOSED
    if hub is None:
        return RESTING
    if hub.gone or (hub.local and not hub.runs):
        return CRASHED
    if not hub.local:
        return ELSEWHERE
    return ORPHANED if client is None or (client.local and not client.runs) else OPEN


def pilots(directory: str | Path) -> Iterator[dict[str, Any]]:
    """Yield the pilots of a session: `uid`, `state`, `record`, and their information."""
    return (each for each in _pilots(directory) if WHOLE not in each['record'])


def partitions(directory: str | Path) -> Iterator[dict[str, Any]]:
    """Yield the partitions of all pilots, in the same form; the `record` has the uid of the pilot."""
    return (each for each in _pilots(directory) if WHOLE in each['record'])


def _pilots(directory: str | Path) -> Iterator[dict[str, Any]]:
    with records(directory) as found:
        yield from found.pilots()


def tasks(directory: str | Path) -> Iterator[Task]:
    """Yield the tasks of a session in the order of submission."""
    with records(directory) as found:
        yield from (task for _, task in found.tasks())


def _last_sign(directory: str | Path, meta: Mapping[str, Any]) -> float:
    """Return the present time, or that of the last change of a session without hub."""
    state = state_from(meta)
    if state in (OPEN, ORPHANED, ELSEWHERE):
        return time.time()
    last = float(meta.get('closed') or 0)
    for name in (DATABASE, f'{DATABASE}-wal'):
        with suppress(OSError):
            last = max(last, os.stat(Path(directory, name)).st_mtime) if state != CLOSED else last
    return last or time.time()


def _place(where: Where | None) -> dict[str, Any] | None:
    return {'pid': where.pid, 'host': where.host_name} if where is not None else None


def _size(directory: Path) -> int:
    return sum(path.lstat().st_size for path in directory.rglob('*') if path.is_file())
