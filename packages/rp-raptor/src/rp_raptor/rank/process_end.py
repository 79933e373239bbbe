"""Ends processes with user code in them: a rank, with what its functions have left, and forks of a rank."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import traceback
from contextlib import suppress
from types import FunctionType
from typing import Any, NoReturn

from rp_api.by_value.references import by_reference
from rp_api.functions import deserialize_obj, serialize_obj

_RANK = os.getpid()


def end_if_forked(error: BaseException | None = None) -> None:
    """End this process if a function has forked it and returns there, or raises an error: calls belong to the rank."""
    if os.getpid() != _RANK:
        end_fork(error)


def end_fork(error: BaseException | None) -> NoReturn:
    """End a process that a function has forked where the function ends there, as a script would."""
    _exit(0 if error is None else exit_code(error))


def exit_code(error: BaseException) -> int:
    """Return the exit code of a program that ends with this exception, whose traceback is printed."""
    if isinstance(error, SystemExit) and isinstance(error.code, int | None):
        return error.code or 0
    traceback.print_exception(error)
    return 1


def end_processes() -> None:
    """Kill the processes of `multiprocessing` that functions have left: Python would wait for them."""
    multiprocessing = sys.modules.get('multiprocessing')
    for process in multiprocessing.active_children() if multiprocessing else ():
        process.kill()


def end_with_threads(code: int) -> None:
    """End this process if functions have left threads for which Python would wait."""
    if any(not thread.daemon for thread in threading.enumerate() if thread is not threading.main_thread()):
        atexit._run_exitfuncs()   # MPI is finalized in one of them
        _exit(code)


def _exit(code: int) -> NoReturn:
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):   # a function may have closed or replaced it
            stream.flush()
    os._exit(code & 0xff)


def send_by_value() -> None:
    """Make `multiprocessing` pickle such functions and classes by value in this process."""
    from multiprocessing.reduction import ForkingPickler  # for the first call only

    ForkingPickler.reducer_override = _reduced   # type: ignore[method-assign]


def _reduced(pickler: Any, value: Any) -> Any:
    if isinstance(value, FunctionType | type) and value.__module__ == '__main__' and not by_reference(value):
        return _restored, (serialize_obj(value),)
    return NotImplemented


def _restored(data: bytes) -> Any:
    send_by_value()   # in a process that was spawned
    return deserialize_obj(data)
