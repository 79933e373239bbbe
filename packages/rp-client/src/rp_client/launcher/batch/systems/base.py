"""Base classes of batch systems, which write the scripts that submit, poll and cancel jobs, and parse their output.

The launcher runs the scripts on the batch system's host, and polls all jobs with one script. The state of a job is a
`Status`.
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
"""The batch system no longer knows the job."""

FINAL = frozenset((DONE, FAILED, CANCELED, GONE))

_PLAIN = re.compile(r'[\w@%+=:,./-]+')


class Status(NamedTuple):
    """The state of a job."""

    state: str
    """QUEUED, RUNNING, DONE, FAILED, CANCELED or GONE."""
    words: str = ''
    """The batch system's message about the state."""
    exit_code: int | None = None
    """The exit code of the job, if known."""
    stays: bool = False
    """True if the job has failed, but stays in the queue until it is deleted."""
    unschedulable: bool = False
    """True if the job cannot start unless the job, or the batch system, is changed."""
    start: str = ''
    """When the batch system expects the job to start, in its words; empty if that is not known."""


class BatchSystem(ABC):
    """The interface of a batch system. Scripts are for the POSIX shell; job ids are those of the batch system.

    Derive batch systems from `Scripted`, whose job scripts are written here. An object is made without arguments.
    """

    name: str
    """Name of the batch system in messages."""
    alive: str
    """A script that ends with exit code 0 if the batch system answers."""
    submitter: ClassVar[str] = ''
    """The program that submits jobs."""
    canceller: str
    """The program that cancels the jobs whose ids are its arguments."""
    forgets = False
    """True if the batch system does not know jobs that have ended."""
    queue_command: ClassVar[str] = ''
    """A command that prints something, if possible its state, if the queue `{}` exists."""
    queue_stopped: ClassVar[str] = ''
    """An extended regular expression for its output if the queue does not accept or start jobs."""
    qos_command: ClassVar[str] = ''
    """A command that prints something if the QOS `{}` exists; empty without QOS."""
    lacks: ClassVar[frozenset[str]] = frozenset()
    """Fields of a request that the batch system cannot express."""
    never: ClassVar[Mapping[str, str]] = {}
    """Reasons for which a waiting job cannot start without a change: regular expressions, and their meanings."""
    unreachable: ClassVar[Mapping[str, str]] = {}
    """Messages of the submitter if the batch system cannot be reached: regular expressions, and their meanings."""
    full: ClassVar[Mapping[str, str]] = {}
    """Messages of the submitter if it takes no more jobs until others have ended: regular expressions, and meanings."""

    @classmethod
    def is_never(cls, reason: str) -> bool:
        """Return whether a job that waits for this reason cannot start without a change.

        Args:
            reason: The batch system's reason.
        """
        return any(re.search(pattern, reason) for pattern in cls.never)

    @classmethod
    def is_unreachable(cls, output: str) -> bool:
        """Return whether a submission failed because the batch system could not be reached.

        Args:
            output: Output of the submission script.
        """
        return any(re.search(pattern, output) for pattern in cls.unreachable)

    @classmethod
    def is_full(cls, output: str) -> bool:
        """Return whether a submission failed because there are too many jobs for the moment.

        Args:
            output: Output of the submission script.
        """
        return any(re.search(pattern, output) for pattern in cls.full)

    @abstractmethod
    def ask(self, jobs: Mapping[str, str]) -> str:
        """Return the script that prints the states of jobs that wait or run.

        Args:
            jobs: Job ids, and the working directories of the jobs.
        """

    @abstractmethod
    def read(self, output: str) -> Mapping[str, Status]:
        """Parse the output of the script of `ask`.

        Args:
            output: Output of the script, with error messages.

        Returns:
            The statuses by job id; unknown jobs are missing.
        """

    def ask_history(self, jobs: Mapping[str, str]) -> str:
        """Return the script that prints the states of jobs that have ended; empty if that of `ask` does.

        Args:
            jobs: Job ids, and the working directories of the jobs.
        """
        return ''

    def read_history(self, output: str) -> Mapping[str, Status]:
        """Parse the output of the script of `ask_history`.

        Args:
            output: Output of the script, with error messages.

        Returns:
            The statuses by job id; unknown jobs are missing.
        """
        return self.read(output)

    def cancel(self, ids: Iterable[str]) -> str:
        """Return the script that cancels jobs, and has no effect on those that have ended.

        Args:
            ids: Job ids.
        """
        return f'{self.canceller} {words(ids)}'

    def find(self, request: JobRequest) -> str:
        """Return the script that lists the user's jobs that wait or run, for `found`.

        Args:
            request: A job whose submission got no answer.
        """
        return ''

    def found(self, output: str, request: JobRequest) -> str:
        """Return the id of the listed job that belongs to a request.

        Args:
            output: Output of the script of `find`: lines with a job id, and the job's directory or output file.
            request: The job, which is identified by these paths, as its name need not be unique.

        Returns:
            The job id; empty if the job is not listed.
        """
        rows = (line.strip().partition(' ') for line in output.splitlines())
        return next((job for job, _, path in rows if path.strip() in (request.directory, request.output)), '')


class Submitting(BatchSystem):
    """A batch system to which the launcher submits jobs by a script."""

    job_id: ClassVar[str]
    """A regular expression whose group is the job id in the output of the submission."""

    @abstractmethod
    def submit(self, request: JobRequest) -> str:
        """Return the script that submits a job and prints its id.

        Args:
            request: The job.
        """

    def submitted(self, output: str) -> str:
        """Return the id of a submitted job.

        Args:
            output: Output of the script of `submit`.

        Returns:
            The job id; empty if the output has none.
        """
        found = re.findall(self.job_id, output, re.MULTILINE)
        return str(found[-1]) if found else ''


class Scripted(Submitting):
    """A batch system whose submitter reads a job script with directives from its standard input."""

    directive: ClassVar[str]
    """The beginning of a line with an option, such as `#SBATCH`."""
    settings: ClassVar[str] = ''
    """Environment variables of the submitter, as a prefix of its command."""
    overriding: ClassVar[Mapping[str, str]] = {}
    """Variables of the user's environment by which the submitter would override what a request says: their names by
    the field that says it, or by an empty text for what all requests say. The submitter does not get them."""

    @abstractmethod
    def options(self, request: JobRequest) -> Iterator[str]:
        """Yield the options that request the job, one per directive.

        Args:
            request: The job.

        Raises:
            PlatformError: The batch system cannot express the request.
        """

    def render(self, request: JobRequest) -> str:
        """Return the job script.

        Args:
            request: The job.

        Raises:
            PlatformError: The batch system cannot express the request.
        """
        lines = ['#!/bin/sh', *(f'{self.directive} {option}' for option in self.options(request)), '',
                 f'cd {shlex.quote(request.directory)} || exit 1',
                 *(f'export {name}={shlex.quote(value)}' for name, value in request.environment.items()),
                 f'exec {words(request.command)}', '']
        return '\n'.join(lines)

    def submit(self, request: JobRequest) -> str:
        """Return the script that submits the job script.

        Args:
            request: The job.

        Raises:
            PlatformError: The batch system cannot express the request.
        """
        said = [names for field, names in self.overriding.items() if not field or _says(request, field)]
        return (f'cd {shlex.quote(request.directory)} || exit 1\n'
                f'{"unset " if said else ""}{" ".join(said)}\n'
                f"{self.settings}{self.submitter} <<'END_OF_JOB_SCRIPT'\n{self.render(request)}END_OF_JOB_SCRIPT\n")


class Adapted(BatchSystem):
    """A batch system to which radical.saga submits jobs."""

    skips: ClassVar[frozenset[str]] = frozenset()
    """Attributes that radical.saga's adaptor refuses; `amendments` replace them."""

    def description(self, request: JobRequest) -> dict[str, Any]:
        """Return the attributes of radical.saga's job description that are set.

        Args:
            request: The job.
        """
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
        """Return replacements in the script of radical.saga's adaptor.

        Args:
            request: The job.

        Returns:
            Regular expressions, and their replacements.
        """
        return []


class Delegated(Adapted):
    """A batch system whose jobs radical.saga submits, polls and cancels, by an adaptor of another project.

    Its jobs are known to that adaptor alone, so that there are no scripts.
    """

    alive = 'true'

    def ask(self, jobs: Mapping[str, str]) -> str:
        """Return no script."""
        return ''

    def read(self, output: str) -> Mapping[str, Status]:
        """Return no statuses."""
        return {}


def _says(request: JobRequest, field: str) -> bool:
    """Return whether a request says something about this field."""
    value = getattr(request, field)
    return bool(value) or (field == 'reserved_cores' and value is not None)


def each(ids: Iterable[str], command: str) -> str:
    """Return a script that runs a command for each job id, and ignores errors about unknown jobs."""
    return f'for job in {words(ids)}; do {command} "$job" 2>/dev/null; done; true'


def words(ids: Iterable[str]) -> str:
    """Return texts as quoted words of a shell command."""
    return ' '.join(shlex.quote(name) for name in ids)


def value(text: str) -> str:
    """Return a text as the value of an option in a job script; raise `PlatformError` if it cannot be quoted."""
    if _PLAIN.fullmatch(text):
        return text
    if re.search(r'["\n\r\\]', text):
        raise PlatformError(f'{text!r} cannot be used in a job script: it has quotes, backslashes or line breaks')
    return f'"{text}"'


def clock(minutes: int) -> str:
    """Return minutes as `hours:minutes:seconds`."""
    return f'{minutes // 60:02}:{minutes % 60:02}:00'


def after(pattern: str, lines: Sequence[str]) -> list[tuple[str, str]]:
    """Return the amendment that adds lines below the first line that the pattern matches."""
    return [(f'({pattern}.*\n)', r'\1' + ''.join(f'{line}\n' for line in lines))] if lines else []
