"""Following the processes that this process has started for runs to their end, and bringing that end about.

Rules of this file, besides those of `executor.reaper`:

- A launcher gets what makes it end its ranks, some of which may be on other nodes, in place of SIGTERM.
- An agent that is a subreaper becomes the parent of what loses its own; such processes are reaped when a task ends.
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

# seconds after which a launcher gets its next signal
_BETWEEN_SIGNALS = 0.1

# seconds that killed processes have to end, before their children are looked for
_DYING = 0.05

# processes that have lost their parents, and the tasks that they belong to (None: ask again, '': none); all reapers of
# this process share them
_daemons: dict[int, str | None] = {}


class ChildReaper(Reaper[Run]):
    """Watches runs whose processes `launched` has started."""

    def __init__(self, loop: Loop, tracer: Tracer, belongs: dict[str, str], grace: float,
                 finished: Callable[[Run], object]) -> None:
        super().__init__(loop, tracer, belongs, grace, finished)
        self.launched = LaunchLoop()
        loop.add_fd(self.launched.fd, self._leaders_ended)

    def close(self) -> None:
        """Follow nothing any more."""
        if self.launched.fd >= 0:
            self._loop.remove_fd(self.launched.fd)
            self.launched.close()

    def sweep(self, uids: Collection[str], variable: str = 'RP_TASK_ID') -> None:
        super().sweep(uids, variable)
        self._adopt()

    def has_daemons(self, uid: str) -> bool:
        """Whether processes of this task have left its groups and sessions, and may still run."""
        return bool(_daemons) and uid in _daemons.values()

    def settle(self, run: Run) -> None:
        """Finish the run, unless processes of it use their grace period, are just dying, or may be of it."""
        if run.leaders or run.survivors:
            return
        if run.leftovers or (_daemons and None in _daemons.values()):
            # when those are gone, what they had started has lost its parents, and shows
            run.leftovers = True
            self._loop.call_later(_DYING, self._look_again, run)
        else:
            self._finish(run)

    def _leaders_ended(self) -> None:
        """Processes that were started have ended: note their exit codes."""
        ended = self.launched.ended()
        self._adopt()
        for process in ended:
            try:
                self._leader_ended(process)
            except Exception as error:   # the others have ended as well
                self._broke(process.run, error)

    def _leader_ended(self, process: Process) -> None:
        run: Run = process.run
        del run.leaders[process.rank]
        run.codes[process.rank] = process.code
        if run.ending is not None:
            # it was reaped just now, so if there is a group of its number, that is still its own
            if signal_group(process.pid, 0):
                self._watch_survivors(run, [process.pid])
        elif process.leftovers:
            run.leftovers = True
        if run.plan.kind == DIRECT:
            # there is no exec script that could record it
            self._record_end(run.task.uid, process)
        self._note_failure(run, process)
        self.settle(run)

    def _broke(self, run: Run, error: Exception) -> None:
        """Following a run has raised something that nothing has foreseen: it is let go, and so are its processes."""
        run.task.broke(error, 'following its processes')
        if self._still_running([run]):
            _signal_groups(run, signal.SIGKILL)
            self._let_go(run, Ending(error, states.FAILED))

    def _note_failure(self, run: Run, process: Process) -> None:
        """If the program was never executed, the other ranks have nothing to do."""
        if run.failure is None and process.failure is not None:
            run.failure = process.rank, process.failure
            _signal_groups(run, signal.SIGKILL)

    def _record_end(self, uid: str, process: Process) -> None:
        pid = str(process.pid)
        self._tracer.record_many(uid, ('rank_stop', 'exec_post', 'exec_stop'), f'RP_EXEC_PID={pid}:RP_RANK_PID={pid}')

    def _adopt(self) -> None:
        """Note the processes that have lost their parents, and which tasks they belong to."""
        if _daemons:
            for pid in [pid for pid in _daemons if pid not in self.launched]:
                del _daemons[pid]
            for pid in [pid for pid, uid in _daemons.items() if uid is None]:
                _daemons[pid] = processes.variable(pid, 'RP_TASK_ID')
        for pid in self.launched.adopt():
            # one that is about to execute a program has no environment
            _daemons[pid] = processes.variable(pid, 'RP_TASK_ID') or None

    def _look_again(self, run: Run) -> None:
        if self.running.get(run.task.uid) is not run:   # it was given up meanwhile
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
                with suppress(ProcessLookupError, PermissionError):   # it has just ended, or is another user's by now
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
        """Signal a launcher and what is in its group, once for each of the signals."""
        if signals and self.running.get(run.task.uid) is run:
            _signal_groups(run, signals[0])
            self._loop.call_later(_BETWEEN_SIGNALS, self._signal_launcher, run, signals[1:])


def _signal_groups(run: Run, number: int) -> None:
    """Signal the processes that were started, and their groups."""
    for process in run.leaders.values():
        signal_started(process.pid, number)
