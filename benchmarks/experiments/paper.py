"""The figures that the paper reports, from `paper.csv`: each value with its spread and its place in the paper.

`text` is said in the paper itself; `data` was published with it (github.com/radical-experiments/rp.paper), and gives
numbers to what the paper only draws. Times are in seconds, shares in percent.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

FILE = Path(__file__).with_name('paper.csv')
ORIGINS = ('text', 'data')


class Reported(NamedTuple):
    """A figure of a run; the spread is None where none is reported."""

    run: str
    figure: str
    value: float
    spread: float | None
    origin: str
    where: str

    def holds(self, value: float) -> bool | None:
        """Return whether a value is within the spread, or None if no spread is reported."""
        return None if self.spread is None else abs(value - self.value) <= self.spread


class Paper:
    """All that is reported."""

    def __init__(self, rows: Iterable[Reported]) -> None:
        self.rows = list(rows)
        self._known: dict[tuple[str, str], Reported] = {}
        for row in sorted(self.rows, key=lambda row: ORIGINS.index(row.origin), reverse=True):
            self._known[row.run, row.figure] = row   # what the text says goes before the data

    def find(self, run: str, figure: str) -> Reported | None:
        """Return the reported value of a figure of a run; the paper's text goes before its data."""
        return self._known.get((run, figure))


def read_paper(path: Path = FILE) -> Paper:
    """Read the figures that the paper reports."""
    with path.open(newline='') as file:
        return Paper(_row(row) for row in csv.DictReader(file))


def _row(row: dict[str, str]) -> Reported:
    spread = float(row['spread']) if row['spread'] else None
    return Reported(row['run'], row['figure'], float(row['value']), spread, row['origin'], row['where'])
