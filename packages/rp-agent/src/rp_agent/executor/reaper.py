"""Following the processes of runs to their end, and bringing that end about: the base of what executors do it with.

Rules of this file:

- A process that ends takes what is left of its group with it.
- A run that is to be ended gets SIGTERM, all its processes. Those that outlive the process which was started may use
  the grace period. What is left after it gets SIGKILL, and what even that does not end (it waits for a dead file
  server, or is another user's by now) is given up after the same time again: no task may hang because of it.
- A number is signalled only while something keeps it from being used again: a process that has not been reaped, or
  others of its group.
"""

from __future__ import annotations

import os
import signal
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from functools import partial
from typing import Generic, Protocol, TypeVar

from rp_agent.executor.base import Ending
from rp_agent.executor.deadlines import Timed
from rp_agent.logs import LOG
from rp_api.logger import logger
from rp_api.loop.event_loop import Loop
from rp_api.system import processes
from rp_profiling.write.tracer import Tracer

_RETRY_AFTER = 1.0


class Watched(Timed, Protocol):
    """A run, as far as its processes are followed."""

    survivors: set[int]
    """Descriptors of the processes that are waited for when the run is being ended."""

    @property
    def sessions(self) -> Collection[int]:
        """Numbers of the sessions that its processes may be in."""

    def check(self) -> None: ...
    def descriptors(self) -> list[int]: ...


AnyRun = TypeVar('AnyRun', bound=Watched)


class Reaper(ABC, Generic[AnyRun]):
    """Watches runs, and calls `finished(run)` once for each when none of its processes is left.

    `belongs` are variables that all processes of the pilot's tasks have in their environment; `grace` is the time in
    seconds between SIGTERM and SIGKILL. `running` are the runs by the uid of their task.
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
        """Follow the run from now on."""
        self.running[run.task.uid] = run

    def end(self, runs: Iterable[AnyRun], ending: Ending) -> None:
        """Ask all processes of the runs to end, and see to it that they do; runs that are being ended are left out."""
        runs = [run for run in runs if run.ending is None]
        if not runs:
            return
        for run in runs:
            run.ending = ending
            run.stop_timer()
            self._tracer.record('task_run_cancel_start', run.task.uid)
        self._ask_to_end(runs)
        self._loop.call_later(self._grace, self._kill, runs)

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

    @abstractmethod
    def settle(self, run: AnyRun) -> None:
        """Processes of a run have ended: finish it, unless others are waited for."""

    @abstractmethod
    def _signal(self, runs: list[AnyRun], number: signal.Signals) -> None:
        """Signal all processes of the runs."""

    @abstractmethod
    def _let_go(self, run: AnyRun, ending: Ending) -> None:
        """Finish a run whose processes do not end, whatever it has."""

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
        except OSError:   # as above; what cannot be followed cannot be given time
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
        """Let go of processes that do not die."""
        for run in self._still_running(runs):
            self._let_go(run, Ending(RuntimeError(f'the task was ended, but processes of it cannot be killed and may '
                                                  f'still run (sessions {sorted(run.sessions)})')))

    def _still_running(self, runs: list[AnyRun]) -> list[AnyRun]:
        return [run for run in runs if self.running.get(run.task.uid) is run]

    def _finish(self, run: AnyRun) -> None:
        del self.running[run.task.uid]
        self._finished(run)


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


def signal_started(pid: int, number: int) -> None:
    """Signal a process that was started and its group, which one that was just created may not have yet."""
    if not signal_group(pid, number):
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def signal_trees(pids: Collection[int], number: int) -> None:
    """Signal all processes of these sessions; only those in the groups if there are no descriptors to look for more."""
    try:
        processes.kill_tree(pids, number)
    except OSError:   # as above
        for pid in pids:
            signal_started(pid, number)
