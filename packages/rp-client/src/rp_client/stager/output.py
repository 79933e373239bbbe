"""The component that brings results of tasks back: TMGR_STAGING_OUTPUT_PENDING in, a final state out."""

from __future__ import annotations

from typing import Any, NamedTuple

from rp_api import states
from rp_api.constants import TMGR_STAGING_OUTPUT_COMPONENT
from rp_api.errors import PilotError
from rp_api.mesh.offload import Offload
from rp_api.staging.directive import Directive
from rp_api.staging.run import remove_sandbox, run
from rp_client.component import ClientComponent
from rp_client.stager.base import OUTWARDS, client_directives, task_sandboxes
from rp_client.task import Task
from rp_profiling.tracer import Tracer


class Finished(NamedTuple):
    """A task, the final state that it goes to, and what became known here about that."""

    task: Task
    state: str
    info: dict[str, Any] | None = None


class TaskStagingOutput(ClientComponent):
    """Brings files to the client for the tasks that ask for it; files are moved outside of the event loop."""

    def __init__(self, index: str, tracer: Tracer, offload: Offload) -> None:
        super().__init__(f'{TMGR_STAGING_OUTPUT_COMPONENT}.{index}', tracer)
        self._offload = offload

    def put(self, tasks: list[Finished]) -> None:
        """Take finished tasks."""
        self.advance([finished.task for finished in tasks], states.TMGR_STAGING_OUTPUT)
        ready = []
        for finished in tasks:
            if not finished.task.common.stages_output:
                ready.append(finished)
                continue
            sparse = finished.task.sparse()
            if finished.state == states.DONE or sparse.get('stage_on_error'):
                self._start(finished, client_directives(sparse['output_staging']), cleanup=bool(sparse.get('cleanup')))
            elif sparse.get('cleanup'):
                self._start(finished, [], cleanup=True)
            else:
                ready.append(finished)
        if ready:
            self.output(ready)

    def passed(self, tasks: list[Task]) -> None:
        """Take note of tasks that have come through without anything to be done."""
        self.tracer.record_bulk('advance', [task.uid for task in tasks], states.TMGR_STAGING_OUTPUT)

    def _start(self, finished: Finished, directives: list[Directive], *, cleanup: bool) -> None:
        self._offload(lambda: self._stage(finished.task, directives, cleanup),
                       lambda error: self._staged(finished, error))

    def _stage(self, task: Task, directives: list[Directive], cleanup: bool) -> PilotError | OSError | None:
        try:
            sandboxes = task_sandboxes(task)
        except PilotError as error:
            return error
        try:
            run(task.uid, directives, OUTWARDS, sandboxes, self.tracer, 'staging_out')
        except (PilotError, OSError) as error:
            return error
        finally:
            if cleanup:   # the agent leaves it to the one who needs the sandbox last
                remove_sandbox(sandboxes)
        return None

    def _staged(self, finished: Finished, error: PilotError | OSError | None) -> None:
        if error is not None and finished.state == states.DONE:
            finished = Finished(finished.task, states.FAILED, {
                'exception': str(error), 'exception_detail': 'output staging failed'})
        self.output([finished])
