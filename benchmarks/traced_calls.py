"""The cost of the traces of function calls to a rank: the CPU time of calls that do nothing, with and without traces.

A rank's calls run in this process, without a manager. Ranks with traces and without take turns.
"""

from __future__ import annotations

import os
import statistics
import time
from array import array
from collections.abc import Callable
from pathlib import Path
from unittest import mock

from common import print_table, work_directory

from rp_api.wire import codec
from rp_raptor.rank.calls import Calls
from rp_raptor.rank.running import Runner
from rp_raptor.rank.trace import RankTrace
from rp_raptor.rank.worker import DefaultWorker
from rp_raptor.wire import cursor, payload
from rp_raptor.wire.batch import Payloads

BULK = 50
CALLS = 100_000
"""Calls of one turn."""
CHUNK = 20
DESCRIBED = {'mode': 'task.function', 'function': 'nothing', 'args': [1]}


class Silent(DefaultWorker):
    """A worker with a function that does nothing."""

    def nothing(self, number: int) -> int:
        return number


def nothing(number: int) -> int:
    return number


class Rank:
    """A rank that runs calls in this process; its traces go to `directory` if it is not empty."""

    def __init__(self, place: Path, directory: str) -> None:
        place.mkdir()
        cursor.create(place / 'cursors', 1)
        self._cursors = cursor.Cursors(place / 'cursors')
        with mock.patch.dict(os.environ, RP_TASK_SANDBOX=directory, RP_TASK_ID='raptor.0000.0000'):
            worker = Silent()
        self._trace = RankTrace(directory, worker._prof, worker.uid, 0)
        self._calls = calls = Calls(worker._rp_host, str(place), self._trace.recorder)
        self._runner = Runner(self._cursors, 0, calls.functions, calls.run, self._flush, self._park, 0.002,
                              self._trace.recorder)
        self._fid, blob = payload.define(nothing)
        self._described, shared = b'd' * 16, codec.pack(DESCRIBED)
        for fid, definition in ((self._fid, blob), (self._described, shared)):
            calls.functions.define(fid, definition)

    def functions(self) -> list[bytes]:
        """A bulk of calls of a function."""
        return [payload.encode_call(self._fid, (number,)) for number in range(BULK)]

    def chunks(self) -> list[bytes]:
        """A bulk of chunks of calls."""
        return [payload.encode_chunk(self._fid, [((first + number,), None) for number in range(CHUNK)])
                for first in range(0, BULK, CHUNK)]

    def tasks(self) -> list[bytes]:
        """A bulk of described tasks."""
        uids = [f'task.{number:06d}' for number in range(BULK)]
        rests = codec.pack_all({'args': [number]} for number in range(BULK))
        return payload.encode_alike(self._described, uids, ['/tmp'] * BULK, rests)

    def nanoseconds(self, calls: list[bytes], count: int) -> float:
        """CPU time per call of `count` calls in bulks of `calls`, of which each may be several."""
        payloads, ids = Payloads(calls), array('Q', range(len(calls)))
        number = len(calls) * (CHUNK if calls[0][:1] == b'C' else 1)
        before = time.process_time_ns()
        for _ in range(count // number):
            self._runner.bulk(self._cursors.position(0), ids, payloads)
        return (time.process_time_ns() - before) / (count // number * number)

    def close(self) -> None:
        """Write what is left of the traces."""
        self._trace.close()

    def _flush(self) -> None:
        self._runner.taken()
        self._trace.flush_if_due()

    def _park(self, id: int, call: object) -> None:
        raise AssertionError('no call is asynchronous')


CASES: dict[str, Callable[[Rank], list[bytes]]] = {
    'a function': Rank.functions, f'a function, in chunks of {CHUNK}': Rank.chunks, 'a described task': Rank.tasks}


def print_calls(turns: int, base: str, count: int = CALLS) -> None:
    """Print the cost of the traces of calls, measured in that many turns."""
    rows = []
    with work_directory(base) as work:
        for number, (name, make) in enumerate(CASES.items()):
            place = Path(work) / str(number)
            place.mkdir()
            ranks = Rank(place / 'with', str(place)), Rank(place / 'without', '')
            calls = make(ranks[0])
            found: list[tuple[float, float]] = []
            for turn in range(turns + 1):
                order = ranks[::-1] if turn % 2 else ranks
                times = {rank: rank.nanoseconds(calls, count) for rank in order}
                found.append((times[ranks[0]], times[ranks[1]]))
            for rank in ranks:
                rank.close()
            sizes = sum(path.stat().st_size for path in place.glob('raptor.*')) / ((turns + 1) * count)
            more = sorted(one - other for one, other in found[1:])   # the first turn imports
            quarter = len(more) // 4
            rows.append([name, *(f'{statistics.median(each):.0f}' for each in zip(*found[1:], strict=True)),
                         f'{statistics.median(more):.0f}', f'{more[quarter]:.0f} .. {more[-1 - quarter]:.0f}',
                         f'{sizes:.0f}'])
    print_table(['CPU time of a rank per call / ns', 'with traces', 'without', 'difference', 'its quartiles',
                 'bytes of traces'], rows)
