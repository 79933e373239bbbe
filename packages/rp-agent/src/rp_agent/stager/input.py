"""Input stager of the agent: AGENT_STAGING_INPUT_PENDING in, AGENT_SCHEDULING_PENDING out."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import partial

from rp_agent.stager.base import names, stage
from rp_agent.task import AgentTask
from rp_api import states
from rp_api.component import Component
from rp_api.errors import PilotError
from rp_api.failures.kinds import STAGING
from rp_api.loop.offload import Offload
from rp_api.staging.directive import Directive
from rp_api.staging.interruption import interruptible
from rp_api.staging.location import Sandboxes
from rp_api.staging.protocol import protocol
from rp_profiling.write.tracer import Tracer


class StagerInput(Component):
    """Executes the agent's staging directives of a task before it is scheduled; passes on tasks without directives.

    `failed(tasks)` receives tasks whose staging has failed, or that were cancelled meanwhile.
    """

    def __init__(self, uid: str, tracer: Tracer, sandboxes: Callable[[AgentTask], Sandboxes], offload: Offload,
                 failed: Callable[[list[AgentTask]], None]) -> None:
        super().__init__(uid, tracer)
        self._sandboxes = sandboxes
        self._offload = offload
        self._failed = failed
        self._busy: dict[str, AgentTask] = {}

    def __contains__(self, uid: object) -> bool:
        return uid in self._busy

    def put(self, tasks: list[AgentTask]) -> None:
        """Accept tasks and stage their input."""
        self.received(tasks)
        self.advance(tasks, states.AGENT_STAGING_INPUT)
        ready: list[AgentTask] = []
        odd: list[AgentTask] = []
        for task in tasks:
            description = task.description
            if dict.get(description, 'input_staging'):   # not set in most descriptions
                self._busy[task.uid] = task
                self._offload(partial(self._stage, task), partial(self._staged, task), partial(self._broke, task))
                continue
            if dict.get(description, 'sandbox'):   # other tasks may use the same directory
                try:
                    task.extra['before'] = set(names(task))
                except Exception as error:
                    task.broke(error, 'looking at its sandbox')
            (ready if task.target_state is None else odd).append(task)
        if odd:
            self._failed(odd)
        self._pass_on(ready)

    def cancel(self, uids: Iterable[str], reason: str = 'cancelled while its input was staged') -> None:
        """Cancel the tasks whose input is being staged, and ignore the results of the staging."""
        ended = [self._busy.pop(uid) for uid in uids if uid in self._busy]
        for task in ended:
            _cancelled(task, reason)
        if ended:
            self._failed(ended)

    def cancel_all(self, reason: str) -> None:
        """Cancel all tasks whose input is being staged."""
        self.cancel(list(self._busy), reason)

    def _stage(self, task: AgentTask) -> None:
        if task.cancelled:
            return
        directives = task.description['input_staging']
        try:
            os.makedirs(task.sandbox, exist_ok=True)
            packed = [directive for directive in directives if protocol(directive['action']).packed]
            if packed:
                self._unpack(task, packed[0])
            with interruptible(lambda: task.uid not in self._busy):   # cancelled
                stage(task, directives, self._sandboxes(task), self.tracer, 'staging_in')
            task.extra['before'] = set(names(task))
        except (PilotError, OSError) as error:
            task.fail(str(error), 'input staging failed', STAGING)

    @staticmethod
    def _unpack(task: AgentTask, directive: Directive) -> None:
        """Unpack the client's archive, which holds the files of all directives with this action."""
        from rp_api.staging.tarball import unpack

        archive = os.path.join(task.sandbox, f'{task.uid}.tar')
        unpack(directive, archive, task.sandbox)
        os.unlink(archive)

    def _broke(self, task: AgentTask, error: BaseException) -> None:
        task.broke(error, 'input staging')
        self._staged(task, None)

    def _staged(self, task: AgentTask, _: None) -> None:
        if self._busy.pop(task.uid, None) is None:
            return   # cancelled
        if task.cancelled:
            _cancelled(task, 'cancelled while its input was staged')
        if task.target_state is None:
            self._pass_on([task])
        else:
            self._failed([task])

    def _pass_on(self, tasks: list[AgentTask]) -> None:
        if tasks:
            self.advance(tasks, states.AGENT_SCHEDULING_PENDING)
            self.forward(tasks)


def _cancelled(task: AgentTask, reason: str) -> None:
    """Mark the task as cancelled, unless it has a target state already."""
    if task.target_state is None:
        task.target_state = states.CANCELED
        task.exception = reason
