"""The records of one session, read without a look at all of them: a task by its uid, pages, pilots, notes.

`SessionRecords` reads the database of a hub, `rp_api.coordination.mongodb.records` a MongoDB; both are views for
reasons (`rp_api.reasons.view.View`).
"""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from heapq import merge
from itertools import groupby, islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from rp_api import states
from rp_api.coordination.contract import PackedInfo
from rp_api.coordination.hub.database import notes_submissions
from rp_api.description.partitions import WHOLE
from rp_api.task_info.usage import expanded
from rp_api.task_modes import KIND, OWNER
from rp_api.wire import codec

if TYPE_CHECKING:
    from rp_api.batch import Chunk

# Imports in functions: commands that show a task or why it waits answer in as little time as they take.

MAX_PEERS = 1000
"""Tasks at most that a task is compared with: those that were submitted before and after it."""

LEFT = (states.TMGR_STAGING_OUTPUT_PENDING, states.TMGR_STAGING_OUTPUT)
"""The states of tasks that have left their agent, and whose final state is in their info."""

Task = dict[str, Any]
"""A task: `uid`, `tmgr`, `pilot`, `attempts`, `description`, `submitted`, `state`, and its information, such as `times`
(placed, started, ended) and `usage`; times are in seconds since 1970."""

Numbered = tuple[int, Task]
"""A task with its number, which grows in the order of submission."""

_PAGE = 1000
_NO_CALL = f"NOT (owner = '{OWNER}' OR (owner = '' AND uid LIKE '%.{KIND}.%'))"


class Records(ABC):
    """The records of one session.

    Attributes:
        uid: Uid of the session.
        place: Its directory, or the name of its collection.
        now: The present time, or that of the last sign of life of a session that has ended; in seconds since 1970.
    """

    def __init__(self, uid: str, place: str, now: float) -> None:
        self.uid = uid
        self.place = place
        self.now = now

    @abstractmethod
    def numbered(self, uid: str) -> Numbered | None:
        """Return the task of that uid with its number; None if it is unknown."""

    @abstractmethod
    def page(self, after: int = 0, limit: int = _PAGE, wanted: Collection[str] = (), pilot: str | None = None) -> list[
            Numbered]:
        """Return tasks in the order of submission, each with its number.

        Args:
            after: Number of the last task that is known; 0 for the first page.
            limit: Number of tasks at most.
            wanted: Only tasks in one of these states; empty for all.
            pilot: Only tasks that are bound to this pilot, or to none if it is empty; None for all.
        """

    @abstractmethod
    def before(self, number: int, limit: int) -> list[Numbered]:
        """Return the last tasks before the one of that number, in the order of submission."""

    @abstractmethod
    def count(self) -> int:
        """Return the number of tasks."""

    @abstractmethod
    def count_on(self, pilot: str) -> int:
        """Return the number of tasks that are bound to a pilot."""

    @abstractmethod
    def uids(self, start: str, limit: int) -> list[str]:
        """Return the first uids of tasks that begin with a text."""

    @abstractmethod
    def counts(self) -> dict[str, int]:
        """Return the number of tasks in each state; it takes a look at all of them."""

    @abstractmethod
    def inserted_pilots(self) -> list[dict[str, Any]]:
        """Return all pilots and partitions with the records that they were inserted with."""

    @abstractmethod
    def note(self, key: str) -> Any:
        """Return a note of the session's coordinator, such as `job.<pilot>`; None without it."""

    @abstractmethod
    def close(self) -> None:
        """Close the connection."""

    def pilots(self) -> list[dict[str, Any]]:
        """Return all pilots, and all partitions, whose `record` has the uid of their pilot.

        The `sandboxes` in the record of a pilot are those that its launcher has noted: the platform may have others.
        """
        found = self.inserted_pilots()
        for pilot in found:
            launch = None if WHOLE in pilot['record'] else self.note(f'job.{pilot["uid"]}')
            if launch and 'sandboxes' in launch:
                pilot['record']['sandboxes'] = launch['sandboxes']
        return found

    def chunks(self) -> Iterator[Chunk]:
        """Yield the chunks of sweeps; none if the coordinator does not keep them, as a MongoDB."""
        return iter(())

    def parameters_of(self, uid: str) -> dict[str, Any]:
        """Return the parameters of a task by name; none if it belongs to no sweep with chunks."""
        return {}

    def task(self, uid: str) -> Task | None:
        """Return a task; None if there is none with that uid."""
        found = self.numbered(uid)
        return found[1] if found else None

    def tasks(self, wanted: Collection[str] = (), pilot: str | None = None, after: int = 0) -> Iterator[Numbered]:
        """Yield tasks, see `page`, page by page."""
        while page := self.page(after, wanted=wanted, pilot=pilot):
            yield from page
            after = page[-1][0]

    def export(self) -> Iterator[dict[str, Any]]:
        """Yield pilots, partitions and tasks, without keys, each with a `type`: `pilot`, `partition` or `task`."""
        places = self.pilots()
        yield from ({'type': 'pilot', **each} for each in places if WHOLE not in each['record'])
        yield from ({'type': 'partition', **each} for each in places if WHOLE in each['record'])
        yield from ({'type': 'task', **task} for _, task in self.tasks())

    def peers(self, task: Mapping[str, Any]) -> Sequence[Task]:
        """Return tasks of the same kind that are done, at most 1,000: those that were submitted before and after it."""
        found = self.numbered(task['uid'])
        if found is None:
            return []
        kind = kind_of(task['description'])
        near = (*self.before(found[0], MAX_PEERS // 2), *self.page(found[0], MAX_PEERS // 2))
        return [each for _, each in near if each['state'] == states.DONE and kind_of(each['description']) == kind]

    def __enter__(self) -> Records:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class SessionRecords(Records):
    """The records in the database of a hub, see `rp_api.coordination.sessions.records`."""

    def __init__(self, db: sqlite3.Connection, uid: str, place: str, now: float) -> None:
        super().__init__(uid, place, now)
        self._db = db
        self._has_chunks = bool(self._value("SELECT count(*) FROM sqlite_master WHERE name = 'chunks'"))   # since 2.0
        self._submitted = 's.submitted' if notes_submissions(db.execute) else 'NULL'
        self._last: Chunk | None = None

    def numbered(self, uid: str) -> Numbered | None:
        found = next(self._tasks('t.uid = ?', uid), None)
        sweep, _, number = uid.rpartition('.')
        if found is None and number.isdecimal() and self._has_chunks:
            row = self._db.execute('SELECT id, first FROM chunks WHERE sweep = ? AND first <= ? AND NOT opened '
                                   'ORDER BY first DESC LIMIT 1', (sweep, int(number))).fetchone()
            before = row[0] + int(number) - row[1] if row else 0   # the number of the task before it
            found = next(self._in_chunks(before, '', (), 1), None) if row else None
        return found if found is not None and found[1]['uid'] == uid else None

    def page(self, after: int = 0, limit: int = _PAGE, wanted: Collection[str] = (), pilot: str | None = None) -> list[
            Numbered]:
        where, values = _condition(wanted, pilot)
        found: Iterable[Numbered] = self._tasks(f't.id > ? AND {_NO_CALL} {where} ORDER BY t.id LIMIT ?',
                                                after, *values, limit)
        if self._has_chunks:
            found = merge(found, self._in_chunks(after, where, values, limit), key=itemgetter(0))
        return list(islice(found, limit))

    def before(self, number: int, limit: int) -> list[Numbered]:
        return list(self._tasks(f't.id < ? AND {_NO_CALL} ORDER BY t.id DESC LIMIT ?', number, limit))[::-1]

    def count(self) -> int:   # by a look at the index of uids
        count = self._value(f"SELECT count(*) FROM tasks WHERE uid NOT LIKE '%.{KIND}.%'")
        return count + (self._value('SELECT coalesce(sum(count), 0) FROM chunks WHERE NOT opened')
                        if self._has_chunks else 0)

    def count_on(self, pilot: str) -> int:
        return self._value(f'SELECT count(*) FROM tasks WHERE pilot = ? AND {_NO_CALL}', pilot)

    def uids(self, start: str, limit: int) -> list[str]:
        found = self._db.execute('SELECT uid FROM tasks WHERE uid >= ? AND uid < ? ORDER BY uid LIMIT ?',
                                 (start, f'{start}\U0010ffff', limit))
        return [uid for uid, in found]

    def counts(self) -> dict[str, int]:
        counts = Counter(dict(self._db.execute(
            f'SELECT state, count(*) FROM tasks WHERE state NOT IN (?, ?) AND {_NO_CALL} GROUP BY state', LEFT)))
        for state, info in self._db.execute(f'SELECT state, info FROM tasks WHERE state IN (?, ?) AND {_NO_CALL}',
                                            LEFT):
            counts[known(state, info).get('state', state)] += 1
        if self._has_chunks:
            counts.update(dict(self._db.execute('SELECT state, sum(count) FROM chunks WHERE NOT opened '
                                                'GROUP BY state')))
        return dict(counts)

    def inserted_pilots(self) -> list[dict[str, Any]]:
        rows = self._db.execute('SELECT uid, state, info, description FROM pilots ORDER BY rev').fetchall()
        return [{'uid': uid, 'state': state, 'record': codec.unpack(record), **known(state, info)}
                for uid, state, info, record in rows]

    def note(self, key: str) -> Any:
        found = self._db.execute('SELECT value FROM notes WHERE key = ?', (key,)).fetchone()
        return codec.unpack(found[0]) if found else None

    def chunks(self, condition: str = '', *values: Any) -> Iterator[Chunk]:
        from rp_api.batch import unpacked

        query = f'SELECT description FROM chunks {condition} ORDER BY id'
        for description, in self._db.execute(query, values) if self._has_chunks else ():
            yield unpacked(codec.unpack(description))

    def parameters_of(self, uid: str) -> dict[str, Any]:
        sweep, _, text = uid.rpartition('.')
        if sweep not in self._sweeps or not text.isdecimal():
            return {}
        chunk, number = self._last, int(text)
        if chunk is None or chunk.sweep != sweep or not 0 <= number - chunk.first < chunk.size:
            where = 'WHERE sweep = ? AND first <= ? AND ? < first + count'
            self._last = chunk = next(self.chunks(where, sweep, number, number), None)   # that of the next tasks, too
        return chunk.parameters_of(number - chunk.first) if chunk else {}

    def close(self) -> None:
        self._db.close()

    @cached_property
    def _sweeps(self) -> set[str]:
        found = self._db.execute('SELECT DISTINCT sweep FROM chunks') if self._has_chunks else ()
        return {sweep for sweep, in found}

    def _value(self, query: str, *values: Any) -> int:
        found: int = self._db.execute(query, values).fetchone()[0]
        return found

    def _tasks(self, condition: str, *values: Any) -> Iterator[Numbered]:
        rows = self._db.execute(f'SELECT t.shared, s.description, {self._submitted}, t.id, t.uid, t.owner, t.pilot, '
                                't.attempts, t.state, t.info, t.description FROM tasks t '
                                f'JOIN shared s ON s.id = t.shared WHERE {condition}', values)
        for _, group in groupby(rows, itemgetter(0)):
            alike = list(islice(group, _PAGE))
            descriptions = codec.unpack_bulk(alike[0][1], [row[-1] for row in alike])
            for row, description in zip(alike, descriptions, strict=True):
                submitted, number, uid, owner, pilot, attempts, state, info = row[2:-1]
                yield number, task_of(uid, owner, pilot, attempts, submitted, state, info, description)

    def _in_chunks(self, after: int, where: str, values: Iterable[Any], limit: int) -> Iterator[Numbered]:
        """Yield the tasks of sweeps that are in chunks still, because no agent has taken them, with their numbers."""
        from rp_api.batch import task_uid, unpacked

        for submitted, own, owner, pilot, attempts, state, info, packed, shared in self._db.execute(
                f'SELECT {self._submitted}, t.id, owner, pilot, attempts, state, info, t.description, s.description '
                'FROM chunks t JOIN shared s ON s.id = t.shared WHERE NOT opened AND t.id + count > ? '
                f'{where} ORDER BY t.id LIMIT ?', (after, *values, limit)):
            chunk = unpacked(codec.unpack(packed))
            start = max(0, after - own)
            rows = range(start, min(chunk.size, start + limit))
            for row, description in zip(rows, codec.unpack_bulk(shared, map(codec.pack, map(chunk.own_of, rows))),
                                        strict=True):
                yield own + 1 + row, task_of(task_uid(chunk.sweep, chunk.first + row), owner, pilot, attempts,
                                             submitted, state, info, description)


def task_of(uid: str, owner: str, pilot: str, attempts: int, submitted: float | None, state: str,
            info: bytes | None, description: dict[str, Any]) -> Task:
    """Return a task, given what a coordinator stores of it."""
    return {'uid': uid, 'tmgr': owner, 'pilot': pilot, 'attempts': attempts, 'description': description,
            'submitted': submitted, 'state': state, **known(state, info)}


def kind_of(description: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what tasks of one kind have in common: the program or function, and the size."""
    return tuple(description.get(key) or default for key, default in (
        ('mode', ''), ('executable', ''), ('function', ''), ('ranks', 1), ('cores_per_rank', 1), ('gpus_per_rank', 0)))


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


def _condition(wanted: Collection[str], pilot: str | None) -> tuple[str, list[Any]]:
    """Return the SQL, and its values, for tasks in these states on this pilot."""
    where, values = '', []
    if wanted:   # the final state of tasks that have left their agent is in their info
        all_states = {*wanted, *(LEFT if set(wanted).intersection(states.FINAL) else ())}
        where, values = f' AND t.state IN ({", ".join("?" * len(all_states))})', sorted(all_states)
    if pilot is not None:
        where, values = f'{where} AND t.pilot = ?', [*values, pilot]
    return where, values
