"""The processes of a worker's ranks: starts, watches, signals and restarts them.

`Direct` starts each rank itself. `Job` starts all of them through an MPI launcher: when one dies, all end, and the job
is started again. The owner knows ranks by their numbers only.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from rp_api.loop.event_loop import Loop, Timer
from rp_api.loop.process_handle import ProcessHandle
from rp_api.system.processes import kill_tree
from rp_raptor.wire.rank_protocol import RANK_VARIABLE
from rp_raptor.worker.mpi_launch import Launcher

STARTS = 3
"""Consecutive starts of a rank that end without a taken call before the worker fails."""

START_TIMEOUT = 300.0
"""Seconds that a rank has to say hello, as it may have much to load."""

LAST_WORDS = 0.02
"""Seconds for the last messages of a dead rank to arrive."""

EXIT = 2.0
"""Seconds for a launcher to end by itself, and to clean up."""

_CHECK_INTERVAL_S = 1.0   # seconds between looks for ended ranks, until all have said hello

Gone = Callable[[Sequence[int], Sequence[int], str], bool]
"""Handles dead ranks: those that died first, those that ended with them, and the reason.

Returns whether one of the first has taken a call since its start; the call may be the reason.
"""


class Direct:
    """Ranks with these numbers that are children of this process; `variables(rank)` are added to their environment."""

    def __init__(self, loop: Loop, numbers: Sequence[int], command: list[str], environ: Mapping[str, str],
                 variables: Callable[[int], Mapping[str, str]], gone: Gone, failed: Callable[[str], object]) -> None:
        self._loop = loop
        self._numbers = numbers
        self._command = command
        self._environ = environ
        self._variables = variables
        self._gone = gone
        self._failed = failed
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._handles: dict[int, ProcessHandle] = {}
        self._timers: dict[int, Timer] = {}
        self._reasons: dict[int, str] = {}
        self._vain = [0] * len(numbers)
        self._stopping: Callable[[], object] | None = None

    def start(self) -> None:
        """Start all ranks."""
        for rank in range(len(self._numbers)):
            self._start(rank)

    def arrived(self, rank: int, pid: int, started: int) -> None:
        """Note that a rank has said hello."""
        self._disarm(rank)

    def signal(self, rank: int) -> None:
        """Send the rank SIGUSR1."""
        if rank in self._handles:
            self._handles[rank].send_signal(signal.SIGUSR1)

    def kill(self, rank: int, reason: str) -> None:
        """Kill the rank and all processes that it has started; `reason` is part of the report of its end."""
        if rank in self._processes:
            self._reasons[rank] = reason
            kill_tree([self._processes[rank].pid], signal.SIGKILL)

    def stop(self, ended: Callable[[], object]) -> None:
        """Restart no ranks and report no deaths any more; call `ended` when all have ended."""
        self._stopping = ended
        if not self._processes:
            ended()

    def terminate(self) -> None:
        """Send SIGTERM to all ranks."""
        for handle in self._handles.values():
            handle.send_signal(signal.SIGTERM)

    def close(self) -> None:
        """Kill and reap all processes that are left."""
        kill_tree([process.pid for process in self._processes.values()], signal.SIGKILL)
        for rank in list(self._processes):
            self._reap(rank)

    def _start(self, rank: int) -> None:
        if self._stopping:
            return
        number = self._numbers[rank]
        environ = {**self._environ, RANK_VARIABLE: str(number), 'RP_RANK': str(number), **self._variables(rank)}
        try:
            process = subprocess.Popen(self._command, env=environ, stdin=subprocess.DEVNULL, start_new_session=True)
        except OSError as error:
            self._failed(f'cannot start rank {number}: {error}')
            return
        self._processes[rank] = process
        self._handles[rank] = ProcessHandle.of_child(process.pid)
        self._handles[rank].watch(self._loop, lambda: self._ended(rank))
        self._timers[rank] = self._loop.call_later(START_TIMEOUT, self.kill, rank, 'it did not say hello')

    def _ended(self, rank: int) -> None:
        # the rank's session may have processes left; its number is reserved until the rank is reaped
        kill_tree([self._processes[rank].pid], signal.SIGKILL)
        process = self._reap(rank)
        if self._stopping:
            if not self._processes:
                self._stopping()
            return
        reason = f'rank {self._numbers[rank]} {self._reasons.pop(rank, "") or how_it_ended(process.returncode)}'
        self._loop.call_later(LAST_WORDS, self._tell, rank, reason)

    def _tell(self, rank: int, reason: str) -> None:
        if self._stopping:
            return
        self._vain[rank] = 0 if self._gone([rank], [], reason) else self._vain[rank] + 1
        if self._vain[rank] >= STARTS:
            self._failed(f'{reason}, {STARTS} times before it has taken a call')
        else:
            self._start(rank)

    def _reap(self, rank: int) -> subprocess.Popen[bytes]:
        self._disarm(rank)
        self._handles.pop(rank).close()
        process = self._processes.pop(rank)
        process.wait()
        return process

    def _disarm(self, rank: int) -> None:
        timer = self._timers.pop(rank, None)
        if timer:
            timer.cancel()


class Job:
    """Ranks that an MPI launcher starts, and that live and die together; `ends` is a file for their exit codes."""

    def __init__(self, loop: Loop, ranks: int, command: list[str], environ: Mapping[str, str], launcher: Launcher,
                 ends: str, gone: Gone, failed: Callable[[str], object]) -> None:
        self._loop = loop
        self._ranks = ranks
        self._command = launcher.command(ranks, command, ends)
        self._ends = ends
        self._environ = launcher.environment(environ)
        self._gone = gone
        self._failed = failed
        self._process: subprocess.Popen[bytes] | None = None
        self._handle: ProcessHandle | None = None
        self._rank_handles: dict[int, ProcessHandle] = {}
        self._sessions: set[int] = set()   # of the ranks, as the launcher makes them
        self._dead: set[int] = set()
        self._reason = ''
        self._timers: list[Timer] = []
        self._vain = 0
        self._stopping: Callable[[], object] | None = None

    def start(self) -> None:
        """Start all ranks."""
        if self._stopping:
            return
        with suppress(FileNotFoundError):   # of the job before
            os.unlink(self._ends)
        try:
            self._process = subprocess.Popen(self._command, env=self._environ, stdin=subprocess.DEVNULL,
                                             start_new_session=True)
        except OSError as error:
            self._failed(f'cannot start {self._command[0]}: {error}')
            return
        self._handle = ProcessHandle.of_child(self._process.pid)
        self._handle.watch(self._loop, self._launcher_ended)
        self._timers = [self._loop.call_later(START_TIMEOUT, self._break, 'its ranks did not say hello'),
                        self._loop.call_later(_CHECK_INTERVAL_S, self._look)]

    def arrived(self, rank: int, pid: int, started: int) -> None:
        """Note that a rank has said hello."""
        if self._process is None:   # the job of the rank has ended meanwhile
            return
        handle = ProcessHandle.open(pid, started)
        if handle is None:
            self._dead.add(rank)
            self._break(f'rank {rank} has ended')
            return
        self._rank_handles[rank] = handle
        with suppress(ProcessLookupError):
            self._sessions.add(os.getsid(pid))
        handle.watch(self._loop, lambda: self._rank_ended(rank))
        if len(self._rank_handles) == self._ranks and not self._dead and not self._reason:
            self._disarm()   # else the timers are those that end the job

    def signal(self, rank: int) -> None:
        """Send the rank SIGUSR1."""
        if rank in self._rank_handles:
            self._rank_handles[rank].send_signal(signal.SIGUSR1)

    def kill(self, rank: int, reason: str) -> None:
        """Kill the rank and all processes that it has started; `reason` is part of the report of its end."""
        self._reason = self._reason or f'rank {rank} {reason}'
        if rank in self._rank_handles:
            self._rank_handles[rank].send_signal(signal.SIGKILL)

    def stop(self, ended: Callable[[], object]) -> None:
        """Restart no ranks and report no deaths any more; call `ended` when all have ended."""
        self._stopping = ended
        if not self._process:
            ended()

    def terminate(self) -> None:
        """Send SIGTERM to all ranks."""
        for handle in self._rank_handles.values():
            handle.send_signal(signal.SIGTERM)

    def close(self) -> None:
        """Kill and reap all processes that are left."""
        if self._process:
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(EXIT)
        self._kill()
        self._reap()

    def _rank_ended(self, rank: int) -> None:
        """End the job of a dead rank."""
        self._dead.add(rank)
        if not self._stopping:
            self._break(self._reason)

    def _look(self) -> None:
        """Look for ended ranks until all have said hello: launchers may not notice them before."""
        if os.path.exists(self._ends) and not self._stopping:
            self._break('')
        else:
            self._timers[1] = self._loop.call_later(_CHECK_INTERVAL_S, self._look)

    def _break(self, reason: str) -> None:
        """End the job: by SIGTERM if possible, as killed launchers leave files behind."""
        self._reason = self._reason or reason
        self._disarm()
        if self._process:
            self._timers = [self._loop.call_later(EXIT / 10, self._process.send_signal, signal.SIGTERM),
                            self._loop.call_later(EXIT, self._kill)]

    def _launcher_ended(self) -> None:
        code = self._reap()
        if self._stopping:
            self._stopping()
            return
        ends = self._read_ends()
        guilty = list(ends) or sorted(self._dead) or list(range(self._ranks))
        told = [f'rank {rank} {how}' for rank, how in ends.items()] or [f'the MPI job {how_it_ended(code)}']
        reason = self._reason or ', '.join(told)
        others = [rank for rank in range(self._ranks) if rank not in guilty]
        self._loop.call_later(LAST_WORDS, self._tell, guilty, others, reason)

    def _tell(self, guilty: list[int], others: list[int], reason: str) -> None:
        self._reason = ''
        self._dead.clear()
        if self._stopping:
            return
        self._vain = 0 if self._gone(guilty, others, reason) else self._vain + 1
        if self._vain >= STARTS:
            self._failed(f'{reason}, {STARTS} times before it has taken a call')
        else:
            self.start()

    def _read_ends(self) -> dict[int, str]:
        """Return the ranks that have ended by themselves, rather than killed by the launcher, and how."""
        try:
            with open(self._ends) as file:
                lines = [line.split() for line in file]
        except FileNotFoundError:
            return {}
        return {int(rank): how_it_ended(int(code)) for rank, code in lines}

    def _kill(self) -> None:
        if self._process:
            for handle in self._rank_handles.values():
                handle.send_signal(signal.SIGKILL)
            kill_tree([self._process.pid], signal.SIGKILL)

    def _reap(self) -> int:
        """Release all processes of the job, and return the exit code of the launcher."""
        self._disarm()
        if self._process is None:
            return 0
        for handle in self._rank_handles.values():
            handle.send_signal(signal.SIGKILL)   # a killed launcher leaves them
            handle.close()
        self._rank_handles.clear()
        if self._handle is not None:
            self._handle.close()
            self._handle = None
        kill_tree(list(self._sessions), signal.SIGKILL)   # processes that the ranks have left
        self._sessions.clear()
        code = self._process.wait()
        self._process = None
        return code

    def _disarm(self) -> None:
        for timer in self._timers:
            timer.cancel()
        self._timers = []


def how_it_ended(code: int) -> str:
    """Describe how a process has ended; shells add 128 to the number of a signal."""
    number = -code if code < 0 else code - 128
    if number <= 0:
        return f'ended with exit code {code}'
    try:
        return f'was killed by {signal.Signals(number).name}'
    except ValueError:
        return f'ended with exit code {code}'
