"""The traces of a simulated pilot: the rows and files that components and scripts of an agent write."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rp_agent.resource_manager.base import Allocation
from rp_api import states
from rp_api.simulation.contract import VirtualClock
from rp_profiling.write.virtual import HOST, VirtualTracer

_STARTING = ('task_start', 'task_mkdir', 'task_mkdir_done', 'task_run_start')
_LAUNCHED = ('task_run_ok', 'launch_start', 'launch_pre', 'launch_submit')
RUNS = ('exec_start', 'exec_pre', 'rank_start')
RAN = ('rank_stop', 'exec_post', 'exec_stop')
COLLECTED = ('launch_collect', 'launch_post', 'launch_stop', 'task_run_stop')
_OUTPUT = ('staging_stdout_start', 'staging_stdout_stop', 'staging_stderr_start', 'staging_stderr_stop')


class Traces:
    """Writes the traces of a pilot, or nothing without a directory."""

    def __init__(self, pilot: str, directory: Path | None, clock: VirtualClock) -> None:
        self._pilot = pilot
        self._directory = directory
        self._clock = clock
        self._again: set[str] = set()
        """Tasks that are launched again: earlier events are not repeated."""

    def tracer(self, comp: str) -> VirtualTracer:
        """Return the tracer of a component."""
        path = None if self._directory is None else self._directory / self._pilot / f'{comp}.prof'
        return VirtualTracer(path, comp, self._clock.time)

    def started(self) -> None:
        """Record the start of the job."""
        self._bootstrap = self.tracer('bootstrap_0')
        self._bootstrap.record('bootstrap_0_start', self._pilot)

    def active(self, allocation: Allocation) -> None:
        """Record that the agent accepts tasks."""
        self._agent = self.tracer('agent_0')
        self._agent.record('hostname', self._pilot, msg=HOST)
        self._agent.record('resources', self._pilot, msg=allocation.trace())
        self._input, self._executing, self._output = components = [
            self.tracer(f'agent_{name}.0000') for name in ('staging_input', 'executing', 'staging_output')]
        for each in components:
            each.record('component_init', each.comp)
        self._components = components

    def told_to_end(self) -> None:
        """Record the command to end the pilot."""
        self._agent.record('cmd', self._pilot, msg='cancel_pilot : 0')

    def stop(self) -> None:
        """Record the end of the agent."""
        for each in self._components:
            each.record('component_final', each.comp)
            each.close()
        self._agent.close()

    def close(self) -> None:
        """Record the end of the job."""
        self._bootstrap.record('bootstrap_0_stop', self._pilot)
        self._bootstrap.close()

    def arrived(self, uids: Sequence[str]) -> None:
        """Record the arrival of tasks without input staging."""
        self._agent.record('get', self._pilot, msg=f'bulk size: {len(uids)}')
        self._agent.record_bulk('get', uids, states.AGENT_STAGING_INPUT_PENDING)
        self._input.record_bulk('advance', uids, states.AGENT_STAGING_INPUT)
        self._input.record_bulk('advance', uids, states.AGENT_SCHEDULING_PENDING)

    def starting(self, uids: Sequence[str]) -> None:
        """Record that the executor has received placed tasks."""
        self._executing.record_bulk('advance', uids, states.AGENT_EXECUTING)
        for uid in uids:
            if uid not in self._again:
                self._executing.record_many(uid, _STARTING)

    def launched(self, uid: str) -> None:
        """Record that a launcher has taken a task."""
        self._executing.record_many(uid, _LAUNCHED[1:] if uid in self._again else _LAUNCHED)

    def record(self, uid: str, events: tuple[str, ...]) -> None:
        """Record events of a task at the executor."""
        self._executing.record_many(uid, events)

    def killed(self, uid: str) -> None:
        """Record the begin of a kill; a new launch of the task records only later events."""
        self._executing.record('task_run_cancel_start', uid)
        self._again.add(uid)

    def executed(self, uid: str) -> None:
        """Record that a task leaves the executor."""
        self._executing.record('advance', uid, states.AGENT_STAGING_OUTPUT_PENDING)

    def dvm(self, number: int, *events: str) -> None:
        """Record events of a DVM."""
        for event in events:
            self._executing.record(event, self._pilot, msg=f'dvm_id={number}')

    def left(self, uids: Sequence[str]) -> None:
        """Record that tasks return to the client."""
        self._output.record_bulk('advance', uids, states.AGENT_STAGING_OUTPUT)
        for uid in uids:
            self._output.record_many(uid, _OUTPUT)
        self._output.record_bulk('advance', uids, states.TMGR_STAGING_OUTPUT_PENDING)
