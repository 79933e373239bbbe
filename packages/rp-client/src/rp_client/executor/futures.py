"""Futures of an executor that it resolves itself."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn

from rp_api import pickles
from rp_client.handles.task import Task

if TYPE_CHECKING:
    pass



class DroppableFuture(Future[Any]):
    """A future that can be cancelled until it has a result; `dropped` is then called, once.

    `task` is the task that runs the program, or the master that has the call; None before it was submitted. `stdout`
    and `stderr` are the output, once it is done.
    """

    stdout = stderr = ''   # of most calls

    def __init__(self, dropped: Callable[[], object]) -> None:
        super().__init__()
        self.task: Task | None = None
        self._dropped: Callable[[], object] | None = dropped

    def __reduce__(self) -> NoReturn:
        pickles.refuse_future()

    def cancel(self) -> bool:
        """Cancel the call or program, also if it runs; False if it has a result."""
        if not super().cancel():
            return False
        with self._condition:
            dropped, self._dropped = self._dropped, None
        if dropped is not None:
            self.set_running_or_notify_cancel()
            dropped()
        return True

    def told(self, out: str, err: str) -> None:
        """Take the output, before the result."""
        self.stdout, self.stderr = out, err

    def drop(self) -> None:
        """Cancel the future alone, as the call or program was cancelled."""
        with self._condition:
            first = self._dropped is not None
            self._dropped = None
        if first and super().cancel():
            self.set_running_or_notify_cancel()

    def copy(self, other: Future[Any]) -> None:
        """Take the result, the exception or the cancellation of another future, which is done."""
        out, err = getattr(other, 'stdout', ''), getattr(other, 'stderr', '')
        if out or err:
            self.told(out, err)
        if other.cancelled():
            self.drop()
            return
        error = other.exception()
        with suppress(InvalidStateError):   # it was cancelled at the same time
            if error is None:
                self.set_result(other.result())
            else:
                self.set_exception(error)
