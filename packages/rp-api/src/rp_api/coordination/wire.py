"""The messages between a hub and its peers: the checks of their form, and tasks, pilots and updates as rows.

A peer with valid keys may have another version or be broken, and must not be able to harm the session. Messages that
pass `check` have the types that the hub relies on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from reprlib import repr as short  # handles long and deeply nested values
from typing import Any, TypeVar

from rp_api import states
from rp_api.coordination.contract import BULK, KnownPilot, KnownTask, PackedInfo, Update, packed_info
from rp_api.errors import CoordinationError
from rp_api.wire import codec, form
from rp_api.wire.form import Check, are_texts, is_bytes, is_dict, is_flag, is_number, is_text

_new = tuple.__new__   # makes a named tuple in half the time of a call of its class, which counts for many tasks

MESSAGE_BYTES = 16 << 20
"""Size of a message in bytes after which no entity is added."""

Row = TypeVar('Row', bound=tuple[Any, ...])

_PID_MAX = 2**31 - 1


def parse(data: bytes) -> tuple[int, str, list[Any]]:
    """Return number, operation and arguments of a message; raise `CoordinationError` if it is malformed."""
    message = codec.unpack(data)
    if not isinstance(message, list) or len(message) < 2:
        raise CoordinationError('malformed message: a number and an operation are needed')
    number, operation, *arguments = message
    if not is_number(number) or not isinstance(operation, str):
        raise CoordinationError(f'malformed message: it starts with {short(number)}, {short(operation)}')
    return number, operation, arguments


def check(role: str, operation: str, arguments: list[Any]) -> None:
    """Raise `CoordinationError` unless this is an operation of that role with valid arguments."""
    form.check(operation, arguments, _ARGUMENTS[role], f'a {role}')


def check_hello(hello: dict[str, Any]) -> None:
    """Raise `CoordinationError` unless a hello of this protocol version is valid."""
    for name, fits in _HELLO.items():
        if not fits(hello.get(name)):
            raise CoordinationError(f'malformed message: hello with {name}={short(hello.get(name))}')


def unpack_info(data: bytes | None) -> dict[str, Any] | None:
    """Return the information of an update, or None if it is empty; an error text replaces what cannot be read.

    The hub forwards the information of agents unchecked.
    """
    return PackedInfo(data).as_dict() if data else None


def _rows(*columns: set[type]) -> Check:
    """Return a check for a list of rows, each with these columns of one of these types."""
    def check(value: Any) -> bool:
        if type(value) is not list or not set(map(type, value)) <= {list} or not set(map(len, value)) <= {len(columns)}:
            return False
        found = [set(map(type, column)) for column in zip(*value, strict=True)]
        return all(types <= allowed for types, allowed in zip(found, columns, strict=False))
    return check


_NEW = _rows({str}, {bytes})
_UPDATES = _rows({str}, {str}, {bytes, type(None)})

_BOTH: form.Table = {
    'hello': (is_dict,), 'ping': (is_number, is_number, is_number, is_flag), 'seen': (is_number, is_number),
    'clock': (is_number,), 'moment': (is_text, is_number), 'bye': (),
    'update_pilots': (_UPDATES,), 'update_tasks': (_UPDATES,)}

_ARGUMENTS: dict[str, form.Table] = {
    'agent': {**_BOTH, 'hold': (is_flag,), 'follow': (are_texts,)},
    'client': {
        **_BOTH, 'pilots': (is_text, _NEW), 'tasks': (is_text, is_text, is_bytes, _NEW),
        'chunk': (is_text, is_text, is_bytes, is_text, is_number, is_bytes), 'withdraw': (are_texts,),
        'bind': (is_text, are_texts), 'forget': (are_texts,),
        'command': (is_text, is_bytes), 'note': (is_text, is_bytes), 'recover': (is_number,), 'detach': (),
        'acknowledge': (are_texts, is_number, is_number), 'listen': (is_text,)}}

_HELLO: dict[str, Check] = {
    'role': lambda value: value in ('client', 'agent'), 'uid': is_text, 'agent': is_text, 'instance': is_text,
    'host': is_text, 'host_name': is_text, 'pid': lambda value: is_number(value) and 0 < value <= _PID_MAX,
    'started': lambda value: value is None or is_number(value),   # version 2.0.0 does not send it
    'since': is_number, 'others': is_number, 'settled': is_number, 'hold': is_flag, 'recover': is_flag}


def parts(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    """Yield rows, whose last column has variable size, in parts for messages of limited size."""
    for start in range(0, len(rows), BULK):
        bulk = rows[start:start + BULK] if len(rows) > BULK else rows
        if sum([len(row[-1] or b'') for row in bulk]) < MESSAGE_BYTES:   # most are
            yield bulk
            continue
        first = size = 0
        for end, row in enumerate(bulk, 1):
            size += len(row[-1] or b'')
            if size >= MESSAGE_BYTES:
                yield bulk[first:end]
                first, size = end, 0
        if first < len(bulk):
            yield bulk[first:]


def packed(updates: Sequence[Update]) -> list[tuple[str, str, bytes | None]]:
    """Return updates as rows (uid, state, packed info)."""
    return [(uid, state, info.packed if type(info) is PackedInfo else packed_info(info))   # most are packed
            for uid, state, info in updates]


def unpacked(rows: Sequence[Any]) -> list[Update]:
    """Return the updates in such rows."""
    return [Update(uid, state, unpack_info(info)) for uid, state, info in rows]


def taken(rows: Sequence[Any]) -> list[Update]:
    """Return the updates of tasks in such rows; their info stays packed, because there are many."""
    updates = []
    before, known = None, None
    for uid, state, info in rows:
        if info != before:   # most are like the one before
            before, known = info, PackedInfo(info) if info else None
        updates.append(_new(Update, (uid, state, known)))
    return updates


def known_pilot(row: list[Any]) -> KnownPilot:
    """Return a pilot from a page's row: uid, record, state, info, last notified state, last state before the end."""
    uid, record, state, info, told, passed = row
    return KnownPilot(uid, codec.unpack(record), state, with_reached(state, unpack_info(info), passed), told)


def with_reached(state: str, info: dict[str, Any] | None, passed: str) -> dict[str, Any] | None:
    """Return the information about a pilot, with the last state before the end if it has failed or was cancelled."""
    return {**(info or {}), 'reached': passed} if state in (states.FAILED, states.CANCELED) else info


def known_tasks(shared: Mapping[int, bytes], rows: Sequence[Any],
                submitted: Mapping[int, float | None]) -> list[KnownTask]:
    """Return the tasks from a page's rows: id of the shared part, uid, owner, pilot, attempts, description, ...

    `submitted` has the time of the submission by the id of the shared part.
    """
    tasks = []
    for shared_id, group in groupby(rows, itemgetter(0)):
        bulk = list(group)
        descriptions = codec.unpack_bulk(shared[shared_id], [row[5] for row in bulk])
        for (_, uid, owner, pilot, attempts, _, state, info, told), description in zip(bulk, descriptions, strict=True):
            tasks.append(KnownTask(uid, owner, pilot, attempts, description, state, unpack_info(info), told,
                                   submitted.get(shared_id)))
    return tasks
