"""Tasks, pilots and their updates as rows of messages between the hub and its peers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, TypeVar

from rp_api import states
from rp_api.coordination import wire
from rp_api.coordination.contract import BULK, KnownPilot, KnownTask, PackedInfo, Update, packed_info
from rp_api.wire import codec

_new = tuple.__new__   # makes a named tuple in half the time of a call of its class, which counts for many tasks

MESSAGE_BYTES = 16 << 20
"""Size of a message in bytes after which no entity is added."""

Row = TypeVar('Row', bound=tuple[Any, ...])


def parts(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    """Yield rows, whose last column has variable size, in parts for messages of limited size."""
    if len(rows) <= BULK and sum([len(row[-1] or b'') for row in rows]) < MESSAGE_BYTES:   # most are
        if rows:
            yield rows
        return
    first = size = 0
    for end, row in enumerate(rows, 1):
        size += len(row[-1] or b'')
        if end - first == BULK or size >= MESSAGE_BYTES:
            yield rows[first:end]
            first, size = end, 0
    if first < len(rows):
        yield rows[first:]


def packed(updates: Sequence[Update]) -> list[tuple[str, str, bytes | None]]:
    """Return updates as rows (uid, state, packed info)."""
    return [(uid, state, info.packed if type(info) is PackedInfo else packed_info(info))   # most are packed
            for uid, state, info in updates]


def unpacked(rows: Sequence[Any]) -> list[Update]:
    """Return the updates in such rows."""
    return [Update(uid, state, wire.unpack_info(info)) for uid, state, info in rows]


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
    return KnownPilot(uid, codec.unpack(record), state, with_reached(state, wire.unpack_info(info), passed), told)


def with_reached(state: str, info: dict[str, Any] | None, passed: str) -> dict[str, Any] | None:
    """Return the information about a pilot, with the last state before the end if it has failed or was cancelled."""
    return {**(info or {}), 'reached': passed} if state in (states.FAILED, states.CANCELED) else info


def known_tasks(shared: Mapping[int, bytes], rows: Sequence[Any]) -> list[KnownTask]:
    """Return the tasks from a page's rows: id of the shared part, uid, owner, pilot, attempts, description, ..."""
    tasks = []
    for shared_id, group in groupby(rows, itemgetter(0)):
        bulk = list(group)
        descriptions = codec.unpack_bulk(shared[shared_id], [row[5] for row in bulk])
        for (_, uid, owner, pilot, attempts, _, state, info, told), description in zip(bulk, descriptions, strict=True):
            tasks.append(KnownTask(uid, owner, pilot, attempts, description, state, wire.unpack_info(info), told))
    return tasks
