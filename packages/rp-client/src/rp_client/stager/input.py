"""The input staging component of the client, from TMGR_STAGING_INPUT_PENDING to AGENT_STAGING_INPUT_PENDING."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence

from rp_api import states
from rp_api.constants import TMGR_STAGING_INPUT_COMPONENT
from rp_api.errors import sentence
from rp_api.failures.kinds import STAGING
from rp_api.loop.offload import Offload
from rp_api.staging.directive import Directive
from rp_api.staging.interruption import interruptible
from rp_api.staging.location import Sandboxes, resolve
from rp_api.staging.protocol import protocol
from rp_client.component import ClientComponent
from rp_client.core.task import TaskRecord
from rp_client.engine.tracker import Change
from rp_client.launcher.sandbox import Sandbox
from rp_client.stager.base import INWARDS, Errors, bulks, client_directives, transfer
from rp_profiling.write.tracer import Tracer


class TaskStagingInput(ClientComponent):
    """Makes sandboxes and transfers files for tasks with input staging by the client; other tasks pass.

    Files are transferred outside of the event loop; then `staged(ready, failed)` is called.
    """

    def __init__(self, index: str, tracer: Tracer, advanced: Callable[[Sequence[TaskRecord], str], None],
                 offload: Offload, staged: Callable[[list[TaskRecord], list[Change]], object]) -> None:
        super().__init__(f'{TMGR_STAGING_INPUT_COMPONENT}.{index}', tracer, advanced)
        self._offload = offload
        self._on_staged = staged
        self._busy: dict[str, TaskRecord] = {}

    @property
    def size(self) -> int:
        """The number of tasks whose files are being transferred."""
        return len(self._busy)

    def put(self, tasks: list[TaskRecord]) -> tuple[list[TaskRecord], list[TaskRecord]]:
        """Accept bound tasks; return those without input staging, and those that wait for it."""
        self.received(tasks)
        self.advance(tasks, states.TMGR_STAGING_INPUT)
        delayed = [task for task in tasks if task.common.stages_input]
        for bulk in bulks(delayed, lambda task: task) if delayed else ():
            self._start(bulk)
        return self._live([task for task in tasks if not task.common.stages_input] if delayed else tasks), delayed

    def has(self, uid: str) -> bool:
        """Return whether files of that task are being transferred."""
        return uid in self._busy

    def cancel(self, uids: Iterable[str]) -> list[TaskRecord]:
        """Return those of the tasks whose files are being transferred; the result of the transfer is ignored."""
        tasks = [self._busy.pop(uid) for uid in uids if uid in self._busy]
        return [task for task in tasks if task.state not in states.FINAL]

    def _start(self, tasks: list[TaskRecord]) -> None:
        self._busy.update((task.uid, task) for task in tasks)
        self._offload(lambda: self._stage(tasks), lambda errors: self._staged(tasks, errors),
                      lambda error: self._staged(tasks, dict.fromkeys([task.uid for task in tasks], error)))

    def _stage(self, tasks: list[TaskRecord]) -> Errors:
        """Transfer the files of a bulk, and return the errors."""
        wanted = [(task, client_directives(task.sparse()['input_staging'])) for task in tasks
                  if task.uid in self._busy]   # not cancelled
        return transfer(wanted, INWARDS, self._stage_one) if wanted else {}

    def _stage_one(self, task: TaskRecord, directives: list[Directive], sandbox: Sandbox) -> None:
        self.tracer.record('create_sandbox_start', task.uid)
        sandbox.make()
        self.tracer.record('create_sandbox_stop', task.uid)
        packed = [directive for directive in directives if protocol(directive['action']).packed]
        if packed:
            self._pack(task, sandbox.directives(packed, INWARDS), sandbox.sandboxes)
        single = [directive for directive in directives if not protocol(directive['action']).packed]
        with interruptible(lambda: task.uid not in self._busy):   # cancelled
            sandbox.run(task.uid, single, INWARDS, self.tracer, 'staging_in')

    def _pack(self, task: TaskRecord, directives: list[Directive], sandboxes: Sandboxes) -> None:
        """Pack the files of `TARBALL` directives into one archive, which the agent unpacks."""
        from rp_api.staging.tarball import pack

        self.tracer.record('staging_in_tar_start', task.uid)
        members = []
        for directive in directives:
            target = resolve(directive['target'], 'task', sandboxes)
            slash = '/' if target.endswith('/') else ''   # marks the target as a directory
            members.append((directive, resolve(directive['source'], 'client', sandboxes),
                            os.path.relpath(target, sandboxes.task) + slash))
        pack(os.path.join(sandboxes.task, f'{task.uid}.tar'), members)
        self.tracer.record('staging_in_tar_stop', task.uid)

    def _staged(self, tasks: list[TaskRecord], errors: Errors) -> None:
        ready, failed = [], []
        for task in tasks:
            if self._busy.pop(task.uid, None) is None:   # it was cancelled
                self.dropped([task])
                continue
            error = errors.get(task.uid)
            if error is None or task.state in states.FINAL:   # its pilot or the session may have ended
                ready.append(task)
            else:
                failed.append(Change(task, states.FAILED, {
                    'exception': sentence(error), 'exception_detail': 'input staging failed',
                    'error': {'kind': STAGING}}))
        self._on_staged(self._live(ready), failed)

    def _live(self, tasks: list[TaskRecord]) -> list[TaskRecord]:
        """Advance and return the tasks that were not ended meanwhile."""
        live = [task for task in tasks if task.state not in states.FINAL]
        if len(live) < len(tasks):
            self.dropped(task for task in tasks if task.state in states.FINAL)
        self.advance(live, states.AGENT_STAGING_INPUT_PENDING)
        self.leaving(live)
        return live
