"""A directory with a quota, on a file system of its own: whoever writes more gets EDQUOT, root as well."""

from __future__ import annotations

import itertools
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from clusters import SYSTEM_PATH, require, require_root

QUOTA = '1M'
SIZE = 120 << 20
"""Bytes, of which hardly any is used: no smaller file system can be made."""


@contextmanager
def with_quota(base: Path) -> Iterator[Path]:
    """A directory below `base` that takes about a megabyte."""
    require('mkfs.btrfs', 'btrfs', 'mount')
    require_root('mount a file system')
    image, mounted = base / 'btrfs.image', base / 'btrfs'
    mounted.mkdir()
    with open(image, 'wb') as file:
        file.truncate(SIZE)
    _run('mkfs.btrfs', '--quiet', image)
    _run('mount', '-o', 'loop', image, mounted)
    try:
        _run('btrfs', 'quota', 'enable', mounted)
        _run('btrfs', 'subvolume', 'create', mounted / 'limited')
        _run('btrfs', 'qgroup', 'limit', QUOTA, mounted / 'limited')
        yield mounted / 'limited'
    finally:
        _run('umount', '-l', mounted)
        image.unlink()


def use_up(directory: Path) -> Path:
    """Write until nothing more is taken; gives the file that has to be deleted to make room."""
    filler = directory / 'filler'
    with pytest.raises(OSError, match='Disk quota exceeded'), open(filler, 'wb', buffering=0) as file:   # noqa: PT012
        while True:
            file.write(os.urandom(1 << 14))
            os.fsync(file)
    with pytest.raises(OSError, match='Disk quota exceeded'):   # noqa: PT012
        for number in itertools.count():
            (directory / f'filler.{number}').touch()
    return filler


def _run(*command: str | Path) -> None:
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, 'PATH': SYSTEM_PATH})
