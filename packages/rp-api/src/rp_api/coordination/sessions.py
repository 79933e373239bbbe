"""What is in the directories of sessions, as their hubs have stored it; the sessions are not disturbed by looking.

Files are opened for reading only, and no lock is held longer than a query takes, so this works while a session runs,
after it has ended, and after everything that belonged to it has died.
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
from rp_api.coordination import wire
from rp_api.coordination.hub.store import claim, release
from rp_api.coordination.presence import CLIENT, HUB, Where, read_note
from rp_api.errors import CoordinationError
from rp_api.partitions import WHOLE
from rp_api.wire import codec
from rp_profiling.read.files import paths_below

DATABASE = 'hub.db'

OPEN = 'open'
"""The application is there."""

ORPHANED = 'orphaned'
"""The hub is there, without an application: pilots go on, and the session can be attached to."""

CRASHED = 'crashed'
"""Neither is there, and the session was not closed: it can be attached to."""

RESTING = 'resting'
"""The hub has ended in order, as no pilot was left to wait for; results can be had by attaching to the session."""

CLOSED = 'closed'
"""The application has closed the session."""

ELSEWHERE = 'elsewhere'
"""The hub was started on another host, which knows whether it is there."""

_PAGE = 4096

_OWN = re.compile(r'hub\..*|.+\.(prof|log|out|err)|(rp\.session|pmgr|tmgr)\..*json|gtod|prof')


@dataclass(frozen=True)
class Summary:
    """A session at a glance; `tasks` and `pilots` count states, `size` is in bytes.

    `created` and `closed` are in seconds since 1970; one that was not closed has 0.
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
        """The summary as plain data."""
        return {'uid': self.uid, 'where': self.directory, 'created': self.created, 'closed': self.closed,
                'state': self.state, 'hub': _place(self.hub), 'application': _place(self.client),
                'pilots': self.pilots, 'tasks': self.tasks, 'size': self.size}


def find(base: str | Path) -> list[Path]:
    """The directories of sessions directly below `base`, sorted; none if that is no directory that can be read."""
    return sorted(path.parent for path in Path(base).glob(f'*/{DATABASE}'))


def is_session(directory: str | Path) -> bool:
    """Whether a session has its files in the directory."""
    return (Path(directory) / DATABASE).is_file()


def database(directory: str | Path) -> sqlite3.Connection:
    """The session's file, opened for reading; `FileNotFoundError` if the directory is not that of a session."""
    if not is_session(directory):
        raise FileNotFoundError(f'{directory} is not the directory of a session: it has no {DATABASE}')
    path = Path(directory).absolute() / DATABASE
    # where no hub is at work, not even the files that readers share are made: the directory may be an archive
    frozen = '' if path.with_name(f'{DATABASE}-wal').exists() else '&immutable=1'
    return sqlite3.connect(f'{path.as_uri()}?mode=ro{frozen}', uri=True)


def summary(directory: str | Path) -> Summary:
    """What is to be said about a session in one line."""
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


def pilots(directory: str | Path) -> Iterator[dict[str, Any]]:
    """The pilots of a session: `uid`, `state`, `record`, and what is known about each."""
    return (each for each in _pilots(directory) if WHOLE not in each['record'])


def partitions(directory: str | Path) -> Iterator[dict[str, Any]]:
    """The partitions of all its pilots, which have the same; the pilot is named by the `record`."""
    return (each for each in _pilots(directory) if WHOLE in each['record'])


def _pilots(directory: str | Path) -> Iterator[dict[str, Any]]:
    """Pilots and partitions, which are pilots to the hub."""
    with closing(database(directory)) as db:
        rows = db.execute('SELECT uid, state, info, description FROM pilots ORDER BY rev').fetchall()
    for uid, state, info, record in rows:
        yield {'uid': uid, 'state': state, 'record': codec.unpack(record), **known(state, info)}


def tasks(directory: str | Path) -> Iterator[dict[str, Any]]:
    """The tasks of a session in the order of submission: `uid`, `pilot`, `state`, `description`, and what is known."""
    with closing(database(directory)) as db:
        after = 0
        while page := db.execute(
                'SELECT t.id, t.uid, t.owner, t.pilot, t.attempts, t.state, t.info, t.description, s.description '
                'FROM tasks t JOIN shared s ON s.id = t.shared WHERE t.id > ? ORDER BY t.id LIMIT ?',
                (after, _PAGE)).fetchall():
            after = page[-1][0]
            for _, uid, owner, pilot, attempts, state, info, own, shared in page:
                description, = codec.unpack_bulk(shared, [own])
                yield {'uid': uid, 'tmgr': owner, 'pilot': pilot, 'attempts': attempts, 'description': description,
                       'state': state, **known(state, info)}


def export(directory: str | Path) -> Iterator[dict[str, Any]]:
    """Everything that a session holds, without its keys, each with a `type`.

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
    """Remove what the session has in its directory, and the directory if nothing else is in it; gives what is left.

    Raises `CoordinationError` if the session is in use.
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
            with suppress(OSError):   # what is left in it is not ours
                own.rmdir()
    finally:
        release(claimed)
    return sorted(str(left) for left in paths_below(path))


def known(state: str, info: bytes | None) -> dict[str, Any]:
    """What is known about a pilot or task besides its description, as `facts` says, from packed `info`."""
    return facts(state, wire.unpack_info(info) or {})


def facts(state: str, info: dict[str, Any]) -> dict[str, Any]:
    """What is known about a pilot or task: all of `info` that says something to people.

    One that has left its agent, but that the application has not seen any more, has the `state` that it would get.
    """
    target = info.get('target_state')
    # `raptor` is how to connect to a RAPTOR master, with a key
    found = {key: value for key, value in info.items() if key not in ('target_state', 'reached', 'raptor')}
    return {**found, **({'state': target} if target and state not in states.FINAL else {})}


def _count_tasks(db: sqlite3.Connection) -> Counter[str]:
    counts = Counter(dict(db.execute(
        'SELECT state, count(*) FROM tasks WHERE state NOT LIKE ? GROUP BY state', ('TMGR_STAGING_OUTPUT%',))))
    # what has left its agent and waits for the application: its end is known
    for state, info in db.execute('SELECT state, info FROM tasks WHERE state LIKE ?', ('TMGR_STAGING_OUTPUT%',)):
        counts[known(state, info).get('state', state)] += 1
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
    """The pilots whose traces and logs may have been fetched into the directory, each into one of its own."""
    with closing(database(directory)) as db:
        return [uid for uid, in db.execute('SELECT uid FROM pilots') if (directory / uid).is_dir() and '/' not in uid]


def _fetched(directory: Path, pilots: Iterable[str]) -> Iterator[Path]:
    """The directories with what was fetched of pilots: those of tasks and partitions, then the one that they are in."""
    for pilot in pilots:
        yield from (path for path in (directory / pilot).iterdir() if path.is_dir() and not path.is_symlink())
        yield directory / pilot


def _own_files(directory: Path) -> list[Path]:
    """The files that sessions and their managers write."""
    return [path for path in directory.iterdir() if path.is_file() and _OWN.fullmatch(path.name)]


def _size(directory: Path) -> int:
    return sum(path.lstat().st_size for path in paths_below(directory) if path.is_file())
