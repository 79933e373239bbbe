"""Directories and files that belong to this user alone: made, opened, and checked through the descriptor that is used.

A base directory may be shared with other users; the directories that a session makes there are not. A directory is used
only if it belongs to this user and others cannot write to it. All that it holds is then this user's, too. A file with
keys is used only if, besides, others cannot read it. Symbolic links are not followed in the last part of a path.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from contextlib import suppress

from rp_api.errors import OwnershipError

AnyPath = str | os.PathLike[str]

_WRITE, _ALL = 0o022, 0o077
"""What others must not be allowed to do: to write, or anything."""


def make_directory(path: AnyPath, *, fresh: bool = False, readable: bool = False) -> None:
    """Make a directory of mode 0700, and those above it, or take one that is there and belongs to this user alone.

    One that others can only read is closed to them, unless they may (`readable`). Raises `OwnershipError` if it is
    another user's or others can write to it, `FileExistsError` if it has to be a `fresh` one and is there.
    """
    try:
        _mkdir(path)
    except FileExistsError:
        if fresh:
            raise
    descriptor = open_directory(path)
    try:
        mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
        if mode & _ALL and not readable:
            os.fchmod(descriptor, mode & ~_ALL)
    finally:
        os.close(descriptor)


def open_directory(path: AnyPath, *, readable: bool = True) -> int:
    """A descriptor of a directory; `OwnershipError` if it is not this user's, or others can write to it (or use it)."""
    return _opened(path, os.O_RDONLY | os.O_DIRECTORY, stat.S_ISDIR, _WRITE if readable else _ALL)


def check_directory(path: AnyPath, *, readable: bool = False) -> None:
    """Raise what `open_directory` raises."""
    os.close(open_directory(path, readable=readable))


def check_entry(path: AnyPath) -> None:
    """Raise `OwnershipError` for an entry of a directory such as /tmp that another user may have put there.

    It is for names that everyone knows beforehand. The owner of the directory, and root, may make entries for others.
    """
    above = os.stat(os.path.dirname(os.path.abspath(path)))
    entry = os.lstat(path)
    if above.st_mode & stat.S_IWOTH and entry.st_uid not in (os.geteuid(), above.st_uid, 0):
        raise _refusal(path, f'it belongs to user {_name(entry.st_uid)}, in a directory where every user can make '
                             'entries')


def open_file(path: AnyPath, flags: int = os.O_RDONLY, *, readable: bool = False) -> int:
    """A descriptor of a file, made with mode 0600 if `flags` say so (without O_TRUNC, which comes before the check).

    Raises `OwnershipError` if it is no file, is another user's, or others can use it (or, if `readable`, write to it).
    """
    # a FIFO has to be opened to be refused
    return _opened(path, flags | os.O_NONBLOCK, stat.S_ISREG, _WRITE if readable else _ALL)


def check_file(path: AnyPath) -> None:
    """Raise `OwnershipError` for a file, in a directory of ours, that is another user's, or that others can write to.

    It is not opened: to close a database would end the locks that SQLite has in this process.
    """
    if fault := _fault(os.lstat(path), stat.S_ISREG, _WRITE):
        raise _refusal(path, fault)


def read_file(path: AnyPath, limit: int = -1) -> bytes:
    """The content of a file, or its first `limit` bytes; raises what `open_file` raises."""
    with open(open_file(path), 'rb') as file:
        return file.read(limit)


def write_file(path: AnyPath, content: bytes, mode: int = 0o600) -> None:
    """Put a file in place that is whole at any moment, and that others cannot read at any."""
    directory, name = os.path.split(path)
    new = os.path.join(directory, f'.{name}.{os.urandom(4).hex()}')
    try:
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), 'wb') as file:
            file.write(content)
            os.fchmod(file.fileno(), mode)
        os.replace(new, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(new)
        raise


def _mkdir(path: AnyPath) -> None:
    try:
        os.mkdir(path, 0o700)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
        os.mkdir(path, 0o700)


def _opened(path: AnyPath, flags: int, of_kind: Callable[[int], bool], closed: int) -> int:
    """A descriptor of what is at a path, if `_fault` finds none in it."""
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:
        raise
    except OSError as error:   # that it is a link or another user's says more than that it cannot be opened
        if fault := _fault(os.lstat(path), of_kind, closed):
            raise _refusal(path, fault) from error
        raise
    if fault := _fault(os.fstat(descriptor), of_kind, closed):
        os.close(descriptor)
        raise _refusal(path, fault)
    return descriptor


def _fault(status: os.stat_result, of_kind: Callable[[int], bool], closed: int) -> str:
    """Why something cannot be used; empty if it can."""
    mode, me = stat.S_IMODE(status.st_mode), os.geteuid()
    if stat.S_ISLNK(status.st_mode):
        return f'it is a symbolic link of user {_name(status.st_uid)}'
    if not of_kind(status.st_mode):
        return f'it is not a {"directory" if of_kind is stat.S_ISDIR else "file"}'
    if status.st_uid != me:
        return f'it belongs to user {_name(status.st_uid)}, another user than {_name(me)}, and has mode {mode:04o}'
    if mode & closed:
        how = 'use' if closed == _ALL else 'write to'
        return f'others may {how} it (mode {mode:04o}, allowed is {mode & ~closed:04o})'
    return ''


def _refusal(path: AnyPath, fault: str) -> OwnershipError:
    return OwnershipError(f'{os.fspath(path)} is not ours alone: {fault}')


def _name(uid: int) -> str:
    """The number of a user, and the name."""
    import pwd  # only errors need it

    try:
        return f'{uid} ({pwd.getpwuid(uid).pw_name})'
    except KeyError:   # as in containers
        return str(uid)
