"""The profiles of the client's half of a simulation, with the events of session, managers and components."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from rp_api import states
from rp_api.simulation.clock import VirtualClock
from rp_profiling.write.virtual import VirtualTracer

SESSION = 'rp.session.simulated'


class Traces:
    """The tracers of a simulated session; without a directory, nothing is written."""

    def __init__(self, directory: Path | None, clock: VirtualClock) -> None:
        self._directory = directory
        self._clock = clock
        self._session = self._tracer(SESSION)
        self._pmgr, self._tmgr = self._tracer('pmgr.0000'), self._tracer('tmgr.0000')
        self._components = [self._tracer(f'{name}.0000') for name in (
            'pmgr_launching', 'tmgr_scheduling', 'tmgr_staging_input', 'tmgr_staging_output')]
        self._launching, self._scheduling, self._input, self._output = self._components

    def _tracer(self, comp: str) -> VirtualTracer:
        return VirtualTracer(None if self._directory is None else self._directory / f'{comp}.prof', comp,
                             self._clock.time)

    def opened(self) -> None:
        """Record the start of the session and its managers."""
        self._session.record('session_start', SESSION)
        self._session.record('session_ok', SESSION)
        for manager in (self._pmgr, self._tmgr):
            manager.record('setup_done', manager.comp)
        for component in self._components:
            component.record('component_init', component.comp)

    def launched(self, pilot: str) -> None:
        """Record the launch of a pilot."""
        self._pmgr.record('advance', pilot, states.PMGR_LAUNCHING_PENDING)
        self._launching.record('advance', pilot, states.PMGR_LAUNCHING)
        self._launching.record_many(pilot, ('submission_start', 'submission_stop'))
        self._launching.record('advance', pilot, states.PMGR_ACTIVE_PENDING)

    def active(self, pilot: str) -> None:
        """Record that a pilot is active."""
        self._pmgr.record('advance', pilot, states.PMGR_ACTIVE)

    def submitted(self, uids: Sequence[str]) -> None:
        """Record the submission of tasks."""
        self._tmgr.record('get', self._tmgr.comp, msg=f'bulk size: {len(uids)}')
        self._tmgr.record_bulk('get', uids, states.NEW)
        self._tmgr.record_bulk('advance', uids, states.TMGR_SCHEDULING_PENDING)
        self._scheduling.record_bulk('advance', uids, states.TMGR_SCHEDULING)

    def bound(self, uids: Sequence[str]) -> None:
        """Record that tasks are bound and sent to pilots, without input staging."""
        self._scheduling.record_bulk('advance', uids, states.TMGR_STAGING_INPUT_PENDING)
        self._input.record_bulk('advance', uids, states.TMGR_STAGING_INPUT)
        self._input.record_bulk('advance', uids, states.AGENT_STAGING_INPUT_PENDING)

    def done(self, tasks: Sequence[tuple[str, str]]) -> None:
        """Record tasks that have left the agent with these final states."""
        by_state: dict[str, list[str]] = defaultdict(list)
        for uid, state in tasks:
            by_state[state].append(uid)
        for state, uids in by_state.items():
            self._output.record_bulk('advance', uids, states.TMGR_STAGING_OUTPUT)
            self._tmgr.record_bulk('advance', uids, state)

    def final(self, tasks: Sequence[tuple[str, str]]) -> None:
        """Record tasks that were not executed and have these final states."""
        for uid, state in tasks:
            self._tmgr.record('advance', uid, state)

    def closing(self) -> None:
        """Record the begin of the session's end."""
        self._session.record('session_close', SESSION)
        for component in self._components[1:]:
            component.record('component_final', component.comp)
            component.close()
        self._tmgr.close()

    def pilot_ended(self, pilot: str, state: str) -> None:
        """Record the final state of a pilot."""
        self._pmgr.record('advance', pilot, state)

    def closed(self) -> None:
        """Record the end of the session."""
        self._launching.record('component_final', self._launching.comp)
        self._launching.close()
        self._pmgr.close()
        self._session.record('session_stop', SESSION)
        self._session.close()
