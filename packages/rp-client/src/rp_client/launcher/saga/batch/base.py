"""What a batch system is to the launcher: commands to run where it is, and what their output says.

States that radical.saga gives are not used: some of its adaptors call a failed job DONE, a cancelled one RUNNING, and
none tells the reason of the batch system. All jobs are asked about at once.
"""

from __future__ import annotations

import shlex
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

QUEUED = 'QUEUED'
RUNNING = 'RUNNING'
DONE = 'DONE'
FAILED = 'FAILED'
CANCELED = 'CANCELED'
GONE = 'GONE'
"""The batch system does not know the job any more."""

FINAL = frozenset((DONE, FAILED, CANCELED, GONE))


class Status(NamedTuple):
    """What is known about a job: its state, its exit code if it has one, and the batch system's words."""

    state: str
    words: str = ''
    exit_code: int | None = None
    stays: bool = False
    """It will never run, but is in the queue until somebody deletes it."""


class BatchSystem(ABC):
    """The commands of one batch system; job ids are its own."""

    name: str
    alive: str
    """A script that ends with exit code 0 if the batch system answers at all."""
    canceller: str
    """The program that is given the ids of jobs to cancel."""
    forgets = False
    """Whether it does not know jobs any more when they have ended."""

    @abstractmethod
    def ask(self, jobs: Mapping[str, str]) -> str:
        """The script that tells about jobs, with their directories, which are in the queue or run."""

    @abstractmethod
    def read(self, output: str) -> Mapping[str, Status]:
        """What the output of that script says, by job."""

    def ask_history(self, jobs: Mapping[str, str]) -> str:
        """The script that tells about jobs which have ended, if that is another one; else empty."""
        return ''

    def read_history(self, output: str) -> Mapping[str, Status]:
        """What the output of that script says, by job."""
        return self.read(output)

    def cancel(self, ids: Iterable[str]) -> str:
        """The script that cancels jobs; harmless for those that have ended."""
        return f'{self.canceller} {words(ids)}'


class Submitting(BatchSystem):
    """One whose jobs a script submits; those of others radical.saga does."""

    @abstractmethod
    def submit(self, description: Mapping[str, Any]) -> str:
        """The script that submits a job and prints its id."""


def each(ids: Iterable[str], command: str) -> str:
    """A script that runs a command with each job id as last word; what is said of unknown jobs is dropped."""
    return f'for job in {words(ids)}; do {command} "$job" 2>/dev/null; done; true'


def words(ids: Iterable[str]) -> str:
    """Job ids as words of a shell command."""
    return ' '.join(shlex.quote(name) for name in ids)
