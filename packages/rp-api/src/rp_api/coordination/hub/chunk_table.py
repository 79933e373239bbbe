"""The chunks of sweeps in the database of a session, each a row until its tasks are needed.

A chunk has the ids and revisions that its tasks will have, so that their order is that of the submission: `id` is
followed by the ids of the tasks, and `rev` is the revision of the first one. An agent that asks for tasks makes rows in
`tasks` of the next chunk (`opened`), as does any change of a single task. The row of the chunk stays, for a client that
takes over. `changed` is positive if the client has to be told whether it has the chunk back (`withdraw`).
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from rp_api import states
from rp_api.batch import Chunk, unpacked
from rp_api.coordination.contract import BOUND_STATE, BULK, UNBOUND, UNBOUND_STATE
from rp_api.coordination.hub.database import Database, Row, add_shared
from rp_api.errors import CoordinationError
from rp_api.wire import codec

SCHEMA = """
CREATE TABLE IF NOT EXISTS chunks (
    id INTEGER PRIMARY KEY, uid TEXT UNIQUE NOT NULL, owner TEXT NOT NULL, pilot TEXT NOT NULL,
    attempts INTEGER NOT NULL, rev INTEGER NOT NULL, state TEXT NOT NULL, value INTEGER NOT NULL,
    changed INTEGER NOT NULL, info BLOB, shared INTEGER NOT NULL, description BLOB NOT NULL,
    sweep TEXT NOT NULL, first INTEGER NOT NULL, count INTEGER NOT NULL, opened INTEGER NOT NULL);
CREATE INDEX IF NOT EXISTS chunks_sweep ON chunks (sweep, first);
CREATE INDEX IF NOT EXISTS chunks_changed ON chunks (changed) WHERE changed > 0;
"""

_log = logging.getLogger('radical.pilot.hub')

_INSERT = 'INSERT OR IGNORE INTO tasks VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 0, ?, ?, ?)'

_WITH = ('id = (SELECT id FROM chunks WHERE sweep = ? AND first <= ? ORDER BY first DESC LIMIT 1) '
         'AND ? < first + count')
"""The chunk with a task of this number, found by one look into the index: the chunks of a sweep do not overlap."""

_BACK = states.AGENT_SCHEDULING
_TAKEN = states.AGENT_STAGING_INPUT
_DONE = states.TASK.value(states.DONE)

_UNTOLD = -(1 << 62)
"""`changed` of a task that a chunk becomes: its client has notified the application of no state of it."""

_DIGITS = 18
"""Digits of a number in the uid of a task at most: a larger one may not fit into an integer of SQLite."""


class ChunkTable:
    """The chunks of one session; `any` is True if there are some, and `closed` if some are not opened."""

    def __init__(self, database: Database) -> None:
        self._db = database
        self.any = self.closed = False
        self.look()

    def look(self) -> None:
        """Read from the database whether there are chunks, at the beginning and after a rollback."""
        self.any = self._db.query('SELECT 1 FROM chunks LIMIT 1').fetchone() is not None
        self.closed = self._db.query('SELECT 1 FROM chunks WHERE NOT opened LIMIT 1').fetchone() is not None

    def insert(self, pilot: str, owner: str, shared: bytes, uid: str, count: int, rows: bytes) -> None:
        """Add a chunk for a pilot or none; an existing one is unchanged."""
        chunk = _read(uid, count, rows)
        if self._db.query('SELECT 1 FROM chunks WHERE uid = ?', (uid,)).fetchone():
            return
        own, *revisions = self._db.take(count + 1)
        shared_id = add_shared(self._db, shared)
        bound = pilot != UNBOUND
        state = BOUND_STATE if bound else UNBOUND_STATE
        self._db.write('INSERT INTO chunks VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, NULL, ?, ?, ?, ?, ?, 0)', (
            own, uid, owner, pilot, int(bound), own + 1, state, states.TASK.value(state), -own, shared_id, rows,
            chunk.sweep, chunk.first, count))
        if bound:
            self._add_binding(pilot, revisions[0], count, own)
        self.any = self.closed = True

    def bind(self, pilot: str, uid: str) -> Sequence[str]:
        """Bind a chunk to a pilot; return the uids of the tasks that are to be bound instead.

        These are the tasks of a chunk that is opened, and a task that is asked for.
        """
        found = self._find(uid)
        if found is None:
            return [uid]
        own, before, size, value, opened = found
        if opened:
            return self._uids(own)
        if before != pilot and value < _DONE:
            rev = self._db.take(size)[0]
            self._db.write('UPDATE chunks SET rev = ?1, pilot = ?2, attempts = attempts + 1, state = ?3, value = ?4, '
                           'changed = -?1, info = NULL WHERE id = ?5',
                           (rev, pilot, BOUND_STATE, states.TASK.value(BOUND_STATE), own))
            self._add_binding(pilot, rev, size, own)
        return []

    def update(self, uid: str, state: str, info: bytes | None) -> Sequence[tuple[str, str, bytes | None]]:
        """Move a chunk forward, as its client reports; return the updates of tasks that are to be made instead."""
        found = self._find(uid)
        if found is None:
            return [(uid, state, info)]
        own, *_, opened = found
        if opened:
            return [(each, state, info) for each in self._uids(own)]
        value, rev = states.TASK.value(state), self._db.take(1)[0]
        self._db.write('UPDATE chunks SET state = ?1, value = ?2, info = coalesce(?3, info), changed = ?4 '
                       'WHERE id = ?5 AND value < ?2', (state, value, info, -rev, own))
        return []

    def _find(self, uid: str) -> Row | None:
        """Return id, pilot, size, value of the state, and whether it is opened, of a chunk; None if there is none."""
        if '/' not in uid:
            return None
        found: Row | None = self._db.query('SELECT id, pilot, count, value, opened FROM chunks WHERE uid = ?',
                                           (uid,)).fetchone()
        return found

    def _uids(self, own: int) -> list[str]:
        return _read(*self._db.query('SELECT uid, count, description FROM chunks WHERE id = ?', (own,)).fetchone()).uids

    def withdraw(self, uids: Iterable[str]) -> None:
        """Take chunks back from their pilots unless they are opened, and announce the answers (`since`)."""
        for uid in uids:
            found = self._db.query('SELECT id, pilot, opened FROM chunks WHERE uid = ? AND value < ?',
                                   (uid, _DONE)).fetchone()
            if found is not None:
                own, pilot, opened = found
                answer = (_TAKEN, pilot, '') if opened else (_BACK, UNBOUND, pilot)
                state, pilot, returned = answer
                self._db.write('UPDATE chunks SET state = ?, value = ?, pilot = ?, info = ?, changed = ? WHERE id = ?',
                               (state, states.TASK.value(state), pilot, codec.pack({'returned': returned}),
                                self._db.take(1)[0], own))

    def open_bound(self, task: int, pilot: str, rev: int) -> None:
        """Make tasks of the chunk whose first task has this id, if it is bound to the pilot at this revision."""
        self._open('id = ? AND pilot = ? AND rev = ?', (task - 1, pilot, rev))

    def open_with(self, uids: Sequence[str]) -> None:
        """Make tasks of the chunks that have tasks with these uids."""
        if not self.closed:
            return
        opened = range(0)
        sweep = ''
        for uid in uids:
            prefix, _, number = uid.rpartition('.')
            if number.isdecimal() and len(number) <= _DIGITS and not (prefix == sweep and int(number) in opened):
                found = self._open(_WITH, (prefix, int(number), int(number)))
                if found is not None:
                    sweep, opened = found.sweep, range(found.first, found.first + found.size)

    def _open(self, condition: str, values: Row) -> Chunk | None:
        """Make tasks of a chunk, and return it."""
        found = self._db.query(
            'SELECT id, owner, pilot, attempts, rev, state, value, changed, info, shared, uid, count, description '
            f'FROM chunks WHERE NOT opened AND {condition}', values).fetchone()
        if found is None:
            return None
        own, owner, pilot, attempts, rev, state, value, changed, info, shared, *packed = found
        answer = _TAKEN, codec.pack({'returned': ''})
        if state == _BACK:   # the client may not have got this answer yet
            answer, state, info = (state, info), UNBOUND_STATE, None
            value = states.TASK.value(state)
        chunk = _read(*packed)
        descriptions = _own(chunk)
        if descriptions is None:
            descriptions, state, value = [codec.NOTHING] * chunk.size, states.FAILED, states.TASK.value(states.FAILED)
        final = value >= _DONE
        self._db.write_many(_INSERT, [
            (own + 1 + row, uid, owner, pilot, attempts, rev + row, state, value,
             -abs(changed) if final else _UNTOLD, info, shared, bytearray(description))
            for row, (uid, description) in enumerate(zip(chunk.uids, descriptions, strict=True))])
        self._db.write('UPDATE chunks SET opened = 1, state = ?, value = ?, info = ? WHERE id = ?',
                       (answer[0], states.TASK.value(answer[0]), answer[1], own))
        self.closed = self._db.query('SELECT 1 FROM chunks WHERE NOT opened LIMIT 1').fetchone() is not None
        return chunk

    def since(self, since: int) -> Iterator[Row]:
        """Yield the answers after a revision: (changed, uid, state, info)."""
        yield from self._db.query('SELECT changed, uid, state, info FROM chunks WHERE changed > ? AND changed > 0 '
                                  'ORDER BY changed', (since,))

    def known(self, after: int) -> Iterator[Row]:
        """Yield the chunks after an id, as `TaskTable.known` returns tasks, each after its id."""
        state = f"CASE WHEN opened THEN '{_TAKEN}' ELSE state END"
        yield from self._db.query(f'SELECT id, shared, uid, owner, pilot, attempts, description, {state}, info, '
                                  'changed, 0 FROM chunks WHERE id > ? ORDER BY id', (after,))

    def unfinished(self, stuck: Collection[str]) -> bool:
        """Return whether a live pilot, other than these, has a chunk that is not opened."""
        return self.closed and any(pilot not in stuck for pilot, in self._db.query(
            'SELECT DISTINCT chunks.pilot FROM chunks JOIN pilots ON pilots.uid = chunks.pilot WHERE NOT opened '
            'AND chunks.value < ?1 AND pilots.value < ?2', (_DONE, states.PILOT.value(states.DONE))))

    def _add_binding(self, pilot: str, rev: int, count: int, own: int) -> None:
        self._db.write('INSERT INTO bindings VALUES (?, ?, ?, ?)', (pilot, rev + count - 1, rev, own + 1))


def _own(chunk: Chunk) -> list[bytes] | None:
    """Return the attributes of the tasks of a chunk; None if a broken client has sent rows that do not fit."""
    try:
        return chunk.own()
    except Exception as error:   # whatever it is, it must not end the hub
        _log.error('the rows of %s cannot be used: %r', chunk.uid, error)
        return None


def _read(uid: str, count: int, rows: bytes) -> Chunk:
    """Return a chunk; raise `CoordinationError` if it does not fit together."""
    try:
        chunk: Any = unpacked(codec.unpack_dict(rows))
    except (KeyError, TypeError) as error:
        raise CoordinationError(f'malformed message: the rows of {uid}: {error!r:.200}') from error
    if chunk.uid != uid or chunk.size != count or not 0 < count <= BULK:
        raise CoordinationError(f'malformed message: {uid} is no chunk of {count} rows')
    return chunk   # type: ignore[no-any-return]
