"""Finds the profiles of a session, and reads their text, whether they are compressed or not.

A compressed profile (`<name>.prof.gz`) is a sequence of gzip members, one for each write. Of a member that its writer
could not complete, the part that is there is read: the last one of a file that is being written, or was broken off,
ends early, and another writer may have appended its members to it.
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
_PIECE = 64 * 1024
_GZIP = 31  # the form that zlib reads
_MEMBER = b'\x1f\x8b\x08\0\0\0\0\0'
"""How a member begins that a tracer has written: without a name, and without a time."""


def is_profile(path: Path) -> bool:
    """Whether this is the name of a profile."""
    return path.name.endswith((ENDING, COMPRESSED))


def name_of(path: Path) -> str:
    """The name of the component or task that a profile is of."""
    return path.name.removesuffix('.gz').removesuffix(ENDING)


def profiles_below(root: Path) -> list[Path]:
    """All profiles in a directory and below it."""
    return sorted(path for path in paths_below(root) if is_profile(path) and path.is_file())


def paths_below(root: Path) -> Iterator[Path]:
    """All that is below a directory; what cannot be read, or is too deep for a path, is left out.

    Links are not followed. Sandboxes hold whatever tasks leave, such as thousands of directories one in the other.
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
    """The text of a profile, in blocks of some size. OSError is raised if the file cannot be read."""
    with path.open('rb') as stream:
        if path.name.endswith(COMPRESSED):
            yield from _unpacked(stream)
        else:
            yield from iter(lambda: stream.read(_BLOCK), b'')


def _unpacked(stream: BinaryIO) -> Iterator[bytes]:
    rest = b''
    while rest := rest or stream.read(_PIECE):
        text, rest = _member(rest, stream)
        yield text


def _member(begin: bytes, stream: BinaryIO) -> tuple[bytes, bytes]:
    """The text of the member that begins like this, and what was read beyond it."""
    packed = zlib.decompressobj(_GZIP)
    read, texts = begin, [b'']
    with suppress(zlib.error):
        texts.append(packed.decompress(begin))
        while not packed.eof and (piece := stream.read(_PIECE)):
            read += piece
            texts.append(packed.decompress(piece))
        if packed.eof:
            return b''.join(texts), packed.unused_data
    # it was broken off; if another writer has gone on, what was taken for its end is another member
    read += stream.read(len(_MEMBER))
    end = read.find(_MEMBER, 1)
    return (_part(read), b'') if end < 0 else (_part(read[:end]), read[end:])


def _part(broken: bytes) -> bytes:
    """The text of a member that was broken off, as far as it goes."""
    packed, texts = zlib.decompressobj(_GZIP), [b'']
    with suppress(zlib.error):
        for index in range(len(broken)):
            texts.append(packed.decompress(broken[index:index + 1]))
    return b''.join(texts)
