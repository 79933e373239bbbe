"""The file that says which process and session run the tasks of a journal of `rp run`.

The process holds a lock of the kernel on it. If the process is killed, the session goes on, and the file names it.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from rp_api.errors import PilotError
from rp_api.system import private

END_TIMEOUT = 60.0
"""Seconds that the run that `--force` ends may take for that."""

_RETRY_INTERVAL_S = 0.1


class RunningElsewhere(PilotError):
    """Another process of `rp run` has the journal."""


class RunFile:
    """The file beside a journal that names the session of its run, locked by this process until `close`.

    `base` and `uid` are the directory and the uid of the session, at first of an earlier run that was killed; empty if
    there is none.

    Args:
        journal: The path of the journal.
        force: End the process that has the journal.

    Raises:
        RunningElsewhere: Another process has the journal.
        OwnershipError: The file is another user's.
    """

    def __init__(self, journal: Path, *, force: bool) -> None:
        self._path = journal.with_name(f'{journal.name}.run')
        journal.parent.mkdir(parents=True, exist_ok=True)
        self._fd = -1
        end = time.monotonic() + END_TIMEOUT
        told = False
        while not self._lock():
            other = self._read()
            pid, host = other.get('pid'), other.get('host')
            if not (force and pid and host == os.uname().nodename and time.monotonic() < end):
                raise RunningElsewhere(f'process {pid} on {host}')
            if not told:
                told = True
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)
            time.sleep(_RETRY_INTERVAL_S)
        known = self._read()
        self.base, self.uid = str(known.get('base', '')), str(known.get('uid', ''))
        self.write(self.base, self.uid)

    def write(self, base: str, uid: str) -> None:
        """Note the session of the run; empty texts if there is none."""
        self.base, self.uid = base, uid
        content = {'base': base, 'uid': uid, 'pid': os.getpid(), 'host': os.uname().nodename}
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, json.dumps(content).encode(), 0)

    def close(self) -> None:
        """Unlock the file, and remove it if it names no session."""
        if not self.base:
            with suppress(OSError):
                os.unlink(self._path)
        os.close(self._fd)

    def _lock(self) -> bool:
        """Lock the file; return False if another process has locked it."""
        fd = private.open_file(self._path, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            taken = os.path.samestat(os.fstat(fd), os.stat(self._path))
        except (BlockingIOError, FileNotFoundError):   # locked, or just removed
            taken = False
        except OSError:   # a file system without locks
            taken = True
        if taken:
            self._fd = fd
        else:
            os.close(fd)
        return taken

    def _read(self) -> dict[str, Any]:
        with suppress(OSError, ValueError):
            found = json.loads(private.read_file(self._path))
            if isinstance(found, dict):
                return found
        return {}
