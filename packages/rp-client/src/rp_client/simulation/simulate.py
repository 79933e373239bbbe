"""The client's half of a simulation: the real task scheduler binds tasks to simulated pilots."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from random import Random

from rp_api import states
from rp_api.errors import PilotError
from rp_api.simulation.contract import PilotPlan, SimulatedPilot, SimulatedTask, VirtualClock, pilot_maker
from rp_api.simulation.model import DEFAULT, Model, load_model
from rp_client.scheduler.base import Request
from rp_client.scheduler.round_robin import RoundRobin
from rp_client.simulation.platform import Platform
from rp_client.simulation.result import Result
from rp_client.simulation.workload import Workload
from rp_profiling.write.virtual import VirtualTracer

SESSION = 'rp.session.simulated'


def simulate(platform: Platform, workload: Workload, model: Model | str = DEFAULT, *,
             directory: str | Path | None = None, seed: int = 0) -> Result:
    """Simulate a workload on a platform, by a model, or the shipped model of that name.

    A session with traces is written to `directory`, which must not exist; None writes none. The result depends only on
    the arguments, with random numbers from `seed`.
    """
    path = None if directory is None else Path(directory)
    if path is not None:
        path.mkdir(parents=True)
    chosen = load_model(model) if isinstance(model, str) else model
    return _Simulation(platform, workload.tasks(seed), chosen, path, seed).run()


class _Simulation:
    """One session on a virtual clock."""

    def __init__(self, platform: Platform, tasks: Sequence[SimulatedTask], model: Model, directory: Path | None,
                 seed: int) -> None:
        self._nodes = platform.nodes * platform.pilots
        self._directory = directory
        self._clock = VirtualClock()
        self._random = Random(f'{seed} queue')
        self._model = model
        self._tasks = {task.uid: task for task in tasks}
        self._scheduler = RoundRobin()
        self._bound: dict[str, list[SimulatedTask]] = {}
        self._ends: Counter[str] = Counter()
        self._ended = 0
        make = pilot_maker()
        self._pilots: dict[str, SimulatedPilot] = {}
        for number in range(platform.pilots):
            uid = f'pilot.{number:04d}'
            plan = PilotPlan(uid, platform.nodes, platform.definition, model, seed, directory, platform.runtime)
            self._pilots[uid] = make(plan, self._clock, self)
        self._traces = SimulatedTraces(directory, self._clock)

    def run(self) -> Result:
        """Run the simulation."""
        self._traces.opened()
        for uid, pilot in self._pilots.items():
            self._traces.launched(uid)
            self._clock.call_later(self._model.queue.draw(self._random, self._nodes), pilot.start)
        self._submit()
        self._clock.run()
        if self._ends.total() < len(self._tasks):
            raise PilotError(f'{len(self._tasks) - self._ends.total()} of the tasks wait forever, for a pilot or for '
                             'tasks that the simulation does not have')
        return Result(self._nodes, [pilot.usage for pilot in self._pilots.values()], self._ends, self._directory)

    def _submit(self) -> None:
        uids = list(self._tasks)
        self._traces.submitted(uids)
        self._scheduler.add_pilots(self._pilots)
        bindings = self._scheduler.submit([Request(uid, self._tasks[uid].description.get('pilot', '')) for uid in uids])
        for uid, pilot in bindings:
            self._bound.setdefault(pilot, []).append(self._tasks[uid])
        self._traces.bound([uid for uid, _ in bindings])
        if not uids:
            self._clock.call_later(0.0, self._finish)

    # events of the pilots (PilotEvents)

    def active(self, uid: str) -> None:
        self._traces.active(uid)
        tasks = self._bound.pop(uid, [])
        if tasks:
            self._pilots[uid].submit(tasks)

    def done(self, tasks: Sequence[tuple[str, str]]) -> None:
        self._traces.done(tasks)
        self._count(tasks)

    def unplaced(self, tasks: Sequence[tuple[str, str]]) -> None:
        self._traces.final(tasks)
        self._count(tasks)

    def _count(self, tasks: Sequence[tuple[str, str]]) -> None:
        """Count final tasks, and finish after the last one."""
        self._ends.update(state for _, state in tasks)
        if tasks and self._ends.total() == len(self._tasks):
            self._clock.call_later(0.0, self._finish)

    def _finish(self) -> None:
        """Close the session, as all tasks have ended."""
        self._traces.closing()
        for pilot in self._pilots.values():
            pilot.stop()

    def ended(self, uid: str, state: str) -> None:
        """Process the end of a pilot; tasks of a pilot that was never active fail."""
        self._traces.pilot_ended(uid, state)
        self.unplaced([(task.uid, states.FAILED) for task in self._bound.pop(uid, [])])
        self._ended += 1
        if self._ended == len(self._pilots):
            self._clock.call_later(0.0, self._traces.closed)


class SimulatedTraces:
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
