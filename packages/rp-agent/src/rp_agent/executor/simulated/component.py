"""Simulated executor: starts no process; each task is a timer of the event loop.

It tests everything but the tasks, with any number of tasks and nodes. The description of a task sets

- its duration: `metadata['duration']` in seconds; otherwise the arguments of an executable named `sleep`, in the form
  of that program (`sleep 1.5`, `sleep 1m 30`); otherwise 0
- its exit code: `metadata['exit_code']`, by default 0; a negative one is the number of a signal

A model (`rp_agent.executor.simulated.launch_model`) sets the time between launch and run. Time limits and cancellation
work as for real tasks. No sandbox is created.
"""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Mapping
from typing import Any

from rp_agent.executor.base import BaseExecutor, Ending, TimedRun, TimeLimits
from rp_agent.executor.simulated.launch_model import LaunchModel, launch_model
from rp_agent.lookup import LaunchRefused
from rp_agent.task import AgentTask
from rp_api.loop.event_loop import Loop
from rp_profiling.write.tracer import Tracer

_UNITS = {'s': 1, 'm': 60, 'h': 3600, 'd': 86400}


class _Run(TimedRun):
    """A simulated task; the timer is that of its next event."""

    __slots__ = ('executes', 'exit_code', 'ranks', 'run_time')

    def __init__(self, task: AgentTask) -> None:
        super().__init__(task)
        description = task.description
        self.run_time = duration(description)
        self.exit_code = _exit_code(description)
        self.ranks = range(description['ranks'])
        self.executes = False


class SimulatedExecutor(BaseExecutor):
    """Simulates tasks; `model` sets their launch times, 0 by default."""

    def __init__(self, uid: str, tracer: Tracer, loop: Loop, model: LaunchModel | None = None) -> None:
        super().__init__(uid, tracer, loop)
        self._model = model or launch_model({})
        self._limits = TimeLimits(loop, tracer, self._end)
        self._runs: dict[str, _Run] = {}

    def check(self) -> None:
        """Verify all invariants; raise AssertionError."""
        super().check()
        for uid, run in self._runs.items():
            assert run.task.uid == uid, f'{run.task.uid} runs as {uid}'
            assert run.timer is not None, f'{uid} has no timer'
            assert run.timer.callback is not None, f'the timer of {uid} has expired'

    def __contains__(self, uid: object) -> bool:
        return uid in self._runs

    def _uids(self) -> list[str]:
        return list(self._runs)

    def _begin(self, tasks: list[AgentTask]) -> None:
        now = time.monotonic()
        for task in tasks:
            self._record(task.uid, 'task_start', 'task_run_start')
            try:
                run = _Run(task)
            except Exception as error:   # fails only this task
                self._refuse(task, error)
                continue
            self._record(task.uid, 'task_run_ok', 'launch_start', 'launch_pre', 'launch_submit')
            self._launch(run, now)

    def _launch(self, run: _Run, now: float) -> None:
        self._runs[run.task.uid] = run
        runs_at = self._model.runs_at(now, len(run.ranks))
        if 0 < run.start_limit < runs_at - now:
            self._limits.start(run)
        elif runs_at > now:
            run.timer = self._loop.call_at(runs_at, self._execute, run)
        else:
            self._execute(run)

    def _execute(self, run: _Run) -> None:
        """Start the run of a task, with its next timer."""
        run.executes = True
        for _ in run.ranks:
            self._record(run.task.uid, 'exec_start', 'exec_pre', 'rank_start')
        if 0 < run.limit < run.run_time:
            self._limits.limit(run)
        else:
            run.timer = self._loop.call_later(run.run_time, self._finish, run)

    def _finish(self, run: _Run, ending: Ending | None = None) -> None:
        """Hand on a task; all its ranks end with the same exit code."""
        uid = run.task.uid
        del self._runs[uid]
        for _ in run.ranks if run.executes else ():
            self._record(uid, 'rank_stop', 'exec_post', 'exec_stop')
        self._record(uid, 'launch_collect', 'launch_post', 'launch_stop')
        self._leave(run.task, dict.fromkeys(run.ranks, run.exit_code), ending, shell=False)

    def _end(self, uids: list[str], ending: Ending) -> None:
        for uid in uids:
            run = self._runs[uid]
            run.stop_timer()
            self._record(uid, 'task_run_cancel_start')
            run.exit_code = -signal.SIGTERM
            self._finish(run, ending)


def duration(description: Mapping[str, Any]) -> float:
    """Return the duration of a task in seconds; raise LaunchRefused if the description has an invalid one."""
    metadata = description['metadata']
    if 'duration' in metadata:
        value = metadata['duration']
        if not isinstance(value, int | float) or not value >= 0:
            raise LaunchRefused(f"metadata['duration'] is {value!r}, allowed: a number of seconds, at least 0")
        return float(value)
    words = [*description['executable'].split(), *description['arguments']]
    if not words or os.path.basename(words[0]) != 'sleep':
        return 0.0
    return sum(map(_seconds, words[1:]), 0.0)


def _seconds(text: str) -> float:
    unit = _UNITS.get(text[-1:])
    try:
        seconds = float(text if unit is None else text[:-1]) * (unit or 1)
    except ValueError:
        seconds = math.nan
    if not seconds >= 0:
        raise LaunchRefused(f'{text!r} is not a time for sleep: use a number, optionally followed by s, m, h or d')
    return seconds


def _exit_code(description: Mapping[str, Any]) -> int:
    code = description['metadata'].get('exit_code', 0)
    if not isinstance(code, int):
        raise LaunchRefused(f"metadata['exit_code'] is {code!r}, allowed: a whole number")
    return code
