"""Batches: tasks that are submitted together, a common description and a row for each with what is its own.

The rows are listed, or those of a sweep: a `Chunk` of parameters, which the coordinator keeps as it is until an agent
takes the tasks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rp_api.wire import codec

# Imports in functions: what reads a session without sweeps need not wait for the classes of descriptions.

ROWS = ' rows'
"""The key in the description of a chunk that holds its rows; no attribute of a description is called that."""

DIGITS = 6
"""Digits of a task's number in its uid at least."""

Row = tuple[str, bytes]
"""The uid of a task, and the attributes that differ from the common description, packed."""


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
        names: The names of the columns; empty in sessions of versions that do not keep them.
    """

    sweep: str
    first: int
    size: int
    varying: dict[str, Any]
    columns: list[list[Any]]
    names: Sequence[str] = ()

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
        from rp_api.description.template import renderer

        if not self.varying:
            return [codec.NOTHING] * self.size
        return codec.pack_all(map(renderer(self.varying), zip(
            *self.columns, range(self.first, self.first + self.size), strict=True)))

    def own_of(self, row: int) -> dict[str, Any]:
        """Return the attributes of the task of one row that differ from the common description."""
        from rp_api.description.template import renderer

        return renderer(self.varying)([*(column[row] for column in self.columns), self.first + row])

    def parameters_of(self, row: int) -> dict[str, Any]:
        """Return the parameters of one row by name."""
        return {name: column[row] for name, column in zip(self.names, self.columns, strict=False)}

    def packed(self) -> bytes:
        """Return the chunk as the description of a task, packed."""
        return codec.pack({ROWS: list(self)})


def unpacked(description: Mapping[str, Any]) -> Chunk:
    """Return the chunk in a description."""
    return Chunk(*description[ROWS])


class RowDescription(Mapping[str, Any]):
    """The description of a task of a batch, which is unpacked when a value of it is read.

    Attributes:
        common: The common description.
        packed: The attributes that override it, packed.
        names: The names of these.
    """

    __slots__ = ('_whole', 'common', 'names', 'packed')

    def __init__(self, common: dict[str, Any], packed: bytes) -> None:
        self.common = common
        self.packed = packed
        self.names = codec.keys_of(packed)
        self._whole: dict[str, Any] | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return all attributes; raise CoordinationError if the packed ones are malformed."""
        if self._whole is None:
            self._whole = {**self.common, **codec.unpack_dict(self.packed)}
        return self._whole

    def __getitem__(self, name: str) -> Any:
        return self.as_dict()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.as_dict())

    def __len__(self) -> int:
        return len(self.as_dict())

    def __contains__(self, name: object) -> bool:
        return name in self.common or name in self.names


class Batch(NamedTuple):
    """Tasks that are submitted together.

    Attributes:
        common: The description that they share, packed; attributes of a row override it.
        rows: What each task has of its own.
    """

    common: bytes
    rows: Sequence[Row] | Chunk

    @classmethod
    def of(cls, tasks: Sequence[tuple[str, Mapping[str, Any]]]) -> Batch:
        """Return the batch of tasks (uid, description); what their descriptions share is packed once.

        Raises:
            TypeError, ValueError: A description is not plain data.
        """
        common, bodies = codec.pack_bulk([description for _, description in tasks])
        return cls(common, [(uid, own) for (uid, _), own in zip(tasks, bodies, strict=True)])

    def listed(self) -> Sequence[Row]:
        """Return the rows one by one."""
        return list(zip(self.rows.uids, self.rows.own(), strict=True)) if isinstance(self.rows, Chunk) else self.rows

    def tasks(self) -> list[tuple[str, dict[str, Any]]]:
        """Return uid and description of each task."""
        rows = self.listed()
        descriptions = codec.unpack_bulk(self.common, [own for _, own in rows])
        return [(uid, description) for (uid, _), description in zip(rows, descriptions, strict=True)]
