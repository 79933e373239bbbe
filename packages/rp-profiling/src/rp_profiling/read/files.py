"""Finds the profiles of a session and reads their text, compressed or not.

A compressed profile (`<name>.prof.gz`) is a sequence of gzip members, one for each write. Of an incomplete member, the
part that exists is read: the last member of a file that is being written, or whose writer was killed, ends early, and
another writer may have appended members after it.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

ENDING = '.prof'
COMPRESSED = f'{ENDING}.gz'

_BLOCK = 8 * 1024 * 1024
_PIECE_BYTES = 64 * 1024
_GZIP = 31  # zlib's code for the gzip format
_MEMBER = b'\x1f\x8b\x08\0\0\0\0\0'
"""The first bytes of a tracer's members: without a name and a time."""


def is_profile(path: Path) -> bool:
    """Return whether this is the name of a profile."""
    return path.name.endswith((ENDING, COMPRESSED))


def name_of(path: Path) -> str:
    """Return the name of the profile's component or task."""
    return path.name.removesuffix('.gz').removesuffix(ENDING)


def profiles_below(root: Path) -> list[Path]:
    """Return all profiles in a directory and below it."""
    return sorted(path for path in paths_below(root) if is_profile(path) and path.is_file())


def paths_below(root: Path) -> Iterator[Path]:
    """Yield all paths below a directory, except those that cannot be read or are too long.

    Links are not followed. Tasks may leave anything in sandboxes, such as thousands of nested directories.
    """
    waiting = [os.fspath(root)]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                found = list(entries)
        except OSError:
            continue
        waiting += [entry.path for entry in found if entry.is_dir(follow_symlinks=False)]
        yield from (Path(entry.path) for entry in found)


def text_of(path: Path) -> Iterator[bytes]:
    """Yield the text of a profile in blocks; OSError if the file cannot be read."""
    with path.open('rb') as stream:
        if path.name.endswith(COMPRESSED):
            yield from _unpacked(stream)
        else:
            yield from iter(lambda: stream.read(_BLOCK), b'')


def _unpacked(stream: BinaryIO) -> Iterator[bytes]:
    rest = b''
    while rest := rest or stream.read(_PIECE_BYTES):
        text, rest = _member(rest, stream)
        yield text


def _member(begin: bytes, stream: BinaryIO) -> tuple[bytes, bytes]:
    """Return the text of the member that starts with `begin`, and the bytes read beyond it."""
    packed = zlib.decompressobj(_GZIP)
    read, texts = begin, [b'']
    with suppress(zlib.error):
        texts.append(packed.decompress(begin))
        while not packed.eof and (piece := stream.read(_PIECE_BYTES)):
            read += piece
            texts.append(packed.decompress(piece))
        if packed.eof:
            return b''.join(texts), packed.unused_data
    # the member is incomplete; if another writer has appended to the file, its member is among these bytes
    read += stream.read(len(_MEMBER))
    end = read.find(_MEMBER, 1)
    return (_part(read), b'') if end < 0 else (_part(read[:end]), read[end:])


def _part(broken: bytes) -> bytes:
    """Return the text of an incomplete member, as far as it can be decoded."""
    packed, texts = zlib.decompressobj(_GZIP), [b'']
    with suppress(zlib.error):
        for index in range(len(broken)):
            texts.append(packed.decompress(broken[index:index + 1]))  # noqa: PERF401 - kept on errors
    return b''.join(texts)
