"""Cleanup of shared memory: segments of killed processes that no process has open or mapped."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from rp_api.system import processes

SHARED_MEMORY = Path('/dev/shm')


def remove_unused(prefix: str, since: float, environment: Mapping[str, str]) -> None:
    """Remove this user's segments whose names have this prefix, and that were created after `since` (file system time).

    Segments are kept if a process without the variables `environment` uses them; processes with them are being killed.
    Descriptors are read before maps, because a process opens a segment before it maps it. A process that ends loses its
    memory, and so its environment, before its descriptors, and uses nothing.
    """
    found = {str(path) for path in SHARED_MEMORY.glob(f'{prefix}*') if _is_ours(path, since)}
    for pid in [int(name) for name in os.listdir('/proc') if name.isdigit()] if found else ():
        used = found.intersection((*_open(pid), *_mapped(pid)))
        if (used and any(processes.variable(pid, name) != value for name, value in environment.items())
                and any(_mapped(pid))):
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
    with suppress(OSError):   # the process has ended, or is another user's
        for name in os.listdir(f'/proc/{pid}/fd'):
            with suppress(OSError):
                yield os.readlink(f'/proc/{pid}/fd/{name}')


def _mapped(pid: int) -> Iterator[str]:
    with suppress(OSError), open(f'/proc/{pid}/maps', encoding='utf-8', errors='replace') as file:
        for line in file:
            yield line[line.find('/'):].rstrip('\n')
