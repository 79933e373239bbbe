"""Returns tasks to the application, which runs them on other pilots: unstarted tasks, and lost ones."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import Any

from rp_agent.components.stage import Tasks
from rp_agent.pipeline.job_end import PilotEnd
from rp_agent.reporting.reporter import Reporter
from rp_agent.task import HISTORY, UNSTARTED, AgentTask
from rp_api import states
from rp_api.coordination.contract import Update


class Returns:
    """Decides which tasks of a pilot are returned at its end; `unstarted` are the uids of those not reported."""

    def __init__(self, pilot: str, reporter: Reporter) -> None:
        self._pilot = pilot
        self._reporter = reporter
        self.wanted = False
        """True if the application gets unstarted tasks back although a user has ended the pilot."""
        self.unstarted: set[str] = set()
        self._kept: list[str] = []   # at the first sign of the end: other tasks

    def note(self, tasks: Iterable[AgentTask]) -> None:
        """Mark the unstarted ones of these tasks for their return, if the application wants them."""
        if self.wanted:
            self.unstarted.update(task.uid for task in tasks if can_return(task))

    def keep(self, uids: Iterable[str]) -> None:
        """Store the uids of the tasks at the first sign of the end; those that may have started are not returned."""
        self._kept = [uid for uid in uids if uid not in self.unstarted]

    def info(self, end: PilotEnd, uids: Iterable[str]) -> dict[str, Any]:
        """Return what the application has to know about the end of the pilot and the tasks that it does not return.

        `uids` are the tasks that the agent still has. If the job may be started again, all that have started are kept:
        it may be cancelled instead.
        """
        info: dict[str, Any] = {'announced': not end.by_death}
        if self.wanted:
            info['kept'] = [uid for uid in (self._kept if end.again else uids) if uid not in self.unstarted]
        return info

    def settle(self, tasks: Sequence[AgentTask], end: PilotEnd | None, own: Container[str]) -> tuple[Tasks, list[str]]:
        """Return the ended tasks to report, and the uids of those that run elsewhere, or here again.

        At the end of the pilot, the outcomes change. `own` are tasks that the coordinator does not know. If the job may
        be started again, its next agent gets the tasks without an outcome.
        """
        back: Tasks = []
        forgotten: Tasks = []
        left: Tasks = []
        for task in tasks:
            if task.uid not in self.unstarted or task.target_state != states.CANCELED:
                left.append(task)
            else:   # at the end, the last message tells which tasks are not returned
                (back if end is None or HISTORY in task.extra else forgotten).append(task)
        if end is not None:
            mine = [task for task in left if task.uid in own]
            left, returned = end.settle([task for task in left if task not in mine] if mine else left)
            left += mine
            if end.again:
                self.unstarted.update(task.uid for task in returned if UNSTARTED in task.extra)
                forgotten += returned
            else:
                back += returned
        elsewhere = [*back, *forgotten]
        if elsewhere:
            self._reporter.states.drop(elsewhere)
            self._reporter.returned([_returned(task, self._pilot) for task in back])
        return left, [task.uid for task in elsewhere]


def can_return(task: AgentTask) -> bool:
    """Return whether a task has not started, was not cancelled, and may run on another pilot."""
    return (not task.reached(states.AGENT_EXECUTING_PENDING) and not task.cancelled and task.target_state is None
            and not task.description['pilot'] and not task.description['raptor_id'])


def _returned(task: AgentTask, pilot: str) -> Update:
    """Return the update that gives a task back, which may have been reported as executing."""
    info = {'returned': pilot, **({'history': task.extra[HISTORY]} if HISTORY in task.extra else {})}
    begun = HISTORY in task.extra or task.reached(states.AGENT_EXECUTING_PENDING)
    return Update(task.uid, states.AGENT_EXECUTING if begun else states.AGENT_SCHEDULING, info)
