"""Read access to the directories of sessions, as their hubs have stored them, without disturbing the sessions.

Files are opened read-only, and locks are held only during a query, so this works while a session runs, after its end,
and after all its processes died.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import closing
from heapq import merge
from itertools import groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from rp_api import states
from rp_api.coordination.contract import PackedInfo
from rp_api.coordination.hub.database import notes_submissions
from rp_api.coordination.presence import CLIENT, HUB, Where, read_note
from rp_api.description.partitions import WHOLE
from rp_api.task_info.usage import expanded
from rp_api.task_modes import KIND, OWNER
from rp_api.wire import codec

# Imports in functions: commands that show a task or why it waits answer in as little time as they take.

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

LEFT = (states.TMGR_STAGING_OUTPUT_PENDING, states.TMGR_STAGING_OUTPUT)
"""The states of tasks that have left their agent, and whose final state is in their info."""

NO_CALL = f"NOT (owner = '{OWNER}' OR (owner = '' AND uid LIKE '%.{KIND}.%'))"

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


def summary(directory: str | Path) -> Summary:
    """Return the summary of a session."""
    with closing(database(directory)) as db:
        meta = dict(db.execute('SELECT key, value FROM meta'))
        pilots = Counter(state for state, record in db.execute('SELECT state, description FROM pilots')
                         if WHOLE not in codec.unpack(record))
        tasks = count_states(db)
    hub, client = read_note(meta.get(HUB)), read_note(meta.get(CLIENT))
    path = Path(directory)
    created = float(meta.get('created') or (path / DATABASE).stat().st_mtime)
    closed = float(meta.get('closed') or 0)
    return Summary(meta.get('session', path.name), str(path), created, closed, _state(bool(closed), hub, client), hub,
                   client, dict(pilots), dict(tasks), _size(path))


def properties(directory: str | Path) -> dict[str, Any]:
    """Return the properties of a session, such as `created` and `closed`, from its database."""
    with closing(database(directory)) as db:
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
    return _state(bool(float(meta.get('closed') or 0)), read_note(meta.get(HUB)), read_note(meta.get(CLIENT)))


def pilots(directory: str | Path) -> Iterator[dict[str, Any]]:
    """Yield the pilots of a session: `uid`, `state`, `record`, and their information."""
    return (each for each in _pilots(directory) if WHOLE not in each['record'])


def partitions(directory: str | Path) -> Iterator[dict[str, Any]]:
    """Yield the partitions of all pilots, in the same form; the `record` has the uid of the pilot."""
    return (each for each in _pilots(directory) if WHOLE in each['record'])


def _pilots(directory: str | Path) -> Iterator[dict[str, Any]]:
    with closing(database(directory)) as db:
        yield from all_pilots(db)


def all_pilots(db: sqlite3.Connection) -> Iterator[dict[str, Any]]:
    """Yield pilots and partitions, which are pilots to the hub."""
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
        yield from all_tasks(db)


def all_tasks(db: sqlite3.Connection) -> Iterator[dict[str, Any]]:
    """Yield the tasks in a session's database, as `tasks`."""
    after = 0
    while page := task_page(db, after):
        after = page[-1][0]
        yield from (task for _, task in page)


def task_page(db: sqlite3.Connection, after: int = 0, limit: int = _PAGE, *, wanted: Collection[str] = (),
              pilot: str | None = None) -> list[tuple[int, dict[str, Any]]]:
    """Return the next tasks after the one of a number in the order of submission, each with its number.

    Args:
        db: The session's database.
        after: The number of the last task that is known; 0 for the first page.
        limit: Number of tasks.
        wanted: Only tasks in one of these states, as `facts` has them; empty for all.
        pilot: Only tasks that are bound to this pilot, or to none if it is empty; None for all.
    """
    where, values = _condition(wanted, pilot)
    found: Iterable[tuple[int, dict[str, Any]]] = _rows_of_tasks(
        db, f't.id > ? AND {NO_CALL} {where} ORDER BY t.id LIMIT ?', (after, *values, limit))
    if _has_chunks(db):
        found = merge(found, _in_chunks(db, after, where, values, limit), key=itemgetter(0))
    return list(islice(found, limit))


def tasks_before(db: sqlite3.Connection, number: int, limit: int) -> list[tuple[int, dict[str, Any]]]:
    """Return the last tasks before the one of that number, without those in chunks, in the order of submission."""
    return list(_rows_of_tasks(db, f't.id < ? AND {NO_CALL} ORDER BY t.id DESC LIMIT ?', (number, limit)))[::-1]


def find_task(db: sqlite3.Connection, uid: str) -> tuple[int, dict[str, Any]] | None:
    """Return the task of that uid with its number in the order of submission; None if it is unknown."""
    found = next(_rows_of_tasks(db, 't.uid = ?', (uid,)), None)
    sweep, _, number = uid.rpartition('.')
    if found is None and number.isdecimal() and _has_chunks(db):
        row = db.execute('SELECT id, first FROM chunks WHERE sweep = ? AND first <= ? AND NOT opened '
                         'ORDER BY first DESC LIMIT 1', (sweep, int(number))).fetchone()
        before = row[0] + int(number) - row[1] if row else 0   # the number of the task before it
        found = next(_in_chunks(db, before, '', (), 1), None) if row else None
    return found if found is not None and found[1]['uid'] == uid else None


def count_tasks(db: sqlite3.Connection) -> int:
    """Return the number of tasks by a look at the index of uids."""
    count: int = db.execute(f"SELECT count(*) FROM tasks WHERE uid NOT LIKE '%.{KIND}.%'").fetchone()[0]
    if _has_chunks(db):
        count += db.execute('SELECT coalesce(sum(count), 0) FROM chunks WHERE NOT opened').fetchone()[0]
    return count


def _rows_of_tasks(db: sqlite3.Connection, condition: str, values: Iterable[Any]) -> Iterator[
        tuple[int, dict[str, Any]]]:
    rows = db.execute(f'SELECT t.shared, s.description, {_submitted(db)}, t.id, t.uid, t.owner, t.pilot, t.attempts, '
                      't.state, t.info, t.description FROM tasks t JOIN shared s ON s.id = t.shared '
                      f'WHERE {condition}', tuple(values))
    for _, group in groupby(rows, itemgetter(0)):
        alike = list(islice(group, _PAGE))
        descriptions = codec.unpack_bulk(alike[0][1], [row[-1] for row in alike])
        for row, description in zip(alike, descriptions, strict=True):
            submitted, number, uid, owner, pilot, attempts, state, info = row[2:-1]
            yield number, _task(uid, owner, pilot, attempts, submitted, state, info, description)


def _in_chunks(db: sqlite3.Connection, after: int, where: str, values: Iterable[Any], limit: int) -> Iterator[
        tuple[int, dict[str, Any]]]:
    """Yield the tasks of sweeps that are in chunks still, because no agent has taken them, with their numbers."""
    from rp_api.batch import task_uid, unpacked

    for submitted, own, owner, pilot, attempts, state, info, packed, shared in db.execute(
            f'SELECT {_submitted(db)}, t.id, owner, pilot, attempts, state, info, t.description, s.description '
            'FROM chunks t JOIN shared s ON s.id = t.shared WHERE NOT opened AND t.id + count > ? '
            f'{where} ORDER BY t.id LIMIT ?',
            (after, *values, limit)):
        chunk = unpacked(codec.unpack(packed))
        start = max(0, after - own)
        rows = range(start, min(chunk.size, start + limit))
        for row, description in zip(rows, codec.unpack_bulk(shared, map(codec.pack, map(chunk.own_of, rows))),
                                    strict=True):
            yield own + 1 + row, _task(task_uid(chunk.sweep, chunk.first + row), owner, pilot, attempts, submitted,
                                       state, info, description)


def _task(uid: str, owner: str, pilot: str, attempts: int, submitted: float | None, state: str,
          info: bytes | None, description: dict[str, Any]) -> dict[str, Any]:
    return {'uid': uid, 'tmgr': owner, 'pilot': pilot, 'attempts': attempts, 'description': description,
            'submitted': submitted, 'state': state, **known(state, info)}


def _condition(wanted: Collection[str], pilot: str | None) -> tuple[str, list[Any]]:
    """Return the SQL, and its values, for tasks in these states on this pilot."""
    where, values = '', []
    if wanted:   # the final state of tasks that have left their agent is in their info
        all_states = {*wanted, *(LEFT if set(wanted).intersection(states.FINAL) else ())}
        where, values = f' AND t.state IN ({", ".join("?" * len(all_states))})', sorted(all_states)
    if pilot is not None:
        where, values = f'{where} AND t.pilot = ?', [*values, pilot]
    return where, values


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


def known(state: str, info: bytes | None) -> dict[str, Any]:
    """Return the information about a pilot or task from packed `info`, see `facts`."""
    return facts(state, PackedInfo(info).as_dict() if info else {})


def facts(state: str, info: dict[str, Any]) -> dict[str, Any]:
    """Return the part of `info` that is meant for users.

    A pilot or task that has left its agent, and that the application has not received, has its future `state`.
    """
    target = info.get('target_state')
    info = expanded(info)
    # `raptor` is the address of a RAPTOR master, with a key
    found = {key: value for key, value in info.items() if key not in ('target_state', 'reached', 'raptor')}
    if isinstance(found.get('return_value'), dict | list):
        from rp_api.values import readable

        found['return_value'] = readable(found['return_value'])
    return {**found, **({'state': target} if target and state not in states.FINAL else {})}


def count_states(db: sqlite3.Connection) -> Counter[str]:
    """Return the number of tasks in each state."""
    counts = Counter(dict(db.execute(
        f'SELECT state, count(*) FROM tasks WHERE state NOT IN (?, ?) AND {NO_CALL} GROUP BY state', LEFT)))
    # tasks that have left their agent and wait for the application: their final state is known
    for state, info in db.execute(f'SELECT state, info FROM tasks WHERE state IN (?, ?) AND {NO_CALL}', LEFT):
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


def _size(directory: Path) -> int:
    return sum(path.lstat().st_size for path in directory.rglob('*') if path.is_file())
