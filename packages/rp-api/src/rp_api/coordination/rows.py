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

MANY_BYTES = 16 << 20
"""Size after which a message takes no further entity."""

Row = TypeVar('Row', bound=tuple[Any, ...])


def parts(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    """Rows, whose last column is the large one, in parts that make messages of a decent size."""
    first = size = 0
    for end, row in enumerate(rows, 1):
        size += len(row[-1] or b'')
        if end - first == BULK or size >= MANY_BYTES:
            yield rows[first:end]
            first, size = end, 0
    if first < len(rows):
        yield rows[first:]


def packed(updates: Sequence[Update]) -> list[tuple[str, str, bytes | None]]:
    """Updates as (uid, state, packed info)."""
    return [(uid, state, packed_info(info)) for uid, state, info in updates]


def unpacked(rows: Sequence[Any]) -> list[Update]:
    """The updates that such rows are."""
    return [Update(uid, state, wire.unpack_info(info)) for uid, state, info in rows]


def taken(rows: Sequence[Any]) -> list[Update]:
    """The same for tasks, of which there are many: their info stays packed."""
    return [Update(uid, state, PackedInfo(info) if info else None) for uid, state, info in rows]


def known_pilot(row: list[Any]) -> KnownPilot:
    """A pilot of a page: (uid, record, state, info, the last state that was told, the last one before the end)."""
    uid, record, state, info, told, passed = row
    return KnownPilot(uid, codec.unpack(record), state, with_reached(state, wire.unpack_info(info), passed), told)


def with_reached(state: str, info: dict[str, Any] | None, passed: str) -> dict[str, Any] | None:
    """What is known about the state of a pilot, with the last state before, if it has ended badly."""
    return {**(info or {}), 'reached': passed} if state in (states.FAILED, states.CANCELED) else info


def known_tasks(shared: Mapping[int, bytes], rows: Sequence[Any]) -> list[KnownTask]:
    """The tasks of a page: (id of the shared part, uid, owner, pilot, attempts, rest of the description, ...)."""
    tasks = []
    for shared_id, group in groupby(rows, itemgetter(0)):
        bulk = list(group)
        descriptions = codec.unpack_bulk(shared[shared_id], [row[5] for row in bulk])
        for (_, uid, owner, pilot, attempts, _, state, info, told), description in zip(bulk, descriptions, strict=True):
            tasks.append(KnownTask(uid, owner, pilot, attempts, description, state, wire.unpack_info(info), told))
    return tasks
