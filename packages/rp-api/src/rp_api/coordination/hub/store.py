"""The store of the hub: all data of one session, in its database.

Each row with news for a reader has a revision, a number that only grows: `rev` when it was inserted, `changed` when its
state changed last (negative: by the client itself). A reader remembers the last revision that it has received and
requests later ones, so a restart of either side needs no further book-keeping. Writes are grouped: the hub commits once
for all messages of one turn of its event loop.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import threading
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

from rp_api import states
from rp_api.coordination.hub import chunk_table, task_table
from rp_api.coordination.hub.database import (
    ACKNOWLEDGED,
    Database,
    Increment,
    Row,
    Told,
    increment,
    keep_told,
    notes_submissions,
)
from rp_api.coordination.hub.task_table import TaskTable
from rp_api.errors import CoordinationError
from rp_api.system import private
from rp_api.wire import codec

_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS notes (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS pilots (
    rev INTEGER PRIMARY KEY, uid TEXT UNIQUE NOT NULL, owner TEXT NOT NULL, description BLOB NOT NULL,
    state TEXT NOT NULL, value INTEGER NOT NULL, changed INTEGER NOT NULL, told INTEGER NOT NULL, info BLOB,
    passed TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS commands (rev INTEGER PRIMARY KEY, pilot TEXT NOT NULL, command BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS commands_pilot ON commands (pilot, rev);
CREATE TABLE IF NOT EXISTS peers (
    role TEXT NOT NULL, uid TEXT NOT NULL, agent TEXT NOT NULL, instance TEXT NOT NULL,
    number INTEGER NOT NULL, commands INTEGER NOT NULL, PRIMARY KEY (role, uid, agent)) WITHOUT ROWID;
{task_table.SCHEMA}
{chunk_table.SCHEMA}
CREATE TABLE IF NOT EXISTS claims (
    pilot TEXT NOT NULL, last INTEGER NOT NULL, first INTEGER NOT NULL, agent TEXT NOT NULL,
    PRIMARY KEY (pilot, last)) WITHOUT ROWID;
{ACKNOWLEDGED}
"""

# A state only moves forward; the model lists the final states that a late report can correct.
_FINAL = states.PILOT.value(states.DONE)
_UPDATE_PILOT = f"""
UPDATE pilots SET state = ?1, value = ?2, info = coalesce(?3, info), {keep_told('pilots')}, changed = ?4,
passed = CASE WHEN value < {_FINAL} THEN state ELSE passed END
WHERE uid = ?5 AND (value < ?2 OR (state = ?1 AND ?1 IN ({', '.join(map(repr, states.PILOT.repeated))})
                                    AND ?3 IS NOT NULL)
                    OR (state, ?1) IN (VALUES {', '.join(map(repr, states.PILOT.corrections))}))
"""

_PRUNE_AFTER_CLAIMS = 256
"""Number of new claims after which claims without remaining tasks are pruned."""


def claim(directory: str, timeout: float = 0.0) -> int:
    """Claim the directory of a session for this hub, until it is released or the process ends.

    Raise `OwnershipError` if the directory is not private, and `CoordinationError` if another hub holds it for longer
    than `timeout` seconds: the session is still open, or its application died and its pilots continue. The process must
    end after an unsuccessful wait.
    """
    descriptor = private.open_directory(directory)
    try:
        _lock(descriptor, timeout)
    except BlockingIOError:
        os.close(descriptor)
        raise CoordinationError(f'another session is active in {directory}: choose another uid for this one, or wait '
                                'for the end of the other one') from None
    return descriptor


def release(claimed: int) -> None:
    """Release a claim, even if a fork of this process has a copy of the descriptor."""
    fcntl.flock(claimed, fcntl.LOCK_UN)
    os.close(claimed)


def _lock(descriptor: int, timeout: float) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        if not timeout:
            raise
        waiter = threading.Thread(target=fcntl.flock, args=(descriptor, fcntl.LOCK_EX), daemon=True)
        waiter.start()
        waiter.join(timeout)
        if waiter.is_alive():
            raise


def set_aside(path: str) -> None:
    """Rename the database of an earlier session of the same name, with its log, to `<path>.<n>`."""
    if not os.path.exists(path):
        return
    number = next(number for number in itertools.count(1) if not os.path.exists(f'{path}.{number}'))
    for end in ('-wal', '-shm', ''):
        if os.path.exists(path + end):
            os.rename(path + end, f'{path}.{number}{end}')


class Store(Database):
    """One session's pilots, tasks, commands and notes; writes become durable with `commit()`."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(path, _SCHEMA)
        if not notes_submissions(self.query):
            self.query('ALTER TABLE shared ADD COLUMN submitted REAL')
        self.chunks = chunk_table.ChunkTable(self)
        self.tasks = task_table.TaskTable(self, self.chunks)
        self.claims = Claims(self, self.tasks)

    def rollback(self) -> None:
        super().rollback()
        self.chunks.look()
        self.tasks.forget_recent()

    # pilots

    def insert_pilots(self, owner: str, pilots: Iterable[tuple[str, bytes]]) -> None:
        """Add pilots (uid, record); existing ones are unchanged."""
        self.write_many("INSERT OR IGNORE INTO pilots VALUES (?1, ?2, ?3, ?4, 'NEW', 0, -?1, 0, NULL, 'NEW')",
                        [(self.take(1)[0], uid, owner, record) for uid, record in pilots])

    def update_pilots(self, updates: Iterable[task_table.Update], *, announce: bool) -> None:
        """Move pilots (uid, state, info) forward; `announce` includes the changes in `pilots_since`."""
        rows = []
        for uid, state, info in updates:
            value = states.PILOT.value(state)
            rev, = self.take(1)
            rows.append((state, value, info, rev if announce else -rev, uid))
        self.write_many(_UPDATE_PILOT, rows)

    def pilots_since(self, since: int, limit: int) -> Increment:
        """Return the next changes of pilots after a revision: (changed, uid, state, info)."""
        return increment(self.query('SELECT changed, uid, state, info FROM pilots WHERE changed > ? ORDER BY changed',
                                (since,)), limit, self.rev)

    def pilot(self, uid: str) -> tuple[str, bytes | None] | None:
        """Return state and info of a pilot, or None if it is unknown."""
        found: tuple[str, bytes | None] | None = self.query(
            'SELECT state, info FROM pilots WHERE uid = ?', (uid,)).fetchone()
        return found

    def may_run_again(self, uid: str) -> bool:
        """Return whether the batch system may restart the job of a pilot; the client knows when that is over."""
        found = self.query('SELECT description FROM pilots WHERE uid = ?', (uid,)).fetchone()
        return found is not None and bool(codec.unpack(found[0]).get('description', {}).get('requeue'))

    def live_pilots(self) -> dict[str, str]:
        """Return the pilots that are not final, with their states."""
        return dict(self.query('SELECT uid, state FROM pilots WHERE value < ? ORDER BY rev', (_FINAL,)))

    def stuck_pilots(self) -> dict[str, str]:
        """Return the live pilots whose tasks cannot go on without an application, and the sentence that says so."""
        found = self.query('SELECT uid, info FROM pilots WHERE value < ? AND info IS NOT NULL', (_FINAL,))
        sentences = {uid: _info(info).get('stuck') for uid, info in found}
        return {uid: str(sentence) for uid, sentence in sentences.items() if sentence}

    # commands

    def insert_command(self, pilot: str, command: bytes) -> None:
        """Add a command for the agents of a pilot."""
        self.write('INSERT INTO commands VALUES (?, ?, ?)', (self.take(1)[0], pilot, command))

    def new_commands(self, pilot: str, since: int, limit: int) -> Increment:
        """Return the next commands for a pilot after a revision: (rev, command)."""
        return increment(self.query('SELECT rev, command FROM commands WHERE pilot = ? AND rev > ? ORDER BY rev',
                                (pilot, since)), limit, self.rev)

    def drop_commands(self, pilot: str) -> None:
        """Delete the commands that all agents of a pilot have received, and that no later agent could need.

        A later agent gets only tasks that were bound after those of the others.
        """
        got = self.query("SELECT coalesce(min(commands), 0) FROM peers WHERE role = 'agent' AND uid = ?", (pilot,))
        self.write('DELETE FROM commands WHERE pilot = ? AND rev <= ?',
                   (pilot, min(self.claims.end(pilot), got.fetchone()[0])))

    # peers

    def last_number(self, role: str, uid: str, agent: str, instance: str) -> int:
        """Return the number of the last message of a peer whose effects are stored."""
        found = self.query('SELECT number FROM peers WHERE role = ? AND uid = ? AND agent = ? AND instance = ?',
                           (role, uid, agent, instance)).fetchone()
        return found[0] if found else 0

    def keep_peers(self, peers: Iterable[tuple[str, str, str, str, int, int]]) -> None:
        """Store the progress of peers: role, uid, agent, instance; last message, last command received."""
        self.write_many('INSERT OR REPLACE INTO peers VALUES (?, ?, ?, ?, ?, ?)', peers)

    def forget_peer(self, role: str, uid: str, agent: str) -> None:
        """Delete a peer that has said goodbye."""
        self.write('DELETE FROM peers WHERE role = ? AND uid = ? AND agent = ?', (role, uid, agent))

    def agents(self) -> list[tuple[str, str]]:
        """Return the agents of pilots that are not final, except those that have said goodbye: (pilot, agent)."""
        return self.query("SELECT peers.uid, agent FROM peers JOIN pilots ON pilots.uid = peers.uid "
                          "WHERE role = 'agent' AND value < ?", (_FINAL,)).fetchall()

    # data for a client that takes over

    def note(self, key: str, value: bytes) -> None:
        """Store a value under a key, replacing a previous one."""
        self.write('INSERT OR REPLACE INTO notes VALUES (?, ?)', (key, value))

    def notes(self) -> dict[str, bytes]:
        """Return all notes by key."""
        return dict(self.query('SELECT key, value FROM notes'))

    def known_pilots(self) -> list[Row]:
        """Return all pilots: uid, record, state, info, last notified state, last state before the end."""
        told = Told(self)
        return [(uid, record, state, info, told.last(states.PILOT, owner, state, *changes), passed)
                for owner, uid, record, state, info, passed, *changes in self.query(
                    'SELECT owner, uid, description, state, info, passed, changed, told FROM pilots ORDER BY rev')]

    def known_tasks(self, after: int, limit: int) -> tuple[list[Row], int]:
        """Return a page of all tasks, and the start of the next one (`TaskTable.known`).

        Each row ends with the last state of which an application was notified.
        """
        rows, upto = self.tasks.known(after, limit)
        told = Told(self)
        return [(*row[:-2], told.last(states.TASK, row[2], row[6], *row[-2:])) for row in rows], upto

    def results(self) -> Iterable[Row]:
        """Return all tasks in the order of submission: (uid, pilot, state, info)."""
        return self.query('SELECT uid, pilot, state, info FROM tasks ORDER BY id')


def _info(info: bytes) -> dict[str, Any]:
    try:
        return codec.unpack_dict(info)
    except CoordinationError:   # of a broken agent
        return {}


class Claims:
    """The claims of all agents of a session."""

    def __init__(self, database: Database, tasks: TaskTable) -> None:
        self._db = database
        self._tasks = tasks
        self._prune_at = _PRUNE_AFTER_CLAIMS
        self._made = 0

    def own(self, pilot: str, agent: str, since: int, limit: int) -> Increment:
        """Return the next tasks after a revision that the agent has claimed (see `TaskTable.new`)."""
        for first, last in self._db.query(
                'SELECT first, last FROM claims WHERE pilot = ? AND last > ? AND agent = ? ORDER BY last',
                (pilot, since, agent)):
            found = self._tasks.new(pilot, max(since, first - 1), limit, last)
            if found.rows:
                return found
        return Increment([], since)

    def free(self, pilot: str, limit: int) -> Increment:
        """Return the next tasks without a claim."""
        return self._tasks.unclaimed(pilot, self.end(pilot), limit)

    def claim(self, pilot: str, agent: str, upto: int) -> None:
        """Claim everything free up to this revision for an agent."""
        end = self.end(pilot)
        if upto <= end:
            return
        extended = self._db.write('UPDATE claims SET last = ? WHERE pilot = ? AND last = ? AND agent = ?',
                                  (upto, pilot, end, agent)).rowcount
        if not extended:
            self._db.write('INSERT INTO claims VALUES (?, ?, ?, ?)', (pilot, upto, end + 1, agent))
            self._made += 1
            if self._made >= self._prune_at:
                self._prune()

    def end(self, pilot: str) -> int:
        """Return the revision after which everything is free."""
        found: int | None = self._db.query('SELECT max(last) FROM claims WHERE pilot = ?', (pilot,)).fetchone()[0]
        return found or 0

    def _prune(self) -> None:
        """Drop claims without tasks at their agents, except the last one of each pilot, which marks the free ones."""
        rows = self._db.query('SELECT pilot, last, first FROM claims ORDER BY pilot, last').fetchall()
        done = [(pilot, last) for (pilot, last, first), following in pairwise(rows)
                if following[0] == pilot and not self._tasks.new(pilot, first - 1, 1, last).rows]
        self._db.write_many('DELETE FROM claims WHERE pilot = ? AND last = ?', done)
        self._made = 0
        self._prune_at = max(_PRUNE_AFTER_CLAIMS, len(rows) - len(done))
