"""The component that brings input files of tasks to the platform: TMGR_STAGING_INPUT_PENDING in,
AGENT_STAGING_INPUT_PENDING out.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

from rp_api import states
from rp_api.constants import TARBALL, TMGR_STAGING_INPUT_COMPONENT
from rp_api.errors import PilotError
from rp_api.mesh.offload import Offload
from rp_api.staging.directive import Directive
from rp_api.staging.location import Sandboxes, resolve
from rp_api.staging.run import run
from rp_client.component import ClientComponent
from rp_client.stager.base import INWARDS, client_directives, task_sandboxes
from rp_client.task import Task
from rp_profiling.tracer import Tracer


class TaskStagingInput(ClientComponent):
    """Makes sandboxes and brings files there for the tasks that ask for it; the others pass.

    Files are moved outside of the event loop. `delayed(tasks)` is called for tasks that have to wait for that, and
    `failed(task, state, info)` for those that end.
    """

    def __init__(self, index: str, tracer: Tracer, offload: Offload) -> None:
        super().__init__(f'{TMGR_STAGING_INPUT_COMPONENT}.{index}', tracer)
        self._offload = offload
        self._busy: dict[str, Task] = {}
        self.delayed: Callable[[list[Task]], None]
        self.failed: Callable[[Task, str, dict[str, Any]], None]

    def put(self, tasks: list[Task]) -> None:
        """Take bound tasks."""
        self.advance(tasks, states.TMGR_STAGING_INPUT)
        ready, delayed = [], []
        for task in tasks:
            if task.common.stages_input:
                self._start(task, client_directives(task.sparse()['input_staging']))
                delayed.append(task)
            else:
                ready.append(task)
        if delayed:
            self.delayed(delayed)
        self._pass_on(ready)

    def has(self, uid: str) -> bool:
        """Whether files of that task are being moved."""
        return uid in self._busy

    def cancel(self, uids: Iterable[str]) -> None:
        """End those of the tasks whose files are being moved; how that goes on is of no interest any more."""
        for uid in uids:
            task = self._busy.pop(uid, None)
            if task is not None and task.state not in states.FINAL:
                self.failed(task, states.CANCELED, {'exception': 'cancelled while its input was staged'})

    def _start(self, task: Task, directives: list[Directive]) -> None:
        self._busy[task.uid] = task
        self._offload(lambda: self._stage(task, directives), lambda error: self._staged(task, error))

    def _stage(self, task: Task, directives: list[Directive]) -> PilotError | OSError | None:
        """What may take long; gives what went wrong."""
        if task.uid not in self._busy:   # it was cancelled
            return None
        try:
            sandboxes = task_sandboxes(task)
            self.tracer.record('create_sandbox_start', task.uid)
            os.makedirs(sandboxes.task, exist_ok=True)
            self.tracer.record('create_sandbox_stop', task.uid)
            packed = [directive for directive in directives if directive['action'] == TARBALL]
            if packed:
                self._pack(task, packed, sandboxes)
            run(task.uid, [directive for directive in directives if directive['action'] != TARBALL], INWARDS,
                sandboxes, self.tracer, 'staging_in')
        except (PilotError, OSError) as error:
            return error
        return None

    def _pack(self, task: Task, directives: list[Directive], sandboxes: Sandboxes) -> None:
        """Put all files that are to travel together into one archive, which the agent unpacks."""
        from rp_api.staging.tarball import pack

        self.tracer.record('staging_in_tar_start', task.uid)
        members = []
        for directive in directives:
            target = resolve(directive['target'], 'task', sandboxes)
            slash = '/' if target.endswith('/') else ''   # says that the target is a directory
            members.append((directive, resolve(directive['source'], 'client', sandboxes),
                            os.path.relpath(target, sandboxes.task) + slash))
        pack(os.path.join(sandboxes.task, f'{task.uid}.tar'), members)
        self.tracer.record('staging_in_tar_stop', task.uid)

    def _staged(self, task: Task, error: PilotError | OSError | None) -> None:
        if self._busy.pop(task.uid, None) is None or task.state in states.FINAL:
            return   # it was cancelled, or its pilot or the session has ended meanwhile
        if error is not None:
            self.failed(task, states.FAILED, {'exception': str(error), 'exception_detail': 'input staging failed'})
        else:
            self._pass_on([task])

    def _pass_on(self, tasks: list[Task]) -> None:
        tasks = [task for task in tasks if task.state not in states.FINAL]
        if tasks:
            self.advance(tasks, states.AGENT_STAGING_INPUT_PENDING)
            self.output(tasks)
