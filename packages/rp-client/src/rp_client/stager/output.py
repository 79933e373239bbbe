"""The output staging component of the client, from TMGR_STAGING_OUTPUT_PENDING to a final state."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from typing import BinaryIO, NamedTuple

from rp_api import states
from rp_api.constants import TMGR_STAGING_OUTPUT_COMPONENT
from rp_api.errors import PilotError, sentence
from rp_api.failures.kinds import STAGING
from rp_api.loop.offload import Offload
from rp_api.staging.directive import Directive, expand
from rp_api.staging.location import resolve
from rp_api.system.readable import open_regular
from rp_client.component import ClientComponent
from rp_client.core.task import TaskRecord
from rp_client.engine.tracker import Change
from rp_client.launcher.sandbox import Sandbox
from rp_client.stager.base import OUTWARDS, Errors, bulks, client_directives, pilot_files, transfer
from rp_profiling.write.tracer import Tracer


class _Job(NamedTuple):
    """A finished task, its output directives, and whether its sandbox is removed afterwards."""

    finished: Change
    directives: list[Directive]
    cleanup: bool


class TaskStagingOutput(ClientComponent):
    """Transfers files for tasks with output staging by the client, outside of the event loop; other tasks pass.

    `staged(tasks)` is called with the final states of tasks after a transfer. `keep` is called in a thread with the
    output of a task that is to be DONE, when it is at its targets.
    """

    def __init__(self, index: str, tracer: Tracer, advanced: Callable[[Sequence[TaskRecord], str], None],
                 offload: Offload, staged: Callable[[list[Change]], object],
                 keep: Callable[[TaskRecord, list[Directive], Sandbox], object]) -> None:
        super().__init__(f'{TMGR_STAGING_OUTPUT_COMPONENT}.{index}', tracer, advanced)
        self._offload = offload
        self._on_staged = staged
        self._keep = keep

    def put(self, tasks: list[Change]) -> list[Change]:
        """Accept tasks with their final states, and return those without output staging."""
        entities = [finished.entity for finished in tasks]
        self.received(entities)
        self.advance(entities, states.TMGR_STAGING_OUTPUT)
        jobs: list[_Job] = []
        ready = []
        for finished in tasks:
            sparse = finished.entity.sparse() if finished.entity.common.stages_output else {}
            cleanup = bool(sparse.get('cleanup'))
            if sparse and (finished.state == states.DONE or sparse.get('stage_on_error')):
                jobs.append(_Job(finished, client_directives(sparse['output_staging']), cleanup))
            elif cleanup:
                jobs.append(_Job(finished, [], cleanup))
            else:
                ready.append(finished)
        for bulk in bulks(jobs, lambda job: job.finished.entity):
            self._start(bulk)
        return ready

    def _start(self, jobs: list[_Job]) -> None:
        self._offload(lambda: self._stage(jobs), lambda errors: self._staged(jobs, errors),
                      lambda error: self._staged(jobs, {job.finished.entity.uid: error for job in jobs}))

    def _stage(self, jobs: list[_Job]) -> Errors:
        """Transfer the files of a bulk, and return the errors."""
        cleanup = {job.finished.entity.uid for job in jobs if job.cleanup}
        done = {job.finished.entity.uid for job in jobs if job.finished.state == states.DONE}

        def stage_one(task: TaskRecord, directives: list[Directive], sandbox: Sandbox) -> None:
            try:
                sandbox.run(task.uid, directives, OUTWARDS, self.tracer, 'staging_out')
                if task.common.cache and task.uid in done:
                    self._keep(task, sandbox.directives(directives, OUTWARDS), sandbox)
            finally:
                if task.uid in cleanup:   # the agent does not remove sandboxes that the client still needs
                    sandbox.remove()

        return transfer([(job.finished.entity, job.directives) for job in jobs], OUTWARDS, stage_one)

    def _staged(self, jobs: list[_Job], errors: Errors) -> None:
        self._on_staged([self._ended(job.finished, errors.get(job.finished.entity.uid)) for job in jobs])

    @staticmethod
    def _ended(finished: Change, error: BaseException | None) -> Change:
        if error is None or finished.state != states.DONE:
            return finished
        return Change(finished.entity, states.FAILED, {
            'exception': sentence(error), 'exception_detail': 'output staging failed', 'error': {'kind': STAGING}})


def open_output(task: TaskRecord, path: str) -> BinaryIO:
    """Open a file of a bound task. One of another host is copied to a temporary file, which goes with the last use.

    Raises:
        FileNotFoundError: There is no such file.
        OSError: It cannot be read, or is no regular file.
        PilotError: The host cannot be reached.
    """
    sandbox = task.sandbox or ''
    wanted = expand([{'source': path, 'target': 'output'}])
    try:
        with pilot_files(task.pilot) as files:
            files.fetch([(sandbox, wanted)], OUTWARDS)
            there = files.of(sandbox)
            (directive,) = there.directives(wanted, OUTWARDS)
            return open_regular(resolve(directive['source'], OUTWARDS[0], there.sandboxes))
    except FileNotFoundError:
        raise FileNotFoundError(errno.ENOENT, _why_not(task), path) from None
    except PilotError as error:
        raise PilotError(f'the output of {task.uid} cannot be read: {error}') from error


def _why_not(task: TaskRecord) -> str:
    if task.sparse().get('cleanup'):
        return f'the sandbox of {task.uid} was removed, as its description asks for (cleanup)'
    return f'{task.uid} is {task.state} and has not written this file, or it was removed'
