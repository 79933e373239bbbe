"""Base class of reapers, which follow the processes of runs to their end, and end them.

Rules of this file:

- When a started process ends, the rest of its process group is killed.
- To end a run, the reaper sends SIGTERM to all of its processes. Processes that outlive the started one have until the
  end of the grace period. Then all that are left get SIGKILL. A process that survives even that (it waits for a dead
  file server, or has become another user's) is given up after a second grace period, so that no task hangs.
- A pid is signalled only while it cannot be reused: while its process is not reaped, or its group has other members.
"""

from __future__ import annotations

import os
import signal
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from functools import partial
from typing import Generic

from rp_agent.executor.base import Ending
from rp_agent.executor.run import AnyRun
from rp_agent.logs import LOG
from rp_api.failures.kinds import CANCELED
from rp_api.logger import logger
from rp_api.loop.event_loop import Loop
from rp_api.system import processes
from rp_profiling.write.tracer import Tracer

_RETRY_AFTER = 1.0
"""Seconds before a sweep that failed for lack of descriptors is repeated."""


class Reaper(ABC, Generic[AnyRun]):
    """Watches runs, and calls `finished(run)` once for each when none of its processes is left.

    `belongs` are variables in the environment of all processes of the pilot's tasks, `grace` is the time in seconds
    between SIGTERM and SIGKILL, `running` maps task uids to runs.
    """

    def __init__(self, loop: Loop, tracer: Tracer, belongs: dict[str, str], grace: float,
                 finished: Callable[[AnyRun], object]) -> None:
        self.running: dict[str, AnyRun] = {}
        self._loop = loop
        self._tracer = tracer
        self._belongs = belongs
        self._grace = grace
        self._finished = finished

    def watch(self, run: AnyRun) -> None:
        """Start watching a run."""
        self.running[run.task.uid] = run

    def end(self, runs: Iterable[AnyRun], ending: Ending) -> None:
        """End the runs: SIGTERM now, SIGKILL after the grace period. Runs that are already being ended are skipped."""
        runs = [run for run in runs if run.ending is None]
        if not runs:
            return
        for run in runs:
            run.ending = ending
            run.stop_timer()
            self._tracer.record('task_run_cancel_start', run.task.uid)
        self._ask_to_end(runs)
        self._loop.call_later(self._grace, self._kill, runs)

    def forward(self, runs: list[AnyRun], number: int) -> None:
        """Send a signal to the processes of runs that handle it; it would end the others, such as shells around them.

        A launcher forwards it to its ranks, some of which may be here.
        """
        roots = {pid for run in runs if run.plan.launch is None for pid in run.sessions}
        table = processes.process_table() if roots else {}
        for pid in {*processes.tree(roots, table), *(
                pid for run in runs if run.plan.launch is not None for pid in run.sessions)}:
            if processes.handles(pid, number):
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, number)

    def sweep(self, uids: Collection[str], variable: str = 'RP_TASK_ID') -> None:
        """Kill all processes whose environment has one of these values in `variable`, in whatever session they are."""
        try:
            processes.sweep({**self._belongs, variable: uids}, signal.SIGKILL)
        except OSError as error:   # usually, no file descriptor is left
            logger(LOG).warning('cannot look for leftover processes of %s, retry in %g s: %s', ', '.join(uids),
                                _RETRY_AFTER, error)
            self._loop.call_later(_RETRY_AFTER, self.sweep, uids, variable)

    def forget(self, descriptor: int) -> None:
        """Stop watching a descriptor, and close it."""
        self._loop.remove_fd(descriptor)
        os.close(descriptor)

    def check(self) -> None:
        """Verify all invariants; raise AssertionError."""
        owned: list[int] = []
        for uid, run in self.running.items():
            assert run.task.uid == uid, f'{run.task.uid} runs as {uid}'
            run.check()
            owned += run.descriptors()
        assert len(owned) == len(set(owned)), f'descriptors with several owners: {sorted(owned)}'
        for descriptor in owned:
            os.fstat(descriptor)

    @abstractmethod
    def settle(self, run: AnyRun) -> None:
        """Finish a run of which processes have ended, unless the reaper waits for others."""

    @abstractmethod
    def _signal(self, runs: list[AnyRun], number: signal.Signals) -> None:
        """Signal all processes of the runs."""

    @abstractmethod
    def _let_go(self, run: AnyRun, ending: Ending) -> None:
        """Finish a run whose processes cannot be killed."""

    def _ask_to_end(self, runs: list[AnyRun]) -> None:
        self._signal(runs, signal.SIGTERM)

    def _watch_survivors(self, run: AnyRun, sessions: Collection[int]) -> None:
        """Wait for the processes of these sessions."""
        try:
            table = processes.process_table()
            for pid in processes.tree(sessions, table):
                descriptor = processes.open_process(pid, table[pid].started)
                if descriptor is not None:
                    run.survivors.add(descriptor)
                    self._loop.add_fd(descriptor, partial(self._survivor_ended, run, descriptor))
        except OSError:   # no descriptors: without them there is no grace period
            for pid in sessions:
                signal_group(pid, signal.SIGKILL)

    def _survivor_ended(self, run: AnyRun, descriptor: int) -> None:
        if descriptor in run.survivors:
            run.survivors.discard(descriptor)
            self.forget(descriptor)
            if not run.survivors:
                self.settle(run)

    def _kill(self, runs: list[AnyRun]) -> None:
        runs = self._still_running(runs)
        if runs:
            self._signal(runs, signal.SIGKILL)
            self.sweep({run.task.uid for run in runs})
            self._loop.call_later(self._grace, self._give_up, runs)

    def _give_up(self, runs: list[AnyRun]) -> None:
        """Finish runs whose processes survive SIGKILL."""
        for run in self._still_running(runs):
            self._let_go(run, Ending(RuntimeError(f'the task was ended, but processes of it cannot be killed and may '
                                                  f'still run (sessions {sorted(run.sessions)})'), kind=CANCELED))

    def _still_running(self, runs: list[AnyRun]) -> list[AnyRun]:
        return [run for run in runs if self.running.get(run.task.uid) is run]

    def _finish(self, run: AnyRun) -> None:
        del self.running[run.task.uid]
        self._finished(run)


def signal_group(pid: int, number: int) -> bool:
    """Signal a process group; return False if it does not exist."""
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        return False
    except PermissionError:   # all members belong to other users
        return True
    return True


def signal_started(pid: int, number: int) -> None:
    """Signal a started process and its group; a process that was just created may not have its group yet."""
    if not signal_group(pid, number):
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def signal_trees(pids: Collection[int], number: int) -> None:
    """Signal all processes of these sessions; without free descriptors, only those of their process groups."""
    try:
        processes.kill_tree(pids, number)
    except OSError:
        for pid in pids:
            signal_started(pid, number)
