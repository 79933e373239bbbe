"""Parts of a worker: the ranks that one of its managers serves; a worker that spans nodes has a manager on each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rp_api.errors import CoordinationError


@dataclass(frozen=True)
class Part:
    """A part of a worker: `numbers` are its ranks among the `total` ranks of the worker.

    `number` is that of the part, of which there are `count`.
    """

    numbers: tuple[int, ...]
    total: int
    number: int = 0
    count: int = 1

    @property
    def widest(self) -> int:
        """The number of ranks that an MPI function may have here: the first part runs those over several nodes."""
        return len(self.numbers) if self.number else self.total

    @classmethod
    def whole(cls, ranks: int) -> Part:
        """Return the only part of a worker."""
        return cls(tuple(range(ranks)), ranks)

    @classmethod
    def told(cls, data: Mapping[str, Any], ranks: int) -> Part:
        """Return the part that a message describes, of so many ranks; `CoordinationError` if it is not valid."""
        if 'numbers' not in data:
            return cls.whole(ranks)
        try:
            numbers = tuple(map(int, data['numbers']))
            part = cls(numbers, int(data['total']), int(data['part']), int(data['parts']))
        except (ValueError, TypeError, KeyError) as error:
            raise CoordinationError(f'not a part of a worker: {error!r}') from error
        if len(numbers) != ranks or not 0 <= part.number < part.count or not numbers or max(numbers) >= part.total:
            raise CoordinationError(f'not a part of a worker with {ranks} ranks here: {part}')
        return part

    def as_dict(self) -> dict[str, Any]:
        """Return the part as plain data for `told`; empty if it is the whole worker."""
        if self.count == 1:
            return {}
        return {'part': self.number, 'parts': self.count, 'numbers': list(self.numbers), 'total': self.total}
