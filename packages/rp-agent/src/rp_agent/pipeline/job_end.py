"""The end of a pilot's job, as its tasks see it: which outcomes count, which are lost, and which have to wait.

`verdict` decides, from plain values. `PilotEnd` applies it to tasks.

- From the first sign of the end, an exit of a task that may run again is lost, also with exit code 0: batch systems
  signal all processes of a job in any order, and programs answer as they like.
- Therefore failures of such tasks are reported late when a sign of the end may follow them.
- If a user ends the pilot, its tasks end with it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from enum import Enum
from typing import NamedTuple

from rp_agent.components.killed import is_killed
from rp_agent.pipeline.retry import attempt_record, fail_suspect, history_of, is_last, restarts
from rp_agent.task import EXITED, HISTORY, UNSTARTED, AgentTask
from rp_api import states
from rp_api.constants import AGENT_SERVICE, TASK_SERVICE
from rp_api.failures.kinds import CANCELED, DEPENDENCY, EXIT, NODE, PILOT, SIGNAL
from rp_api.failures.losses import DEATH, END, is_suspect
from rp_api.task_modes import PILOT_RPC

DUE = 60.0
"""Seconds before the end of the job in which a failure may be a sign of it."""


class Verdict(Enum):
    """The consequence of the end of a job for a task."""

    OWN = 'its own outcome counts'
    LATE = 'its outcome counts unless the end of the job shows soon'
    RETURNED = 'it has not run, and another pilot runs it'
    LOST = 'its attempt is lost, and another pilot runs it again'
    ENDED = 'it has ended with its job, and fails'


class TaskRun(NamedTuple):
    """A task at the end of its run, or of its pilot.

    `started` means that it may have run, `restartable` that it may run again, `movable` that it may run on another
    pilot, `cancelled` that a user has cancelled it. `killed` means that SIGTERM or SIGKILL has ended a process of it,
    which this system has not sent; `last` that no other attempt follows.
    """

    state: str | None
    started: bool = True
    restartable: bool = False
    movable: bool = True
    cancelled: bool = False
    killed: bool = False
    last: bool = False


def verdict(run: TaskRun, *, ending: bool, left: float) -> Verdict:
    """Return what becomes of a task.

    Args:
        run: The task, whose run ends now, or did after the first sign of the end.
        ending: Whether there was a sign of the end of the job, which is not a user's cancellation of the pilot.
        left: Seconds until the job has to end.
    """
    if run.cancelled:
        return Verdict.OWN
    if not ending:
        doubtful = run.restartable and run.state == states.FAILED and (run.killed or run.last or left <= DUE)
        return Verdict.LATE if doubtful else Verdict.OWN
    if not run.started:
        return Verdict.RETURNED if run.movable else Verdict.ENDED
    if run.restartable:
        return Verdict.LOST if run.movable else Verdict.ENDED
    return Verdict.OWN if run.state == states.DONE else Verdict.ENDED


def is_doubtful(task: AgentTask, left: float) -> bool:
    """Return whether the failure of a task, `left` seconds before the job has to end, may be a sign of its end."""
    if (task.error or {}).get('kind') not in (EXIT, SIGNAL) or not restarts(task):
        return False
    run = TaskRun(task.target_state, restartable=True, killed=is_killed(task), last=is_last(task))
    return verdict(run, ending=False, left=left) is Verdict.LATE


class Ends(NamedTuple):
    """The tasks that leave an agent at the end of its pilot, by what the application has to know of them."""

    own: list[AgentTask]
    """Those with an outcome."""
    returned: list[AgentTask]
    """Those that another pilot runs; the history has the lost attempt."""


class PilotEnd:
    """The end of a pilot, in a state and for a reason.

    `by_user` means that the tasks end with it, `by_death` that it has lost nodes or parts of the agent. `again` means
    that the batch system may start the job again, for which tasks stay with the pilot. A user had cancelled the tasks
    in `cancelled` before.
    """

    def __init__(self, pilot: str, state: str, reason: str, cancelled: Collection[str] = (), *, by_user: bool = False,
                 by_death: bool = False, again: bool = False) -> None:
        self.state = state
        self.reason = reason
        self.by_user = by_user
        self.by_death = by_death
        self.sentence = f'{pilot} {reason}'
        self.cancelled = set(cancelled)
        self.again = again

    def settle(self, tasks: Iterable[AgentTask]) -> Ends:
        """Set the outcomes of tasks that leave the agent."""
        ends = Ends([], [])
        for task in tasks:
            (ends.returned if self._is_returned(task) else ends.own).append(task)
        return ends

    def _is_returned(self, task: AgentTask) -> bool:
        if self.by_user or task.description['mode'] == PILOT_RPC:
            self._end_with_user(task)
            return False
        if EXITED not in task.extra and (
                task.reached(states.AGENT_STAGING_OUTPUT)         # it had ended before
                or task.target_state != states.CANCELED                 # it fails without a run
                or (task.error or {}).get('kind') == DEPENDENCY):
            return False
        found = verdict(self._run(task), ending=True, left=0.0)
        if found is Verdict.LOST and not self._lose(task):
            return False
        if found is Verdict.ENDED:
            self._fail(task)
        return found in (Verdict.LOST, Verdict.RETURNED)

    def _run(self, task: AgentTask) -> TaskRun:
        started = EXITED in task.extra or task.reached(states.AGENT_EXECUTING_PENDING)
        return TaskRun(task.target_state, started and UNSTARTED not in task.extra,
                   restarts(task) or (self.again and task.description['mode'] in (TASK_SERVICE, AGENT_SERVICE)),
                   self.again or not task.description['pilot'], task.uid in self.cancelled)

    def _lose(self, task: AgentTask) -> bool:
        """Record the lost attempt; return False if the task is suspected of being the cause, and has failed."""
        of_node = self.by_death and (task.error or {}).get('kind') == NODE
        how = DEATH if of_node else END
        reason = str((task.error or {}).get('sentence') or self.sentence) if of_node else self.sentence
        kind = NODE if of_node else PILOT
        if of_node and is_suspect(history_of(task)):
            task.clear()
            fail_suspect(task, kind, reason)
            return False
        task.error = {'kind': kind, 'sentence': reason}
        task.extra[HISTORY] = [*history_of(task), attempt_record(task, lost=how)]
        return True

    def _fail(self, task: AgentTask) -> None:
        """Fail a task that was running, or could not run elsewhere, and cannot run again."""
        code = task.exit_code
        task.target_state = None
        task.fail_as(PILOT, self.sentence)
        task.exit_code = code

    def _end_with_user(self, task: AgentTask) -> None:
        """Adapt the outcome of a cancelled task: it has ended with its pilot, unless a user had cancelled it."""
        if task.target_state != states.CANCELED:
            return
        if self.state == states.CANCELED:
            task.error = {'kind': CANCELED, 'sentence': self.sentence} if task.error else None
        elif self.state == states.FAILED or self.sentence in (task.exception or ''):
            task.error = task.error or {'kind': PILOT, 'sentence': self.sentence}
        if self.state == states.FAILED:
            task.end(states.FAILED, task.exception)


def exited(task: AgentTask) -> bool:
    """Mark a task whose run ends after the first sign of the end; return whether it leaves without staging output."""
    task.extra[EXITED] = True
    return restarts(task)
