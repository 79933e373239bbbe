"""Tasks, as applications see them."""

from __future__ import annotations

import errno
from collections.abc import Callable, Generator
from io import BytesIO
from typing import TYPE_CHECKING, Any, BinaryIO

from rp_api import states, units
from rp_api.constants import AGENT_SERVICE, TASK_SERVICE, TASK_STATE
from rp_api.description.html_table import html_table
from rp_api.description.renamed import warn_renamed
from rp_api.reasons.kinds import STEP, WAITING
from rp_api.task_info.slots import SLOTS, whole_slots
from rp_client.completion.result import OUTPUT_CHARS, RETURNING, TaskResult
from rp_client.completion.task_future import TaskFuture
from rp_client.handles.task_attributes import TaskAttributes
from rp_client.stager.output import open_output

if TYPE_CHECKING:
    from rp_api.reasons.reason import Reason
    from rp_client.engine.waiting import Listener
    from rp_client.handles.task_manager import TaskManager
    from rp_client.service.task_requests import TaskRequests

_RUNS = states.TASK.value(states.AGENT_EXECUTING)


class Task(TaskAttributes):
    """A submitted task, made by `TaskManager.submit_tasks`; applications do not instantiate it."""

    __slots__ = ()

    _kind = 'Task'
    _owner: TaskRequests

    def _repr_html_(self) -> str:
        """Return a table of the main attributes, for notebooks."""
        return html_table(f'Task {self._record.uid}', {
            'name': self.name, 'state': self._record.state, 'pilot': self.pilot, 'exit code': self.exit_code,
            'duration': units.shown_time(self.times.duration), 'CPU time': units.shown_time(self.usage.cpu),
            'memory': units.shown_size(self.usage.memory), 'exception': self.exception, 'sandbox': self.sandbox,
            'reason': str(self.reason or '')})

    def __str__(self) -> str:
        return str([self._record.uid, self.pilot, self._record.state])

    @property
    def tmgr(self) -> TaskManager:
        """The task manager that the task was submitted to."""
        found: TaskManager = self._owner.manager
        return found

    @property
    def origin(self) -> str:
        """The side that submitted the task: `client`."""
        return 'client'

    def read_stdout(self) -> str:
        """Return the task's standard output, all of it: of a task that runs, what it has written so far.

        Bytes that are no UTF-8 are replaced. The file is copied if it is on another host. Use `open_stdout` for a file
        that is too large for memory.

        Raises:
            RuntimeError: The task has not started, or it is a call of RAPTOR whose description has no `stdout`.
            FileNotFoundError: The file, or the sandbox, was removed.
            OSError: The file cannot be read.
            PilotError: The host of the file cannot be reached.
        """
        return _text(self.open_stdout())

    def read_stderr(self) -> str:
        """Return the task's standard error, all of it; see `read_stdout`."""
        return _text(self.open_stderr())

    def open_stdout(self) -> BinaryIO:
        """Open the task's standard output for reading, as binary file; close it after use.

        A file on another host is copied to a temporary file, which is removed when it is closed.

        Raises:
            RuntimeError, FileNotFoundError, OSError, PilotError: See `read_stdout`.
        """
        return self._open('stdout')

    def open_stderr(self) -> BinaryIO:
        """Open the task's standard error for reading, as binary file; see `open_stdout`."""
        return self._open('stderr')

    def _open(self, stream: str) -> BinaryIO:
        if self.cached:
            return self._open_cached(stream)
        if self._record.pilot is None or (states.TASK.value(self._record.state) < _RUNS):
            raise RuntimeError(f'{self.uid} has no {stream} yet: it has not started, its state is {self.state}')
        path = self._record.outputs().get(stream)
        if path is None:
            raise RuntimeError(f'{self._record.uid} is a call of RAPTOR, whose {stream} is kept in a file only if its '
                               f'description sets {stream!r}; Task.{stream} has the end')
        self._owner.check_process()
        return open_output(self._record, path)

    def _open_cached(self, stream: str) -> BinaryIO:
        """Open a standard stream of a cached result."""
        path = self._record.get('cached')['files'].get(stream)
        if path is not None:
            return open(path, 'rb')
        text = self._record.get(stream) or ''
        if len(text) < OUTPUT_CHARS:
            return BytesIO(text.encode())
        raise FileNotFoundError(errno.ENOENT, f'the result of {self.uid} is cached with the end of its {stream} only, '
                                'as the task has run on another host, or its sandbox was removed')

    @property
    def reason(self) -> Reason | None:
        """Why the task waits, has failed or is slow; None if it is done, or runs as others of its kind.

        `kind` is one of `rp_api.reasons.kinds.KINDS`, such as `waiting.place` or `failed.memory`, `sentence` says it in
        words, as `str` does, `since` is in seconds since 1970, `evidence` is what the sentence follows from, and
        `remedy` what to do. It is made when it is asked for, from what the session knows at that moment.
        """
        from rp_api.reasons.explain import reason_of  # it compiles many patterns

        view = self._view
        return reason_of(view.of_task(self._record, self._owner.uid), view)

    def explain(self) -> str:
        """Return the state of the task and its reason in several lines, with the evidence and what to do."""
        from rp_api.reasons.explain import explanation  # see `reason`

        view = self._view
        return explanation(view.of_task(self._record, self._owner.uid), view)

    @property
    def waits_for(self) -> str:
        """The sentence of `reason` while the task waits, without "waits for"; deprecated, use `reason`."""
        warn_renamed('Task.waits_for', 'Task.reason')
        reason = self.reason
        waits = reason is not None and reason.kind.startswith(WAITING) and reason.kind != STEP
        return reason.sentence.removeprefix('waits for ') if reason and waits else ''

    @property
    def client_sandbox(self) -> str:
        """The client's directory that relative paths refer to."""
        return self._owner.session.client_sandbox

    def as_dict(self) -> dict[str, Any]:
        """Return the task's attributes as plain data, with its description and its task manager's uid."""
        names = ('uid', 'name', 'state', 'origin', 'exit_code', 'stdout', 'stderr', 'return_value', 'exception',
                 'exception_detail', 'pilot', 'attempts', 'losses', 'endpoint_fs', 'resource_sandbox',
                 'session_sandbox', 'pilot_sandbox', 'task_sandbox', 'client_sandbox', 'info', 'partition',
                 'output_files', 'launch_method', 'launch_command')
        reason = self.reason
        found: dict[str, Any] = {name: getattr(self, name) for name in names}
        slots = whole_slots(self._record.get(SLOTS))
        return found | {'type': 'task', 'tmgr': self._owner.uid, 'slots': slots, 'times': self.times.as_dict(),
                        'usage': self.usage.as_dict(), 'reason': reason.as_dict() if reason else None,
                        'description': self.description.as_dict()}

    def done(self) -> bool:
        """Return whether the state is final; False while output is staged."""
        return self.state in states.FINAL

    def result(self, timeout: units.Time | None = None) -> Any:
        """Wait until the task is final, and return its result.

        Args:
            timeout: Seconds to wait at most; default: no limit.

        Returns:
            The return value of a function (modes TASK_FUNCTION, TASK_METHOD, TASK_EVAL and TASK_EXEC), otherwise a
            `TaskResult`: `returncode`, `stdout`, `stderr` and `sandbox`.

        Raises:
            TaskError: The task has failed; see `Task.error`. Its own time limit is an error of kind `timeout`.
            concurrent.futures.CancelledError: The task was cancelled.
            TimeoutError: The task is not final after `timeout` seconds, and goes on.
            DeserializationError: The return value cannot be restored.
            RuntimeError: The session was closed or has failed.
        """
        if not self.done():
            self._owner.wait_for([self._record], None, timeout)
            if not self.done():
                raise TimeoutError(f'{self._record.uid} is {self._record.state} after {units.limit(timeout):g} s')
        error = self.error
        if error is not None:
            raise error
        if self._record.common.mode in RETURNING:
            return self.return_value
        return self._outcome

    @property
    def _outcome(self) -> TaskResult:
        """The result of a program, also of one that has failed."""
        return TaskResult(self.exit_code, self.stdout, self.stderr, None if self._record.common.cache else self.sandbox)

    def future(self) -> TaskFuture:
        """Return the future of the task, a `concurrent.futures.Future` whose `task` is this task.

        All calls return the same future as long as it is in use. Cancelling it requests the cancellation of the task.

        Raises:
            CoordinationError: This is a fork of the application.
        """
        return self._owner.future_of(self)

    def __await__(self) -> Generator[Any, None, Any]:
        """Wait in `asyncio` as `result` does; a cancelled task raises `asyncio.CancelledError`.

        Cancelling the coroutine that waits cancels the task, unless it awaits `asyncio.shield(task)`.
        """
        from asyncio import wrap_future  # takes long to import

        return wrap_future(self.future()).__await__()

    def wait_info(self, timeout: units.Time | None = None) -> str:
        """Wait until a service is ready, and return the information for its users.

        Args:
            timeout: Seconds to wait at most; default: no limit.

        Returns:
            The information that its `info_pattern` matched or its `service['info']` describes; '' without either.

        Raises:
            TimeoutError: The service is not ready after `timeout` seconds.
            RuntimeError: The service ended before it was ready, the task is no service, or the session was closed or
                has failed.
        """
        mode = self._record.common.mode
        if mode not in (TASK_SERVICE, AGENT_SERVICE):
            raise RuntimeError(f'{self._record.uid} is no service, its mode is {mode!r}')
        record = self._record
        if not self._owner.board.wait_until(lambda: self.info is not None or record.state in states.FINAL, timeout):
            raise TimeoutError(f'{self.uid} is not ready after {units.limit(timeout):g} s, its state is {self.state}')
        info = self.info
        if info is None:
            raise RuntimeError(f'{self._record.uid} ended as {self._record.state} before it was ready: '
                               f'{self.exception or "there is no information on the reason"}')
        return str(info)

    def connect(self, timeout: units.Time | None = None) -> str:
        """Return the information on a service, as `wait_info`, with an address that the application reaches.

        On a platform that is reached by ssh, this is a port of this host, from which a tunnel leads to the service
        until the session is closed; elsewhere, it is the address that tasks get. Call it again after the service has
        moved.

        Args:
            timeout: Seconds to wait at most until the service is ready; default: no limit.

        Raises:
            TimeoutError: The service is not ready after `timeout` seconds.
            RuntimeError: See `wait_info`.
            ValueError: The platform is reached by ssh, and the information names no host and port.
            PlatformError: The tunnel cannot be opened.
        """
        info = self.wait_info(timeout)
        assert self._record.pilot is not None
        description = self._record.pilot.description
        platform = self._owner.session.platform(description.resource, description.access_schema)
        return self._owner.session.tunnels.reach(platform.job_manager_endpoint, info)

    def cancel(self) -> None:
        """Request the cancellation of the task, and return at once. A final task is not affected."""
        self._owner.check_process()
        if self._record.state not in states.FINAL:
            self.tmgr.cancel_tasks(self._record.uid)

    def register_callback(self, cb: Callable[..., Any], cb_data: Any = None, metric: str | None = None) -> None:
        """Register a callback for the states of this task.

        It is called as `cb(task, state)` in a thread of the session, once for each further state, in order.

        Args:
            cb: The callable.
            cb_data: A third argument for `cb`; default: none is passed.
            metric: `TASK_STATE` (default).

        Raises:
            ValueError: `cb` does not take these arguments, or the metric is unknown.
        """
        self.tmgr.register_callback(cb, cb_data, metric or TASK_STATE, self._record.uid)

    def _listen(self, listener: Listener) -> None:
        """Call a listener when the task is final."""
        self._owner.board.listen(self, listener)


def _text(file: BinaryIO) -> str:
    """Read and close a file."""
    with file:
        return file.read().decode(errors='replace')
