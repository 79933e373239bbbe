"""Archives of a directory that can be unpacked at another path: pure file work, without processes and sockets.

An archive is a compressed tar file. It depends only on the content of the directory: entries are sorted, and have no
owner. The directory itself is the last one, so that an incomplete archive is noticed.

Environments contain their own path: in the first lines of scripts, in configuration files, and in binaries of conda. A
pax header marks each such file, and `unpack` replaces the path in it. In a text this is a plain replacement. In a
binary, each string that contains the path is padded with NUL bytes to its old length, as conda does it, so that the new
path must not be longer than the old one. Byte code is left alone: Python sets the path itself when it loads it.
Modification times are kept, because byte code is valid only for a source of the same time.
"""

from __future__ import annotations

import gzip
import mmap
import os
import re
import stat
import tarfile
from collections.abc import Iterator
from typing import IO

from rp_api.errors import PilotError

_COMPRESSION = 1
"""Level of gzip. It is as fast as the networks and disks that it saves; higher levels save little more."""

_KIND, _PREFIX = 'RP.kind', 'RP.prefix'   # pax headers: of a file with the path in it, and of the archive
_TEXT, _BINARY = 'text', 'binary'
_WHOLE = '.'
_PIECE_BYTES = 1 << 20


class CopyError(PilotError, RuntimeError):
    """A directory that cannot be packed, or an archive that cannot be unpacked."""


def pack(directory: str, file: IO[bytes]) -> None:
    """Write the archive of a directory; raise OSError or CopyError."""
    directory = os.path.abspath(directory)
    with gzip.GzipFile('', 'wb', _COMPRESSION, file, 0) as packed, tarfile.open(
            fileobj=packed, mode='w|', format=tarfile.PAX_FORMAT, pax_headers={_PREFIX: directory}) as tar:
        for path in _entries(directory):
            _add(tar, path, directory)
        _add(tar, directory, directory)


def unpack(stream: IO[bytes], directory: str, final: str) -> None:
    """Unpack an archive into a new directory, which is going to be moved to the path `final`.

    Raises OSError if the disk is full, for example, and CopyError if the archive is incomplete or cannot be moved.
    """
    os.mkdir(directory, 0o700)
    try:
        with tarfile.open(fileobj=stream, mode='r|gz') as tar:
            _extract(tar, directory, final)
    except (tarfile.TarError, EOFError, gzip.BadGzipFile) as error:
        raise CopyError(f'the archive is incomplete: {error or type(error).__name__}') from error


def moved(content: bytes, old: bytes, new: bytes) -> bytes:
    """Return the content of a binary file with one path replaced by another one that is not longer.

    The strings in it keep their length: each string with the path ends earlier.
    """
    def shorter(match: re.Match[bytes]) -> bytes:
        return replaced(match.group(), old, new).ljust(len(match.group()), b'\0')

    return re.sub(re.escape(old) + rb'[^\0]*', shorter, content)


def replaced(content: bytes, old: bytes, new: bytes) -> bytes:
    """Return a text with one path replaced by another one, but not in names that only begin like it."""
    return re.sub(re.escape(old) + rb'(?![\w.-])', lambda _: new, content)


def _entries(directory: str) -> Iterator[str]:
    """Yield the paths of all entries, each directory before what it contains, always in the same order."""
    for entry in sorted(os.scandir(directory), key=lambda each: each.name):
        yield entry.path
        if entry.is_dir(follow_symlinks=False):
            yield from _entries(entry.path)


def _add(tar: tarfile.TarFile, path: str, directory: str) -> None:
    status = os.lstat(path)
    info = tarfile.TarInfo(os.path.relpath(path, directory))
    info.mode, info.mtime = stat.S_IMODE(status.st_mode), int(status.st_mtime)
    if stat.S_ISLNK(status.st_mode):
        info.type, info.linkname = tarfile.SYMTYPE, _relocatable(path, directory)
        tar.addfile(info)
    elif stat.S_ISDIR(status.st_mode):
        info.type = tarfile.DIRTYPE
        tar.addfile(info)
    elif stat.S_ISREG(status.st_mode):
        with open(path, 'rb') as file:
            info.size = os.fstat(file.fileno()).st_size
            if info.size and not path.endswith('.pyc'):
                info.pax_headers = _kind(file, os.fsencode(directory))
            tar.addfile(info, file)
    else:
        raise CopyError(f'{path} is neither a file nor a directory nor a symbolic link')


def _relocatable(path: str, directory: str) -> str:
    """Return the target of a symbolic link: relative to it if it is in the directory."""
    target = os.readlink(path)
    inside = os.path.isabs(target) and os.path.commonpath([target, directory]) == directory
    return os.path.relpath(target, os.path.dirname(path)) if inside else target


def _kind(file: IO[bytes], prefix: bytes) -> dict[str, str]:
    """Return the pax header of a file that contains the path of its directory; of other files, none."""
    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        if content.find(prefix) < 0:
            return {}
        return {_KIND: _TEXT if content.find(b'\0') < 0 else _BINARY}


def _extract(tar: tarfile.TarFile, directory: str, final: str) -> None:
    directories: list[tuple[str, tarfile.TarInfo]] = []   # complete only at the end: they may not be writable
    for info in tar:
        path = os.path.join(directory, _checked(info.name))
        if info.isdir():
            if info.name != _WHOLE:
                os.mkdir(path, 0o700)
            directories.append((path, info))
        elif info.issym():
            os.symlink(info.linkname, path)
        elif info.isreg():
            _write(tar, info, path, tar.pax_headers.get(_PREFIX, ''), final)
            os.utime(path, (info.mtime, info.mtime))
        else:
            raise CopyError(f'{info.name} in the archive is neither a file nor a directory nor a symbolic link')
    if not directories or directories[-1][1].name != _WHOLE:
        raise CopyError('the archive is incomplete')
    for path, info in sorted(directories, key=lambda each: each[1].name, reverse=True):
        os.chmod(path, info.mode)
        os.utime(path, (info.mtime, info.mtime))


def _checked(name: str) -> str:
    if os.path.isabs(name) or '..' in name.split('/'):
        raise CopyError(f'{name} in the archive is outside of its directory')
    return name


def _write(tar: tarfile.TarFile, info: tarfile.TarInfo, path: str, old: str, final: str) -> None:
    source = tar.extractfile(info)
    assert source is not None
    kind = info.pax_headers.get(_KIND)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), 'wb') as file:
        if kind is None:
            while piece := source.read(_PIECE_BYTES):
                file.write(piece)
        else:
            file.write(_rewritten(source.read(), kind, os.fsencode(old), os.fsencode(final), info.name))
        os.fchmod(file.fileno(), info.mode)


def _rewritten(content: bytes, kind: str, old: bytes, new: bytes, name: str) -> bytes:
    if kind == _TEXT:
        return replaced(content, old, new)
    if len(new) > len(old):
        raise CopyError(f'{name} is a binary that contains the path {os.fsdecode(old)}, which cannot be replaced by '
                        f'the longer {os.fsdecode(new)}')
    return moved(content, old, new)
