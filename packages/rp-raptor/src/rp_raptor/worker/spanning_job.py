"""MPI jobs over several nodes: the first manager starts the job and restarts it; each watches the ranks on its node.

All ranks live and die together. The managers tell each other, through the master:

    ready, jobs, worked           to the first one: so many jobs have ended, and none of their ranks is left on this
                                  node; whether a rank here that ended the last one had taken a call
    up, jobs                      to the first one: all ranks of this node have said hello
    down, jobs, rank, reason      to the first one: this rank is dead; the reason is empty unless it was killed here
    ended, jobs, ranks, reason    from the first one: the job has ended because of these ranks
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from rp_api.errors import CoordinationError
from rp_api.loop.event_loop import Loop, Timer
from rp_api.loop.process_handle import ProcessHandle
from rp_api.system.processes import kill_tree
from rp_raptor.wire.parts import Part
from rp_raptor.worker.mpi_launch import without_job
from rp_raptor.worker.rank_processes import EXIT, LAST_WORDS, START_TIMEOUT, STARTS, how_it_ended

MESSAGES = ('ready', 'up', 'down', 'ended')

Tell = Callable[[int, list[Any]], object]
"""Sends a message to the manager of that part."""

Gone = Callable[[Sequence[int], Sequence[int], str, Sequence[int]], bool]
"""Handles dead ranks: places of those that ended the job, places of the others here, the reason, and the numbers of all
ranks of the worker that ended the job. Returns whether one of the first has taken a call since its start."""


@dataclass(frozen=True)
class JobCommand:
    """The command that starts the ranks on all nodes; see `rp_api.raptor_link`."""

    argv: list[str]
    environ: dict[str, str]
    notes: str
    signals: list[int]


def load_command(path: str) -> JobCommand:
    """Return the command that the agent has written; `CoordinationError`, with the reason, if there is none."""
    try:
        with open(path, encoding='utf-8', errors='surrogateescape') as file:
            told = json.load(file)
        if 'refused' in told:
            raise CoordinationError(f'its ranks on several nodes cannot be one MPI job: {told["refused"]}')
        environ = {name: value for name, value in without_job(os.environ).items() if name not in told['unset']}
        return JobCommand(told['argv'], environ | told['set'], told['notes'], told['signals'])
    except (OSError, ValueError, KeyError) as error:
        raise CoordinationError(f'the command of its MPI job cannot be read: {error!r}') from error


class SpanningJob:
    """The ranks of this node, and the job itself in the manager with the `command`."""

    def __init__(self, loop: Loop, part: Part, command: JobCommand | None, tell: Tell, gone: Gone,
                 failed: Callable[[str], object]) -> None:
        self._loop = loop
        self._part = part
        self._command = command
        self._tell = tell
        self._gone = gone
        self._failed = failed
        self._jobs = 0   # that have ended
        self._ranks: dict[int, ProcessHandle] = {}
        self._pids: dict[int, int] = {}
        self._reasons: dict[int, str] = {}
        self._stopping: Callable[[], object] | None = None
        # of the first manager
        self._process: subprocess.Popen[bytes] | None = None
        self._handle: ProcessHandle | None = None
        self._ready: set[int] = set()
        self._up: set[int] = set()
        self._down: list[tuple[int, str]] = []
        self._last: list[Any] = []   # the message about the last job that has ended
        self._worked = False
        self._vain = 0
        self._timers: list[Timer] = []

    def start(self) -> None:
        """Wait for the other managers; `complete` follows."""

    def complete(self) -> None:
        """Note that all managers of the worker are connected, perhaps again."""
        if self._command is None and not self._ranks:
            self._tell(0, ['ready', self._jobs, False])

    def heard(self, part: int, message: list[Any]) -> None:
        """Handle a message of another manager; late ones about an earlier job are ignored."""
        kind, jobs, *arguments = message
        if kind == 'ready' and self._last and jobs < self._jobs:   # the connection was lost with that message
            self._tell(part, self._last)
        if self._stopping or jobs != self._jobs:
            return
        if kind == 'ready':
            self._worked |= arguments[0]
            self._ready.add(part)
            self._start_job()
        elif kind == 'up':
            self._came_up(part)
        elif kind == 'down':
            self._break(*arguments)
        elif kind == 'ended':
            self._tell(0, ['ready', self._jobs + 1, self._end_here(*arguments)])

    def arrived(self, rank: int, pid: int, started: int) -> None:
        """Note that a rank has said hello."""
        handle = ProcessHandle.open(pid, started)
        if handle is None:
            self._rank_ended(rank)
            return
        self._ranks[rank] = handle
        self._pids[rank] = pid
        handle.watch(self._loop, lambda: self._rank_ended(rank))
        if len(self._ranks) == len(self._part.numbers):
            if self._command is None:
                self._tell(0, ['up', self._jobs])
            else:
                self._came_up(self._part.number)

    def signal(self, rank: int) -> None:
        """Send the rank SIGUSR1."""
        if rank in self._ranks:
            self._ranks[rank].send_signal(signal.SIGUSR1)

    def kill(self, rank: int, reason: str) -> None:
        """Kill the rank and all processes that it has started; `reason` is part of the report of its end."""
        if rank in self._ranks:
            self._reasons.setdefault(rank, reason)
            kill_tree([self._pids[rank]], signal.SIGKILL)

    def stop(self, ended: Callable[[], object]) -> None:
        """Restart no ranks and report no deaths any more; call `ended` when all have ended."""
        self._stopping = ended
        if not self._process and not self._ranks:
            ended()

    def terminate(self) -> None:
        """Send SIGTERM to the ranks of this node."""
        for handle in self._ranks.values():
            handle.send_signal(signal.SIGTERM)

    def close(self) -> None:
        """Kill and reap all processes that are left."""
        if self._process and self._command:
            for number in self._command.signals:
                self._process.send_signal(number)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(EXIT)
        self._forget_ranks()
        self._reap()

    # the ranks of this node

    def _rank_ended(self, rank: int) -> None:
        if rank in self._ranks:
            self._ranks.pop(rank).close()
            kill_tree([self._pids.pop(rank)], signal.SIGKILL)   # processes that it has left in its session
        if self._stopping:
            if not self._ranks and not self._process:
                self._stopping()
            return
        number, reason = self._part.numbers[rank], self._reasons.pop(rank, '')
        if self._command is None:
            self._tell(0, ['down', self._jobs, number, reason])
        else:
            self._break(number, reason)

    def _end_here(self, guilty: list[int], reason: str) -> bool:
        """Handle the end of the job; return whether a guilty rank of this node has taken a call."""
        self._forget_ranks()
        self._jobs += 1
        here = range(len(self._part.numbers))
        mine = [rank for rank in here if self._part.numbers[rank] in guilty]
        return self._gone(mine, [rank for rank in here if rank not in mine], reason, guilty)

    def _forget_ranks(self) -> None:
        """Kill the ranks that the launcher has left."""
        kill_tree(list(self._pids.values()), signal.SIGKILL)
        for handle in self._ranks.values():
            handle.close()
        self._ranks.clear()
        self._pids.clear()
        self._reasons.clear()

    # the job

    def _start_job(self) -> None:
        """Start the job if all other nodes are ready."""
        if self._command is None or self._process or len(self._ready) < self._part.count - 1:
            return
        if self._last:
            self._vain = 0 if self._worked else self._vain + 1
            if self._vain >= STARTS:
                self._failed(f'{self._last[-1]}, {STARTS} times before it has taken a call')
                return
        with suppress(FileNotFoundError):   # of the job before
            os.unlink(self._command.notes)
        try:
            self._process = subprocess.Popen(self._command.argv, env=self._command.environ, stdin=subprocess.DEVNULL,
                                             start_new_session=True)
        except OSError as error:
            self._failed(f'cannot start {self._command.argv[0]}: {error}')
            return
        self._handle = ProcessHandle.of_child(self._process.pid)
        self._handle.watch(self._loop, self._launcher_ended)
        self._timers = [self._loop.call_later(START_TIMEOUT, self._break, -1, 'its ranks did not say hello')]

    def _came_up(self, part: int) -> None:
        self._up.add(part)
        if len(self._up) == self._part.count and not self._down:
            self._disarm()

    def _break(self, rank: int, reason: str) -> None:
        """End the job of a dead rank, if the launcher does not."""
        self._down.append((rank, reason))
        if len(self._down) == 1 and self._process and self._command:
            self._disarm()
            signals = self._command.signals or [signal.SIGTERM]
            self._timers = [self._loop.call_later(EXIT / 4 * (index + 1), self._process.send_signal, number)
                            for index, number in enumerate(signals[:2])]
            self._timers.append(self._loop.call_later(EXIT, self._kill_launcher))

    def _kill_launcher(self) -> None:
        if self._process:
            kill_tree([self._process.pid], signal.SIGKILL)

    def _launcher_ended(self) -> None:
        code = self._reap()
        if self._stopping:
            if not self._ranks:
                self._stopping()
            return
        guilty, reason = self._guilty(code)
        self._loop.call_later(LAST_WORDS, self._conclude, guilty, reason)

    def _guilty(self, code: int) -> tuple[list[int], str]:
        """Return the rank that ended first, as it has noted itself or its manager has seen; all if none is known."""
        killed = next(((rank, reason) for rank, reason in self._down if reason and rank >= 0), None)
        if killed:
            return [killed[0]], f'rank {killed[0]} {killed[1]}'
        told = next((reason for _, reason in self._down if reason), '')
        noted = self._first_note()
        if noted:
            return [noted[0]], told or f'rank {noted[0]} {how_it_ended(noted[1])}'
        seen = [rank for rank, _ in self._down[:1] if rank >= 0]
        return seen or list(range(self._part.total)), told or f'the MPI job {how_it_ended(code)}'

    def _first_note(self) -> tuple[int, int] | None:
        """Return number and exit code of the rank that was the first to note its end."""
        assert self._command
        with suppress(OSError), open(self._command.notes, encoding='ascii', errors='replace') as file:
            for line in file:
                words = line.split()
                if len(words) == 2 and words[0].isdigit() and words[1].isdigit() and int(words[0]) < self._part.total:
                    return int(words[0]), int(words[1])
        return None

    def _conclude(self, guilty: list[int], reason: str) -> None:
        if self._stopping:
            return
        self._ready.clear()
        self._up.clear()
        self._down.clear()
        self._last = ['ended', self._jobs, guilty, reason]
        for part in range(1, self._part.count):
            self._tell(part, self._last)
        self._worked = self._end_here(guilty, reason)

    def _reap(self) -> int:
        """Release the launcher, and return its exit code."""
        self._disarm()
        if self._process is None:
            return 0
        if self._handle is not None:
            self._handle.close()
            self._handle = None
        kill_tree([self._process.pid], signal.SIGKILL)   # its session may have processes left
        code = self._process.wait()
        self._process = None
        return code

    def _disarm(self) -> None:
        for timer in self._timers:
            timer.cancel()
        self._timers = []
