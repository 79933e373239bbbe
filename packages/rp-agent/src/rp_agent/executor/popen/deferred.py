"""Deferred tasks: tasks that wait for a launch method or a DVM, or for another attempt of a launcher that failed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from rp_agent.executor.launching.environment import PilotContext
from rp_agent.executor.launching.launchers import leads_job, needs_launcher
from rp_agent.executor.launching.outcome import ATTEMPTS, has_started
from rp_agent.executor.launching.plan import LAUNCHED
from rp_agent.executor.popen.reaper import Reaper
from rp_agent.executor.run import Run
from rp_agent.instance_nodes import DVM_METHODS
from rp_agent.task import AgentTask
from rp_api.backoff import backoff
from rp_api.errors import PlatformError
from rp_api.loop.event_loop import Loop
from rp_profiling.write.tracer import Tracer

if TYPE_CHECKING:
    from rp_agent.executor.popen.dvms import Dvms, LaunchUser

LAUNCH_ATTEMPTS = 3
"""Maximum number of attempts of a launcher that fails before it has started a rank, as some do under load."""

_BACKOFF_S = 0.25, 0.5
"""The first and the longest delay before another attempt."""


class Deferred:
    """Holds tasks that need a launch method until `user` can start them.

    `uses_dvms` is false for an executor that does not start DVMs on platforms that use them.
    """

    def __init__(self, loop: Loop, tracer: Tracer, context: PilotContext, reaper: Reaper, user: LaunchUser, *,
                 uses_dvms: bool) -> None:
        self._loop = loop
        self._tracer = tracer
        self._context = context
        self._launchers = context.launchers
        self._reaper = reaper
        self._user = user
        self._uses_dvms = uses_dvms
        self._dvms: Dvms | None = None
        self._looking: dict[str, AgentTask] = {}
        self._failed: dict[str, AgentTask] = {}

    def __contains__(self, uid: object) -> bool:
        return uid in self._looking or uid in self._failed or (self._dvms is not None and uid in self._dvms.tasks)

    @property
    def tasks(self) -> list[AgentTask]:
        """All deferred tasks."""
        return [*self._looking.values(), *self._failed.values(),
                *(self._dvms.tasks.values() if self._dvms is not None else ())]

    def take(self, task: AgentTask) -> bool:
        """Take a task that must wait; return False for other tasks."""
        launchers = self._launchers
        if launchers is None or not (needs_launcher(task, launchers) or leads_job(task)):
            return False
        if launchers.known:
            if launchers.look_at(task, lambda: self._go_on(self._looking, task.uid)):
                self._looking[task.uid] = task
                return True
            return self._dvms is not None and not leads_job(task) and self._dvms.take(task)
        self._looking[task.uid] = task
        if len(self._looking) == 1:
            launchers.look(self._known)
        return True

    def pop(self, uid: str) -> AgentTask:
        """Remove and return a deferred task."""
        for tasks in (self._looking, self._failed):
            if uid in tasks:
                return tasks.pop(uid)
        assert self._dvms is not None
        task = self._dvms.tasks[uid]
        self._dvms.drop(uid)
        return task

    def drop(self, uid: str) -> None:
        """Release the DVM of a task that leaves the executor."""
        if self._dvms is not None:
            self._dvms.drop(uid)

    def started(self, run: Run) -> None:
        """Note that the processes of a task have been started."""
        if self._dvms is not None:
            self._dvms.started(run)

    def takes_back(self, run: Run) -> bool:
        """Defer or refuse the task of an ended launcher whose launch failed; return False for other tasks."""
        if self._dvms is not None and self._dvms.takes_back(run):
            return True
        attempts = run.task.extra.get(ATTEMPTS, 1)
        if (run.plan.kind != LAUNCHED or run.ending is not None or run.failure is not None or run.codes[0] == 0
                or attempts >= LAUNCH_ATTEMPTS or has_started(run.task)):
            return False
        run.task.extra[ATTEMPTS] = attempts + 1
        self._failed[run.task.uid] = run.task
        self._loop.call_later(backoff(attempts, *_BACKOFF_S), self._go_on, self._failed, run.task.uid)
        return True

    def stop(self, stopped: Callable[[], object]) -> None:
        """Stop the DVMs, then call `stopped()`."""
        if self._dvms is not None:
            self._dvms.stop(stopped)
        else:
            stopped()

    def close(self) -> None:
        """Kill the processes of the DVMs."""
        if self._dvms is not None:
            self._dvms.close()

    def check(self, queued: Iterable[str]) -> None:
        """Verify all invariants; `queued` are the uids of queued tasks."""
        if self._dvms is not None:
            self._dvms.check(queued)

    def _go_on(self, waiting: dict[str, AgentTask], uid: str) -> None:
        """Start a task that may have ended meanwhile."""
        task = waiting.pop(uid, None)
        if task is not None:
            self._user.launch([task])

    def _known(self) -> None:
        assert self._launchers is not None
        method = self._launchers.preferred(DVM_METHODS) if self._uses_dvms else None
        if method is not None:
            from rp_agent.executor.popen.dvms import Dvms  # most agents never need it

            try:
                self._dvms = Dvms(self._loop, self._tracer, self._context, self._launchers, method, self._reaper,
                                  self._user)
            except PlatformError as error:
                self._launchers.give_up(method.NAME, str(error))
        tasks, self._looking = self._looking, {}
        self._user.launch(tasks.values())
