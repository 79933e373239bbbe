"""Transfers files to and from the host of a platform's batch system, as binary data over separate connections.

The shell that runs scripts is too slow for that: some shells read their input byte by byte, 20 MB in half a minute.
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

CHECK_INTERVAL_S = 5.0
"""Seconds between checks for progress."""

SILENCE = 60.0
"""Seconds without progress after which a transfer is stopped."""


def send(command: Sequence[str], source: Path, failed: str, progress: Callable[[], object] = lambda: None, *,
         skip: int = 0) -> None:
    """Run a program with a file as its input, and raise `PlatformError` with `failed` and its output if it fails.

    `progress()` is called periodically as long as the program reads; the first `skip` bytes of the file are skipped.
    """
    try:
        with open(source, 'rb', buffering=0) as content:
            content.seek(skip)
            # both processes share the position in the file
            _run(command, failed, progress, lambda: os.lseek(content.fileno(), 0, os.SEEK_CUR), stdin=content)
    except OSError as error:
        raise PlatformError(f'{failed}: {error}') from None


def receive(command: Sequence[str], target: Path, failed: str, script: Path = Path(os.devnull)) -> None:
    """Write the output of a program to a file, and raise `PlatformError` with `failed` and its errors if it fails.

    `script` is its input.
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
        finally:   # ends the program after an exception such as KeyboardInterrupt
            process.kill()
            process.wait()
        if code is None:
            raise PlatformError(f'{failed}: the exit code of {command[0]} is unknown, as SIGCHLD is ignored, or '
                                'something else reaps all children of the application')
        if code:
            said.seek(0)
            words = said.read().decode(errors='replace').strip()[-500:]
            reason = f'no progress for {SILENCE:g} s' if code < 0 else f'exit code {code}'
            raise PlatformError(f'{failed}: {words or reason}')


def _wait(process: subprocess.Popen[bytes], place: Callable[[], int], progress: Callable[[], object]) -> int | None:
    """Wait for a program, killing it if it makes no progress, and return its exit code; None if unknown."""
    handle = ProcessHandle.open(process.pid)
    if handle is not None:
        try:
            if not _ends(handle, place, progress):
                handle.send_signal(signal.SIGKILL)
        finally:
            handle.close()
    return exit_code(process)


def _ends(handle: ProcessHandle, place: Callable[[], int], progress: Callable[[], object]) -> bool:
    """Return True when the program has ended, False when it makes no progress."""
    seen, idle = 0, 0.0
    while idle < SILENCE:
        if handle.wait(CHECK_INTERVAL_S):
            return True
        now = place()
        idle = idle + CHECK_INTERVAL_S if now == seen else 0.0
        seen = now
        if not idle:
            progress()
    return False
