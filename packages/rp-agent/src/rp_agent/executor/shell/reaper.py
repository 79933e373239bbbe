"""Following the processes of runs that a shell has started, and bringing their end about.

The rules are those of `executor.reaper`; daemons, which become children of an agent that is a subreaper, end with their
task. But the processes are children of the shell, which alone can tell their exit codes.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable
from functools import partial

from rp_agent.executor.base import Ending
from rp_agent.executor.reaper import Reaper, signal_group, signal_trees
from rp_agent.executor.shell.run import ShellRun
from rp_api.loop.event_loop import Loop
from rp_api.system import processes
from rp_profiling.write.tracer import Tracer

SHELL_NAME = 'RP_SPAWNER_ID'
"""Variable of a shell, and of what it starts until that has its own environment."""


class ShellReaper(Reaper[ShellRun]):
    """Watches runs: `ended(run, rank)` is called when a process has ended.

    `given_up(run)` is called for a run whose processes do not die.
    """

    def __init__(self, loop: Loop, tracer: Tracer, belongs: dict[str, str], grace: float,
                 finished: Callable[[ShellRun], object], ended: Callable[[ShellRun, int], object],
                 given_up: Callable[[ShellRun], object]) -> None:
        super().__init__(loop, tracer, belongs, grace, finished)
        self._session = os.getsid(0)
        self._ended = ended
        self._given_up = given_up

    def follow(self, run: ShellRun, rank: int, pid: int, shell: int) -> bool:
        """Follow the process of a rank; false if it has ended already. OSError if that is impossible."""
        run.pids[rank] = pid
        run.make_room(1)
        process = processes.read_process(pid)
        if process is not None and not _has_started(shell, process):
            return False
        run.sessions.add(pid)
        if run.ending is not None:
            signal_trees({pid}, run.signal)
        descriptor = processes.open_process(pid, process.started) if process is not None else None
        if descriptor is None:
            self._end_group(run, rank)
            return False
        try:
            self._loop.add_fd(descriptor, partial(self._leader_ended, run, descriptor))
        except OSError:
            os.close(descriptor)
            raise
        run.leaders[descriptor] = rank
        return True

    @staticmethod
    def kill(pid: int, shell: int) -> None:
        """Kill a process that the shell has just started, and what it has started itself."""
        process = processes.read_process(pid)
        if process is not None and _has_started(shell, process):
            signal_trees({pid}, signal.SIGKILL)

    def reaped(self, run: ShellRun, rank: int) -> None:
        """The shell has reaped the process of a rank, so that its number is only used by what is left of its group."""
        if not signal_group(run.pids[rank], 0):
            run.sessions.discard(run.pids[rank])

    def settle(self, run: ShellRun) -> None:
        """All exit codes are known: finish the run, unless processes of it use the grace period."""
        run.sessions = {pid for pid in run.sessions if signal_group(pid, 0)}
        if run.ending is not None and run.sessions:
            self._watch_survivors(run, run.sessions)
        if not run.survivors:
            self._finish(run)

    def has_left(self, run: ShellRun, shell: int | None) -> bool:
        """Whether processes of a run that has ended may still run: of its groups, or daemons."""
        return bool(run.sessions) or any(processes.variable(pid, 'RP_TASK_ID') == run.task.uid
                                         for pid in self._orphans(shell))

    def abandon(self, run: ShellRun) -> None:
        """Finish the run, whatever becomes of its processes."""
        for descriptor in (*run.leaders, *run.survivors):
            self.forget(descriptor)
        run.leaders.clear()
        run.survivors.clear()
        self._finish(run)

    def kill_all(self, shell: int, name: str) -> None:
        """Kill all that a shell has started, which has ended but has not been reaped; its name is in its environment.

        What it has just started may know neither its task nor, yet, that it was to end with the shell.
        """
        signal_trees({shell} | _sessions(self.running.values()), signal.SIGKILL)
        self.sweep([name], SHELL_NAME)

    def reap_orphans(self, shell: int | None) -> None:
        """Reap processes of tasks that have lost their parents and become ours, as they do when we are a subreaper."""
        try:
            while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
                pid = ended.si_pid
                # children in our own session were started by other parts of this process
                if pid == shell or os.getsid(pid) == self._session:
                    return
                os.waitid(os.P_PID, pid, os.WEXITED)
        except ChildProcessError:
            # there is no child at all
            return

    def _orphans(self, shell: int | None) -> list[int]:
        """Children that were not started by this process."""
        try:
            with open(f'/proc/self/task/{os.getpid()}/children', encoding='ascii') as file:
                pids = [int(word) for word in file.read().split()]
            # children in our own session were started by other parts of this process
            return [pid for pid in pids if pid != shell and os.getsid(pid) != self._session]
        except (FileNotFoundError, ProcessLookupError):   # the kernel does not tell, or one has just been reaped
            return []

    def _leader_ended(self, run: ShellRun, descriptor: int) -> None:
        rank = run.leaders.pop(descriptor)
        self.forget(descriptor)
        self._end_group(run, rank)
        self._ended(run, rank)

    def _end_group(self, run: ShellRun, rank: int) -> None:
        """A process has ended by itself: kill what is left of its group."""
        if run.ending is None:
            # some shells have reaped it by now, but it would take a whole round of numbers to use this one again
            signal_group(run.pids[rank], signal.SIGKILL)

    def _signal(self, runs: list[ShellRun], number: signal.Signals) -> None:
        for run in runs:
            run.signal = number
        signal_trees(_sessions(runs), number)

    def _let_go(self, run: ShellRun, ending: Ending) -> None:
        if run.leaders or run.survivors:   # else it only waits for the shell
            run.ending = ending
            self._given_up(run)


def _has_started(shell: int, process: processes.Process) -> bool:
    """Return True if the shell has started the process; else that one has ended, and another process has its number.

    The children of a shell that has died are ours.
    """
    return process.parent in (shell, os.getpid())


def _sessions(runs: Iterable[ShellRun]) -> set[int]:
    return {pid for run in runs for pid in run.sessions}
