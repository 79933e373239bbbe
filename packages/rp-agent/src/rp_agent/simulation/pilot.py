"""A pilot on a virtual clock: scheduler and division into DVMs are the agent's own, everything else is a model."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from rp_agent.executor.dvms import parts
from rp_agent.instances.division import divide
from rp_agent.resource_manager.base import Allocation
from rp_agent.resource_manager.granted import Node
from rp_agent.resource_manager.shape import Shape
from rp_agent.simulation.launching import Launcher, Storage
from rp_agent.simulation.passes import PassScheduler
from rp_agent.simulation.scheduling import PacedScheduler
from rp_agent.simulation.traces import Traces
from rp_agent.task import AgentTask
from rp_api import states
from rp_api.constants import AGENT_SCHEDULING_COMPONENT
from rp_api.simulation.clock import VirtualClock
from rp_api.simulation.contract import PilotEvents, PilotPlan, SimulatedTask, Usage
from rp_api.simulation.model import Model


class Pilot:
    """One simulated pilot (see `rp_api.simulation.contract.SimulatedPilot`)."""

    def __init__(self, plan: PilotPlan, clock: VirtualClock, events: PilotEvents) -> None:
        self._plan = plan
        self._clock = clock
        self._events = events
        self._random = Random(f'{plan.seed} {plan.uid}')
        self._allocation = allocation(plan)
        self._tasks: dict[str, SimulatedTask] = {}
        self._begun: dict[str, float] = {}
        self._traces = Traces(plan.uid, plan.directory, clock)
        self._scheduler: PacedScheduler | PassScheduler | None = None
        self._launchers: list[Launcher] = []
        self._started = self._stopped = False
        self.usage = Usage(self._allocation.cores, self._allocation.gpus)

    def start(self) -> None:
        """The batch system gives the pilot its nodes."""
        if not self._stopped:
            self._started = True
            self.usage.started = self._clock.now
            self._traces.started()
            delay = self._plan.model.bootstrap.draw(self._random, self._plan.nodes)
            self._clock.call_later(delay, self._active)

    def submit(self, tasks: Sequence[SimulatedTask]) -> None:
        """Take tasks, once the pilot is active."""
        if self.usage.first < 0:
            self.usage.first = self._clock.now
        self._tasks.update((task.uid, task) for task in tasks)
        arrived = [AgentTask(task.uid, task.description, self._plan.uid, '') for task in tasks]
        self._traces.arrived([task.uid for task in tasks])
        assert self._scheduler is not None
        self._scheduler.put(arrived)

    def stop(self) -> None:
        """The pilot is told to end."""
        self._stopped = True
        if not self._started:
            self.usage.started = self.usage.stopped = self._clock.now
            self._events.ended(self._plan.uid)
            return
        if self._scheduler is not None:
            self._scheduler.close()
            self._traces.stop()
        delay = self._plan.model.teardown.draw(self._random, self._plan.nodes)
        self._clock.call_later(delay, self._ended)

    # the pilot's own life

    def _active(self) -> None:
        if self._stopped:
            return
        platform = launching_platform(self._plan.platform, self._plan.model)
        self._traces.active(self._allocation)
        uid = f'{AGENT_SCHEDULING_COMPONENT}.0000'
        kind = PassScheduler if self._plan.model.lookahead else PacedScheduler
        self._scheduler = kind(uid, self._traces.tracer(uid), self._allocation, {'platform': platform}, self._refused,
                               self._clock, self._plan.model)
        self._scheduler.advanced = _ignore
        self._scheduler.output = self._placed
        machines = divided(platform, self._plan.model, self._plan.nodes)
        self._firsts = [machine.start for machine in machines]
        storage = Storage(self._clock, self._plan.model.storage, self._plan.nodes, self._random)
        self._launchers = [Launcher(self._clock, self._plan.model, self._plan.nodes, self._random, storage,
                                    self._duration, self) for _ in machines]
        self._events.active(self._plan.uid)

    def _ended(self) -> None:
        self.usage.stopped = self._clock.now
        self._traces.close()
        self._events.ended(self._plan.uid)

    # its tasks

    def _placed(self, tasks: list[AgentTask]) -> None:
        self._traces.starting([task.uid for task in tasks])
        for task in tasks:
            self._launchers[self._machine_of(task)].put(task)

    def _machine_of(self, task: AgentTask) -> int:
        """The launcher that has the nodes of a task; the first one for what the policy places nowhere."""
        if len(self._firsts) == 1 or task.placement is None:
            return 0
        return bisect_right(self._firsts, min(task.placement.nodes())) - 1

    def _duration(self, uid: str) -> float:
        return self._tasks[uid].duration

    def took(self, task: AgentTask) -> None:
        """The launcher has taken a task."""
        self._traces.launched(task.uid)

    def runs(self, task: AgentTask) -> None:
        """The program of a task runs."""
        self._traces.runs(task.uid)
        self._begun[task.uid] = self._clock.now

    def ran(self, task: AgentTask) -> None:
        """The program of a task has ended."""
        self._traces.ran(task.uid)
        begun, now, usage = self._begun.pop(task.uid), self._clock.now, self.usage
        usage.last = now
        usage.runs[task.uid] = begun, now
        description = task.description
        ranks = description['ranks']
        usage.core_seconds += (now - begun) * ranks * description['cores_per_rank']
        usage.gpu_seconds += (now - begun) * ranks * description['gpus_per_rank']

    def done(self, task: AgentTask) -> None:
        """The agent knows that a task has ended."""
        self._traces.collected(task.uid)
        assert self._scheduler is not None
        self._scheduler.release([task])
        self._left([task])

    def _refused(self, tasks: list[AgentTask]) -> None:
        """Tasks that can never run."""
        self._left(tasks)

    def _left(self, tasks: list[AgentTask]) -> None:
        self._traces.left([task.uid for task in tasks])
        for task in tasks:
            del self._tasks[task.uid]
        self._events.done([(task.uid, task.target_state or states.DONE) for task in tasks])


def allocation(plan: PilotPlan) -> Allocation:
    """What tasks may use of the nodes of a pilot, by the platform definition alone."""
    platform = plan.platform
    nodes = [Node(f'node-{number:06d}', platform['cores_per_node'], platform.get('gpus_per_node') or 0)
             for number in range(plan.nodes)]
    found = Shape(platform, {}, counts_threads=False).allocation(nodes, None)
    # of a definition that does not say it, the memory is that of the machine on which this runs
    return replace(found, mem_per_node=platform.get('mem_per_node') or 0)


def launching_platform(platform: Mapping[str, Any], model: Model) -> Mapping[str, Any]:
    """The definition with the launch method, and the number of its instances, that the model is for."""
    method = model.launch_method
    if not method:
        return platform
    options = {'dvm_count': model.launchers} if model.launchers else {}
    return {**platform, 'launch_methods': {'order': [method], method: options}}


def divided(platform: Mapping[str, Any], model: Model, nodes: int) -> tuple[range, ...]:
    """The nodes of each launcher: those of DVMs, as many equal parts as the model says, or all."""
    found = parts(platform, nodes)
    if not found and model.launchers:
        found = divide('of the model', nodes, {'instance_count': model.launchers})
    return found or (range(nodes),)


def _ignore(*_: object) -> None:
    """States are traced where they change; nobody else wants to know."""
