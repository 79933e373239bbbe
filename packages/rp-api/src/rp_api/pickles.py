"""Restores pickled objects of other processes, with errors that name what the receiver lacks.

Code is bytecode of one version of Python. Pickles that contain code, which are those of functions and classes by value,
therefore end with a stamp of that version; `pickle` itself ignores what follows the end of a pickle.
"""

from __future__ import annotations

import os
import pickle
import sys
import threading
from collections.abc import Iterable
from typing import NoReturn

from rp_api.errors import DeserializationError

PYTHON = f'{sys.version_info.major}.{sys.version_info.minor}'
"""The version whose bytecode this interpreter runs."""

_END = b'.'
_STAMP = b'\0python'
_MAX_STAMP_BYTES = len(_STAMP) + 16


def stamped(data: bytes) -> bytes:
    """Return what cloudpickle has made, with the version of this Python at its end if it contains code."""
    return b''.join((data, _STAMP, PYTHON.encode())) if b'CodeType' in data and b'_builtin_type' in data else data


def parted(data: bytes) -> tuple[bytes, bytes]:
    """Return a pickle without its stamp, and the stamp."""
    if data[-1:] == _END:
        return data, b''
    pickled, stamp, version = data.rpartition(_STAMP)
    return pickled, stamp + version


def is_pickle(data: bytes) -> bool:
    """Return whether these bytes look like a pickle, with or without a stamp; they are not unpickled."""
    return data[:1] == b'\x80' and (data[-1:] == _END or bool(_version_of(data)))


def refuse_future() -> NoReturn:
    """Refuse to pickle a future, which only its own process can wait for."""
    raise TypeError('a future cannot be pickled: rp.Executor passes the values of futures that are arguments, or items '
                    'of a list, tuple or dict that is an argument')


def restore(data: bytes | memoryview, what: str, buffers: Iterable[object] = ()) -> object:
    """Return the pickled object; DeserializationError if that fails, which calls the object `what`."""
    try:
        check_version(data, what)
        return pickle.loads(data, buffers=buffers)
    except DeserializationError:
        raise
    except BaseException as error:   # modules that are imported may raise anything, such as SystemExit
        if is_interrupt(error):
            raise
        raise failure(what, error)   # noqa: B904  # it decides whether the cause is shown


def is_interrupt(error: BaseException) -> bool:
    """Return whether an exception may be a Ctrl-C of the user, which Python raises in the main thread only."""
    return isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread()


def check_version(data: bytes | memoryview, what: str) -> None:
    """Raise DeserializationError if the pickle has code of another version of Python, which could crash this one."""
    version = '' if data[-1:] == _END else _version_of(data)
    if version and version != PYTHON:
        raise DeserializationError(
            f'{what} contains code of Python {version}, which cannot run in Python {PYTHON} ({sys.executable} on '
            f'{os.uname().nodename}): functions and classes of scripts travel by value between equal versions only; '
            f'give the worker a `named_env` with Python {version}, or move the code to a module that is installed on '
            'both sides')


def failure(what: str, error: BaseException) -> DeserializationError:
    """Return the error for an object that cannot be restored because of this exception."""
    reason = missing_module(error)
    made = DeserializationError(f'cannot restore {what}: {reason or repr(error)}', error)
    if reason:
        made.__suppress_context__ = True   # the sentence says all
    else:
        made.__cause__ = error
    return made


def missing_module(error: BaseException) -> str:
    """Return a sentence about the module that is missing and what to do about it; '' for other exceptions."""
    if not isinstance(error, ModuleNotFoundError) or not error.name:
        return ''
    return (f'there is no module {error.name!r} in Python {PYTHON} ({sys.executable} on {os.uname().nodename}): '
            'install it there, give the worker a `named_env` that has it, add its directory to PYTHONPATH in the '
            '`environment` of the worker, or send it along with '
            f'cloudpickle.register_pickle_by_value({error.name})')


def _version_of(data: bytes | memoryview) -> str:
    """Return the version in the stamp, '' if there is none."""
    _, stamp, version = bytes(data[-_MAX_STAMP_BYTES:]).rpartition(_STAMP)
    return version.decode('ascii', 'replace') if stamp else ''
