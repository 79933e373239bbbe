"""A file system of limited size, and how it gets full."""

from __future__ import annotations

import errno
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

PIECE = 1 << 16


@contextmanager
def small_disk(path: Path, megabytes: int) -> Iterator[None]:
    """Have a directory on a file system of that size; needs the right to mount."""
    subprocess.run(['mount', '-t', 'tmpfs', '-o', f'size={megabytes}m', 'none', path], check=True)
    try:
        yield
    finally:
        subprocess.run(['umount', '-l', path], check=True)


@contextmanager
def full_disk(path: Path) -> Iterator[None]:
    """Leave no space on the file system of a directory."""
    filler = path / 'filler'
    try:
        with open(filler, 'wb', buffering=0) as file:
            _fill(file)
        yield
    finally:
        filler.unlink()


def _fill(file: BinaryIO) -> None:
    size = PIECE
    while size:
        try:
            file.write(bytes(size))
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            size //= 2
