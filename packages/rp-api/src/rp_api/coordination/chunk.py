"""Chunks of sweeps: rows of parameters for tasks that are otherwise alike, packed.

The coordinator keeps a chunk as it is, and makes tasks of its rows when an agent takes them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rp_api.description.template import renderer
from rp_api.wire import codec

ROWS = ' rows'
"""The key in the description of a chunk that holds its rows; no attribute of a description is called that."""

DIGITS = 6
"""Digits of a task's number in its uid at least."""


def task_uid(sweep: str, number: int) -> str:
    """Return the uid of a task of a sweep."""
    return f'{sweep}.{number:0{DIGITS}d}'


class Chunk(NamedTuple):
    """Consecutive rows of a sweep.

    Attributes:
        sweep: Uid of the sweep.
        first: Number of the first row in the sweep.
        size: Number of rows.
        varying: The attributes with placeholders, see `Fields.split`.
        columns: A list of values for each column.
    """

    sweep: str
    first: int
    size: int
    varying: dict[str, Any]
    columns: list[list[Any]]

    @property
    def uid(self) -> str:
        """The uid of the chunk, which no task can have."""
        return f'{self.sweep}/{self.first}'

    @property
    def uids(self) -> list[str]:
        """The uids of the tasks."""
        return [task_uid(self.sweep, number) for number in range(self.first, self.first + self.size)]

    def own(self) -> list[bytes]:
        """Return the attributes of each task that differ from the common description, packed."""
        if not self.varying:
            return [codec.NOTHING] * self.size
        return codec.pack_all(map(renderer(self.varying), zip(
            *self.columns, range(self.first, self.first + self.size), strict=True)))

    def own_of(self, row: int) -> dict[str, Any]:
        """Return the attributes of the task of one row that differ from the common description."""
        return renderer(self.varying)([*(column[row] for column in self.columns), self.first + row])

    def packed(self) -> bytes:
        """Return the chunk as the description of a task, packed."""
        return codec.pack({ROWS: list(self)})


def unpacked(description: Mapping[str, Any]) -> Chunk:
    """Return the chunk in a description."""
    return Chunk(*description[ROWS])


def tasks(chunk: Chunk) -> Sequence[tuple[str, bytes]]:
    """Return uid and description of each task."""
    return list(zip(chunk.uids, chunk.own(), strict=True))
