"""Reads the records of function calls that ranks of RAPTOR workers have run (`rp_profiling.write.calls`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rp_profiling.read.align import Sync, on_reference, parse_sync
from rp_profiling.read.columns import TICKS
from rp_profiling.read.trace import Trace
from rp_profiling.write import calls as written

if TYPE_CHECKING:
    import polars

Times = NDArray[np.int64]

_NAMES = {written.DONE: 'done', written.FAILED: 'failed', written.INTERRUPTED: 'interrupted'}
_PER_TICK = 1_000_000_000 // TICKS


@dataclass(frozen=True)
class Rank:
    """One process of a worker: its times in ticks, `closed` if it has ended in order, `place` is its pilot."""

    worker: str
    rank: int
    place: str
    path: Path
    begun: int
    ended: int
    closed: bool


@dataclass(frozen=True)
class Content:
    """The content of one file; times are nanoseconds of the host's clock since the epoch."""

    worker: str
    rank: int
    sync: Sync | None
    begun: int
    start: Times
    stop: Times
    what: NDArray[np.uint8]
    closed: bool
    torn: int
    """Bytes of an incomplete record at the end."""


class Calls:
    """The calls of a session, one array entry for each: times in ticks of 100 ns, as those of its `Trace`.

    `rank` are indices in `ranks`; a rank's calls are in their order. `what` has kind, outcome and flags. A call of
    several ranks has an entry for each of them. `remarks` are notes on files that cannot be read, or not fully.
    """

    def __init__(self, ranks: Sequence[Rank], start: Times, stop: Times, rank: NDArray[np.int32],
                 what: NDArray[np.uint8], zero: int, remarks: Sequence[str] = ()) -> None:
        self.ranks = list(ranks)
        self.start, self.stop, self.rank, self.what = start, stop, rank, what
        self.zero = zero
        """The time of the first event of the trace."""
        self.remarks = list(remarks)

    def __len__(self) -> int:
        return len(self.start)

    @property
    def outcome(self) -> NDArray[np.uint8]:
        """For each entry DONE, FAILED or INTERRUPTED of `rp_profiling.write.calls`."""
        found: NDArray[np.uint8] = self.what & np.uint8(written.OUTCOMES)
        return found

    @property
    def described(self) -> NDArray[np.bool_]:
        """For each entry, whether it is a described task."""
        return self._is(written.TASK)

    @property
    def is_async(self) -> NDArray[np.bool_]:
        """For each entry, whether it is an asynchronous call, which shares its rank with others."""
        return self._is(written.ASYNC)

    @property
    def whole(self) -> NDArray[np.bool_]:
        """For each entry, whether it stands for a call: false for all but the first part of a call of several ranks."""
        return ~self._is(written.PART)

    @cached_property
    def firsts(self) -> NDArray[np.int64]:
        """For each rank, the index of its first entry, and the number of all entries after the last one."""
        return np.searchsorted(self.rank, np.arange(len(self.ranks) + 1)).astype(np.int64)

    def _is(self, flag: int) -> NDArray[np.bool_]:
        found: NDArray[np.bool_] = (self.what & np.uint8(flag)) != 0
        return found

    def polars_table(self) -> polars.DataFrame:
        """Return a table with a row for each entry: worker, rank, seconds since the start of the trace, outcome."""
        import polars

        kinds = ['function', 'task']
        return polars.DataFrame({
            'worker': _chosen(polars, [rank.worker for rank in self.ranks], self.rank),
            'rank': np.array([rank.rank for rank in self.ranks], np.int32)[self.rank],
            'start': (self.start - self.zero) / TICKS,
            'stop': (self.stop - self.zero) / TICKS,
            'kind': _chosen(polars, kinds, self.described.astype(np.int32)),
            'outcome': _chosen(polars, list(_NAMES.values()), self.outcome.astype(np.int32)),
            'whole': self.whole})


def _chosen(polars: Any, names: list[str], index: NDArray[np.int32]) -> Any:
    """Return a column with the name for each index."""
    return polars.Series(names, dtype=polars.Categorical).gather(index)


def read_calls(trace: Trace) -> Calls:
    """Return the calls of a session, whose trace was read before; it is empty if ranks have recorded none."""
    ranks: list[Rank] = []
    parts: list[tuple[Times, Times, NDArray[np.int32], NDArray[np.uint8]]] = []
    remarks = []
    for path, place in call_files(trace):
        try:
            found = read_file(path)
        except ValueError as error:
            remarks.append(str(error))
            continue
        if found.torn:
            remarks.append(f'{path}: the last record is incomplete')
        number = trace.places.index(place)
        begun, *times = (on_reference(trace, found.sync, number, each // _PER_TICK) for each in
                         (np.array([found.begun]), found.start, found.stop))
        first = int(begun[0])
        ended = int(times[1].max(initial=first))
        calls = found.what != written.END
        parts.append((times[0][calls], times[1][calls], np.full(int(calls.sum()), len(ranks), np.int32),
                      found.what[calls]))
        ranks.append(Rank(found.worker, found.rank, place, path, first, ended, found.closed))
    empty = np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int32), np.zeros(0, np.uint8)
    start, stop, rank, what = (np.concatenate(each) for each in zip(empty, *parts, strict=True))
    return Calls(ranks, start, stop, rank, what, trace.span[0], remarks)


def call_files(trace: Trace) -> Iterator[tuple[Path, str]]:
    """Yield the files of records beside the profiles of a trace, each with its place."""
    for directory, place in {file.path.parent: file.place for file in trace.files}.items():
        for path in sorted(directory.glob(f'*{written.ENDING}')):
            yield path, place


def read_file(path: Path) -> Content:
    """Return the content of one file; ValueError if it is of another kind or version, or its header is broken."""
    said, data = written.content(path)
    try:
        worker, rank, sync = str(said['worker']), int(said['rank']), parse_sync(said['clock'])
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f'{path} has records of calls with a broken header: {error!r}') from error
    offset = said['offset']
    words = np.frombuffer(data, '<i8', len(data) // written.RECORD * 2).reshape(-1, 2)
    start = words[:, 0] + offset
    what = (words[:, 1] & 255).astype(np.uint8)
    closed = bool(len(what)) and bool(what[-1] == written.END)
    return Content(worker, rank, sync, said['begun'] + offset, start, start + (words[:, 1] >> 8), what, closed,
                   len(data) % written.RECORD)
