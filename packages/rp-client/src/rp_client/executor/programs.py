"""Executables and MPI programs of an executor: tasks that the agent runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import CancelledError, Future, InvalidStateError
from contextlib import suppress
from typing import TYPE_CHECKING, Any, BinaryIO

from rp_api import states
from rp_api.description.task import TaskDescription
from rp_api.errors import DescriptionError, PilotError
from rp_api.failures.kinds import EXIT, SIGNAL
from rp_client.completion.result import OUTPUT_CHARS, TaskResult
from rp_client.executor.futures import DroppableFuture
from rp_client.executor.requirements import RankNeed
from rp_client.handles.base import record_of
from rp_client.handles.task import Task
from rp_client.service.owner import engine_of

if TYPE_CHECKING:
    from rp_client.core.task import TaskRecord

_PLACED = ('ranks_per_node', 'lfs_per_rank', 'mem_per_rank', 'slots', 'tags')
"""Attributes with which a program cannot run on any cores of a pilot."""

MAX_STREAM_BYTES = 1 << 20
"""Bytes of a standard stream in a result."""


def _nothing(_: object) -> None:
    """Ignore the end of work that has no result."""


class Programs:
    """Describes programs; equal descriptions are verified once."""

    def __init__(self) -> None:
        self._verified: dict[str, Any] | None = None

    def describe(self, executable: Any, attributes: Mapping[str, Any]) -> TaskDescription:
        """Return the description of a program without its arguments; DescriptionError if it is not valid."""
        for name in ('arguments', 'executable', 'mode'):
            if name in attributes:
                raise TypeError(f'run() takes the executable and its arguments in the form of a call, not {name!r}')
        wanted = {'executable': _path(executable), 'literal_arguments': True, **attributes}
        description = TaskDescription(wanted)
        if wanted != self._verified:
            description.verify()
            self._verified = wanted
        return description


class Program:
    """A program that was requested: its description, its future, and its task once it was submitted.

    `dropped(program)` is called if its future was cancelled, `expected(record)` if its task may have failed.
    """

    def __init__(self, description: TaskDescription, check: bool, dropped: Callable[[Program], object],
                 expected: Callable[[TaskRecord], object] = _nothing) -> None:
        self._expected = expected
        self.description = description
        self.future = DroppableFuture(lambda: dropped(self))
        self.need = _need(description)
        self._check = check
        self.task: Task | None = None

    def submitted(self, task: Task, ended: Callable[[Program], object]) -> None:
        """Take the task, and call `ended` when it is final, in a thread of the session."""
        self.task = self.future.task = task
        task.future().add_done_callback(lambda future: self._end(future, ended))

    @property
    def started(self) -> bool:
        """True if the program was started, as far as it is known."""
        return self.task is not None and states.TASK.value(self.task.state) >= states.TASK.value(states.AGENT_EXECUTING)

    def _end(self, future: Future[Any], ended: Callable[[Program], object]) -> None:
        """Resolve the future, in a thread that may read files if the result has more output than agents report."""
        assert self.task
        self.future.told(self.task.stdout, self.task.stderr)
        if max(len(self.task.stdout), len(self.task.stderr)) < OUTPUT_CHARS:
            self._resolve(future, ended)
        else:
            engine_of(self.task).helpers.run(lambda: self._resolve(future, ended), _nothing, _nothing)

    def _resolve(self, future: Future[Any], ended: Callable[[Program], object]) -> None:
        assert self.task
        with suppress(InvalidStateError):   # it was cancelled
            try:
                error = future.exception()
            except CancelledError:
                self.future.drop()
            else:
                expected = error is not None and not self._check and getattr(error, 'kind', '') in (EXIT, SIGNAL)
                if expected:
                    self._expected(record_of(self.task))
                if error is None or expected:
                    result = self._result()
                    self.future.told(result.stdout, result.stderr)
                    self.future.set_result(result)
                else:
                    self.future.set_exception(error)
        ended(self)

    def _result(self) -> TaskResult:
        task = self.task
        assert task
        return task._outcome._replace(stdout=_output(task.stdout, task.open_stdout),
                                      stderr=_output(task.stderr, task.open_stderr))


def _output(end: str, opened: Callable[[], BinaryIO]) -> str:
    """Return an output, of which the end is known: as much as `MAX_STREAM_BYTES` allows, or as there is."""
    if len(end) < OUTPUT_CHARS:
        return end
    try:
        with opened() as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - MAX_STREAM_BYTES))
            return file.read().decode(errors='replace')
    except (OSError, RuntimeError, PilotError):   # it was removed, or cannot be reached
        return end


def texts(values: Iterable[Any]) -> list[str]:
    """Return the arguments of a program as text; TypeError for one that is no text, path or number."""
    found = []
    for position, value in enumerate(values):
        if isinstance(value, (str, os.PathLike)):
            found.append(os.fsdecode(value))
        elif value is None or isinstance(value, (bytes, bytearray, list, tuple, dict, set)):
            raise TypeError(f'argument {position} of the program is {value!r:.80}: it must be text, a path or a number')
        else:
            found.append(str(value))
    return found


def _path(executable: Any) -> str:
    """Return the executable as text; one that exists relative to the working directory as an absolute path."""
    if not isinstance(executable, (str, os.PathLike)) or not os.fspath(executable):
        raise DescriptionError(f'the executable is {executable!r}, it must be the name or the path of a program')
    text = os.fsdecode(executable)
    path = os.sep in text or isinstance(executable, os.PathLike)   # a Path drops './'
    return os.path.abspath(text) if path and os.path.exists(text) else text


def _need(description: TaskDescription) -> RankNeed:
    get = description.get
    ranks, cores, gpus = get('ranks') or 1, get('cores_per_rank') or 1, get('gpus_per_rank') or 0
    return RankNeed(ranks * cores, ranks * gpus, cores == 1 and not gpus and not any(map(get, _PLACED)))
