"""Errors of calls other than the exceptions of the called functions."""

from __future__ import annotations

import pickle
from concurrent.futures import CancelledError

from rp_api import pickles
from rp_api.errors import PilotError


class RemoteError(PilotError, RuntimeError):
    """The exception of a call that cannot be raised here: its type cannot be restored, or would end the program.

    The message is the `repr` of the original; `__cause__` shows its traceback.
    """


class CallLost(PilotError, RuntimeError):
    """A call has no result: the process that ran it died, or no master or worker is left that could run it."""


class InitializerFailed(PilotError, RuntimeError):
    """A call was not made, as the initializer has failed on its rank; the message is the traceback."""


class RemoteTraceback(Exception):
    """The traceback of an exception in the process that raised it, as text; the `__cause__` of the exception here."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f'\n"""\n{self.text}"""'


class CallTimeout(Exception):
    """Raised in the function of a call that exceeds its timeout; the caller gets a TimeoutError.

    It is not derived from TimeoutError, which is an OSError: many libraries handle those, for instance by a retry.
    """


class CallCanceled(CancelledError):
    """Raised in the function of a call that is cancelled; the caller gets a CancelledError."""


def restored(pickled: bytes | None, shown: str, text: str) -> BaseException:
    """Return the exception of a call, or a `RemoteError` in its place."""
    error: object = None
    if pickled is not None:
        try:
            error = pickle.loads(pickled)
        except BaseException as reason:   # its module is missing here, its __init__ takes other arguments, ...
            if pickles.is_interrupt(reason):
                raise
    if not isinstance(error, Exception):   # a SystemExit must not end the caller's program
        error = RemoteError(shown)
    error.__cause__ = RemoteTraceback(text)
    return error


def represented(error: BaseException) -> str:
    """Return the `repr` of an exception."""
    try:
        return repr(error)
    except BaseException:   # a `__repr__` of the application
        return f'{type(error).__name__} (it cannot be shown)'
