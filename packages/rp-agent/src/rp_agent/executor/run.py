"""Run: the record of a task that has processes."""

from __future__ import annotations

from rp_agent.executor.base import TimedRun
from rp_agent.executor.launching.plan import LaunchPlan
from rp_agent.executor.processes.launchloop import Process
from rp_agent.task import AgentTask


class Run(TimedRun):
    """A task whose processes the agent has started.

    `leaders` are the started processes that still run, by rank; `leftovers` is true if there may be others. `pids` are
    those of all started processes, and also their session ids. `codes` are exit codes by rank. `failure` is the first
    rank whose program was not executed, and the reason.

    `start_fd` is the read end of the pipe on which ranks signal their start, or -1. `survivors` are pidfds of processes
    that outlive the started ones, for which the reaper waits while it ends the run.
    """

    __slots__ = ('codes', 'failure', 'leaders', 'leftovers', 'pids', 'plan', 'start_fd', 'survivors')

    def __init__(self, task: AgentTask, plan: LaunchPlan) -> None:   # does without another call: many tasks are short
        self.task = task
        self.limit: float = task.description['timeout']
        self.start_limit: float = task.description['startup_timeout']
        self.ending = None
        self.timer = None
        self.plan = plan
        self.leaders: dict[int, Process] = {}
        self.pids: list[int] = []
        self.leftovers = False
        self.codes: dict[int, int] = {}
        self.failure: tuple[int, OSError] | None = None
        self.start_fd = -1
        self.survivors: set[int] = set()

    def check(self) -> None:
        """Verify that the run has processes and accounts for all ranks; raise AssertionError."""
        assert self.leaders or self.survivors or self.leftovers, f'{self.task.uid} runs without a process'
        assert len(self.leaders) + len(self.codes) == len(self.pids), f'{self.task.uid} has lost a rank'
        assert self.ending is not None or not self.survivors, f'{self.task.uid} waits for survivors'

    def descriptors(self) -> list[int]:
        """Return all descriptors that the run owns."""
        return [*(process.pidfd for process in self.leaders.values()), *self.survivors,
                *([self.start_fd] if self.start_fd >= 0 else [])]
