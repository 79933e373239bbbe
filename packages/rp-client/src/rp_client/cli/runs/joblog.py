"""The journal of `rp run`: a line for each task that has ended, from which the same command goes on."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from rp_api.coordination.session_index import state_directory
from rp_client.cli.runs.run_inputs import Job, UsageError

HEADER = 'Seq\tEnded\tExitval\tSignal\tCommand\n'


def default_path(words: Sequence[str]) -> Path:
    """Return the journal of a command line in this directory, in the state directory of the user."""
    digest = hashlib.sha256('\0'.join([os.getcwd(), *words]).encode('utf-8', 'surrogateescape')).hexdigest()
    return state_directory() / 'run' / f'{digest[:16]}.joblog'


class Joblog:
    """The journal in that file: `done` has number and command of each task that is not to be run (again).

    These are tasks that have succeeded, and those whose end this process has noted; `noted` has all in the file. A new
    journal replaces the old one unless `resume` is set.

    Raises:
        UsageError: The file is something else than a journal.
    """

    def __init__(self, path: Path, *, resume: bool) -> None:
        self.path = path
        self.done: set[tuple[int, str]] = set()
        self.noted: set[tuple[int, str]] = set()
        self._resumes = resume
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_file() and not _is_journal(path):
            raise UsageError(f'{path} is no journal of rp run and would be overwritten: name another file')
        if resume and path.exists():
            for job, succeeded in _entries(path):
                self.noted.add(job)
                self.done.update([job] if succeeded else ())
        goes_on = bool(self.noted)
        self._file: IO[str] = path.open('a' if goes_on else 'w', encoding='utf-8', errors='surrogateescape')
        self._file.write('\n' if goes_on and not path.read_bytes().endswith(b'\n') else '' if goes_on else HEADER)

    def add(self, job: Job, exit_code: int | None) -> None:
        """Note the end of a task; its exit code is None if it was not run to an end."""
        code = -1 if exit_code is None else exit_code
        self._file.write(f'{job.number}\t{time.time():.3f}\t{max(code, -1)}\t{max(-code, 0) if exit_code else 0}\t'
                         f'{_one_line(job.line)}\n')
        self._file.flush()
        if self._resumes:
            self.done.add(_key(job))

    def has(self, job: Job) -> bool:
        """Return whether this task is not to be run."""
        return _key(job) in self.done

    def knew(self, job: Job) -> bool:
        """Return whether the end of this task was noted by an earlier process."""
        return _key(job) in self.noted

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _key(job: Job) -> tuple[int, str]:
    return job.number, _one_line(job.line)


def _one_line(command: str) -> str:
    return command.replace('\\', '\\\\').replace('\n', '\\n').replace('\t', '\\t')


def _is_journal(path: Path) -> bool:
    """Return whether a file begins as a journal does; one whose writer was killed may have no more than that."""
    with path.open('rb') as file:
        return HEADER.encode().startswith(file.read(len(HEADER)))


def _entries(path: Path) -> list[tuple[tuple[int, str], bool]]:
    """Return number and command of each task in a journal, and whether it has succeeded."""
    found = []
    with open(path, encoding='utf-8', errors='surrogateescape') as file:
        for line in file:
            number, *rest = line.rstrip('\n').split('\t')
            if number.isdecimal() and len(rest) == 4 and line.endswith('\n'):
                found.append(((int(number), rest[3]), rest[1:3] == ['0', '0']))
    return found
