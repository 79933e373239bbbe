"""Private directories in shared memory for large values, each removed with the process that owns it.

A directory is in `/dev/shm` or, where that cannot be used, in the directory for temporary files. Its owner holds a lock
of the kernel on it, which ends with the owner, whatever ends that. So `sweep` recognises directories of dead owners,
in other containers, too. Files for which there is no room in memory go to a second directory on disk, the overflow,
which is made when it is needed; a link in the first directory leads to it, and both are removed together.
"""

from __future__ import annotations

import fcntl
import functools
import os
import shutil
import tempfile
import weakref
from contextlib import suppress

from rp_api.system import private
from rp_api.system.host import boot_id

_MEMORY = '/dev/shm'
_OVERFLOW = 'overflow'   # name of the link
_ATTEMPTS = 100
_STRIDE = 16 << 20       # bytes that are written before the room is looked at again
_SHARE = 2               # of the file system in memory, one half is used at most
_RESERVE = 4             # of the memory of the node, one quarter stays available

_locks: set[int] = set()   # descriptors of the locked directories of this process


class Room:
    """The room for files in a directory in shared memory; `take(size)` looks at it from time to time."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._left = 0

    def take(self, size: int) -> bool:
        """Return whether a file of so many bytes may be written there."""
        if size > self._left:
            self._left = min(room(self._directory), max(size, _STRIDE))
        if size > self._left:
            return False
        self._left -= size
        return True


class SharedDirectory:
    """A new directory (mode 0700) of this process; `overflow` is the directory on disk for what has no room in it.

    It is removed by `close`, with this object, or at the end of the process; directories of dead owners are removed
    now. OSError if it cannot be made.
    """

    def __init__(self, overflow: str | None = None) -> None:
        sweep()
        self.path, lock = _make()
        self._disk = os.path.abspath(overflow or tempfile.gettempdir())
        self._overflow = ''
        self._room = Room(self.path)
        self._remove = weakref.finalize(self, _end, self.path, lock, os.getpid())

    def path_for(self, size: int) -> str:
        """Return the path for a new file of so many bytes: in memory while there is room, else on disk."""
        directory = self.path if self._room.take(size) else self._on_disk()
        return f'{directory}/{os.urandom(8).hex()}'

    def close(self) -> None:
        """Remove the directory and its overflow with all files; maps of the files stay valid."""
        self._remove()

    def _on_disk(self) -> str:
        if not self._overflow:
            path, link = os.path.join(self._disk, _new_name()), os.path.join(self.path, _OVERFLOW)
            os.symlink(path, link)   # first, so that a sweep finds the directory
            try:
                private.make_directory(path, fresh=True)
            except OSError:
                os.unlink(link)
                raise
            self._overflow = path
        return self._overflow


def sweep() -> None:
    """Remove the directories of this user whose owners have died on this host."""
    base, start = shared_memory(), _prefix()
    for name in os.listdir(base):
        if name.startswith(start):
            path = os.path.join(base, name)
            lock = _locked(path)
            if lock is not None:
                _remove(path, lock)


def room(directory: str) -> int:
    """Return how many bytes may be written in a directory now, so that others have room and the node has memory."""
    try:
        status = os.statvfs(directory)
    except OSError:   # it was removed
        return 0
    if directory.startswith(_MEMORY):
        return min(status.f_frsize * (status.f_bavail - status.f_blocks // _SHARE), _memory())
    return status.f_frsize * status.f_bavail // _SHARE


@functools.cache
def shared_memory() -> str:
    """Return the directory whose files are in memory, or the directory for temporary files if it cannot be used."""
    usable = os.path.isdir(_MEMORY) and os.access(_MEMORY, os.W_OK | os.X_OK)
    return _MEMORY if usable else tempfile.gettempdir()


@functools.cache
def place() -> str:
    """Return a text that is equal in two processes exactly if they see the same files in `shared_memory()`.

    It names the start of the kernel and the mounted file system: containers may have one of their own.
    """
    base = shared_memory()
    return f'{boot_id()}:{os.stat(base).st_dev}:{base}'


def _make() -> tuple[str, int]:
    """Return the path of a new directory and the descriptor with its lock."""
    for _ in range(_ATTEMPTS):
        path = os.path.join(shared_memory(), _new_name())
        os.mkdir(path, 0o700)
        lock = _locked(path)   # None if a sweep was faster
        if lock is not None:
            _locks.add(lock)
            return path, lock
    raise FileExistsError(f'{_ATTEMPTS} new directories in {shared_memory()} were removed by other processes')


def _locked(path: str) -> int | None:
    """Lock a directory of this user, and return the descriptor; None if its owner lives or it does not exist."""
    try:
        descriptor = private.open_directory(path, readable=False)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(descriptor), os.lstat(path)):
            return descriptor
    except OSError:
        pass
    os.close(descriptor)
    return None


def _end(path: str, lock: int, owner: int) -> None:
    if os.getpid() == owner:   # and no fork of it
        _locks.discard(lock)
        _remove(path, lock)


def _remove(path: str, lock: int) -> None:
    """Remove a locked directory and its overflow, then unlock it."""
    try:
        gone = f'{path}.gone'
        with suppress(OSError):   # another process may be writing a file: under the new name it finds no directory
            os.rename(path, gone)
            path = gone
        with suppress(OSError):
            overflow = os.readlink(os.path.join(path, _OVERFLOW))
            if os.path.basename(overflow).startswith(_prefix()):
                private.check(overflow, readable=False)
                shutil.rmtree(overflow, ignore_errors=True)
        for _ in range(_ATTEMPTS):
            shutil.rmtree(path, ignore_errors=True)
            if not os.path.lexists(path):
                break
    finally:
        os.close(lock)


def _new_name() -> str:
    return f'{_prefix()}{os.getpid()}.{os.urandom(6).hex()}'


def _prefix() -> str:
    return f'radical.pilot.{os.geteuid()}.'


def _memory() -> int:
    """Return how many bytes of the node's memory may be used: what is available, less a reserve."""
    try:
        with open('/proc/meminfo', encoding='ascii') as file:
            found = dict(line.split(':', 1) for line in file)
        total, available = (int(found[name].split()[0]) << 10 for name in ('MemTotal', 'MemAvailable'))
    except (OSError, KeyError, ValueError):
        return 1 << 62
    return available - total // _RESERVE


def _forked() -> None:
    """Close the locks of the parent, which end with that process and not with this fork of it."""
    for lock in _locks:
        os.close(lock)
    _locks.clear()


os.register_at_fork(after_in_child=_forked)
