"""The record of a task that has processes, and of the reason for which it is ended before its time."""

from __future__ import annotations

from rp_agent.executor.plan import LaunchPlan
from rp_agent.executor.starter import Started
from rp_agent.task import AgentTask
from rp_api import states
from rp_api.mesh.loop import Timer


class Ending:
    """Why a task is ended; without an error, because the application has asked for it."""

    __slots__ = ('detail', 'exception')

    def __init__(self, error: Exception | None = None) -> None:
        self.exception = None if error is None else repr(error)
        self.detail = None if error is None else str(error)

    def apply(self, task: AgentTask) -> None:
        """Make the task a cancelled one, for this reason."""
        task.target_state = states.CANCELED
        task.exception = self.exception
        task.exception_detail = self.detail


class Run:
    """A task that has processes.

    `leaders` are the processes that were started and still run (pid and rank), `survivors` others that are waited for
    when the run is being ended, both by process file descriptor. `pids` are those of all that were started, which are
    also the numbers of their sessions; `codes` the exit codes by rank. `ending` is set when the run is being ended,
    `start_fd` is open (not -1) until the task has told that it runs, `timer` is the time limit that is in force.
    """

    __slots__ = ('codes', 'ending', 'leaders', 'pids', 'plan', 'start_fd', 'survivors', 'task', 'timer')

    def __init__(self, task: AgentTask, plan: LaunchPlan, started: Started) -> None:
        self.task = task
        self.plan = plan
        self.leaders = started.processes
        self.pids = [pid for pid, _ in started.processes.values()]
        self.start_fd = started.start_fd
        self.survivors: set[int] = set()
        self.codes: dict[int, int] = {}
        self.ending: Ending | None = None
        self.timer: Timer | None = None

    def check(self) -> None:
        """Verify that the run has processes and has lost none; raises AssertionError."""
        assert self.leaders or self.survivors, f'{self.task.uid} runs without a process'
        assert len(self.leaders) + len(self.codes) == len(self.pids), f'{self.task.uid} has lost a rank'
        assert self.ending is not None or not self.survivors, f'{self.task.uid} waits for survivors'

    def descriptors(self) -> list[int]:
        """All descriptors that the run owns."""
        return [*self.leaders, *self.survivors, *([self.start_fd] if self.start_fd >= 0 else [])]
