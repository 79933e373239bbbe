"""The index of this user's sessions, by which `rp session` finds them from any directory.

It is a directory in the user's state directory, with a file for each session. A session needs it for nothing, so that
it may be lost, and errors in writing it are ignored. Entries are read if they are this user's alone, as are the
directories of the sessions.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from pathlib import Path

from rp_api.errors import OwnershipError
from rp_api.system import private

MAX_ENTRIES = 1000
"""Entries that are kept; the oldest ones go."""

MAX_AGE_S = 30 * 86400.0
"""Seconds after which an entry of another host, or one that cannot be read, is removed."""

_DATABASE = 'hub.db'   # as `rp_api.coordination.sessions` has it, which takes time to import


def state_directory() -> Path:
    """Return the directory for what programs of this user keep; RuntimeError if the user has no home."""
    return Path(os.environ.get('XDG_STATE_HOME') or Path.home() / '.local/state') / 'radical.pilot'


def note(directory: str) -> None:
    """Add a session whose hub keeps its data in this directory."""
    if not os.path.exists(os.path.join(directory, _DATABASE)):
        return
    import hashlib  # commands only read the index, and are to answer at once

    with suppress(OSError, RuntimeError, OwnershipError):
        place = state_directory() / 'sessions'
        private.make_directory(place)
        entry = json.dumps({'directory': directory, 'host': os.uname().nodename})
        private.write_file(place / hashlib.sha256(os.fsencode(directory)).hexdigest()[:32], entry.encode())
        entries = os.listdir(place)
        if len(entries) > MAX_ENTRIES:
            oldest = sorted(entries, key=lambda name: os.lstat(place / name).st_mtime)
            for name in oldest[:len(entries) - MAX_ENTRIES]:
                os.unlink(place / name)


def directories() -> list[Path]:
    """Return the directories of the sessions that exist on this host, and remove the entries of others."""
    found = []
    with suppress(OSError, RuntimeError, OwnershipError):
        place = state_directory() / 'sessions'
        private.check(place, readable=False)
        for name in sorted(os.listdir(place)):
            directory = _directory(place / name)
            if directory is not None:
                found.append(directory)
    return found


def _directory(entry: Path) -> Path | None:
    """Return the directory of a session; None if there is none, or it is not this user's."""
    host = ''
    try:
        content = json.loads(private.read_file(entry, 1 << 16))
        directory, host = Path(content['directory']), content['host']
        if directory.is_absolute() and (directory / _DATABASE).is_file():
            private.check(directory)
            return directory
    except OwnershipError:
        return None
    except (OSError, ValueError, KeyError, TypeError):
        pass
    with suppress(OSError):
        if host == os.uname().nodename or time.time() - entry.lstat().st_mtime > MAX_AGE_S:
            entry.unlink()
    return None
