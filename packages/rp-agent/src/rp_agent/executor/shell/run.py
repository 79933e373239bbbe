"""ShellRun: the record of a task that a shell runs."""

from __future__ import annotations

import os
import signal

from rp_agent.executor.launching import script
from rp_agent.executor.launching.plan import LaunchPlan
from rp_agent.executor.run import TaskRun
from rp_agent.task import AgentTask


class ShellRun(TaskRun):
    """A task whose processes a shell starts; the shell identifies its ranks by `numbers`, from `first` on.

    A rank is *unstarted* until the shell has answered; then its process is a *leader* (by pidfd) until it ends; then
    the rank is *uncoded* until the shell has reported its exit code, which goes to `codes`. `pids` are by rank;
    `sessions` are those pids whose sessions may still have processes.

    The executor closes `pipes` when all ranks have started. `reserved` are placeholders for the pidfds of unstarted
    processes. `failure` is the reason of a failure other than an exit code. `signal` is sent to a process that starts
    while the run is being ended.
    """

    __slots__ = ('codes', 'failure', 'leaders', 'numbers', 'pids', 'pipes', 'reserved', 'sessions', 'signal', 'uncoded',
                 'unstarted')
    sessions: set[int]

    def __init__(self, task: AgentTask, plan: LaunchPlan, first: int) -> None:
        super().__init__(task, plan)
        self.numbers = range(first, first + len(plan.processes))
        self.unstarted = set(range(len(plan.processes)))
        self.leaders: dict[int, int] = {}
        self.uncoded: set[int] = set()
        self.codes: dict[int, int] = {}
        self.pids: dict[int, int] = {}
        self.sessions = set()
        self.pipes: list[int] = []
        self.reserved: list[int] = []
        self.failure: str | None = None
        self.signal: signal.Signals = signal.SIGTERM

    @property
    def waits_for_shell(self) -> bool:
        """True if the shell owes an answer."""
        return bool(self.unstarted or self.uncoded)

    def check(self) -> None:
        """Verify that every rank is in one place and an event is pending; raise AssertionError."""
        uid = self.task.uid
        places = [*self.unstarted, *self.leaders.values(), *self.uncoded, *self.codes]
        assert sorted(places) == list(range(len(self.numbers))), f'{uid} has lost a rank: {sorted(places)}'
        assert len(self.codes) < len(self.numbers) or self.survivors, f'{uid} runs without a process'
        assert self.ending is not None or not self.survivors, f'{uid} waits for survivors'
        assert self.unstarted or not self.pipes, f'{uid} has started and keeps pipes open'
        assert len(self.reserved) == len(self.unstarted), f'{uid} has a wrong number of reserved descriptors'

    def descriptors(self) -> list[int]:
        start = [self.start_fd] if self.start_fd >= 0 else []
        return [*self.leaders, *self.survivors, *self.pipes, *self.reserved, *start]

    def open_pipes(self) -> dict[int, bytes]:
        """Create the pipes of the plan; return their paths by descriptor of the processes.

        The shell opens the ends of this process through /proc.
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
            # each rank opens its own read end
            reader, writer = os.pipe()
            self.pipes += (reader, writer)
            paths[script.SYNC] = _path(writer)
        return paths

    def close_pipes(self) -> None:
        """Close the agent's ends of the pipes."""
        while self.pipes:
            os.close(self.pipes.pop())

    def make_room(self, count: int) -> None:
        """Close that many reserved descriptors."""
        for _ in range(count):
            os.close(self.reserved.pop())


def _path(descriptor: int) -> bytes:
    return b'/proc/%d/fd/%d' % (os.getpid(), descriptor)
