"""Reaper: follows the processes of runs to their end, and ends them.

Rules of this file:

- When a started process ends, the rest of its process group is killed.
- To end a run, the reaper sends SIGTERM to all of its processes. Processes that outlive the started one have until the
  end of the grace period. Then all that are left get SIGKILL. A process that survives even that (it waits for a dead
  file server, or has become another user's) is given up after a second grace period, so that no task hangs.
- Instead of SIGTERM, a launcher gets the signals that make it end its ranks, which may be on other nodes.
- An agent that is a subreaper adopts orphaned processes, and reaps them when a task ends.
- A pid is signalled only while it cannot be reused: while its process is not reaped, or its group has other members.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from functools import partial

from rp_agent.executor.base import Ending
from rp_agent.executor.launching.environment import TaskEnvironment
from rp_agent.executor.launching.plan import DIRECT
from rp_agent.executor.processes.launchloop import LaunchLoop, Process
from rp_agent.executor.run import Run
from rp_agent.executor.usage import UsageSampler
from rp_agent.logs import LOG
from rp_api import states
from rp_api.failures.kinds import CANCELED
from rp_api.logger import logger
from rp_api.loop.event_loop import Loop
from rp_api.system import processes
from rp_profiling.write.tracer import Tracer

_RETRY_AFTER = 1.0
"""Seconds before a sweep that failed for lack of descriptors is repeated."""

_BETWEEN_SIGNALS = 0.1
"""Seconds between two signals to a launcher."""

_DYING = 0.05
"""Seconds that killed processes have to end before the reaper looks for their children."""

_daemons: dict[int, str | None] = {}
"""Tasks of orphaned processes, by pid (None: not known yet, '': none); all reapers of this process share it."""


class Reaper:
    """Watches runs whose processes the launch loop `launched` has started.

    It calls `finished(run)` once for each when none of its processes is left.

    `belongs` are variables in the environment of all processes of the pilot's tasks, `grace` is the time in seconds
    between SIGTERM and SIGKILL, `running` maps task uids to runs.
    """

    def __init__(self, loop: Loop, tracer: Tracer, belongs: dict[str, str], grace: float,
                 finished: Callable[[Run], object], launched: LaunchLoop, environment: TaskEnvironment) -> None:
        self.running: dict[str, Run] = {}
        self._sampler = UsageSampler(loop, self.running, environment)
        self._loop = loop
        self._tracer = tracer
        self._belongs = belongs
        self._grace = grace
        self._finished = finished
        self.launched = launched
        loop.add_fd(launched.fd, self._leaders_ended)

    def close(self) -> None:
        """Stop watching, and close the launch loop."""
        self._sampler.close()
        if self.launched.fd >= 0:
            self._loop.remove_fd(self.launched.fd)
            self.launched.close()

    def watch(self, run: Run) -> None:
        """Start watching a run."""
        self.running[run.task.uid] = run
        self._sampler.watch()

    def end(self, runs: Iterable[Run], ending: Ending) -> None:
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

    def forward(self, runs: list[Run], number: int) -> None:
        """Send a signal to the processes of runs that handle it; it would end the others, such as shells around them.

        A launcher forwards it to its ranks, some of which may be here.
        """
        roots = {pid for run in runs if run.plan.launch is None for pid in run.pids}
        table = processes.process_table() if roots else {}
        for pid in {*processes.tree(roots, table), *(
                pid for run in runs if run.plan.launch is not None for pid in run.pids)}:
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
        self._adopt()

    def has_daemons(self, uid: str) -> bool:
        """Return whether orphaned processes of this task may still run outside of its sessions."""
        return bool(_daemons) and uid in _daemons.values()

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

    def _settle(self, run: Run) -> None:
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
        run.rank_ended(process)
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
        self._settle(run)

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
        self._settle(run)

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
        if run.leaders:
            run.lose_usage()
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

    def _watch_survivors(self, run: Run, sessions: Collection[int]) -> None:
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

    def _survivor_ended(self, run: Run, descriptor: int) -> None:
        if descriptor in run.survivors:
            run.survivors.discard(descriptor)
            self.forget(descriptor)
            if not run.survivors:
                self._settle(run)

    def _kill(self, runs: list[Run]) -> None:
        runs = self._still_running(runs)
        if runs:
            self._signal(runs, signal.SIGKILL)
            self.sweep({run.task.uid for run in runs})
            self._loop.call_later(self._grace, self._give_up, runs)

    def _give_up(self, runs: list[Run]) -> None:
        """Finish runs whose processes survive SIGKILL."""
        for run in self._still_running(runs):
            self._let_go(run, Ending(RuntimeError(f'the task was ended, but processes of it cannot be killed and may '
                                                  f'still run (sessions {sorted(run.pids)})'), kind=CANCELED))

    def _still_running(self, runs: list[Run]) -> list[Run]:
        return [run for run in runs if self.running.get(run.task.uid) is run]

    def _finish(self, run: Run) -> None:
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


def _signal_groups(run: Run, number: int) -> None:
    """Signal the started processes of a run, and their groups."""
    for process in run.leaders.values():
        signal_started(process.pid, number)
