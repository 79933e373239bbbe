"""Shared memory that processes have left which were killed: files that no process has open or mapped any more."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from rp_api.system import processes

SHARED_MEMORY = Path('/dev/shm')


def remove_unused(prefix: str, since: float, environment: Mapping[str, str]) -> None:
    """Remove segments of this user whose names begin so, which were made after that time (of the clock of files), and
    that only processes use which were started with these variables, and are being killed.

    Others may begin to use segments of their own meanwhile: those are open before they are mapped.
    """
    found = {str(path) for path in SHARED_MEMORY.glob(f'{prefix}*') if _is_ours(path, since)}
    for pid in [int(name) for name in os.listdir('/proc') if name.isdigit()] if found else ():
        used = found.intersection((*_open(pid), *_mapped(pid)))
        if used and any(processes.variable(pid, name) != value for name, value in environment.items()):
            found -= used
    for path in found:
        with suppress(FileNotFoundError):
            os.unlink(path)


def _is_ours(path: Path, since: float) -> bool:
    with suppress(FileNotFoundError):
        about = path.stat()
        return about.st_uid == os.getuid() and about.st_ctime >= since
    return False


def _open(pid: int) -> Iterator[str]:
    with suppress(OSError):   # it has ended, or is another user's
        for name in os.listdir(f'/proc/{pid}/fd'):
            with suppress(OSError):
                yield os.readlink(f'/proc/{pid}/fd/{name}')


def _mapped(pid: int) -> Iterator[str]:
    with suppress(OSError), open(f'/proc/{pid}/maps', encoding='utf-8', errors='replace') as file:
        for line in file:
            yield line[line.find('/'):].rstrip('\n')
