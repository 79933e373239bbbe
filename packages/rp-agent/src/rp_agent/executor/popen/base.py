"""Base class of executors whose tasks are processes of this node.

A task is in one of four places: deferred (it waits for a launch method), queued, running or done.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Generic

from rp_agent.executor.base import BaseExecutor, Ending
from rp_agent.executor.deadlines import Deadlines
from rp_agent.executor.launching.environment import PilotContext, TaskEnvironment
from rp_agent.executor.popen.deferred import Deferred
from rp_agent.executor.reaper import Reaper
from rp_agent.executor.run import AnyRun
from rp_agent.task import AgentTask
from rp_api.loop.event_loop import Loop
from rp_api.system.signals import name_of
from rp_profiling.write.tracer import Tracer

SHORTAGE_LIMIT = 60.0
"""Seconds that a task waits for resources to create its process, while no task runs whose end could free some."""

STARTS_PER_TURN = 16
"""Maximum number of tasks started in one turn of the loop, so that a large batch does not delay ends and commands."""

RETRY_AFTER = 1.0
"""Seconds before the start of a task that failed for lack of resources is retried."""


class ProcessExecutor(BaseExecutor, Generic[AnyRun]):
    """An executor with queued, deferred and running tasks; it ends tasks in all of these places."""

    _deferred: Deferred
    _reaper: Reaper[AnyRun]

    def __init__(self, uid: str, tracer: Tracer, loop: Loop, context: PilotContext) -> None:
        super().__init__(uid, tracer, loop)
        self._environment = TaskEnvironment(context)
        self._ports = context.ports
        self._deadlines: Deadlines[AnyRun] = Deadlines(loop, tracer, self._end_run)
        self._queued: OrderedDict[str, AgentTask] = OrderedDict()

    def sweep(self, uids: Iterable[str]) -> None:
        self._reaper.sweep(set(uids))

    def forward_signal(self, number: int) -> None:
        wanted = name_of(number)
        self._reaper.forward([run for run in self._reaper.running.values() if run.ending is None
                              and wanted in run.task.description['forward_signals']], number)

    def check(self) -> None:
        """Verify all invariants; raise AssertionError."""
        super().check()
        self._reaper.check()

    def __contains__(self, uid: object) -> bool:
        return uid in self._deferred or uid in self._queued or uid in self._reaper.running

    def _uids(self) -> list[str]:
        return [*(task.uid for task in self._deferred.tasks), *self._queued, *self._reaper.running]

    def _end(self, uids: list[str], ending: Ending) -> None:
        running = self._reaper.running
        for uid in uids:
            if uid in self._queued:
                self._end_unstarted(self._queued.pop(uid))
            elif uid in self._deferred:
                self._end_unstarted(self._deferred.pop(uid))
        self._reaper.end([running[uid] for uid in uids if uid in running], ending)

    def _end_run(self, run: AnyRun, ending: Ending) -> None:
        self._reaper.end([run], ending)

    def _forget_start(self, run: AnyRun) -> None:
        if run.start_fd >= 0:
            self._reaper.forget(run.start_fd)
            run.start_fd = -1
