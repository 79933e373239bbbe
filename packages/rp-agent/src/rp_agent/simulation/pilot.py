"""The simulated pilot: scheduler and division into DVMs are the agent's, everything else is a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from rp_agent.instance_nodes import divide, parts
from rp_agent.lifetime import in_batch, limit
from rp_agent.resource_manager.base import Allocation
from rp_agent.resource_manager.granted import Node
from rp_agent.resource_manager.shape import Shape
from rp_agent.simulation.launchers import Launcher, SimulatedLaunchers, Storage
from rp_agent.simulation.schedulers import PacedScheduler, PassScheduler
from rp_agent.simulation.traces import COLLECTED, RAN, RUNS, Traces
from rp_agent.task import AgentTask
from rp_api import states
from rp_api.constants import AGENT_SCHEDULING_COMPONENT
from rp_api.simulation.contract import PilotEvents, PilotPlan, SimulatedTask, Usage, VirtualClock
from rp_api.simulation.model import Model

EFFECT_DELAY_S = 1e-6
"""Seconds of virtual time between an event and an effect that must have a later timestamp."""


class Pilot:
    """One simulated pilot (see `rp_api.simulation.contract.SimulatedPilot`)."""

    def __init__(self, plan: PilotPlan, clock: VirtualClock, events: PilotEvents) -> None:
        self._plan = plan
        self._clock = clock
        self._events = events
        self._random = Random(f'{plan.seed} {plan.uid}')
        self._allocation = allocation(plan)
        self._tasks: dict[str, SimulatedTask] = {}
        self._taken: set[str] = set()
        self._begun: dict[str, float] = {}
        self._traces = Traces(plan.uid, plan.directory, clock)
        self._scheduler: PacedScheduler | PassScheduler | None = None
        self._launchers: SimulatedLaunchers | None = None
        self._lost_nodes = 0
        self._unreported: list[tuple[str, str]] = []
        self._started = False
        self._state = ''
        """Final state, set when the pilot begins to end."""
        self.usage = Usage(self._allocation.cores, self._allocation.gpus)

    def start(self) -> None:
        """Start the job of the pilot on its nodes."""
        if not self._state:
            self._started = True
            self.usage.started = self._clock.now
            self._traces.started()
            delay = self._plan.model.bootstrap.draw(self._random, self._plan.nodes)
            self._clock.call_later(delay, self._active)
            if self._plan.runtime:
                self._clock.call_later(limit(self._plan.runtime, self._plan.platform), self._time_is_over)

    def submit(self, tasks: Sequence[SimulatedTask]) -> None:
        """Accept tasks, once the pilot is active."""
        if self.usage.first < 0:
            self.usage.first = self._clock.now
        self._tasks.update((task.uid, task) for task in tasks)
        arrived = [AgentTask(task.uid, task.description, self._plan.uid, '') for task in tasks]
        self._traces.arrived([task.uid for task in tasks])
        assert self._scheduler is not None
        self._scheduler.put(arrived)

    def stop(self) -> None:
        """End the pilot, unless it has ended."""
        if self._state:
            return
        if not self._started:
            self._state = states.CANCELED
            self.usage.started = self.usage.stopped = self._clock.now
            self._events.ended(self._plan.uid, self._state)
            return
        if self._scheduler is not None:
            self._traces.told_to_end()
        self._finish(states.CANCELED, 'was told to end')

    # life cycle of the pilot

    def _active(self) -> None:
        if self._state:
            return
        platform = launching_platform(self._plan.platform, self._plan.model)
        self._traces.active(self._allocation)
        uid = f'{AGENT_SCHEDULING_COMPONENT}.0000'
        kind = PassScheduler if self._plan.model.lookahead else PacedScheduler
        self._scheduler = kind(uid, self._traces.tracer(uid), self._allocation, {'platform': platform}, self._unplaced,
                               self._placed, self._clock, self._plan.model)
        self._launchers = self._make_launchers(platform)
        self._launchers.start()
        self._events.active(self._plan.uid)

    def _make_launchers(self, platform: Mapping[str, Any]) -> SimulatedLaunchers:
        plan, clock, model = self._plan, self._clock, self._plan.model
        storage = Storage(clock, model.storage, plan.nodes, self._random)

        def make() -> Launcher:
            return Launcher(clock, model, plan.nodes, self._random, storage, self._duration, self)

        self._has_dvms = bool(parts(platform, plan.nodes))
        return SimulatedLaunchers(clock, divided(platform, model, plan.nodes), make, model.lost_launchers,
                                  model.launcher_life, Random(f'{plan.seed} {plan.uid} launchers'), self)

    def _time_is_over(self) -> None:
        """End the pilot at its runtime: as DONE, or as FAILED if its agent has not started."""
        state = states.DONE if self._scheduler is not None else states.FAILED
        self._finish(state, f'reached its runtime of {self._plan.runtime} minutes')

    def _finish(self, state: str, reason: str) -> None:
        """End all tasks, and then the pilot. Further calls have no effect."""
        if self._state:
            return
        self._state = state
        if self._scheduler is not None and self._launchers is not None:
            self._scheduler.cancel_all(f'{self._plan.uid} {reason}')
            self._report_unplaced()
            left = self._launchers.stop()
            for task in left:
                self._cancel(task)
            self._scheduler.release(left)
            self._report_done(left)
            self._scheduler.close()
            self._traces.stop()
        delay = self._plan.model.teardown.draw(self._random, self._plan.nodes)
        if self._plan.runtime and in_batch(self._plan.platform):
            delay = min(delay, max(0.0, self.usage.started + 60 * self._plan.runtime - self._clock.now))
        self._clock.call_later(delay, self._ended)

    def _cancel(self, task: AgentTask) -> None:
        """Cancel an unfinished task; kill it if it was launched."""
        task.cancel(None)
        was_taken = task.uid in self._taken
        if was_taken:
            self._traces.killed(task.uid)
        if task.uid in self._begun:
            self.ran(task)
        if was_taken:
            self._traces.record(task.uid, (*COLLECTED, 'task_run_cancel_stop'))
            self._taken.discard(task.uid)
        self._traces.executed(task.uid)

    def _ended(self) -> None:
        self.usage.stopped = self._clock.now
        self._traces.close()
        self._events.ended(self._plan.uid, self._state)

    # tasks, and the events of their launchers and of the fleet (LaunchEvents)

    def _placed(self, tasks: list[AgentTask]) -> None:
        assert self._launchers is not None
        self._traces.starting([task.uid for task in tasks])
        for task in tasks:
            self._launchers.put(task)

    def _duration(self, uid: str) -> float:
        return self._tasks[uid].duration

    def took(self, task: AgentTask) -> None:
        self._taken.add(task.uid)
        self._traces.launched(task.uid)

    def runs(self, task: AgentTask) -> None:
        self._traces.record(task.uid, RUNS)
        self._begun[task.uid] = self._clock.now

    def ran(self, task: AgentTask) -> None:
        """Record that the program of a task has ended, and add up its usage."""
        self._traces.record(task.uid, RAN)
        begun, now, usage = self._begun.pop(task.uid), self._clock.now, self.usage
        usage.last = now
        usage.runs[task.uid] = begun, now
        description = task.description
        ranks = description['ranks']
        usage.core_seconds += (now - begun) * ranks * description['cores_per_rank']
        usage.gpu_seconds += (now - begun) * ranks * description['gpus_per_rank']

    def done(self, task: AgentTask) -> None:
        assert self._launchers is not None
        self._traces.record(task.uid, COLLECTED)
        self._taken.discard(task.uid)
        self._launchers.done(task)
        self._release(task)

    def _release(self, task: AgentTask) -> None:
        """Release a finished task, whatever its result, and report it."""
        assert self._scheduler is not None
        self._traces.executed(task.uid)
        self._scheduler.release([task])
        self._report_done([task])

    def _report_done(self, tasks: list[AgentTask]) -> None:
        self._traces.left([task.uid for task in tasks])
        self._events.done(self._final_states(tasks))

    def _unplaced(self, tasks: list[AgentTask]) -> None:
        """Collect tasks that can never run or were cancelled while they waited, to report them."""
        self._unreported += self._final_states(tasks)
        self._clock.call_later(EFFECT_DELAY_S, self._report_unplaced)

    def _report_unplaced(self) -> None:
        unreported, self._unreported = self._unreported, []
        if unreported:
            self._events.unplaced(unreported)

    def _final_states(self, tasks: list[AgentTask]) -> list[tuple[str, str]]:
        """Forget the tasks and return their final states. Tasks that a failed pilot cancels are FAILED."""
        for task in tasks:
            del self._tasks[task.uid]
            if self._state == states.FAILED and task.target_state == states.CANCELED:
                task.target_state = states.FAILED
        return [(task.uid, task.target_state or states.DONE) for task in tasks]

    def started(self, number: int, *, ready: bool) -> None:
        if self._has_dvms:
            self._traces.dvm(number, 'dvm_start', *(('dvm_uri', 'dvm_ready') if ready else ()))

    def stopped(self, number: int) -> None:
        if self._has_dvms:
            self._traces.dvm(number, 'dvm_stop')

    def given_up(self, task: AgentTask) -> None:
        """Discard the progress of a task whose launcher has ended."""
        if task.uid in self._taken:
            self._taken.discard(task.uid)
            self._traces.killed(task.uid)
        self._begun.pop(task.uid, None)

    def place_again(self, task: AgentTask) -> None:
        """Schedule a task whose nodes are lost once more."""
        assert self._scheduler is not None
        self._scheduler.release([task])
        task.unplace()
        self._scheduler.put([task])

    def refused(self, task: AgentTask, reason: str) -> None:
        """Fail a task that no launcher accepts."""
        task.fail(reason, reason)
        self._traces.record(task.uid, ('task_run_stop',))
        self._release(task)

    def nodes_lost(self, nodes: range, reason: str) -> None:
        """Remove lost nodes from scheduling; fail the pilot with the last one."""
        assert self._scheduler is not None
        self._lost_nodes += len(nodes)
        self._scheduler.nodes_down(nodes, reason)
        if self._lost_nodes == self._plan.nodes:
            self._clock.call_later(EFFECT_DELAY_S, self._finish, states.FAILED, f'has lost its last node: {reason}')


def allocation(plan: PilotPlan) -> Allocation:
    """Return the usable resources of the pilot's nodes, from the platform definition alone."""
    platform = plan.platform
    nodes = [Node(f'node-{number:06d}', platform['cores_per_node'], platform.get('gpus_per_node') or 0)
             for number in range(plan.nodes)]
    found = Shape(platform, {}, counts_threads=False).allocation(nodes, None)
    # without a value in the definition, the memory would be that of this machine
    return replace(found, mem_per_node=platform.get('mem_per_node') or 0)


def launching_platform(platform: Mapping[str, Any], model: Model) -> Mapping[str, Any]:
    """Return the definition with the launch method and the number of instances of the model."""
    method = model.launch_method
    if not method:
        return platform
    options = {'dvm_count': model.launchers} if model.launchers else {}
    return {**platform, 'launch_methods': {'order': [method], method: options}}


def divided(platform: Mapping[str, Any], model: Model, nodes: int) -> tuple[range, ...]:
    """Return the nodes of each launcher: the parts of DVMs, else equal parts by the model, else one part."""
    found = parts(platform, nodes)
    if not found and model.launchers:
        found = divide('of the model', nodes, {'instance_count': model.launchers})
    return found or (range(nodes),)
