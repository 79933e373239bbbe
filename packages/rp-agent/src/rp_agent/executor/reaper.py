"""Following the processes of runs to their end, and bringing that end about.

Rules of this file:

- A process that ends takes what is left of its group with it.
- A run that is to be ended gets SIGTERM, all its processes. Those that outlive the process which was started may use
  the grace period. What is left after it gets SIGKILL, and what even that does not end (it waits for a dead file
  server, or is another user's by now) is given up after the same time again: no task may hang because of it.
- An agent that is a subreaper becomes the parent of what loses its own; such processes are reaped when a task ends.
- A number is signalled only while a process that has not been reaped keeps it from being used again.
"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable, Collection, Iterable
from functools import partial

from rp_agent.executor.plan import DIRECT
from rp_agent.executor.run import Ending, Run
from rp_api import processes
from rp_api.mesh.loop import Loop
from rp_profiling.tracer import Tracer

# this process, or the machine, has as many open files as it may have
_NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)
_RETRY_AFTER = 1.0


class Reaper:
    """Watches runs, and calls `finished(run)` once for each when none of its processes is left.

    `belongs` are variables that all processes of the pilot's tasks have in their environment; `grace` is the time in
    seconds between SIGTERM and SIGKILL. `running` are the runs by the uid of their task.
    """

    def __init__(self, loop: Loop, tracer: Tracer, belongs: dict[str, str], grace: float,
                 finished: Callable[[Run], object]) -> None:
        self.running: dict[str, Run] = {}
        self._pids: set[int] = set()
        self._session = os.getsid(0)
        self._loop = loop
        self._tracer = tracer
        self._belongs = belongs
        self._grace = grace
        self._finished = finished

    def watch(self, run: Run) -> None:
        """Follow the run from now on; raises OSError if that is impossible, and then has not begun to."""
        watched = []
        try:
            for pidfd in run.leaders:
                self._loop.add_fd(pidfd, partial(self._leader_ended, run, pidfd))
                watched.append(pidfd)
        except OSError:
            for pidfd in watched:
                self._loop.remove_fd(pidfd)
            raise
        self.running[run.task.uid] = run
        self._pids.update(run.pids)

    def end(self, runs: Iterable[Run], ending: Ending) -> None:
        """Ask all processes of the runs to end, and see to it that they do; runs that are being ended are left out."""
        runs = [run for run in runs if run.ending is None]
        if not runs:
            return
        for run in runs:
            run.ending = ending
            self._tracer.record('task_run_cancel_start', run.task.uid)
        _signal_trees(_pids(runs), signal.SIGTERM)
        self._loop.call_later(self._grace, self._kill, runs)

    def sweep(self, uids: Collection[str]) -> None:
        """Kill all that was started for these tasks, also what has left their sessions."""
        try:
            processes.sweep({**self._belongs, 'RP_TASK_ID': uids}, signal.SIGKILL)
        except OSError as error:
            if error.errno not in _NO_DESCRIPTORS:
                raise
            self._loop.call_later(_RETRY_AFTER, self.sweep, uids)

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

    def _leader_ended(self, run: Run, pidfd: int) -> None:
        """A process that was started has ended: note its exit code, and end what it left behind."""
        ended = os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is None:
            # news about another process whose descriptor had the same number
            return
        pid, rank = run.leaders.pop(pidfd)
        if run.ending is None:
            _signal_group(pid, signal.SIGKILL)
        os.waitid(os.P_PIDFD, pidfd, os.WEXITED)
        self._pids.discard(pid)
        self.forget(pidfd)
        run.codes[rank] = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
        if run.plan.kind == DIRECT:
            # there is no exec script that could record it
            uid = run.task.uid
            self._tracer.record('rank_stop', uid, msg=f'RP_EXEC_PID={pid}:RP_RANK_PID={pid}')
            self._tracer.record('exec_post', uid)
            self._tracer.record('exec_stop', uid)
        self._reap_orphans()
        if not run.leaders:
            self._settle(run)

    def _reap_orphans(self) -> None:
        """Reap ended children that were not started here, up to the first one that somebody else will ask about."""
        try:
            while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
                pid = ended.si_pid
                # children in our own session were started by other parts of this process
                if pid in self._pids or os.getsid(pid) == self._session:
                    return
                os.waitid(os.P_PID, pid, os.WEXITED)
        except ChildProcessError:
            # there is no child at all
            return

    def _settle(self, run: Run) -> None:
        """Finish the run, unless it is being ended and processes of it use their grace period."""
        if run.ending is not None and any(_signal_group(pid, 0) for pid in run.pids):
            self._watch_survivors(run)
        if not run.survivors:
            self._finish(run)

    def _watch_survivors(self, run: Run) -> None:
        try:
            for pid in processes.tree(run.pids, processes.process_table()):
                descriptor = processes.pidfd_open(pid)
                if descriptor is not None:
                    run.survivors.add(descriptor)
                    self._loop.add_fd(descriptor, partial(self._survivor_ended, run, descriptor))
        except OSError as error:
            if error.errno not in _NO_DESCRIPTORS:
                raise
            # what cannot be followed cannot be given time
            for pid in run.pids:
                _signal_group(pid, signal.SIGKILL)

    def _survivor_ended(self, run: Run, descriptor: int) -> None:
        if descriptor in run.survivors:
            run.survivors.discard(descriptor)
            self.forget(descriptor)
            if not run.survivors:
                self._settle(run)

    def _kill(self, runs: list[Run]) -> None:
        runs = self._still_running(runs)
        if runs:
            _signal_trees(_pids(runs), signal.SIGKILL)
            self.sweep({run.task.uid for run in runs})
            self._loop.call_later(self._grace, self._give_up, runs)

    def _give_up(self, runs: list[Run]) -> None:
        """Let go of processes that do not die."""
        for run in self._still_running(runs):
            run.codes.update((rank, -signal.SIGKILL) for _, rank in run.leaders.values())
            self._pids.difference_update(run.pids)
            for descriptor in (*run.leaders, *run.survivors):
                self.forget(descriptor)
            run.leaders.clear()
            run.survivors.clear()
            run.ending = Ending(RuntimeError(f'the task was ended, but processes of it cannot be killed and may still '
                                             f'run (sessions {run.pids})'))
            self._finish(run)

    def _still_running(self, runs: list[Run]) -> list[Run]:
        return [run for run in runs if self.running.get(run.task.uid) is run]

    def _finish(self, run: Run) -> None:
        del self.running[run.task.uid]
        self._finished(run)


def _pids(runs: Iterable[Run]) -> set[int]:
    return {pid for run in runs for pid in run.pids}


def _signal_trees(pids: Collection[int], sig: int) -> None:
    """Signal all processes of these sessions; only those in the groups if there are no descriptors to look for more."""
    try:
        processes.kill_tree(pids, sig)
    except OSError as error:
        if error.errno not in _NO_DESCRIPTORS:
            raise
        for pid in pids:
            _signal_group(pid, sig)


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
