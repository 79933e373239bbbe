"""Reaper of child processes: follows the processes that this process has started for runs, and ends them.

Rules of this file, in addition to those of `executor.reaper`:

- Instead of SIGTERM, a launcher gets the signals that make it end its ranks, which may be on other nodes.
- An agent that is a subreaper adopts orphaned processes, and reaps them when a task ends.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress

from rp_agent.executor.base import Ending
from rp_agent.executor.launching.plan import DIRECT
from rp_agent.executor.processes.launchloop import LaunchLoop, Process
from rp_agent.executor.reaper import Reaper, signal_group, signal_started, signal_trees
from rp_agent.executor.run import Run
from rp_api import states
from rp_api.loop.event_loop import Loop
from rp_api.system import processes
from rp_profiling.write.tracer import Tracer

_BETWEEN_SIGNALS = 0.1
"""Seconds between two signals to a launcher."""

_DYING = 0.05
"""Seconds that killed processes have to end before the reaper looks for their children."""

_daemons: dict[int, str | None] = {}
"""Tasks of orphaned processes, by pid (None: not known yet, '': none); all reapers of this process share it."""


class ChildReaper(Reaper[Run]):
    """Watches runs whose processes the launch loop `launched` has started."""

    def __init__(self, loop: Loop, tracer: Tracer, belongs: dict[str, str], grace: float,
                 finished: Callable[[Run], object]) -> None:
        super().__init__(loop, tracer, belongs, grace, finished)
        self.launched = LaunchLoop()
        loop.add_fd(self.launched.fd, self._leaders_ended)

    def close(self) -> None:
        """Stop watching, and close the launch loop."""
        if self.launched.fd >= 0:
            self._loop.remove_fd(self.launched.fd)
            self.launched.close()

    def sweep(self, uids: Collection[str], variable: str = 'RP_TASK_ID') -> None:
        super().sweep(uids, variable)
        self._adopt()

    def has_daemons(self, uid: str) -> bool:
        """Return whether orphaned processes of this task may still run outside of its sessions."""
        return bool(_daemons) and uid in _daemons.values()

    def settle(self, run: Run) -> None:
        """Finish the run, unless its processes are in the grace period or dying, or orphans may belong to it."""
        if run.leaders or run.survivors:
            return
        if run.leftovers or (_daemons and None in _daemons.values()):
            # when they have ended, their children are orphans and can be found
            run.leftovers = True
            self._loop.call_later(_DYING, self._look_again, run)
        else:
            self._finish(run)

    def _leaders_ended(self) -> None:
        """Process the ends of started processes."""
        ended = self.launched.ended()
        self._adopt()
        for process in ended:
            try:
                self._leader_ended(process)
            except Exception as error:   # must not affect the other processes
                self._broke(process.run, error)

    def _leader_ended(self, process: Process) -> None:
        run: Run = process.run
        del run.leaders[process.rank]
        run.codes[process.rank] = process.code
        if run.ending is not None:
            # it has just been reaped: a group with its number is still its own
            if signal_group(process.pid, 0):
                self._watch_survivors(run, [process.pid])
        elif process.leftovers:
            run.leftovers = True
        if run.plan.kind == DIRECT:   # no exec script records it
            self._tracer.record_many(run.task.uid, ('rank_stop', 'exec_post', 'exec_stop'),
                                     f'RP_EXEC_PID={process.pid}:RP_RANK_PID={process.pid}')
        if run.failure is None and process.failure is not None:   # its program was not executed: end the other ranks
            run.failure = process.rank, process.failure
            _signal_groups(run, signal.SIGKILL)
        self.settle(run)

    def _broke(self, run: Run, error: Exception) -> None:
        """Kill the processes of a run after an unexpected error, and finish it."""
        run.task.broke(error, 'following its processes')
        if self._still_running([run]):
            _signal_groups(run, signal.SIGKILL)
            self._let_go(run, Ending(error, states.FAILED))

    def _adopt(self) -> None:
        """Update the orphaned processes and their tasks."""
        if _daemons:
            for pid in [pid for pid in _daemons if pid not in self.launched]:
                del _daemons[pid]
            for pid in [pid for pid, uid in _daemons.items() if uid is None]:
                _daemons[pid] = processes.variable(pid, 'RP_TASK_ID')
        for pid in self.launched.adopt():
            # a process that is about to execute a program has no environment yet
            _daemons[pid] = processes.variable(pid, 'RP_TASK_ID') or None

    def _look_again(self, run: Run) -> None:
        if self.running.get(run.task.uid) is not run:   # it has been given up
            return
        run.leftovers = False
        self._adopt()
        self.settle(run)

    def _ask_to_end(self, runs: list[Run]) -> None:
        for run in runs:
            for process in run.leaders.values():
                process.spared = True
        self._signal([run for run in runs if run.plan.launch is None], signal.SIGTERM)
        for run in runs:
            if run.plan.launch is not None:
                self._signal_launcher(run, run.plan.launch.signals)

    def _signal(self, runs: list[Run], number: signal.Signals) -> None:
        for run in runs:
            for descriptor in run.survivors:
                with suppress(ProcessLookupError, PermissionError):   # it has ended, or has become another user's
                    signal.pidfd_send_signal(descriptor, number)
        signal_trees({process.pid for run in runs for process in run.leaders.values()}, number)

    def _let_go(self, run: Run, ending: Ending) -> None:
        run.codes.update((rank, -signal.SIGKILL) for rank in run.leaders)
        for process in run.leaders.values():
            self.launched.forget(process)
        for descriptor in run.survivors:
            self.forget(descriptor)
        run.leaders.clear()
        run.survivors.clear()
        run.ending = ending
        self._finish(run)

    def _signal_launcher(self, run: Run, signals: Sequence[signal.Signals]) -> None:
        """Send the signals to a launcher and its process group, one after the other."""
        if signals and self.running.get(run.task.uid) is run:
            _signal_groups(run, signals[0])
            self._loop.call_later(_BETWEEN_SIGNALS, self._signal_launcher, run, signals[1:])


def _signal_groups(run: Run, number: int) -> None:
    """Signal the started processes of a run, and their groups."""
    for process in run.leaders.values():
        signal_started(process.pid, number)
