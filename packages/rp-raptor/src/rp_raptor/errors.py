"""What can happen to a call besides an exception of the function itself."""

from __future__ import annotations

from concurrent.futures import CancelledError

from rp_api.errors import PilotError


class RemoteError(PilotError, RuntimeError):
    """A call has raised something that cannot be raised here: its type cannot be restored, or would end the program.

    The message is the `repr` of the original; `__cause__` shows its traceback.
    """


class CallLost(PilotError, RuntimeError):
    """A call had no result: the process that ran it died, or there is nobody (any more) who could run it."""


class RemoteTraceback(Exception):
    """The traceback of an exception in the process that raised it, as text: the `__cause__` of its copy here."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f'\n"""\n{self.text}"""'


class CallTimeout(Exception):
    """Raised in the function of a call that takes too long; who asked for the call gets a TimeoutError.

    It is none itself: that is an OSError, for which many a library has an answer of its own, such as to look elsewhere.
    """


class CallCanceled(CancelledError):
    """Raised in the function of a call that is not wanted any more; who asked for it gets a CancelledError."""
