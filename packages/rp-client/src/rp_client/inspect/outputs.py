"""The files that a task has written, as far as this machine sees them, else what its record has of them."""

from __future__ import annotations

import os
import time
from typing import BinaryIO

from rp_api import states
from rp_api.coordination.records import Records, Task
from rp_api.errors import PilotError
from rp_client.inspect.rows import output_of, sandbox_of

POLL_S = 0.2
"""Seconds between looks at a file that is followed."""

_BLOCK = 1 << 16


class Output:
    """A file of a task.

    Args:
        records: Its session.
        task: The task.
        name: A file in its sandbox; None for its standard output.
        stderr: True for its standard error instead of that.
    """

    def __init__(self, records: Records, task: Task, name: str | None, *, stderr: bool) -> None:
        self._records, self._task = records, task
        self._stream = 'stderr' if stderr else 'stdout'
        self._recorded = None if name else task.get(self._stream)
        sandbox = sandbox_of(task, records)
        self._path = output_of(task, records, self._stream) if name is None else sandbox and os.path.join(sandbox, name)

    def tail(self, target: BinaryIO, lines: int | None, *, follow: bool = False) -> None:
        """Write its last lines, or all of it, and if it is followed what is added until the task ends.

        Raises:
            PilotError: It is not here.
        """
        while not self._is_here() and follow and self._runs():
            time.sleep(POLL_S)
        if not self._is_here():
            if self._recorded is None:
                raise PilotError(self._missing())
            text = self._recorded if lines is None else ''.join(self._recorded.splitlines(keepends=True)[-lines:])
            target.write(text.encode(errors='surrogateescape'))
            return
        with open(str(self._path), 'rb') as file:
            file.seek(0 if lines is None else _start_of(file, lines))
            while True:
                ends = not follow or not self._runs()
                while block := file.read(_BLOCK):
                    target.write(block)
                target.flush()
                if ends:
                    return
                time.sleep(POLL_S)

    def _is_here(self) -> bool:
        return self._path is not None and os.path.isfile(self._path)

    def _runs(self) -> bool:
        task = self._records.task(self._task['uid'])
        if task is not None and not self._is_here():   # it may have got a sandbox
            self._path = output_of(task, self._records, self._stream) if self._path is None else self._path
        return task is not None and task['state'] not in states.FINAL

    def _missing(self) -> str:
        uid = self._task['uid']
        if self._path is None:
            return f'{uid} has no sandbox yet: it is {self._task["state"]} (rp why {uid})'
        return f'{uid} has no file {self._path} here; it has not been written, was removed, or is on another machine'


def _start_of(file: BinaryIO, lines: int) -> int:
    """Return where the last lines of a file begin."""
    end = start = file.seek(0, os.SEEK_END)
    while start > 0:
        size = min(_BLOCK, start)
        start -= size
        file.seek(start)
        block = file.read(size)
        at = len(block) - (start + size == end and block.endswith(b'\n'))
        while (at := block.rfind(b'\n', 0, at)) >= 0:
            lines -= 1
            if not lines:
                return start + at + 1
    return 0
