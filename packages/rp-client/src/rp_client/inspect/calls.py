"""The function calls of RAPTOR, from the records that exist.

Described calls are tasks: their descriptions have the function. Those of executors and streams have no description;
ranks record when each began and ended, and whether it failed, in files `*.calls` of their worker's sandbox. A rank
writes its records in blocks, and when it ends, so that the figures of a worker that runs lag behind.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from rp_api import states
from rp_api.constants import RAPTOR_WORKER, TASK_EXECUTABLE
from rp_api.coordination.records import Records
from rp_api.reasons.explain import reason_of
from rp_api.reasons.view import View
from rp_client.inspect.cached import CachedView
from rp_client.inspect.rows import program_of, sandbox_of
from rp_profiling.write import calls as written

STREAMED = '(calls of executors and streams)'

_NS = 1e-9


_GROUPS = {states.DONE: 'done', states.FAILED: 'failed', states.CANCELED: 'canceled', states.AGENT_EXECUTING: 'running'}
_OUTCOMES = {written.DONE: 'done', written.FAILED: 'failed', written.INTERRUPTED: 'canceled'}


class Function:
    """The calls of one function; times are seconds since 1970."""

    def __init__(self, name: str, worker: str | None = None) -> None:
        self.name, self.worker = name, worker
        self.counts = dict.fromkeys((*_GROUPS.values(), 'waiting'), 0)
        self.first = self.last = self._seconds = 0.0
        self.example: Mapping[str, Any] | None = None

    def add(self, group: str | None, started: float | None, ended: float | None) -> None:
        """Count a call."""
        if group is not None:
            self.counts[group] += 1
        if started and ended:
            self._seconds += ended - started
            self.first, self.last = min(self.first or started, started), max(self.last, ended)

    def as_dict(self, view: View) -> dict[str, Any]:
        """Return the figures as plain data: `rate` in calls per second, `mean` in seconds, None where not known."""
        ended, span = self.counts['done'] + self.counts['failed'], self.last - self.first
        reason = reason_of(self.example, view) if self.example else None
        return {'function': self.name, 'worker': self.worker, **self.counts,
                'rate': ended / span if span > 0 else None,
                'mean': self._seconds / ended if self.last and ended else None,
                'example': self.example and self.example['uid'], 'reason': reason and reason.sentence}


def functions(records: Records) -> list[dict[str, Any]]:
    """Return the calls of a session by function, and those without description by worker, as plain data."""
    found: dict[str, Function] = {}
    view, workers = CachedView(records), []
    for _, task in records.tasks():
        description = task['description']
        if description.get('mode') == RAPTOR_WORKER:
            workers.append(task)
        elif description.get('raptor_id') and description.get('mode', TASK_EXECUTABLE) != TASK_EXECUTABLE:
            name = program_of(description) or '-'
            function = found.setdefault(name, Function(name))
            function.add(_GROUPS.get(task['state'], 'waiting'), *(task.get('times') or (None, None, None))[1:])
            if task['state'] == states.FAILED:
                function.example = function.example or task
    streamed = (_of_worker(worker['uid'], sandbox_of(worker, view)) for worker in workers)
    return [function.as_dict(view) for function in (*found.values(), *streamed) if function.last or not function.worker]


def _of_worker(uid: str, sandbox: str | None) -> Function:
    """Return the calls without description that the ranks of a worker have recorded."""
    function = Function(STREAMED, uid)
    for path in sorted(Path(sandbox).glob(f'{uid}.*{written.ENDING}')) if sandbox else ():
        with suppress(OSError, ValueError):   # it is being written
            for started, ended, what in _records(path):
                function.add(_OUTCOMES.get(what & written.OUTCOMES), started, ended)
    return function


def _records(path: Path) -> Iterator[tuple[float, float, int]]:
    """Yield start, end and flags of the calls without description in a file, each call once."""
    said, data = written.content(path)
    words, offset = array('q', data[:len(data) - len(data) % written.RECORD]), said['offset']
    for start, rest in zip(words[::2], words[1::2], strict=True):
        what = rest & 255
        if what != written.END and not what & (written.TASK | written.PART):
            yield (start + offset) * _NS, (start + offset + (rest >> 8)) * _NS, what
