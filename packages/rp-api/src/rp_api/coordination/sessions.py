"""Read access to the directories of sessions, as their hubs have stored them, without disturbing the sessions.

Files are opened read-only, and locks are held only during a query, so this works while a session runs, after its end,
and after all its processes died.
"""

from __future__ import annotations

import re
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rp_api import states
from rp_api.batch import Batch, unpacked
from rp_api.coordination import wire
from rp_api.coordination.hub.database import notes_submissions
from rp_api.coordination.hub.store import claim, release
from rp_api.coordination.presence import CLIENT, HUB, Where, read_note
from rp_api.description.partitions import WHOLE
from rp_api.errors import CoordinationError
from rp_api.task_info.usage import expanded
from rp_api.task_modes import KIND, OWNER
from rp_api.values import readable
from rp_api.wire import codec
from rp_profiling.read.files import paths_below

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

_PAGE = 4096

_LEAVING = ('TMGR_STAGING_OUTPUT%',)

_NO_CALL = f"NOT (owner = '{OWNER}' OR (owner = '' AND uid LIKE '%.{KIND}.%'))"

_OWN = re.compile(r'hub\..*|.+\.(prof|log|out|err)|(rp\.session|pmgr|tmgr)\..*json|gtod|prof|ctrl')


@dataclass(frozen=True)
class Summary:
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


def summary(directory: str | Path) -> Summary:
    """Return the summary of a session."""
    with closing(database(directory)) as db:
        meta = dict(db.execute('SELECT key, value FROM meta'))
        pilots = Counter(state for state, record in db.execute('SELECT state, description FROM pilots')
                         if WHOLE not in codec.unpack(record))
        tasks = _count_tasks(db)
    hub, client = read_note(meta.get(HUB)), read_note(meta.get(CLIENT))
    path = Path(directory)
    created = float(meta.get('created') or (path / DATABASE).stat().st_mtime)
    closed = float(meta.get('closed') or 0)
    return Summary(meta.get('session', path.name), str(path), created, closed, _state(bool(closed), hub, client), hub,
                   client, dict(pilots), dict(tasks), _size(path))


def state_of(directory: str | Path) -> str:
    """Return the state of a session alone; empty if the directory has no session that can be read."""
    try:
        with closing(database(directory)) as db:
            meta = dict(db.execute('SELECT key, value FROM meta'))
    except (OSError, sqlite3.Error):   # a hub may be starting, or the session is in a MongoDB
        return ''
    return _state(bool(float(meta.get('closed') or 0)), read_note(meta.get(HUB)), read_note(meta.get(CLIENT)))


def pilots(directory: str | Path) -> Iterator[dict[str, Any]]:
    """Yield the pilots of a session: `uid`, `state`, `record`, and their information."""
    return (each for each in _pilots(directory) if WHOLE not in each['record'])


def partitions(directory: str | Path) -> Iterator[dict[str, Any]]:
    """Yield the partitions of all pilots, in the same form; the `record` has the uid of the pilot."""
    return (each for each in _pilots(directory) if WHOLE in each['record'])


def _pilots(directory: str | Path) -> Iterator[dict[str, Any]]:
    """Yield pilots and partitions, which are pilots to the hub."""
    with closing(database(directory)) as db:
        rows = db.execute('SELECT uid, state, info, description FROM pilots ORDER BY rev').fetchall()
    for uid, state, info, record in rows:
        yield {'uid': uid, 'state': state, 'record': codec.unpack(record), **known(state, info)}


def launches(directory: str | Path) -> dict[str, dict[str, Any]]:
    """Return what the launcher has noted about each pilot, by uid, such as the `sandboxes` as the platform has them."""
    with closing(database(directory)) as db:
        rows = db.execute("SELECT key, value FROM notes WHERE key LIKE 'job.%'").fetchall()
    return {key.removeprefix('job.'): codec.unpack(value) or {} for key, value in rows}


def tasks(directory: str | Path) -> Iterator[dict[str, Any]]:
    """Yield the tasks of a session in the order of submission, with description, state and information.

    `submitted` and `times` (placed, started, ended) are in seconds since the epoch; `usage` has what is known of it.
    """
    with closing(database(directory)) as db:
        after, submitted = 0, _submitted(db)
        while page := db.execute(
                f'SELECT {submitted}, t.id, t.uid, t.owner, t.pilot, t.attempts, t.state, t.info, t.description, '
                f's.description '
                f'FROM tasks t JOIN shared s ON s.id = t.shared WHERE t.id > ? AND {_NO_CALL} ORDER BY t.id LIMIT ?',
                (after, _PAGE)).fetchall():
            after = page[-1][1]
            for when, _, uid, owner, pilot, attempts, state, info, own, shared in page:
                (_, description), = Batch(shared, [(uid, own)]).tasks()
                yield {'uid': uid, 'tmgr': owner, 'pilot': pilot, 'attempts': attempts, 'description': description,
                       'submitted': when, 'state': state, **known(state, info)}
        yield from in_chunks(db)


def in_chunks(db: sqlite3.Connection) -> Iterator[dict[str, Any]]:
    """Yield the tasks of sweeps that are in chunks still, because no agent has taken them."""
    if not _has_chunks(db):
        return
    for when, owner, pilot, attempts, state, info, packed, shared in db.execute(
            f'SELECT {_submitted(db)}, owner, pilot, attempts, state, info, c.description, s.description FROM chunks c '
            'JOIN shared s ON s.id = c.shared WHERE NOT opened ORDER BY c.id'):
        for uid, description in Batch(shared, unpacked(codec.unpack(packed))).tasks():
            yield {'uid': uid, 'tmgr': owner, 'pilot': pilot, 'attempts': attempts, 'description': description,
                   'submitted': when, 'state': state, **known(state, info)}


def _submitted(db: sqlite3.Connection) -> str:
    """Return the column with the time of the submission, which earlier versions do not note."""
    return 's.submitted' if notes_submissions(db.execute) else 'NULL'


def _has_chunks(db: sqlite3.Connection) -> bool:
    """Return whether the session is of a version that keeps chunks of sweeps."""
    return db.execute("SELECT 1 FROM sqlite_master WHERE name = 'chunks'").fetchone() is not None


def export(directory: str | Path) -> Iterator[dict[str, Any]]:
    """Yield the data of a session, without its keys, each item with a `type`.

    One `session`, then each `pilot` and `partition`, then each `task`.
    """
    yield {'type': 'session', **summary(directory).as_dict()}
    for pilot in pilots(directory):
        yield {'type': 'pilot', **pilot}
    for partition in partitions(directory):
        yield {'type': 'partition', **partition}
    for task in tasks(directory):
        yield {'type': 'task', **task}


def purge(directory: str | Path) -> list[str]:
    """Remove the session's files, and its directory if nothing else is in it; return the remaining paths.

    Raise `CoordinationError` if the session is in use.
    """
    path = Path(directory)
    pilots = _pilot_names(path)
    claimed = claim(str(path))
    try:
        state = summary(path).state
        if state in (OPEN, ORPHANED, ELSEWHERE):
            raise CoordinationError(f'{path.name} is {state}')
        for own in (*_fetched(path, pilots), path):
            for found in _own_files(own):
                found.unlink()
            with suppress(OSError):   # it has files of other origin
                own.rmdir()
    finally:
        release(claimed)
    return sorted(str(left) for left in paths_below(path))


def known(state: str, info: bytes | None) -> dict[str, Any]:
    """Return the information about a pilot or task from packed `info`, see `facts`."""
    return facts(state, wire.unpack_info(info) or {})


def facts(state: str, info: dict[str, Any]) -> dict[str, Any]:
    """Return the part of `info` that is meant for users.

    A pilot or task that has left its agent, and that the application has not received, has its future `state`.
    """
    target = info.get('target_state')
    info = expanded(info)
    # `raptor` is the address of a RAPTOR master, with a key
    found = {key: value for key, value in info.items() if key not in ('target_state', 'reached', 'raptor')}
    if 'return_value' in found:
        found['return_value'] = readable(found['return_value'])
    return {**found, **({'state': target} if target and state not in states.FINAL else {})}


def _count_tasks(db: sqlite3.Connection) -> Counter[str]:
    counts = Counter(dict(db.execute(
        f'SELECT state, count(*) FROM tasks WHERE state NOT LIKE ? AND {_NO_CALL} GROUP BY state', _LEAVING)))
    # tasks that have left their agent and wait for the application: their final state is known
    for state, info in db.execute(f'SELECT state, info FROM tasks WHERE state LIKE ? AND {_NO_CALL}', _LEAVING):
        counts[known(state, info).get('state', state)] += 1
    if _has_chunks(db):
        counts.update(dict(db.execute('SELECT state, sum(count) FROM chunks WHERE NOT opened GROUP BY state')))
    return counts


def _state(closed: bool, hub: Where | None, client: Where | None) -> str:
    if closed:
        return CLOSED
    if hub is None:
        return RESTING
    if hub.gone or (hub.local and not hub.runs):
        return CRASHED
    if not hub.local:
        return ELSEWHERE
    return ORPHANED if client is None or (client.local and not client.runs) else OPEN


def _place(where: Where | None) -> dict[str, Any] | None:
    return {'pid': where.pid, 'host': where.host_name} if where is not None else None


def _pilot_names(directory: Path) -> list[str]:
    """Return the pilots with a directory of fetched traces and logs."""
    with closing(database(directory)) as db:
        return [uid for uid, in db.execute('SELECT uid FROM pilots') if (directory / uid).is_dir() and '/' not in uid]


def _fetched(directory: Path, pilots: Iterable[str]) -> Iterator[Path]:
    """Yield the directories of fetched files: for each pilot those of its tasks and partitions, then its own."""
    for pilot in pilots:
        yield from (path for path in (directory / pilot).iterdir() if path.is_dir() and not path.is_symlink())
        yield directory / pilot


def _own_files(directory: Path) -> list[Path]:
    """Return the files that sessions and their managers write."""
    return [path for path in directory.iterdir() if path.is_file() and _OWN.fullmatch(path.name)]


def _size(directory: Path) -> int:
    return sum(path.lstat().st_size for path in paths_below(directory) if path.is_file())
