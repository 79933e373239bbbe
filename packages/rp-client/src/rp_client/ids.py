"""Unique ids of sessions."""

from __future__ import annotations

import getpass
import os
import socket
import time
import uuid
from pathlib import Path


def session_uid() -> str:
    """A new session id: `rp.session.<host>.<user>.<day>.<number of the day>`.

    Days count from 1970. The number comes from a file below `$RADICAL_BASE` (default: the home directory), so that ids
    stay unique over all sessions of a user; where no file can be written, a random id takes the place of the numbers.
    `RADICAL_PILOT_SID_BASE` replaces all but the number.
    """
    base = os.environ.get('RADICAL_PILOT_SID_BASE')
    prefix = base or f'rp.session.{socket.gethostname().partition(".")[0]}.{_user()}.{int(time.time() // 86400):06d}'
    try:
        return f'{prefix}.{_count(prefix):04d}'
    except (OSError, RuntimeError, ValueError):   # no home, no directory, or a file that holds something else
        return f'{prefix}.{uuid.uuid4()}'


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())   # a user without an entry in the user database, as in containers


def _count(prefix: str) -> int:
    """The next number for a prefix."""
    import fcntl

    directory = Path(os.environ.get('RADICAL_BASE') or Path.home()) / '.radical' / 'pilot' / 'counters'
    directory.mkdir(parents=True, exist_ok=True)
    fd = os.open(directory / prefix.replace('/', '_'), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        number = int(os.pread(fd, 32, 0) or 0)
        # in place: numbers get longer, but never shorter, and a full disk must not make them begin anew
        os.pwrite(fd, str(number + 1).encode(), 0)
    finally:
        os.close(fd)
    return number
