"""Results of calls that have raised an exception."""

from __future__ import annotations

from concurrent.futures import CancelledError

from rp_raptor.errors import CallCanceled, CallTimeout
from rp_raptor.rank.capture import traceback_of
from rp_raptor.wire import payload


def encode_error(error: BaseException) -> bytes:
    """Return the result of a call with this exception; interruptions become the standard library's exceptions."""
    text = traceback_of(error)
    if isinstance(error, CallTimeout):
        error = TimeoutError(str(error))
    elif isinstance(error, CallCanceled):
        error = CancelledError(str(error))
    return payload.encode_error(error, text)
