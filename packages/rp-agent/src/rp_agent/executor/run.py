"""Run: the record of a task that has processes, and its deadlines, `timeout` and `startup_timeout`.

`timeout` counts from the start of the task's processes or, if the description has a `startup_timeout`, from the task's
start signal. Ranks that the agent starts signal by a pipe. Those of a launcher, which may run on other nodes, signal by
a note in the sandbox, which the agent polls.
"""

from __future__ import annotations

import math
import time
from functools import partial
from typing import Any

from rp_agent.executor.base import Ending, TimedRun, TimeLimits, not_started
from rp_agent.executor.launching.outcome import has_started, usage_by_notes
from rp_agent.executor.launching.plan import LaunchPlan
from rp_agent.executor.processes.launchloop import Process
from rp_agent.task import AgentTask
from rp_api import states
from rp_api.failures.kinds import LAUNCH

LAUNCH_LIMIT = 600.0
"""Seconds after which a launcher that has started no rank is regarded as hanging, for tasks without time limits."""

NO_GPU_USE = 0, 0.0, 0
"""The use of GPUs without a sample: the number of samples, the sum of utilisations, and the peak of memory."""

_LOOK_AFTER = 1.0
"""Seconds between two looks at the notes of a launcher's ranks."""


class Run(TimedRun):
    """A task whose processes the agent has started.

    `leaders` are the started processes that still run, by rank; `leftovers` is true if there may be others. `pids` are
    those of all started processes, and also their session ids. `codes` are exit codes by rank. `failure` is the first
    rank whose program was not executed, and the reason.

    `started` is the time of the start in seconds since the epoch. `user`, `system` and `switches` are the sums of those
    of the started processes that have ended (see `Process`); `sampled` are those of them whose memory was sampled.
    `gpus` is what samples have shown of the GPUs (see `with_sample`).

    `start_fd` is the read end of the pipe on which ranks signal their start, or -1. `survivors` are pidfds of processes
    that outlive the started ones, for which the reaper waits while it ends the run.
    """

    __slots__ = ('codes', 'failure', 'gpus', 'leaders', 'leftovers', 'pids', 'plan', 'sampled', 'start_fd', 'started',
                 'survivors', 'switches', 'system', 'user')

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
        self.started = time.time()
        self.user = self.system = self.switches = 0.0
        self.sampled: list[Process] = []
        self.gpus = NO_GPU_USE

    def rank_ended(self, process: Process) -> None:
        """Note the exit code and the usage of a started process that has ended."""
        del self.leaders[process.rank]
        self.codes[process.rank] = process.code
        self.user += process.user
        self.system += process.system
        self.switches += process.switches
        if process.sampled:
            self.sampled.append(process)

    def lose_usage(self) -> None:
        """Forget the CPU time and context switches, as those of a rank are not known."""
        self.user = self.system = self.switches = math.nan

    def note_end(self) -> None:
        """Note times and usage of the run, which ends now, on the task."""
        now = time.time()
        if self.plan.launch is not None:   # what is known of the launcher is not that of its ranks
            self.task.note_run(self.started, now, *usage_by_notes(self.task, self.plan.launch.ranks))
            return
        more: dict[str, Any] = {}
        if self.sampled and len(self.sampled) == len(self.pids):
            more['memory'] = sum(max(each.memory, each.peak) for each in self.sampled)
            if all(each.read >= 0 for each in self.sampled):
                more['read'] = sum(each.read for each in self.sampled)
                more['written'] = sum(each.written for each in self.sampled)
        if self.gpus != NO_GPU_USE:
            more |= gpu_usage(self.gpus)
        self.task.note_run(self.started, now, self.user, self.system, self.switches, more)

    def check(self) -> None:
        """Verify that the run has processes and accounts for all ranks; raise AssertionError."""
        assert self.leaders or self.survivors or self.leftovers, f'{self.task.uid} runs without a process'
        assert len(self.leaders) + len(self.codes) == len(self.pids), f'{self.task.uid} has lost a rank'
        assert self.ending is not None or not self.survivors, f'{self.task.uid} waits for survivors'

    def descriptors(self) -> list[int]:
        """Return all descriptors that the run owns."""
        return [*(process.pidfd for process in self.leaders.values()), *self.survivors,
                *([self.start_fd] if self.start_fd >= 0 else [])]


def with_sample(known: tuple[int, float, int], utilisation: float, memory: int) -> tuple[int, float, int]:
    """Return the use of GPUs with another sample."""
    count, total, peak = known
    return count + 1, total + utilisation, max(peak, memory)


def gpu_usage(known: tuple[int, float, int]) -> dict[str, Any]:
    """Return the use of GPUs as part of a task's usage."""
    count, total, peak = known
    return {'gpu': round(total / count, 4), 'gpu_memory': peak}


class Deadlines(TimeLimits):
    """Time limits of tasks whose processes the agent starts."""

    def begin(self, run: Run) -> None:
        """Start the first timer of a run whose processes have been started."""
        self._safely(run, self._begin)

    def _begin(self, run: Run) -> None:
        launch = run.plan.launch
        if run.start_fd >= 0:
            self.start(run)
        elif launch is not None and run.start_limit > 0:
            self._look(time.monotonic() + run.start_limit, run)
        elif launch is not None and run.limit <= 0:
            run.timer = self._loop.call_later(LAUNCH_LIMIT, self._safely, run, self._look_once)
        else:
            self._limit(run)

    def _look(self, deadline: float, run: Run) -> None:
        """Check whether the ranks of a launcher have signalled their start."""
        left = deadline - time.monotonic()
        if has_started(run.task):
            self.runs(run)
        elif left <= 0:
            self._timed_out(run, not_started(run.start_limit))
        else:
            run.timer = self._loop.call_later(min(left, _LOOK_AFTER), self._safely, run, partial(self._look, deadline))

    def _look_once(self, run: Run) -> None:
        run.timer = None
        if not has_started(run.task):
            launch = run.plan.launch
            assert launch is not None
            text = f'{launch.method} has started no rank within {LAUNCH_LIMIT:g} s: {launch.line}'
            self._end([run.task.uid], Ending(TimeoutError(text), states.FAILED, LAUNCH))
