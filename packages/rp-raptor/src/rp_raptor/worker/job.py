"""MPI jobs: a launcher starts all ranks of a worker; when one dies, all end, and the job is started again.

If the worker spans nodes, the first manager starts the job, and each watches the ranks on its node. The managers tell
each other, through the master:

    ready, jobs, worked           to the first one: so many jobs have ended, and none of their ranks is left on this
                                  node; whether a rank here that ended the last one had taken a call
    up, jobs                      to the first one: all ranks of this node have said hello
    down, jobs, rank, reason      to the first one: this rank is dead; the reason is empty unless it was killed here
    ended, jobs, ranks, reason    from the first one: the job has ended because of these ranks
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from typing import Any

from rp_api.loop.event_loop import Loop, Timer
from rp_api.loop.process_handle import ProcessHandle
from rp_api.system.processes import kill_tree
from rp_raptor.wire.parts import Part
from rp_raptor.worker.job_process import JobCommand, JobProcess, noted_ends
from rp_raptor.worker.rank_processes import (
    LAST_WORDS,
    START_TIMEOUT,
    STARTS,
    Failed,
    Gone,
    RankProcesses,
    how_it_ended,
)
from rp_raptor.worker.spanning import Tell

_CHECK_INTERVAL_S = 1.0   # seconds between looks for ended ranks, until all have said hello

MESSAGES = ('ready', 'up', 'down', 'ended')


class Job(RankProcesses):
    """The ranks of this node, and the job itself in the manager with the `command`."""

    def __init__(self, loop: Loop, part: Part, command: JobCommand | None, tell: Tell, gone: Gone,
                 failed: Failed) -> None:
        super().__init__(loop, part.numbers, gone, failed)
        self._part = part
        self._command = command
        self._tell = tell
        self._jobs = 0   # that have ended
        self._sessions: set[int] = set()   # of the ranks, if the launcher of this manager makes them
        # of the first manager
        self._ready: set[int] = set()
        self._up: set[int] = set()
        self._down: list[tuple[int, str]] = []
        self._last: list[Any] = []   # the message about the last job that has ended
        self._worked = False
        self._vain = 0
        self._timers: list[Timer] = []

    def start(self) -> None:
        """Start all ranks; of several nodes when the other managers are ready, see `complete`."""
        self._start_job()

    def complete(self) -> None:
        """Note that all managers of the worker are connected, perhaps again."""
        if self._command is None and not self._handles:
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
        if self._command and not self._launcher:   # the job of the rank has ended meanwhile
            return
        handle = ProcessHandle.open(pid, started)
        if handle is None:
            self._rank_ended(rank)
            return
        self._handles[rank] = handle
        self._pids[rank] = pid
        if self._part.count == 1:
            with suppress(ProcessLookupError):
                self._sessions.add(os.getsid(pid))
        handle.watch(self._loop, lambda: self._rank_ended(rank))
        if len(self._handles) == len(self._numbers):
            if self._command is None:
                self._tell(0, ['up', self._jobs])
            else:
                self._came_up(self._part.number)

    def close(self) -> None:
        """Kill and reap all processes that are left."""
        if self._launcher:
            self._launcher.end_now()
        self._forget_ranks()
        self._reap()

    # the ranks of this node

    def _rank_ended(self, rank: int) -> None:
        if rank in self._handles:
            self._handles.pop(rank).close()
            kill_tree([self._pids.pop(rank)], signal.SIGKILL)   # processes that it has left in its session
        if self._check_stopped():
            return
        number, reason = self._numbers[rank], self._reasons.pop(rank, '')
        if self._command is None:
            self._tell(0, ['down', self._jobs, number, reason])
        else:
            self._break(number, reason)

    def _end_here(self, guilty: list[int], reason: str) -> bool:
        """Handle the end of the job; return whether a guilty rank of this node has taken a call."""
        self._forget_ranks()
        self._jobs += 1
        here = range(len(self._numbers))
        mine = [rank for rank in here if self._numbers[rank] in guilty]
        return self._gone(mine, [rank for rank in here if rank not in mine], reason, guilty)

    def _forget_ranks(self) -> None:
        """Kill the ranks that the launcher has left, and the processes that they have left."""
        for handle in self._handles.values():
            handle.close()
        kill_tree([*self._pids.values(), *self._sessions], signal.SIGKILL)
        for known in (self._handles, self._pids, self._reasons, self._sessions):
            known.clear()

    # the job

    def _start_job(self) -> None:
        """Start the job if all other nodes are ready."""
        if self._command is None or self._launcher or len(self._ready) < self._part.count - 1:
            return
        if self._last:
            self._vain = 0 if self._worked else self._vain + 1
            if self._vain >= STARTS:
                self._failed(f'{self._last[-1]}, {STARTS} times before it has taken a call')
                return
        try:
            self._launcher = JobProcess(self._loop, self._command, self._launcher_ended)
        except OSError as error:
            self._failed(f'cannot start {self._command.argv[0]}: {error}')
            return
        self._timers = [self._loop.call_later(START_TIMEOUT, self._break, -1, 'its ranks did not say hello')]
        if self._part.count == 1:
            self._look(self._command.notes)

    def _look(self, notes: str) -> None:
        """Look for ended ranks until all have said hello: launchers may not notice them before."""
        if os.path.exists(notes) and not self._stopping:
            self._break(-1, '')
        else:
            self._timers[1:] = [self._loop.call_later(_CHECK_INTERVAL_S, self._look, notes)]

    def _came_up(self, part: int) -> None:
        self._up.add(part)
        if len(self._up) == self._part.count and not self._down:
            self._disarm()

    def _break(self, rank: int, reason: str) -> None:
        """End the job of a dead rank, if the launcher does not."""
        self._down.append((rank, reason))
        if len(self._down) == 1 and self._launcher:
            self._disarm()
            self._launcher.end()

    def _launcher_ended(self) -> None:
        code = self._reap()
        if self._check_stopped():
            return
        self._loop.call_later(LAST_WORDS, self._conclude, *self._guilty(code))

    def _guilty(self, code: int) -> tuple[list[int], str]:
        """Return the ranks that ended first, as noted by themselves or seen by a manager; all if none is known."""
        killed = next(((rank, reason) for rank, reason in self._down if reason and rank >= 0), None)
        if killed:
            return [killed[0]], f'rank {killed[0]} {killed[1]}'
        told = next((reason for _, reason in self._down if reason), '')
        noted = self._notes()
        if noted:
            return [rank for rank, _ in noted], told or ', '.join(
                f'rank {rank} {how_it_ended(status)}' for rank, status in noted)
        seen = [rank for rank, _ in self._down[:1] if rank >= 0]
        return seen or list(range(self._part.total)), told or f'the MPI job {how_it_ended(code)}'

    def _notes(self) -> list[tuple[int, int]]:
        """Return numbers and exit codes of ranks that have noted their end; of several nodes, the first one's."""
        assert self._command
        noted = noted_ends(self._command.notes, self._part.total)
        return noted[:1] if self._part.count > 1 else noted

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
        self._start_job()

    def _reap(self) -> int:
        """Release the launcher, and return its exit code."""
        self._disarm()
        if self._launcher is None:
            return 0
        for handle in self._handles.values():
            handle.send_signal(signal.SIGKILL)   # a killed launcher leaves them
        code = self._launcher.reap()
        self._launcher = None
        return code

    def _disarm(self) -> None:
        for timer in self._timers:
            timer.cancel()
        self._timers = []
