"""Tries things as whoever runs it: `python attempts.py`, with a list of [what, argument] as JSON on standard input.

It prints those that were not refused, as JSON.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

_ATTACH = 16   # of ptrace


def _trace(pid: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.ptrace(_ATTACH, pid, None, None) != 0:
        raise OSError(ctypes.get_errno(), 'ptrace')


def _link(path: str) -> None:
    os.symlink('/', f'{path}.link')
    os.rename(f'{path}.link', path)


ATTEMPTS: dict[str, Callable[[Any], object]] = {
    'read': lambda path: Path(path).read_bytes(),
    'append': lambda path: Path(path).open('ab').close(),
    'list': os.listdir,
    'enter': os.chdir,
    'make': lambda path: Path(path, 'new').touch(),
    'open to all': lambda path: os.chmod(path, 0o777),
    'move': lambda path: os.rename(path, f'{path}.away'),
    'remove': os.rmdir,
    'replace': _link,
    'kill': lambda pid: os.kill(pid, signal.SIGKILL),
    'trace': _trace,
}


def main() -> None:
    """Try all."""
    done = []
    for what, argument in json.load(sys.stdin):
        try:
            ATTEMPTS[what](argument)
        except OSError:
            continue
        done.append([what, argument])
    print(json.dumps(done))


if __name__ == '__main__':
    main()
