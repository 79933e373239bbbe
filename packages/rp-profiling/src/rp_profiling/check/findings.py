"""The findings of a check."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from rp_profiling.read.columns import TICKS
from rp_profiling.read.trace import Trace

LIMIT = 100
"""Violations of one rule that are listed; the others are only counted."""


@dataclass(frozen=True)
class Violation:
    """One violation: rule, entity, text, time (seconds since the epoch), and file."""

    rule: str
    uid: str
    sentence: str
    time: float
    file: str

    def __str__(self) -> str:
        return f'{self.time:.6f} {self.uid}: {self.sentence} [{self.rule}; {self.file}]'


@dataclass
class Findings:
    """All violations, and remarks; true if there are violations."""

    trace: Trace
    violations: list[Violation] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    """Number of violations by rule, including those that are not listed."""
    remarks: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.remarks += self.trace.remarks

    def __bool__(self) -> bool:
        return self.counts.total() > 0

    def add(self, rule: str, row: int, sentence: str, uid: str = '') -> None:
        """Record a violation found in a row."""
        columns = self.trace.columns
        uid = uid or columns.uids[columns.uid[row]] or columns.sources[columns.source[row]][2]
        self.add_plain(rule, uid, sentence, int(columns.time[row]) / TICKS, str(self.trace.file_of(row)))

    def add_plain(self, rule: str, uid: str, sentence: str, time: float = 0.0, file: str = '') -> None:
        """Record a violation that is in no row."""
        self.counts[rule] += 1
        if self.counts[rule] <= LIMIT:
            self.violations.append(Violation(rule, uid, sentence, time, file))

    def add_all(self, rule: str, rows: Iterable[int], sentence: str) -> None:
        """Record the same violation for several rows."""
        for row in rows:
            self.add(rule, int(row), sentence)

    def more(self, rule: str, count: int) -> None:
        """Count violations that are not listed."""
        if count > 0:
            self.counts[rule] += count

    def __str__(self) -> str:
        lines = [str(violation) for violation in sorted(self.violations, key=lambda each: each.time)]
        left = self.counts.total() - len(self.violations)
        if left > 0:
            lines.append(f'and {left} more')
        lines += [f'remark: {remark}' for remark in self.remarks]
        return '\n'.join(lines)
