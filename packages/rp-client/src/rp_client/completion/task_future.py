"""The future of a task, for code that works with `concurrent.futures` or `asyncio`."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from rp_api import pickles, states

if TYPE_CHECKING:
    from rp_client.handles.task import Task

_RUNS = states.TASK.value(states.AGENT_EXECUTING)

_UNREAD = object()
"""The value of a future that was not requested yet."""

Tell = Callable[..., object]
"""Calls its first argument with the others, in a thread in which the application's code may run."""


class TaskFuture(Future[Any]):
    """The future of a task; `task` is the task.

    It is done when the task is final. Its value is restored when it is requested for the first time, in the thread
    that requests it, and then kept. Callbacks are called in a thread of the session, one after the other.
    """

    closed = False   # as a listener of the board

    def __init__(self, task: Task, tell: Tell) -> None:
        super().__init__()
        self.task = task
        self._tell = tell
        self._value: Any = _UNREAD

    def __reduce__(self) -> NoReturn:
        pickles.refuse_future()

    def cancel(self) -> bool:
        """Request the cancellation of the task; return False if it is final and was not cancelled.

        The future is cancelled when the task is, which may still end otherwise.
        """
        if self.done():
            return self.cancelled()
        self.task.cancel()
        return True

    def running(self) -> bool:
        """Return whether the task was started and is not final."""
        return not self.done() and states.TASK.value(self.task.state) >= _RUNS

    def result(self, timeout: float | None = None) -> Any:
        """Return what `Task.result` returns, or raise what it raises.

        Args:
            timeout: Seconds to wait at most; default: no limit.
        """
        try:
            super().result(timeout)
        except CancelledError:
            raise self.task.error or CancelledError() from None
        if self._value is _UNREAD:
            self._value = self.task.result()
        return self._value

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return the error that `result` raises; None without one.

        Args:
            timeout: Seconds to wait at most; default: no limit.

        Raises:
            CancelledError: The task was cancelled.
            TimeoutError: The task is not final after `timeout` seconds.
        """
        error = super().exception(timeout)
        if error is None:
            try:
                self.result()
            except Exception as problem:   # the value cannot be restored
                return problem
        return error

    def _get_snapshot(self) -> tuple[bool, bool, Any, BaseException | None]:
        """Return (done, cancelled, result, exception), which asyncio requests from Python 3.14 on."""
        if not self.done() or self.cancelled():
            return self.done(), self.cancelled(), None, None
        error = self.exception()
        return True, False, None if error else self.result(), error

    def add_done_callback(self, fn: Callable[[Future[Any]], object]) -> None:
        """Call `fn(future)` when the task is final; at once if it is final already.

        `fn` may call the API, and wait. An exception in it is logged.
        """
        super().add_done_callback(partial(self._call, fn))

    def _call(self, fn: Callable[[Future[Any]], object], _: Future[Any]) -> None:
        self._tell(fn, self)

    def ended(self, _: Any) -> None:
        """Resolve the future, as the task is final; called by the board."""
        if self.done():   # someone else has set it
            return
        try:
            error: BaseException | None = self.task.error
        except Exception as problem:   # what the agent has reported makes no sense
            error = problem
        if isinstance(error, CancelledError) and super().cancel():
            self.set_running_or_notify_cancel()
        elif error is not None:
            self.set_exception(error)
        else:
            self.set_result(None)

    def broke(self, error: BaseException) -> None:
        """Resolve the future with an error, as the session has ended before the task; called by the board."""
        if not self.done():
            self.set_exception(error)
