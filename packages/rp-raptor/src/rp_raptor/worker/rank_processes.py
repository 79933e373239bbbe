"""The processes of a worker's ranks: starts, watches, signals and restarts them.

`Direct` starts each rank itself; for MPI jobs see `rp_raptor.worker.job`. The owner knows ranks by their places among
those of this manager only.
"""

from __future__ import annotations

import signal
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence

from rp_api.loop.event_loop import Loop, Timer
from rp_api.loop.process_handle import ProcessHandle
from rp_api.system.processes import kill_tree
from rp_raptor.wire.rank_protocol import RANK_VARIABLE
from rp_raptor.worker.job_process import JobProcess

STARTS = 3
"""Consecutive starts of a rank that end without a taken call before the worker fails."""

START_TIMEOUT = 300.0
"""Seconds that a rank has to say hello, as it may have much to load."""

LAST_WORDS = 0.02
"""Seconds for the last messages of a dead rank to arrive."""

Failed = Callable[[str], object]
Gone = Callable[[Sequence[int], Sequence[int], str, Sequence[int]], bool]
"""Handles dead ranks: places of those that died first, places of those that ended with them, the reason, and the
numbers in the worker of all that died first, also on other nodes.

Returns whether one of the first has taken a call since its start; the call may be the reason.
"""


class RankProcesses(ABC):
    """The ranks of this manager, which have these numbers in the worker."""

    def __init__(self, loop: Loop, numbers: Sequence[int], gone: Gone, failed: Failed) -> None:
        self._loop = loop
        self._numbers = numbers
        self._gone = gone
        self._failed = failed
        self._handles: dict[int, ProcessHandle] = {}
        self._pids: dict[int, int] = {}
        self._reasons: dict[int, str] = {}
        self._launcher: JobProcess | None = None   # of an MPI job
        self._stopping: Callable[[], object] | None = None

    @abstractmethod
    def start(self) -> None:
        """Start all ranks."""

    @abstractmethod
    def arrived(self, rank: int, pid: int, started: int) -> None:
        """Note that a rank has said hello."""

    @abstractmethod
    def close(self) -> None:
        """Kill and reap all processes that are left."""

    def signal(self, rank: int) -> None:
        """Send the rank SIGUSR1."""
        if rank in self._handles:
            self._handles[rank].send_signal(signal.SIGUSR1)

    def kill(self, rank: int, reason: str) -> None:
        """Kill the rank and all processes that it has started; `reason` is part of the report of its end."""
        if rank in self._handles:
            self._reasons.setdefault(rank, reason)
            kill_tree([self._pids[rank]], signal.SIGKILL)

    def stop(self, ended: Callable[[], object]) -> None:
        """Restart no ranks and report no deaths any more; call `ended` when all have ended."""
        self._stopping = ended
        self._check_stopped()

    def terminate(self) -> None:
        """Send SIGTERM to all ranks."""
        for handle in self._handles.values():
            handle.send_signal(signal.SIGTERM)

    def _check_stopped(self) -> bool:
        """Return whether ranks are not to be restarted, and report when all have ended."""
        if self._stopping and not self._handles and not self._launcher:
            self._stopping()
        return self._stopping is not None


class Direct(RankProcesses):
    """Ranks that are children of this process; `variables(rank)` are added to their environment."""

    def __init__(self, loop: Loop, numbers: Sequence[int], command: list[str], environ: Mapping[str, str],
                 variables: Callable[[int], Mapping[str, str]], gone: Gone, failed: Failed) -> None:
        super().__init__(loop, numbers, gone, failed)
        self._command = command
        self._environ = environ
        self._variables = variables
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._timers: dict[int, Timer] = {}
        self._vain = [0] * len(numbers)

    def start(self) -> None:
        """Start all ranks."""
        for rank in range(len(self._numbers)):
            self._start(rank)

    def arrived(self, rank: int, pid: int, started: int) -> None:
        """Note that a rank has said hello."""
        self._disarm(rank)

    def close(self) -> None:
        """Kill and reap all processes that are left."""
        kill_tree(self._pids.values(), signal.SIGKILL)
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
        self._processes[rank], self._pids[rank] = process, process.pid
        self._handles[rank] = ProcessHandle.of_child(process.pid)
        self._handles[rank].watch(self._loop, lambda: self._ended(rank))
        self._timers[rank] = self._loop.call_later(START_TIMEOUT, self.kill, rank, 'it did not say hello')

    def _ended(self, rank: int) -> None:
        # the rank's session may have processes left; its number is reserved until the rank is reaped
        kill_tree([self._pids[rank]], signal.SIGKILL)
        code = self._reap(rank)
        if not self._check_stopped():
            reason = f'rank {self._numbers[rank]} {self._reasons.pop(rank, "") or how_it_ended(code)}'
            self._loop.call_later(LAST_WORDS, self._tell, rank, reason)

    def _tell(self, rank: int, reason: str) -> None:
        if self._stopping:
            return
        self._vain[rank] = 0 if self._gone([rank], [], reason, [self._numbers[rank]]) else self._vain[rank] + 1
        if self._vain[rank] >= STARTS:
            self._failed(f'{reason}, {STARTS} times before it has taken a call')
        else:
            self._start(rank)

    def _reap(self, rank: int) -> int:
        """Release an ended rank, and return its exit code."""
        self._disarm(rank)
        self._handles.pop(rank).close()
        del self._pids[rank]
        return self._processes.pop(rank).wait()

    def _disarm(self, rank: int) -> None:
        timer = self._timers.pop(rank, None)
        if timer:
            timer.cancel()


def how_it_ended(code: int) -> str:
    """Describe how a process has ended; shells add 128 to the number of a signal."""
    number = -code if code < 0 else code - 128
    if number <= 0:
        return f'ended with exit code {code}'
    try:
        return f'was killed by {signal.Signals(number).name}'
    except ValueError:
        return f'ended with exit code {code}'
