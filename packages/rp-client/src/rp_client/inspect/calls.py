"""The function calls of RAPTOR, from the records that exist.

Described calls are tasks: their descriptions have the function. Those of executors and streams have no description;
ranks record when each began and ended, and whether it failed, in files `*.calls` of their worker's sandbox. A rank
writes its records in blocks, and when it ends, so that the figures of a worker that runs lag behind.
"""

from __future__ import annotations

import json
import struct
from array import array
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from rp_api import states
from rp_api.constants import RAPTOR_WORKER, TASK_EXECUTABLE
from rp_client.inspect.cached import CachedView
from rp_client.inspect.records import Records
from rp_client.inspect.rows import row_of, sandbox_of
from rp_profiling.write import calls as written

STREAMED = '(calls of executors and streams)'

_NS = 1e-9


class Function:
    """The calls of one function; times are seconds since 1970."""

    def __init__(self, name: str, worker: str = '') -> None:
        self.name, self.worker = name, worker
        self.done = self.failed = self.running = self.waiting = self.canceled = 0
        self.seconds = 0.0
        self.first = self.last = 0.0
        self.example: str | None = None
        self.reason: str | None = None

    def took(self, start: float, end: float) -> None:
        """Add the time of a call that has ended."""
        self.seconds += end - start
        self.first, self.last = min(self.first or start, start), max(self.last, end)

    def as_dict(self) -> dict[str, Any]:
        """Return the figures as plain data: `rate` in calls per second, `mean` in seconds, None where not known."""
        ended, span = self.done + self.failed, self.last - self.first
        mean = self.seconds / ended if self.last and ended else None
        return {'function': self.name, 'worker': self.worker or None, 'done': self.done, 'failed': self.failed,
                'canceled': self.canceled, 'running': self.running, 'waiting': self.waiting,
                'rate': ended / span if span > 0 else None, 'mean': mean,
                'example': self.example, 'reason': self.reason}


def functions(records: Records) -> list[Function]:
    """Return the calls of a session by function, and those without description by worker."""
    found: dict[str, Function] = {}
    view = CachedView(records)
    workers = []
    for _, task in records.tasks():
        description = task['description']
        if description.get('mode') == RAPTOR_WORKER:
            workers.append(task)
        elif description.get('raptor_id') and description.get('mode', TASK_EXECUTABLE) != TASK_EXECUTABLE:
            row = row_of(task, view, reasons=False)
            _add(found.setdefault(row['executable'], Function(row['executable'])), task, row)
    for function in found.values():
        if function.example:
            failed = records.task(function.example)
            function.reason = row_of(failed, view)['reason'] if failed else None
    streamed = (_of_worker(worker['uid'], sandbox_of(worker, view)) for worker in workers)
    return [*found.values(), *filter(None, streamed)]


def _add(function: Function, task: dict[str, Any], row: dict[str, Any]) -> None:
    state = task['state']
    if state == states.DONE:
        function.done += 1
    elif state == states.FAILED:
        function.failed += 1
        function.example = function.example or task['uid']
    elif state == states.CANCELED:
        function.canceled += 1
    elif state == states.AGENT_EXECUTING:
        function.running += 1
    else:
        function.waiting += 1
    if row['start'] and row['end']:
        function.took(row['start'], row['end'])


def _of_worker(uid: str, sandbox: str | None) -> Function | None:
    """Return the calls without description that the ranks of a worker have recorded; None without any."""
    function = Function(STREAMED, uid)
    for path in sorted(Path(sandbox).glob(f'{uid}.*{written.ENDING}')) if sandbox else ():
        with suppress(OSError, ValueError, struct.error):   # it is being written
            for start, end, what in _records(path):
                outcome = what & written.OUTCOMES
                function.done += outcome == written.DONE
                function.failed += outcome == written.FAILED
                function.canceled += outcome == written.INTERRUPTED
                function.took(start, end)
    return function if function.last else None


def _records(path: Path) -> Iterator[tuple[float, float, int]]:
    """Yield start, end and flags of the calls without description in a file, each call once."""
    data = path.read_bytes()
    magic, version, size = written.HEAD.unpack_from(data)
    if magic != written.MAGIC or version != written.VERSION:
        raise ValueError(f'{path} is no file of calls')
    begin = written.HEAD.size + size
    offset = json.loads(data[written.HEAD.size:begin])['offset']
    words = array('q')
    words.frombytes(data[begin:len(data) - (len(data) - begin) % written.RECORD])
    for start, rest in zip(words[::2], words[1::2], strict=True):
        what = rest & 255
        if what != written.END and not what & (written.TASK | written.PART):
            yield (start + offset) * _NS, (start + offset + (rest >> 8)) * _NS, what
