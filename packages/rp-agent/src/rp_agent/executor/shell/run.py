"""The record of a task that a shell runs."""

from __future__ import annotations

import os
import signal

from rp_agent.executor.base import Ending
from rp_agent.executor.launching import script
from rp_agent.executor.launching.plan import LaunchPlan
from rp_agent.task import AgentTask
from rp_api.loop.event_loop import Timer


class ShellRun:
    """A task whose processes a shell is told to start, which knows its ranks by the `numbers` from `first` on.

    A rank is *unstarted* until the shell has answered, then its process is a *leader* (by process file descriptor)
    until it ends, then the rank is *uncoded* until the shell has told its exit code, which `codes` holds. `pids` are by
    rank; `sessions` are those of them that may still be the number of a session with processes, `survivors` such
    processes that are waited for when the run is being ended.

    `pipes` are ours to close once all ranks have started; `reserved` are descriptors that keep room for those of the
    processes which are not started yet. `start_fd` is open (not -1) until the task has told that it
    runs. `failure` is why it failed, other than by an exit code, `timer` the time limit in force, and `signal` what a
    process gets that starts while the run is being ended.
    """

    __slots__ = ('codes', 'ending', 'failure', 'leaders', 'numbers', 'pids', 'pipes', 'plan', 'reserved', 'sessions',
                 'signal', 'start_fd', 'survivors', 'task', 'timer', 'uncoded', 'unstarted')

    def __init__(self, task: AgentTask, plan: LaunchPlan, first: int) -> None:
        self.task = task
        self.plan = plan
        self.numbers = range(first, first + len(plan.processes))
        self.unstarted = set(range(len(plan.processes)))
        self.leaders: dict[int, int] = {}
        self.uncoded: set[int] = set()
        self.codes: dict[int, int] = {}
        self.pids: dict[int, int] = {}
        self.sessions: set[int] = set()
        self.survivors: set[int] = set()
        self.pipes: list[int] = []
        self.reserved: list[int] = []
        self.start_fd = -1
        self.timer: Timer | None = None
        self.ending: Ending | None = None
        self.failure: str | None = None
        self.signal: signal.Signals = signal.SIGTERM

    @property
    def waits_for_shell(self) -> bool:
        """Whether the shell owes an answer."""
        return bool(self.unstarted or self.uncoded)

    def check(self) -> None:
        """Verify that every rank is in one place and something is going to happen; raises AssertionError."""
        uid = self.task.uid
        places = [*self.unstarted, *self.leaders.values(), *self.uncoded, *self.codes]
        assert sorted(places) == list(range(len(self.numbers))), f'{uid} has lost a rank: {sorted(places)}'
        assert len(self.codes) < len(self.numbers) or self.survivors, f'{uid} runs without a process'
        assert self.ending is not None or not self.survivors, f'{uid} waits for survivors'
        assert self.unstarted or not self.pipes, f'{uid} has started and keeps pipes open'
        assert len(self.reserved) == len(self.unstarted), f'{uid} has too much or too little room for its processes'

    def descriptors(self) -> list[int]:
        """All descriptors that the run owns."""
        start = [self.start_fd] if self.start_fd >= 0 else []
        return [*self.leaders, *self.survivors, *self.pipes, *self.reserved, *start]

    def open_pipes(self) -> dict[int, bytes]:
        """Make the pipes that the plan asks for; gives, by number of descriptor, where the shell finds them.

        The shell opens our ends anew, through /proc.
        """
        if not self.plan.signals_start and not self.plan.sync:
            return {}
        paths = {script.START: b'/dev/null', script.SYNC: b'/dev/null'}
        if self.plan.signals_start:
            self.start_fd, writer = os.pipe()
            self.pipes.append(writer)
            os.set_blocking(self.start_fd, False)
            paths[script.START] = _path(writer)
        if self.plan.sync:
            # each rank opens a read end of its own
            reader, writer = os.pipe()
            self.pipes += (reader, writer)
            paths[script.SYNC] = _path(writer)
        return paths

    def close_pipes(self) -> None:
        """Leave the pipes to the ranks."""
        while self.pipes:
            os.close(self.pipes.pop())

    def make_room(self, count: int) -> None:
        """Give up that many of the descriptors that are reserved."""
        for _ in range(count):
            os.close(self.reserved.pop())

    def stop_timer(self) -> None:
        """Forget the time limit that is in force."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


def _path(descriptor: int) -> bytes:
    return b'/proc/%d/fd/%d' % (os.getpid(), descriptor)
