"""The documents in the collection of a session, found by `type`, `_id`, and in the order of their `number`.

| type | `_id` | written by | content |
|---|---|---|---|
| session | uid of the session | client | its client with heartbeat (`client`), `closed`, `detached`, `protocol` |
| pilot | uid | client | `owner`, `record`, `state`, `value`, `info`, `reached` |
| task | uid | client | `owner`, `pilot`, `attempts`, `parcel`, `description`, `state`, `value`, `info`, `reached` |
| acknowledged | `@acknowledged.<owner>` | client | `owner`, `reported`, `own`: notifications of the application |
| note | `@note.<key>` | client | `key`, `content` |
| command | `@command.<number>` | client | `pilot`, `command`: for all agents of the pilot |
| parcel | `@parcel.<number>` | client | `pilot`, `uids`: tasks that wait for an agent of the pilot |
| claim | `@parcel.<number>` | agent | a parcel that `agent` has claimed |
| agent | `@agent.<pilot>.<agent>` | agent | its process, `beat`, which changes while it lives, `left` |
| news | `@news.<number>.<instance>` | agent | `kind`, `pilot`, `updates`: reports that the client has not processed |

Only the client writes tasks and pilots, so no locks are needed. Agents report by adding news. The client applies them
to the documents of the tasks, processes them, and deletes them last, so that the next client finds those that were not
processed. `acknowledged` and `reached` tell of which states the application was notified. A bulk of tasks is one
parcel, whose type only one agent can change: a claim costs one operation per bulk, not per task. A task stores the
number of its last parcel, so that earlier ones do not count.

Descriptions, records, notes and the information of updates (`info`) are msgpack, because they may contain data that
MongoDB does not allow in documents (keys with dots, text that is not UTF-8).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from rp_api import states
from rp_api.coordination.contract import BOUND_STATE, UNBOUND_STATE, KnownPilot, KnownTask, NewTask, Update
from rp_api.coordination.wire import with_reached
from rp_api.errors import CoordinationError
from rp_api.wire import codec

Document = dict[str, Any]

INDEXES = [('type', 1)], [('type', 1), ('number', 1)]
"""All queries without an `_id` use one of them; not every server can use the prefix of an index."""

FINAL_VALUE = states.TASK.value(states.DONE)

MAX_VALUE_BYTES = 12 << 20
"""Maximum size of a description or of an update's information in bytes; a document may have 16 MiB."""

NEWS_BYTES = 8 << 20
"""Size in bytes after which no update is added to a news document."""


class Numbers:
    """Increasing numbers, also across restarts and processes (if their clocks agree)."""

    def __init__(self) -> None:
        self._last = 0
        self._lock = threading.Lock()

    def above(self, number: int) -> None:
        """Return only larger numbers than this one from now on."""
        with self._lock:
            self._last = max(self._last, number)

    def next(self) -> int:
        """Return a new number: the microseconds since 1970, or more if that is not larger than the last one."""
        with self._lock:
            self._last = max(self._last + 1, time.time_ns() // 1000)
            return self._last


def pilot_document(uid: str, number: int, owner: str, record: Mapping[str, Any]) -> Document:
    """Return the document of a new pilot."""
    return {'_id': uid, 'type': 'pilot', 'number': number, 'owner': owner, 'record': packed(uid, record),
            'state': states.NEW, 'value': 0, 'info': None, 'reached': {}}


def task_document(uid: str, number: int, owner: str, pilot: str, parcel: int, description: bytes) -> Document:
    """Return the document of a new task."""
    state = BOUND_STATE if pilot else UNBOUND_STATE
    return {'_id': uid, 'type': 'task', 'number': number, 'owner': owner, 'pilot': pilot, 'parcel': parcel,
            'attempts': int(bool(pilot)), 'description': description, 'state': state,
            'value': states.TASK.value(state), 'reached': {state: -number}}


def final(uids: Sequence[str]) -> Document:
    """Return a filter for those of these tasks that are final."""
    return {'_id': {'$in': list(uids)}, 'type': 'task', 'value': {'$gte': FINAL_VALUE}}


def forgotten() -> Document:
    """Return the changes of a task's document that keep only uid and state."""
    return {'owner': '', 'description': codec.NOTHING, 'info': None}


def parcel_id(number: int) -> str:
    """Return the `_id` of a parcel or claim."""
    return f'@parcel.{number}'


def parcel_document(number: int, pilot: str, uids: Sequence[str]) -> Document:
    """Return the document of tasks that wait for an agent."""
    return {'_id': parcel_id(number), 'type': 'parcel', 'number': number, 'pilot': pilot, 'agent': '',
            'uids': list(uids)}


def command_document(number: int, pilot: str, command: Mapping[str, Any]) -> Document:
    """Return the document of a command for all agents of a pilot."""
    return {'_id': f'@command.{number}', 'type': 'command', 'number': number, 'pilot': pilot,
            'command': packed('command', command)}


def news_document(number: int, instance: str, kind: str, pilot: str, updates: bytes) -> Document:
    """Return the document of updates from a pilot; `kind` is 'tasks' or 'pilots'."""
    return {'_id': f'@news.{number}.{instance}', 'type': 'news', 'number': number, 'kind': kind, 'pilot': pilot,
            'updates': updates}


def packed(uid: str, value: Any) -> bytes:
    """Return plain data as bytes; raise `CoordinationError` if it is too large for a document."""
    data = codec.pack(value)
    if len(data) > MAX_VALUE_BYTES:
        raise CoordinationError(f'{uid}: {len(data)} bytes are too large for a MongoDB, which takes at most '
                                f'{MAX_VALUE_BYTES} in one piece: move large data in files')
    return data


def packed_updates(updates: Iterable[Update]) -> list[bytes]:
    """Return updates as bytes, in parts that fit into one document each."""
    parts: list[bytes] = []
    rows: list[bytes] = []
    size = 0
    for update in updates:
        row = codec.pack(_fitting(update))
        if rows and size + len(row) > NEWS_BYTES:
            parts.append(codec.pack(rows))
            rows, size = [], 0
        rows.append(row)
        size += len(row)
    return [*parts, codec.pack(rows)] if rows else parts


def unpacked_updates(data: bytes) -> list[Update]:
    """Return the updates in a part of `packed_updates`."""
    return [Update(*codec.unpack(row)) for row in codec.unpack(data)]


def _fitting(update: Update) -> tuple[str, str, Mapping[str, Any] | None]:
    """Return the update, with values that are too large replaced by an error text."""
    uid, state, info = update
    if info is None or len(codec.pack(info)) <= MAX_VALUE_BYTES:
        return uid, state, info
    large = {key for key, value in info.items() if len(codec.pack(value)) > MAX_VALUE_BYTES // 16}
    dropped = f'{", ".join(sorted(large))} of {uid} did not fit into the database: move large results in files'
    return uid, state, {key: value for key, value in info.items() if key not in large} | {'exception': dropped}


def known_pilot(document: Document, told: str) -> KnownPilot:
    """Return the pilot of a document, with the last state of which an application was notified."""
    line = [state for state in document['reached'] if not states.PILOT.is_final(state)]
    passed = max(line, key=states.PILOT.value, default=states.NEW)
    return KnownPilot(document['_id'], codec.unpack(document['record']), document['state'],
                      with_reached(document['state'], known_info(document), passed), told)


def known_task(document: Document, told: str) -> KnownTask:
    """Return the task of a document, with the last state of which an application was notified."""
    return KnownTask(document['_id'], document['owner'], document['pilot'], document['attempts'],
                     codec.unpack(document['description']), document['state'], known_info(document), told,
                     document['number'] / 1e6)


def new_task(document: Document) -> NewTask:
    """Return uid and description of a task."""
    return document['_id'], cast(dict[str, Any], codec.unpack(document['description']))


def unread(but: Iterable[str]) -> Document:
    """Return a filter for news, except those with these `_id`s."""
    known = list(but)
    return {'type': 'news', '_id': {'$nin': known}} if known else {'type': 'news'}


def command_of(document: Document) -> dict[str, Any]:
    """Return the command in a document."""
    return cast(dict[str, Any], codec.unpack(document['command']))


def known_info(document: Document) -> dict[str, Any] | None:
    """Return the information about a pilot or task."""
    data = document.get('info')
    return cast(dict[str, Any], codec.unpack(data)) if data else None


def forward(model: states.StateModel, update: Update) -> Document:
    """Return a filter for documents that an update changes, according to the `StateModel`."""
    if model.is_final(update.state):
        lasting = [final for final in states.FINAL if (final, update.state) not in model.corrections]
        return {'state': {'$nin': lasting}}
    again = update.info and update.state in model.repeated
    return {'value': {'$lte' if again else '$lt': model.value(update.state)}}


def moved(model: states.StateModel, update: Update, number: int) -> Document:
    """Return the update of a document; `number` is that of the change, negative for the client's own changes."""
    fields: Document = {'state': update.state, 'value': model.value(update.state)}
    if update.info:
        fields['info'] = codec.pack(update.info)
    # a task that was bound again may reach a state again: the first time counts
    return {'$set': fields, '$min' if number > 0 else '$max': {f'reached.{update.state}': number}}
