"""The profiles of a simulated pilot: the rows that the agent's components and scripts write, in the same files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rp_agent.resource_manager.base import Allocation
from rp_api import states
from rp_api.simulation.clock import VirtualClock
from rp_profiling.write.virtual import HOST, VirtualTracer

_STARTING = ('task_start', 'task_mkdir', 'task_mkdir_done', 'task_run_start')
_LAUNCHED = ('task_run_ok', 'launch_start', 'launch_pre', 'launch_submit')
_RUNS = ('exec_start', 'exec_pre', 'rank_start')
_RAN = ('rank_stop', 'exec_post', 'exec_stop')
_COLLECTED = ('launch_collect', 'launch_post', 'launch_stop', 'task_run_stop')
_OUTPUT = ('staging_stdout_start', 'staging_stdout_stop', 'staging_stderr_start', 'staging_stderr_stop')


class Traces:
    """Writes what happens on a pilot; in no directory, nothing is written."""

    def __init__(self, pilot: str, directory: Path | None, clock: VirtualClock) -> None:
        self._pilot = pilot
        self._directory = directory
        self._clock = clock
        self._again: set[str] = set()
        """Tasks whose launch has come to nothing: what comes before it is not recorded again."""

    def tracer(self, comp: str) -> VirtualTracer:
        """What writes the profile of a component."""
        path = None if self._directory is None else self._directory / self._pilot / f'{comp}.prof'
        return VirtualTracer(path, comp, self._clock.time)

    def started(self) -> None:
        """The nodes are there."""
        self._bootstrap = self.tracer('bootstrap_0')
        self._bootstrap.record('bootstrap_0_start', self._pilot)

    def active(self, allocation: Allocation) -> None:
        """The agent takes tasks."""
        self._agent = self.tracer('agent_0')
        self._agent.record('hostname', self._pilot, msg=HOST)
        self._agent.record('resources', self._pilot, msg=allocation.trace())
        self._input, self._executing, self._output = components = [
            self.tracer(f'agent_{name}.0000') for name in ('staging_input', 'executing', 'staging_output')]
        for each in components:
            each.record('component_init', each.comp)
        self._components = components

    def told_to_end(self) -> None:
        """The agent is told to end."""
        self._agent.record('cmd', self._pilot, msg='cancel_pilot : 0')

    def stop(self) -> None:
        """The agent ends."""
        for each in self._components:
            each.record('component_final', each.comp)
            each.close()
        self._agent.close()

    def close(self) -> None:
        """The nodes are given back."""
        self._bootstrap.record('bootstrap_0_stop', self._pilot)
        self._bootstrap.close()

    def arrived(self, uids: Sequence[str]) -> None:
        """Tasks have come from the client, and need no input to be staged."""
        self._agent.record('get', self._pilot, msg=f'bulk size: {len(uids)}')
        self._agent.record_bulk('get', uids, states.AGENT_STAGING_INPUT_PENDING)
        self._input.record_bulk('advance', uids, states.AGENT_STAGING_INPUT)
        self._input.record_bulk('advance', uids, states.AGENT_SCHEDULING_PENDING)

    def starting(self, uids: Sequence[str]) -> None:
        """The executor has tasks that are placed."""
        self._executing.record_bulk('advance', uids, states.AGENT_EXECUTING)
        for uid in uids:
            if uid not in self._again:
                self._executing.record_many(uid, _STARTING)

    def launched(self, uid: str) -> None:
        """A launcher has taken a task."""
        self._executing.record_many(uid, _LAUNCHED[1:] if uid in self._again else _LAUNCHED)

    def runs(self, uid: str) -> None:
        """The program of a task runs."""
        self._executing.record_many(uid, _RUNS)

    def ran(self, uid: str) -> None:
        """The program of a task has ended."""
        self._executing.record_many(uid, _RAN)

    def collected(self, uid: str) -> None:
        """It is known that a task has ended."""
        self._executing.record_many(uid, _COLLECTED)

    def killed(self, uid: str) -> None:
        """A task is being killed; when it is launched again, some of it was recorded."""
        self._executing.record('task_run_cancel_start', uid)
        self._again.add(uid)

    def was_killed(self, uid: str) -> None:
        """A task has been killed."""
        self._executing.record('task_run_cancel_stop', uid)

    def refused(self, uid: str) -> None:
        """A task is not launched any more."""
        self._executing.record('task_run_stop', uid)

    def executed(self, uid: str) -> None:
        """A task leaves the executor."""
        self._executing.record('advance', uid, states.AGENT_STAGING_OUTPUT_PENDING)

    def dvm(self, number: int, *events: str) -> None:
        """This has happened to a virtual machine."""
        for event in events:
            self._executing.record(event, self._pilot, msg=f'dvm_id={number}')

    def left(self, uids: Sequence[str]) -> None:
        """Tasks go back to the client."""
        self._output.record_bulk('advance', uids, states.AGENT_STAGING_OUTPUT)
        for uid in uids:
            self._output.record_many(uid, _OUTPUT)
        self._output.record_bulk('advance', uids, states.TMGR_STAGING_OUTPUT_PENDING)
