"""Following the processes of runs to their end, and bringing that end about.

Rules of this file:

- A process that ends takes what is left of its group with it.
- A run that is to be ended gets SIGTERM, all its processes; a launcher gets what makes it end its ranks, some of which
  may be on other nodes. Those that outlive the process which was started may use the grace period. What is left after
  it gets SIGKILL, and what even that does not end (it waits for a dead file server, or is another user's by now) is
  given up after the same time again: no task may hang because of it.
- An agent that is a subreaper becomes the parent of what loses its own; such processes are reaped when a task ends.
- A number is signalled only while a process that has not been reaped keeps it from being used again.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from functools import partial

from rp_agent.executor.base import Ending
from rp_agent.executor.launching.plan import DIRECT
from rp_agent.executor.processes.launchloop import LaunchLoop, Process
from rp_agent.executor.run import Run
from rp_agent.logs import LOG
from rp_api import states
from rp_api.logger import logger
from rp_api.loop.event_loop import Loop
from rp_api.system import processes
from rp_profiling.write.tracer import Tracer

_RETRY_AFTER = 1.0

# seconds after which a launcher gets its next signal
_BETWEEN_SIGNALS = 0.1

# seconds that killed processes have to end, before their children are looked for
_DYING = 0.05

# processes that have lost their parents, and the tasks that they belong to (None: ask again, '': none); all reapers of
# this process share them
_daemons: dict[int, str | None] = {}


class Reaper:
    """Watches runs, and calls `finished(run)` once for each when none of its processes is left.

    `belongs` are variables that all processes of the pilot's tasks have in their environment; `grace` is the time in
    seconds between SIGTERM and SIGKILL. `running` are the runs by the uid of their task.
    """

    def __init__(self, loop: Loop, tracer: Tracer, belongs: dict[str, str], grace: float,
                 finished: Callable[[Run], object]) -> None:
        self.running: dict[str, Run] = {}
        self.launched = LaunchLoop()
        self._loop = loop
        self._tracer = tracer
        self._belongs = belongs
        self._grace = grace
        self._finished = finished
        loop.add_fd(self.launched.fd, self._leaders_ended)

    def watch(self, run: Run) -> None:
        """Follow the run from now on."""
        self.running[run.task.uid] = run

    def close(self) -> None:
        """Follow nothing any more."""
        if self.launched.fd >= 0:
            self._loop.remove_fd(self.launched.fd)
            self.launched.close()

    def end(self, runs: Iterable[Run], ending: Ending) -> None:
        """Ask all processes of the runs to end, and see to it that they do; runs that are being ended are left out."""
        runs = [run for run in runs if run.ending is None]
        if not runs:
            return
        for run in runs:
            run.ending = ending
            for process in run.leaders.values():
                process.spared = True
            self._tracer.record('task_run_cancel_start', run.task.uid)
        _signal_trees([run for run in runs if run.plan.launch is None], signal.SIGTERM)
        for run in runs:
            if run.plan.launch is not None:
                self._signal_launcher(run, run.plan.launch.signals)
        self._loop.call_later(self._grace, self._kill, runs)

    def sweep(self, uids: Collection[str]) -> None:
        """Kill all that was started for these tasks, also what has left their sessions."""
        try:
            processes.sweep({**self._belongs, 'RP_TASK_ID': uids}, signal.SIGKILL)
        except OSError as error:   # as a rule, there is no descriptor left to look with
            logger(LOG).warning('processes that %s may have left are looked for again: %s', ', '.join(uids), error)
            self._loop.call_later(_RETRY_AFTER, self.sweep, uids)
        self._adopt()

    def has_daemons(self, uid: str) -> bool:
        """Whether processes of this task have left its groups and sessions, and may still run."""
        return bool(_daemons) and uid in _daemons.values()

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
            self._watch_survivors(run, process.pid)
        elif process.leftovers:
            run.leftovers = True
        if run.plan.kind == DIRECT:
            # there is no exec script that could record it
            self._record_end(run.task.uid, process)
        self._note_failure(run, process)
        self._settle(run)

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

    def _settle(self, run: Run) -> None:
        """Finish the run, unless processes of it use their grace period, are just dying, or may be of it."""
        if run.leaders or run.survivors:
            return
        if run.leftovers or (_daemons and None in _daemons.values()):
            # when those are gone, what they had started has lost its parents, and shows
            run.leftovers = True
            self._loop.call_later(_DYING, self._look_again, run)
        else:
            self._finish(run)

    def _look_again(self, run: Run) -> None:
        if self.running.get(run.task.uid) is not run:   # it was given up meanwhile
            return
        run.leftovers = False
        self._adopt()
        self._settle(run)

    def _watch_survivors(self, run: Run, pid: int) -> None:
        """A process that was asked to end has ended: wait for those of its session that have not.

        It was reaped just now, so if there is a group of its number, that is still its own.
        """
        if not _signal_group(pid, 0):
            return
        try:
            table = processes.process_table()
            for survivor in processes.tree([pid], table):
                descriptor = processes.open_process(survivor, table[survivor].started)
                if descriptor is not None:
                    run.survivors.add(descriptor)
                    self._loop.add_fd(descriptor, partial(self._survivor_ended, run, descriptor))
        except OSError:   # as above; what cannot be followed cannot be given time
            _signal_group(pid, signal.SIGKILL)

    def _survivor_ended(self, run: Run, descriptor: int) -> None:
        if descriptor in run.survivors:
            run.survivors.discard(descriptor)
            self.forget(descriptor)
            self._settle(run)

    def _kill(self, runs: list[Run]) -> None:
        runs = self._still_running(runs)
        if runs:
            _signal_trees(runs, signal.SIGKILL)
            self.sweep({run.task.uid for run in runs})
            self._loop.call_later(self._grace, self._give_up, runs)

    def _give_up(self, runs: list[Run]) -> None:
        """Let go of processes that do not die."""
        for run in self._still_running(runs):
            self._let_go(run, Ending(RuntimeError(f'the task was ended, but processes of it cannot be killed and may '
                                                  f'still run (sessions {run.pids})')))

    def _let_go(self, run: Run, ending: Ending) -> None:
        """Finish a run, whatever it has."""
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

    def _still_running(self, runs: list[Run]) -> list[Run]:
        return [run for run in runs if self.running.get(run.task.uid) is run]

    def _finish(self, run: Run) -> None:
        del self.running[run.task.uid]
        self._finished(run)


def _signal_trees(runs: Iterable[Run], sig: int) -> None:
    """Signal all processes of the runs; only those in the groups if there are no descriptors to look for more."""
    for run in runs:
        for descriptor in run.survivors:
            with suppress(ProcessLookupError, PermissionError):   # it has just ended, or is another user's by now
                signal.pidfd_send_signal(descriptor, sig)
    try:
        processes.kill_tree({process.pid for run in runs for process in run.leaders.values()}, sig)
    except OSError:   # as above
        for run in runs:
            _signal_groups(run, sig)


def _signal_groups(run: Run, sig: int) -> None:
    """Signal the processes that were started and their groups, which those that were just created may not have yet."""
    for process in run.leaders.values():
        if not _signal_group(process.pid, sig):
            os.kill(process.pid, sig)


def _signal_group(pid: int, sig: int) -> bool:
    """Signal a process group; False if there is none of that number."""
    try:
        os.killpg(pid, sig)
    except ProcessLookupError:
        return False
    except PermissionError:
        # it has a member, but one that is another user's
        return True
    return True
