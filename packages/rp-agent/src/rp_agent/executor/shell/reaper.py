"""Reaper of the shell's processes: follows the processes that a shell has started for runs, and ends them.

The rules are those of `executor.reaper`. The processes are children of the shell, and only the shell can report their
exit codes. Daemons, which an agent that is a subreaper adopts, end with their task.
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
"""Name of a variable of a shell, and of its processes until they have their own environments."""


class ShellReaper(Reaper[ShellRun]):
    """Watches runs: it calls `ended(run, rank)` when a process has ended.

    It calls `given_up(run)` for a run whose processes cannot be killed.
    """

    def __init__(self, loop: Loop, tracer: Tracer, belongs: dict[str, str], grace: float,
                 finished: Callable[[ShellRun], object], ended: Callable[[ShellRun, int], object],
                 given_up: Callable[[ShellRun], object]) -> None:
        super().__init__(loop, tracer, belongs, grace, finished)
        self._session = os.getsid(0)
        self._ended = ended
        self._given_up = given_up

    def follow(self, run: ShellRun, rank: int, pid: int, shell: int) -> bool:
        """Watch the process of a rank; return False if it has ended; raise OSError if it cannot be watched."""
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
        """Kill a process that the shell has just started, and its descendants."""
        process = processes.read_process(pid)
        if process is not None and _has_started(shell, process):
            signal_trees({pid}, signal.SIGKILL)

    def reaped(self, run: ShellRun, rank: int) -> None:
        """Forget the session of a rank that the shell has reaped, unless members of its group are left."""
        if not signal_group(run.pids[rank], 0):
            run.sessions.discard(run.pids[rank])

    def settle(self, run: ShellRun) -> None:
        """Finish a run of which all exit codes are known, unless its processes are in the grace period."""
        run.sessions = {pid for pid in run.sessions if signal_group(pid, 0)}
        if run.ending is not None and run.sessions:
            self._watch_survivors(run, run.sessions)
        if not run.survivors:
            self._finish(run)

    def has_left(self, run: ShellRun, shell: int | None) -> bool:
        """Return whether processes of an ended run may still run: members of its groups, or daemons."""
        return bool(run.sessions) or any(processes.variable(pid, 'RP_TASK_ID') == run.task.uid
                                         for pid in self._orphans(shell))

    def abandon(self, run: ShellRun) -> None:
        """Finish the run without waiting for its processes."""
        for descriptor in (*run.leaders, *run.survivors):
            self.forget(descriptor)
        run.leaders.clear()
        run.survivors.clear()
        self._finish(run)

    def kill_all(self, shell: int, name: str) -> None:
        """Kill all processes of a shell that has ended but has not been reaped, by the name in their environment.

        A process that it has just started may have neither the environment of its task nor PR_SET_PDEATHSIG yet.
        """
        signal_trees({shell} | _sessions(self.running.values()), signal.SIGKILL)
        self.sweep([name], SHELL_NAME)

    def reap_orphans(self, shell: int | None) -> None:
        """Reap ended orphans of tasks, which this process adopts if it is a subreaper."""
        try:
            while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
                pid = ended.si_pid
                # children in the agent's own session were started by other parts of this process
                if pid == shell or os.getsid(pid) == self._session:
                    return
                os.waitid(os.P_PID, pid, os.WEXITED)
        except ChildProcessError:   # no child
            return

    def _orphans(self, shell: int | None) -> list[int]:
        """Return the children that were not started by this process."""
        try:
            with open(f'/proc/self/task/{os.getpid()}/children', encoding='ascii') as file:
                pids = [int(word) for word in file.read().split()]
            # as above
            return [pid for pid in pids if pid != shell and os.getsid(pid) != self._session]
        except (FileNotFoundError, ProcessLookupError):   # the kernel has no such list, or a child was just reaped
            return []

    def _leader_ended(self, run: ShellRun, descriptor: int) -> None:
        rank = run.leaders.pop(descriptor)
        self.forget(descriptor)
        self._end_group(run, rank)
        self._ended(run, rank)

    def _end_group(self, run: ShellRun, rank: int) -> None:
        """Kill the rest of the group of a process that has ended by itself."""
        if run.ending is None:
            # the shell may have reaped it, but its pid is reused only after all others have been
            signal_group(run.pids[rank], signal.SIGKILL)

    def _signal(self, runs: list[ShellRun], number: signal.Signals) -> None:
        for run in runs:
            run.signal = number
        signal_trees(_sessions(runs), number)

    def _let_go(self, run: ShellRun, ending: Ending) -> None:
        if run.leaders or run.survivors:   # otherwise it only waits for the shell
            run.ending = ending
            self._given_up(run)


def _has_started(shell: int, process: processes.Process) -> bool:
    """Return whether the shell has started the process; otherwise that one has ended, and its pid has been reused.

    If the shell has died, this process has adopted its children.
    """
    return process.parent in (shell, os.getpid())


def _sessions(runs: Iterable[ShellRun]) -> set[int]:
    return {pid for run in runs for pid in run.sessions}
