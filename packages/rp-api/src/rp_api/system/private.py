"""Private directories and files: creation, and checks through the descriptor that is used afterwards.

A base directory may be shared with other users; the directories of a session in it are not. A directory is used only if
it belongs to this user and others cannot write to it, so that its content is this user's, too. A file with keys is used
only if others cannot read it either. Symbolic links are not followed in the last part of a path.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from contextlib import suppress

from rp_api.errors import OwnershipError

AnyPath = str | os.PathLike[str]

_WRITE, _ALL = 0o022, 0o077
"""Permissions that others must not have: to write, or any."""


def make_directory(path: AnyPath, *, fresh: bool = False, readable: bool = False) -> None:
    """Create a directory of mode 0700 and its parents, or use an existing one that belongs to this user.

    Permissions of others to read an existing one are removed, unless `readable`. Raise `OwnershipError` if it belongs
    to another user or others can write to it, `FileExistsError` if it exists and must be `fresh`.
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
    """Return a descriptor of a directory; raise `OwnershipError` if others own it or can write to (or use) it."""
    return _opened(path, os.O_RDONLY | os.O_DIRECTORY, stat.S_ISDIR, _WRITE if readable else _ALL)


def check(path: AnyPath, *, readable: bool = True) -> None:
    """Raise `OwnershipError` unless a directory, file or socket is this user's, and others cannot write to it.

    Unless `readable`, others must not be able to use it either. This is the rule for all that the system makes. A file
    is not opened, because closing a database would release SQLite's locks of this process.
    """
    if fault := _fault(os.lstat(path), _is_known, _WRITE if readable else _ALL):
        raise _refusal(path, fault)


def check_entry(path: AnyPath, *, above: bool = False) -> None:
    """Raise `OwnershipError` for an entry of a directory such as /tmp that another user may have created.

    This is for predictable names, and for what the user names. The owner of the directory, and root, may create entries
    for others. With `above`, all directories that lead to it are checked, too, also behind links; a path that does not
    exist is right.
    """
    path = os.path.abspath(path)
    while path != '/':
        _check_entry(path, missing=above)
        if above and (real := os.path.realpath(path)) != path and os.path.islink(path):
            check_entry(real, above=True)
        path = os.path.dirname(path) if above else '/'


def open_file(path: AnyPath, flags: int = os.O_RDONLY, *, readable: bool = False) -> int:
    """Return a descriptor of a file; `flags` may create it with mode 0600 (not O_TRUNC, which precedes the check).

    Raise `OwnershipError` if it is not a file, or others own it or can use it (or, if `readable`, write to it).
    """
    # a FIFO must be opened without blocking before it can be rejected
    return _opened(path, flags | os.O_NONBLOCK, stat.S_ISREG, _WRITE if readable else _ALL)


def read_file(path: AnyPath, limit: int = -1) -> bytes:
    """Return the content of a file, or its first `limit` bytes; raise the errors of `open_file`."""
    with open(open_file(path), 'rb') as file:
        return file.read(limit)


def write_file(path: AnyPath, content: bytes, mode: int = 0o600) -> None:
    """Write a file atomically; others cannot read it at any time, unless `mode` allows it."""
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


def _check_entry(path: str, *, missing: bool) -> None:
    try:
        entry, directory = os.lstat(path), os.stat(os.path.dirname(path))
    except FileNotFoundError:
        if missing:
            return
        raise
    if directory.st_mode & stat.S_IWOTH and entry.st_uid not in (os.geteuid(), directory.st_uid, 0):
        raise _refusal(path, f'it belongs to user {user_name(entry.st_uid)}, in a directory where every user can make '
                             'entries')


def _is_known(mode: int) -> bool:
    return stat.S_ISDIR(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)


def _mkdir(path: AnyPath) -> None:
    try:
        os.mkdir(path, 0o700)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
        os.mkdir(path, 0o700)


def _opened(path: AnyPath, flags: int, of_kind: Callable[[int], bool], closed: int) -> int:
    """Return a descriptor of a path, checked by `_fault`."""
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:
        raise
    except OSError as error:   # a symbolic link or another owner is the better explanation
        if fault := _fault(os.lstat(path), of_kind, closed):
            raise _refusal(path, fault) from error
        raise
    if fault := _fault(os.fstat(descriptor), of_kind, closed):
        os.close(descriptor)
        raise _refusal(path, fault)
    return descriptor


def _fault(status: os.stat_result, of_kind: Callable[[int], bool], closed: int) -> str:
    """Return the reason why a file or directory cannot be used; empty if it can."""
    mode, me = stat.S_IMODE(status.st_mode), os.geteuid()
    if stat.S_ISLNK(status.st_mode):
        return f'it is a symbolic link of user {user_name(status.st_uid)}'
    if not of_kind(status.st_mode):
        return f'it is not a {_KINDS[of_kind]}'
    if status.st_uid != me:
        who = user_name(status.st_uid)
        return f'it belongs to user {who}, another user than {user_name(me)}, and has mode {mode:04o}'
    if mode & closed:
        how = 'use' if closed == _ALL else 'write to'
        return f'others may {how} it (mode {mode:04o}, allowed is {mode & ~closed:04o})'
    return ''


_KINDS = {stat.S_ISDIR: 'directory', stat.S_ISREG: 'file', _is_known: 'directory, file or socket'}


def _refusal(path: AnyPath, fault: str) -> OwnershipError:
    return OwnershipError(f'{os.fspath(path)} is not ours alone: {fault}')


def user_name(uid: int) -> str:
    """Return the number and name of a user."""
    import pwd  # only errors need it

    try:
        return f'{uid} ({pwd.getpwuid(uid).pw_name})'
    except KeyError:   # in containers
        return str(uid)
