"""Files to and from where a platform's batch system is: as they are, over a connection of their own.

What goes through the shell that runs scripts is text, which some shells read byte by byte: 20 MB take half a minute.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

from rp_api.errors import PlatformError
from rp_api.loop.process_handle import ProcessHandle
from rp_api.system.processes import exit_code

LOOK = 5.0
"""Seconds between looks at how far it is."""

SILENCE = 60.0
"""Seconds in which nothing may go on."""


def send(command: Sequence[str], source: Path, failed: str, progress: Callable[[], object] = lambda: None, *,
         skip: int = 0) -> None:
    """Give a file to a program as its input, and wait for its end; `PlatformError` with `failed` and what it says.

    `progress()` is called now and then while some of it is taken; the first `skip` bytes are not for the program.
    """
    try:
        with open(source, 'rb', buffering=0) as content:
            content.seek(skip)
            # the program's place in the file is ours, too
            _run(command, failed, progress, lambda: os.lseek(content.fileno(), 0, os.SEEK_CUR), stdin=content)
    except OSError as error:
        raise PlatformError(f'{failed}: {error}') from None


def receive(command: Sequence[str], target: Path, failed: str, script: Path = Path(os.devnull)) -> None:
    """Have what a program writes in a file; `PlatformError` with `failed` and what it says of an error.

    `script` is what it reads.
    """
    with open(script, 'rb') as text, open(target, 'wb') as content:
        _run(command, failed, lambda: None, lambda: os.fstat(content.fileno()).st_size, stdin=text, stdout=content)


def _run(command: Sequence[str], failed: str, progress: Callable[[], object], place: Callable[[], int],
         stdin: IO[bytes] | int, stdout: IO[bytes] | None = None) -> None:
    with tempfile.TemporaryFile() as said:
        try:
            process = subprocess.Popen(command, stdin=stdin, stdout=stdout or said, stderr=said, start_new_session=True)
        except OSError as error:
            raise PlatformError(f'{failed}: {error}') from None
        try:
            code = _wait(process, place, progress)
        finally:   # if nobody waits any more, as after Ctrl-C, it is to end as well
            process.kill()
            process.wait()
        if code is None:
            raise PlatformError(f'{failed}: {command[0]} has ended, but how is not known: SIGCHLD is ignored here, '
                                'or something else reaps all children of the application')
        if code:
            said.seek(0)
            words = said.read().decode(errors='replace').strip()[-500:]
            silent = f'nothing went on for {SILENCE:g} s' if code < 0 else f'exit code {code}'
            raise PlatformError(f'{failed}: {words or silent}')


def _wait(process: subprocess.Popen[bytes], place: Callable[[], int], progress: Callable[[], object]) -> int | None:
    """The exit code of a program that goes through a file; it is killed if it does not go on."""
    handle = ProcessHandle.open(process.pid)
    if handle is not None:
        try:
            if not _ends(handle, place, progress):
                handle.send_signal(signal.SIGKILL)
        finally:
            handle.close()
    return exit_code(process)


def _ends(handle: ProcessHandle, place: Callable[[], int], progress: Callable[[], object]) -> bool:
    """Return True when the program has ended, False when it does not go on."""
    seen, silent = 0, 0.0
    while silent < SILENCE:
        if handle.wait(LOOK):
            return True
        now = place()
        silent = silent + LOOK if now == seen else 0.0
        seen = now
        if not silent:
            progress()
    return False
