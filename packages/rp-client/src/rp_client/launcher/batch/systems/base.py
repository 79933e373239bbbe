"""The interface between the launcher and a batch system: scripts to run where it is, and the meaning of their output.

A batch system is asked about all jobs at once. What it says about a job becomes a `Status`.
"""

from __future__ import annotations

import re
import shlex
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from rp_api.errors import PlatformError
from rp_client.launcher.batch.systems.request import JobRequest

QUEUED = 'QUEUED'
RUNNING = 'RUNNING'
DONE = 'DONE'
FAILED = 'FAILED'
CANCELED = 'CANCELED'
GONE = 'GONE'
"""The batch system does not know the job any more."""

FINAL = frozenset((DONE, FAILED, CANCELED, GONE))

_PLAIN = re.compile(r'[\w@%+=:,./-]+')


class Status(NamedTuple):
    """The state of a job, the batch system's words about it, and its exit code if it has one."""

    state: str
    words: str = ''
    exit_code: int | None = None
    stays: bool = False
    """It will never run, but is in the queue until it is deleted."""
    unschedulable: bool = False
    """It waits for something other than its turn: it cannot start unless the job, or the batch system, is changed."""


class BatchSystem(ABC):
    """The commands of one batch system; job ids are its own."""

    name: str
    alive: str
    """A script that ends with exit code 0 if the batch system answers at all."""
    submitter: ClassVar[str] = ''
    """The program that submits jobs."""
    canceller: str
    """The program that is given the ids of jobs to cancel."""
    forgets = False
    """Whether it does not know jobs any more when they have ended."""
    queue_command: ClassVar[str] = ''
    """A command that prints something, with the state of the queue where it can, if the queue `{}` is there."""
    queue_stopped: ClassVar[str] = ''
    """What it prints if the queue does not take or start jobs, as an extended regular expression."""
    qos_command: ClassVar[str] = ''
    """A command that prints something if the QOS `{}` is there; empty where there are none."""
    lacks: ClassVar[frozenset[str]] = frozenset()
    """The fields of a request that it has no way to express."""
    never: ClassVar[Mapping[str, str]] = {}
    """Reasons for which a waiting job does not start unless something is changed: regular expression, and meaning."""
    unreachable: ClassVar[Mapping[str, str]] = {}
    """Messages of the submitting program if the batch system cannot be reached: regular expression, and meaning."""

    @classmethod
    def is_never(cls, reason: str) -> bool:
        """Whether a job that waits for this reason cannot start unless something is changed."""
        return any(re.search(pattern, reason) for pattern in cls.never)

    @classmethod
    def is_unreachable(cls, output: str) -> bool:
        """Whether a failed submission says that the batch system could not be reached."""
        return any(re.search(pattern, output) for pattern in cls.unreachable)

    @abstractmethod
    def ask(self, jobs: Mapping[str, str]) -> str:
        """The script that tells about jobs, with their directories, which are in the queue or run."""

    @abstractmethod
    def read(self, output: str) -> Mapping[str, Status]:
        """The statuses in the output of that script, by job."""

    def ask_history(self, jobs: Mapping[str, str]) -> str:
        """The script that tells about jobs which have ended, if that is another one; else empty."""
        return ''

    def read_history(self, output: str) -> Mapping[str, Status]:
        """The statuses in the output of that script, by job."""
        return self.read(output)

    def cancel(self, ids: Iterable[str]) -> str:
        """The script that cancels jobs; harmless for those that have ended."""
        return f'{self.canceller} {words(ids)}'


class Submitting(BatchSystem):
    """A batch system whose jobs a script of ours submits."""

    job_id: ClassVar[str]
    """A regular expression whose group is the id of the job in the output of the submission."""

    @abstractmethod
    def submit(self, request: JobRequest) -> str:
        """The shell script that submits a job and prints its id."""

    def find(self, request: JobRequest) -> str:
        """The shell script that prints, as the submission does, the id of the job which runs in that directory.

        Empty if a submission that the batch system did not answer has never led to a job.
        """
        return ''

    def submitted(self, output: str) -> str:
        """The id of the job that was submitted, from the output of that script; empty if there is none."""
        found = re.findall(self.job_id, output, re.MULTILINE)
        return str(found[-1]) if found else ''


class Scripted(Submitting):
    """A batch system that reads a job script, with its own directives, from the input of a program."""

    directive: ClassVar[str]
    """The beginning of a line with an option, such as `#SBATCH`."""
    settings: ClassVar[str] = ''
    """Variables for the submitting program, in front of it."""

    @abstractmethod
    def options(self, request: JobRequest) -> Iterator[str]:
        """The options that ask for the job; `PlatformError` if there is no way to ask for it."""

    def render(self, request: JobRequest) -> str:
        """The job script."""
        lines = ['#!/bin/sh', *(f'{self.directive} {option}' for option in self.options(request)), '',
                 f'cd {shlex.quote(request.directory)} || exit 1',
                 *(f'export {name}={shlex.quote(value)}' for name, value in request.environment.items()),
                 f'exec {words(request.command)}', '']
        return '\n'.join(lines)

    def submit(self, request: JobRequest) -> str:
        return (f'cd {shlex.quote(request.directory)} || exit 1\n'
                f"{self.settings}{self.submitter} <<'END_OF_JOB_SCRIPT'\n{self.render(request)}END_OF_JOB_SCRIPT\n")


class Adapted(BatchSystem):
    """A batch system whose jobs radical.saga submits: the terms in which it is asked, and changes in its script."""

    skips: ClassVar[frozenset[str]] = frozenset()
    """Attributes that radical.saga's adaptor refuses; `amendments` take their place."""

    def description(self, request: JobRequest) -> dict[str, Any]:
        """The attributes of radical.saga's job description, without those that are not set."""
        program, *arguments = request.command
        found = {
            'executable': program, 'arguments': arguments, 'environment': dict(request.environment),
            'working_directory': request.directory, 'output': request.output, 'error': request.error,
            'name': request.name, 'queue': request.queue, 'project': request.account,
            'wall_time_limit': request.minutes, 'total_cpu_count': request.cores, 'total_gpu_count': request.gpus,
            'processes_per_host': request.cores_per_node, 'total_physical_memory': request.memory,
            'system_architecture': {'options': list(request.options)} if request.options else {}}
        return {name: value for name, value in found.items()
                if (value or name == 'arguments') and name not in self.skips}

    def amendments(self, request: JobRequest) -> list[tuple[str, str]]:
        """Changes in the script of radical.saga's adaptor: regular expressions, and their replacements."""
        return []


def each(ids: Iterable[str], command: str) -> str:
    """A script that runs a command with each job id as last word; what is said of unknown jobs is dropped."""
    return f'for job in {words(ids)}; do {command} "$job" 2>/dev/null; done; true'


def words(ids: Iterable[str]) -> str:
    """Texts as words of a shell command."""
    return ' '.join(shlex.quote(name) for name in ids)


def value(text: str) -> str:
    """A text as the value of an option in a job script; `PlatformError` for what has no place there."""
    if _PLAIN.fullmatch(text):
        return text
    if re.search(r'["\n\r\\]', text):
        raise PlatformError(f'{text!r} cannot stand in a job script: it has quotes, backslashes or line breaks')
    return f'"{text}"'


def clock(minutes: int) -> str:
    """Minutes as `hours:minutes:seconds`."""
    return f'{minutes // 60:02}:{minutes % 60:02}:00'


def after(pattern: str, lines: Sequence[str]) -> list[tuple[str, str]]:
    """The amendment that adds lines below the first one which the pattern matches."""
    return [(f'({pattern}.*\n)', r'\1' + ''.join(f'{line}\n' for line in lines))] if lines else []
