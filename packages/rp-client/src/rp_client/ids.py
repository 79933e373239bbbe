"""Uids of sessions, and their directories; the forms of generated uids of tasks and pilots."""

from __future__ import annotations

import getpass
import os
import socket
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, TypeGuard

from rp_api.description.casts import GeneratedUid
from rp_api.system import private


class _HasTaskUids(Protocol):
    """A sweep."""

    def _task_uids(self) -> Iterator[str]:
        """Yield the uids of all tasks."""


class HasUid(Protocol):
    """A task or pilot."""

    @property
    def uid(self) -> str: ...


Named = str | HasUid
"""A task or pilot, or its uid."""

Uids = Named | Iterable[Named] | None
"""Tasks or pilots, or their uids; None stands for all."""

Form = tuple[str, int]
"""The form of generated uids: the part before the dot, and the least number of digits behind it."""

TASK: Form = 'task', 6
MASTER: Form = 'raptor', 4
PILOT: Form = 'pilot', 4
SWEEP: Form = 'sweep', 4


def uid_of(named: Named) -> str:
    """Return the uid of a task or pilot."""
    uid = named if isinstance(named, str) else getattr(named, 'uid', None)
    if not isinstance(uid, str):
        raise TypeError(f'a uid, or an object with a uid, is needed, not {named!r}')
    return uid


def is_one(named: Uids) -> TypeGuard[Named]:
    """Return whether this is one task, pilot or uid, and not several."""
    return isinstance(named, str) or (hasattr(named, 'uid') and not _is_sweep(named))


def uids_of(named: Named | Iterable[Named]) -> list[str]:
    """Return the uids of one or several tasks or pilots; a sweep stands for its tasks."""
    if is_one(named):
        return [uid_of(named)]
    if not isinstance(named, Iterable):
        raise TypeError(f'uids, or objects with a uid, are needed, not {named!r}')
    if _is_sweep(named):
        return list(named._task_uids())
    return [each if type(each) is str else uid_of(each) for each in _flat(named)]   # many uids are mostly strings


def _is_sweep(named: Any) -> TypeGuard[_HasTaskUids]:
    return hasattr(named, '_task_uids')


def _flat(named: Iterable[Named]) -> Iterator[Named]:
    """Yield the named, and for a sweep its tasks."""
    for each in named:
        if type(each) is not str and _is_sweep(each):
            yield from each._task_uids()
        else:
            yield each


def of_worker(master: str) -> Form:
    """Return the form of the uids of a RAPTOR master's workers."""
    return master, 4


def of_task(uid: str) -> Form:
    """Return the form that the uid of a task has if it was generated, for the task itself or in a sweep."""
    sweep = uid.rpartition('.')[0]
    return (sweep, 6) if type(marked(sweep, SWEEP)) is GeneratedUid else TASK


def marked(uid: str, form: Form) -> str:
    """Return the uid, as a `GeneratedUid` if it has that form."""
    kind, digits = form
    start, _, number = uid.rpartition('.')
    return GeneratedUid(uid) if start == kind and len(number) >= digits and number.isdecimal() else uid


def chosen(uid: str | None) -> str | None:
    """Return the uid of a description that is submitted, None if it has none or a generated one."""
    return None if type(uid) is GeneratedUid else uid or None


def session_uid() -> str:
    """Return a new uid: `rp.session.<host>.<user>.<day>.<number of the day>-<16 random hexadecimal digits>`.

    Days count from 1970. The number comes from a file below `$RADICAL_BASE` (default: the home directory), so that uids
    sort by time; without that file, a random id replaces the last part. The random digits keep other users from
    predicting a uid. `RADICAL_PILOT_SID_BASE` replaces all but the number, and omits the random digits.
    """
    base = os.environ.get('RADICAL_PILOT_SID_BASE')
    prefix = base or f'rp.session.{socket.gethostname().partition(".")[0]}.{_user()}.{int(time.time() // 86400):06d}'
    try:
        number = f'{prefix}.{_count(prefix):04d}'
    except (OSError, RuntimeError, ValueError):   # no home, no directory, or a file without a number
        return f'{prefix}.{uuid.uuid4()}'
    return number if base else f'{number}-{os.urandom(8).hex()}'


def session_directory(base: str, uid: str | None, path: str | None) -> tuple[str, str]:
    """Return the uid of a session (default: a new one) and its directory, which is private to this user.

    A new session gets a new directory, so that it never uses the files of another one, unless `path` names one.
    """
    while uid is None and path is None:
        new = session_uid()
        target = os.path.abspath(os.path.join(base, new))
        with suppress(FileExistsError):
            private.make_directory(target, fresh=True)
            return new, target
    own = uid or session_uid()
    target = os.path.abspath(path or os.path.join(base, own))
    private.make_directory(target)
    return own, target


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())   # a user without an entry in the user database, as in containers


def _count(prefix: str) -> int:
    """Return the next number for a prefix."""
    import fcntl

    directory = Path(os.environ.get('RADICAL_BASE') or Path.home()) / '.radical' / 'pilot' / 'counters'
    private.make_directory(directory)   # others cannot lock a file in it
    for above in (directory.parent, directory.parent.parent):   # where $RADICAL_BASE is shared
        private.check_entry(above)
    fd = private.open_file(directory / prefix.replace('/', '_'), os.O_RDWR | os.O_CREAT, readable=True)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        number = int(os.pread(fd, 32, 0) or 0)
        # overwritten in place: numbers never get shorter, and a full disk must not reset them
        os.pwrite(fd, str(number + 1).encode(), 0)
    finally:
        os.close(fd)
    return number
