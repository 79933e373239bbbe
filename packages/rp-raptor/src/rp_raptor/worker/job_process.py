"""The launcher of an MPI job: its command, its process, and what ranks have noted about their ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from rp_api.errors import CoordinationError
from rp_api.loop.event_loop import Loop, Timer
from rp_api.loop.process_handle import ProcessHandle
from rp_api.system.processes import kill_tree
from rp_raptor.worker.mpi_launch import without_job

EXIT = 2.0
"""Seconds for a launcher to end by itself, and to clean up."""


@dataclass(frozen=True)
class JobCommand:
    """The command that starts the ranks on all nodes; for those of several see `rp_api.raptor_link`."""

    argv: list[str]
    environ: dict[str, str]
    notes: str
    signals: Sequence[int] = (signal.SIGTERM,)


def load_command(path: str) -> JobCommand:
    """Return the command that the agent has written; `CoordinationError`, with the reason, if there is none."""
    try:
        with open(path, encoding='utf-8', errors='surrogateescape') as file:
            told = json.load(file)
        if 'refused' in told:
            raise CoordinationError(f'it cannot have an MPI job over its nodes: {told["refused"]}')
        environ = {name: value for name, value in without_job(os.environ).items() if name not in told['unset']}
        return JobCommand(told['argv'], environ | told['set'], told['notes'], told['signals'])
    except (OSError, ValueError, KeyError) as error:
        raise CoordinationError(f'the command of its MPI job cannot be read: {error!r}') from error


def refusal(path: str) -> str:
    """Return why there will be no job; empty if there may be one."""
    try:
        with open(path, encoding='utf-8', errors='surrogateescape') as file:
            return str(json.load(file).get('refused', ''))
    except (OSError, ValueError):   # it is not written yet
        return ''


def refuse(path: str, reason: str) -> None:
    """Tell the other managers that there will be no job."""
    with suppress(OSError):   # they notice later
        with open(f'{path}.new', 'w', encoding='utf-8') as file:
            json.dump({'refused': reason}, file)
        os.rename(f'{path}.new', path)


class JobProcess:
    """A launcher that is started with this object; `ended()` is called in the loop when it has ended.

    OSError if it cannot be started.
    """

    def __init__(self, loop: Loop, command: JobCommand, ended: Callable[[], object]) -> None:
        self._loop = loop
        self._command = command
        self._timers: list[Timer] = []
        with suppress(FileNotFoundError):   # of the job before
            os.unlink(command.notes)
        self._process = subprocess.Popen(command.argv, env=command.environ, stdin=subprocess.DEVNULL,
                                         start_new_session=True)
        self._handle = ProcessHandle.of_child(self._process.pid)
        self._handle.watch(loop, ended)

    def end(self) -> None:
        """End the launcher, if it does not end by itself: by signals, as killed launchers leave files behind."""
        if self._timers:
            return
        signals = self._command.signals or [signal.SIGTERM]
        self._timers = [self._loop.call_later(EXIT / 4 * (index + 1), self._process.send_signal, number)
                        for index, number in enumerate(signals[:2])]
        self._timers.append(self._loop.call_later(EXIT, kill_tree, [self._process.pid], signal.SIGKILL))

    def end_now(self) -> None:
        """End the launcher, and wait until it has cleaned up, for a limited time."""
        for number in self._command.signals:
            self._process.send_signal(number)
        self.wait(EXIT)

    def wait(self, seconds: float) -> None:
        """Wait for the end at most that long."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)

    def reap(self) -> int:
        """Kill what is left of the launcher and its session, and return the exit code."""
        for timer in self._timers:
            timer.cancel()
        self._handle.close()
        kill_tree([self._process.pid], signal.SIGKILL)
        return self._process.wait()


def noted_ends(path: str, ranks: int) -> list[tuple[int, int]]:
    """Return numbers and exit codes of the ranks that have noted their end in this file, the first one first."""
    noted: list[tuple[int, int]] = []
    with suppress(OSError), open(path, encoding='ascii', errors='replace') as file:
        for line in file:
            words = line.split()
            if len(words) == 2 and words[0].isdigit() and words[1].isdigit() and int(words[0]) < ranks:
                noted.append((int(words[0]), int(words[1])))
    return noted
