"""Following the processes of runs that a shell has started, and bringing their end about.

The rules are those of `reaper`: a process that ends takes what is left of its group with it, and daemons, which become
children of an agent that is a subreaper; SIGTERM, a grace period
for those that outlive the process that was started, SIGKILL, and giving up after the same time again. But the processes
are children of the shell, which alone can tell their exit codes. A number is signalled only while something keeps it
from being used again: a process that the shell has not been asked about, or others of its group.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from functools import partial

from rp_agent.executor.base import Ending
from rp_agent.executor.shell.run import ShellRun
from rp_agent.logs import LOG
from rp_api.logger import logger
from rp_api.loop.event_loop import Loop
from rp_api.system import processes
from rp_profiling.write.tracer import Tracer

_RETRY_AFTER = 1.0

SHELL_NAME = 'RP_SPAWNER_ID'
"""Variable of a shell, and of what it starts until that has its own environment."""


class ShellReaper:
    """Watches runs: `ended(run, rank)` is called when a process has ended, `finished(run)` when none of a run is left.

    `given_up(run)` is called for a run whose processes do not die. `belongs` are variables that all processes of the
    pilot's tasks have in their environment; `grace` is the time in seconds between SIGTERM and SIGKILL. `running` are
    the runs by the uid of their task.
    """

    def __init__(self, loop: Loop, tracer: Tracer, belongs: dict[str, str], grace: float,
                 ended: Callable[[ShellRun, int], object], finished: Callable[[ShellRun], object],
                 given_up: Callable[[ShellRun], object]) -> None:
        self.running: dict[str, ShellRun] = {}
        self._session = os.getsid(0)
        self._loop = loop
        self._tracer = tracer
        self._belongs = belongs
        self._grace = grace
        self._ended = ended
        self._finished = finished
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

    def end(self, runs: Iterable[ShellRun], ending: Ending) -> None:
        """Ask all processes of the runs to end, and see to it that they do; runs that are being ended are left out."""
        runs = [run for run in runs if run.ending is None]
        if not runs:
            return
        for run in runs:
            run.ending = ending
            run.stop_timer()
            self._tracer.record('task_run_cancel_start', run.task.uid)
        signal_trees(_sessions(runs), signal.SIGTERM)
        self._loop.call_later(self._grace, self._kill, runs)

    def settle(self, run: ShellRun) -> None:
        """All exit codes are known: finish the run, unless processes of it use the grace period."""
        run.sessions = {pid for pid in run.sessions if signal_group(pid, 0)}
        if run.ending is not None and run.sessions:
            self._watch_survivors(run)
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

    def sweep(self, uids: Collection[str], variable: str = 'RP_TASK_ID') -> None:
        """Kill all that was started for these tasks, also what has left their sessions; or that has another variable
        with one of these values.
        """
        try:
            processes.sweep({**self._belongs, variable: uids}, signal.SIGKILL)
        except OSError as error:   # as a rule, there is no descriptor left to look with
            logger(LOG).warning('processes that %s may have left are looked for again: %s', ', '.join(uids), error)
            self._loop.call_later(_RETRY_AFTER, self.sweep, uids, variable)

    def forget(self, descriptor: int) -> None:
        """Neither watch nor hold this descriptor any more."""
        self._loop.remove_fd(descriptor)
        os.close(descriptor)

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

    def check(self) -> None:
        """Verify all invariants; raises AssertionError."""
        owned: list[int] = []
        for uid, run in self.running.items():
            assert run.task.uid == uid, f'{run.task.uid} runs as {uid}'
            run.check()
            owned += run.descriptors()
        assert len(owned) == len(set(owned)), f'descriptors with several owners: {sorted(owned)}'
        for descriptor in owned:
            os.fstat(descriptor)

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

    def _watch_survivors(self, run: ShellRun) -> None:
        try:
            table = processes.process_table()
            for pid in processes.tree(run.sessions, table):
                descriptor = processes.open_process(pid, table[pid].started)
                if descriptor is not None:
                    run.survivors.add(descriptor)
                    self._loop.add_fd(descriptor, partial(self._survivor_ended, run, descriptor))
        except OSError:   # as above; what cannot be followed cannot be given time
            for pid in run.sessions:
                signal_group(pid, signal.SIGKILL)

    def _survivor_ended(self, run: ShellRun, descriptor: int) -> None:
        if descriptor in run.survivors:
            run.survivors.discard(descriptor)
            self.forget(descriptor)
            if not run.survivors:
                self.settle(run)

    def _kill(self, runs: list[ShellRun]) -> None:
        runs = self._still_running(runs)
        if runs:
            for run in runs:
                run.signal = signal.SIGKILL
            signal_trees(_sessions(runs), signal.SIGKILL)
            self.sweep({run.task.uid for run in runs})
            self._loop.call_later(self._grace, self._give_up, runs)

    def _give_up(self, runs: list[ShellRun]) -> None:
        """Let go of processes that do not die; a run without one only waits for the shell."""
        for run in self._still_running(runs):
            if run.leaders or run.survivors:
                run.ending = Ending(RuntimeError(f'the task was ended, but processes of it cannot be killed and may '
                                                 f'still run (sessions {sorted(run.sessions)})'))
                self._given_up(run)

    def _still_running(self, runs: list[ShellRun]) -> list[ShellRun]:
        return [run for run in runs if self.running.get(run.task.uid) is run]

    def _finish(self, run: ShellRun) -> None:
        del self.running[run.task.uid]
        self._finished(run)


def _has_started(shell: int, process: processes.Process) -> bool:
    """Return True if the shell has started the process; else that one has ended, and another process has its number.

    The children of a shell that has died are ours.
    """
    return process.parent in (shell, os.getpid())


def signal_group(pid: int, number: int) -> bool:
    """Signal a process group; False if there is none of that number."""
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        return False
    except PermissionError:
        # it has a member, but one that is another user's
        return True
    return True


def signal_trees(pids: Collection[int], number: int) -> None:
    """Signal all processes of these sessions; only those in the groups if there are no descriptors to look for more."""
    try:
        processes.kill_tree(pids, number)
    except OSError:   # as above
        for pid in pids:
            # one that has just been started may have no group yet
            if not signal_group(pid, number):
                with suppress(ProcessLookupError):
                    os.kill(pid, number)


def _sessions(runs: Iterable[ShellRun]) -> set[int]:
    return {pid for run in runs for pid in run.sessions}
