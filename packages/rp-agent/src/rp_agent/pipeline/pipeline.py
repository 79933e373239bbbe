"""The pipeline of an agent: input stagers > scheduler > executors > output stagers.

There is one scheduler, in this process. The other components may have several instances, here or in other processes
(see `instances`). Instances in this process are connected by direct calls; to and from other processes, tasks travel as
plain data (see `remote`). After their execution tasks return to this process, where the scheduler frees their
resources. Optional stages, such as the gate for tasks that need an environment or a service, take tasks out at points
of this way (see `stages`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from rp_agent.components.build import ComponentPorts, make_tracer
from rp_agent.components.isolation import Isolation, unless
from rp_agent.components.killed import HeldBack
from rp_agent.components.names import EXECUTING, SCHEDULING, STAGING_INPUT, STAGING_OUTPUT
from rp_agent.components.pool import all_of
from rp_agent.components.stage import Flow, Owner, Stage, Tasks
from rp_agent.lifetime import in_batch
from rp_agent.pipeline.instances import Instances
from rp_agent.pipeline.job_end import exited, is_doubtful
from rp_agent.pipeline.losses import Losses
from rp_agent.pipeline.retry import restarts
from rp_agent.pipeline.stages import CONCERNED, Stages
from rp_agent.pipeline.task_commands import TaskCommands
from rp_agent.pipeline.task_copies import TaskCopies
from rp_agent.reporting.reporter import delay
from rp_agent.resource_manager.base import Allocation
from rp_agent.scheduler.component import Scheduler
from rp_agent.task import AgentTask
from rp_api import states
from rp_api.component import Component
from rp_api.failures.kinds import NODE
from rp_api.loop.event_loop import Loop
from rp_api.loop.offload import Offload

MOST_AWAITED = 20
"""Tasks that count at most for the delay of an end for which others wait: it is 2 ms."""

STOP_TIMEOUT = 12.0
"""Seconds that executors in sub-agents have to end their tasks; longer than the time-outs of the executors."""

_SCHEDULER = f'{SCHEDULING}.0000'

_TO_SCHEDULER = 'scheduling'
"""The step at which tasks enter gate and scheduler."""

_Step = Callable[[Any, Tasks], None]


def _step(doing: str) -> Callable[[_Step], _Step]:
    """Return a decorator for a step of the pipeline: `Isolation.run`, without another call for each bulk."""
    def decorate(put: _Step) -> _Step:
        def enter(self: Pipeline, tasks: Tasks) -> None:
            for task in tasks:
                task.step = doing
            try:
                put(self, tasks)
            except Exception as error:
                self.isolation.sort_out(doing, partial(put, self), tasks, error)
        return enter
    return decorate


class Pipeline(Flow):
    """The connected components of an agent, and the way of tasks through them."""

    def __init__(self, config: Mapping[str, Any], loop: Loop, allocation: Allocation, offload: Offload,
                 owner: Owner) -> None:
        self._loop = loop
        self._owner = owner
        self._in_hand = 0
        self._ended: Tasks = []   # their output is staged soon
        self.isolation = Isolation(self._take_back, self._give_up)
        self._in_job = in_batch(config['platform'])
        self._held_back = HeldBack(loop, in_job=self._in_job, restarts=restarts,
                                   is_doubtful=lambda task: is_doubtful(task, owner.left_s))
        self._losses = Losses(allocation.names, loop, self.isolation, self, owner)
        self._instances = Instances(config, loop, offload, allocation, {
            STAGING_INPUT: ComponentPorts(self._staged, self.leave, self.advanced),
            EXECUTING: ComponentPorts(self.executed, self.leave, self.advanced),
            STAGING_OUTPUT: ComponentPorts(self.leave, self.leave, self.advanced)}, self._losses, self, owner)
        self.sub_agents = self._instances.sub_agents
        """The sub-agents; None if all components are in this process."""
        tracer = make_tracer(config, _SCHEDULER)
        self._scheduler = Scheduler(_SCHEDULER, tracer, allocation, config, self._unplaced, loop.call_later)
        self.shortages = self._scheduler.shortages
        self._commands = TaskCommands(config['platform'])
        self.stages = Stages(config, loop, offload, allocation, tracer, self, owner)
        self._copies = TaskCopies(config['agent'], tracer, self._scheduler.release)
        if self._copies.active:
            self.stages.add(self._copies)
        entrance = self._copies.entrance   # which adds clones
        self._to_input = entrance(STAGING_INPUT, self._instances.entrance(STAGING_INPUT))
        self._to_scheduler = entrance(SCHEDULING, self._admit)
        self._to_executors = self._instances.entrance(EXECUTING)
        self._to_stagers = self._instances.entrance(STAGING_OUTPUT)
        self._to_output = entrance(STAGING_OUTPUT, self._gather)
        self._scheduler.connect(entrance(EXECUTING, self._execute), self.advanced)
        if self._instances.only_executor:   # with several, the executor of a task is known only after placement
            self._instances.only_executor.expect(self._scheduler.upcoming)

    @property
    def held_back(self) -> int:
        """Number of tasks that wait for other tasks to arrive or end, and not for resources."""
        return self._scheduler.held_back + sum([stage.held_back for stage in self.stages.present])

    @property
    def expects(self) -> bool:
        """True if an environment or a service is on its way, for which tasks may wait."""
        return any(stage.expects for stage in self.stages.present)

    def cancel(self, tasks: Sequence[AgentTask]) -> None:
        for task in tasks:
            task.cancelled = True
        uids = [task.uid for task in tasks]
        for stager in self._instances.inputs.all_members():
            stager.cancel(uids)
        self._scheduler.cancel(uids)
        for stage in self.stages.present:
            stage.cancel(uids)
        self.end_runs(tasks)

    def end_runs(self, tasks: Sequence[AgentTask]) -> None:
        for executor in self._instances.executors.that_have(tasks):
            executor.cancel([task.uid for task in tasks])

    def forward_signal(self, number: int) -> None:
        """Pass a signal on to the running tasks that want it."""
        for executor in self._instances.executors.all_members():
            executor.forward_signal(number)

    def refuse(self, tasks: Tasks, reason: str) -> None:
        """End tasks that have not entered the pipeline as CANCELED."""
        for task in tasks:
            task.end(states.CANCELED, reason)
        if tasks:
            self._require(tasks)   # a RAPTOR master may be among them, for which others wait
            self._in_hand += len(tasks)
            self.leave(tasks)

    def stop(self, reason: str, stopped: Callable[[], None], *, job_ends: bool = False) -> None:
        """End all tasks; `stopped()` is called when none runs any more.

        `job_ends` means that no user ends them, so that the outcomes of runs that end now say little (see `job_end`).
        """
        self._losses.stopping = True
        self._losses.job_ends = job_ends
        for stager in self._instances.inputs.all_members():
            stager.cancel_all(reason)
        for stage in self.stages.present:
            stage.stop(reason)
        self._scheduler.cancel_all(reason)
        self._held_back.release()
        executors = self._instances.executors.all_members()
        one_stopped = all_of(len(executors), stopped)
        for executor in executors:
            executor.stop(one_stopped, reason)
        if not executors:
            self._loop.call_soon(stopped)
        if self.sub_agents:
            self._loop.call_later(STOP_TIMEOUT, self.sub_agents.kill)

    def end(self, ended: Callable[[], None]) -> None:
        """End the sub-agents; `ended()` is called when they have ended."""
        for stage in self.stages.present:
            stage.end()
        if self.sub_agents:
            self.sub_agents.end(ended)
        else:
            ended()

    def flush_traces(self) -> None:
        """Write the traces of all components in this process to their files."""
        for part in self._parts():
            if isinstance(part, Component) or not isinstance(part, Stage):
                part.tracer.flush()

    def close(self) -> None:
        """Close all components."""
        for part in self._parts():
            part.close()
        if self.sub_agents:
            self.sub_agents.close()

    def _parts(self) -> list[Component | Stage]:
        """Return all components in this process, and the optional stages."""
        return [self._scheduler, *self._instances.local, *self.stages.present]

    # errors that one task causes

    def _holds(self, task: AgentTask) -> bool:
        """Return whether a component has a task, which leaves it by itself."""
        return (task.uid in self._scheduler or any(task.uid in stage for stage in self.stages.present)
                or self._instances.have(task.uid))

    def _take_back(self, task: AgentTask) -> bool:
        """Take a task out of gate and scheduler; return False if another component has it."""
        if task.step == _TO_SCHEDULER:
            for stage in self.stages.present:
                stage.take_back(task)
            self._scheduler.take_back(task)
            if task.placement is not None:
                self._free([task])
        return not self._holds(task)

    def _give_up(self, task: AgentTask) -> None:
        """End a task that has failed because of an error of the agent."""
        if self._holds(task):
            self.cancel([task])
            return
        self._instances.executors.left([task])
        if task.placement is not None and not task.reached(states.AGENT_STAGING_OUTPUT_PENDING):
            self._scheduler.release([task])
        self.leave([task])

    def _not_shown(self, task: AgentTask, error: Exception) -> None:
        task.broke(error, 'following its state')
        if self._holds(task):   # else it is about to leave
            self.cancel([task])

    def advanced(self, tasks: Sequence[AgentTask], state: str) -> None:
        shown = tasks
        try:
            for stage in self.stages.present:
                shown = stage.visible(shown, state)
            self._owner.advanced(shown, state)
        except Exception as error:
            if len(tasks) == 1:   # later: the component is about to pass it on
                self._loop.call_soon(self._not_shown, tasks[0], error)
            for task in tasks if len(tasks) > 1 else ():
                self.advanced([task], state)

    # the way of tasks

    def put(self, tasks: Tasks) -> None:
        self._in_hand += len(tasks)
        self._enter(tasks)

    def _require(self, tasks: Tasks) -> None:
        """Make the stages that these tasks are the first to need; most need none."""
        if any(not CONCERNED.isdisjoint(task.description) for task in tasks):
            self.stages.require(tasks)

    @_step('taking it')
    def _enter(self, tasks: Tasks) -> None:
        self._require(tasks)
        for stage in self.stages.present:
            tasks = stage.entered(tasks)
        self._to_input(tasks)

    @_step('passing it on')
    def _staged(self, tasks: Tasks) -> None:
        for stage in self.stages.present:
            tasks = stage.staged(tasks)
        if tasks:
            self._to_scheduler(tasks)

    @_step(_TO_SCHEDULER)
    def _admit(self, tasks: Tasks) -> None:
        for stage in self.stages.present:
            tasks = stage.admitted(tasks)
        if tasks:
            self.schedule(tasks)

    @_step('starting')
    def _execute(self, tasks: Tasks) -> None:
        """Pass placed tasks to the executors."""
        for stage in self.stages.present:
            tasks = stage.placed(tasks)
        if tasks:
            self._to_executors(tasks)

    def _unplaced(self, tasks: Tasks) -> None:
        """Take tasks that the scheduler has given up; the executor may have prepared their launch."""
        if self._instances.only_executor:
            self._instances.only_executor.cancel([task.uid for task in tasks])
        self.leave(tasks)

    def executed(self, tasks: Tasks) -> None:
        if self._instances.executors.spread:
            self._instances.executors.left(tasks)
        for stage in self.stages.present:
            tasks = stage.returned(tasks)
        if self._losses.spread:
            tasks = self._losses.returned(tasks)
        if self._in_job or any(task.target_state == states.FAILED for task in tasks):
            tasks = self._held_back.hold(tasks, self._end_execution)
        self._end_execution(tasks)

    def _end_execution(self, tasks: Tasks) -> None:
        for stage in self.stages.present:
            tasks = stage.executed(tasks)
        if self._losses.judges:
            tasks = unless(tasks, self._losses.judge, 'judging its node')
        self._scheduler.release(self._copies.with_slots(tasks) if self._copies.active else tasks)
        for stage in self.stages.present:
            tasks = stage.freed(tasks)
        if tasks:
            self.conclude(tasks)

    def conclude(self, tasks: Tasks) -> None:
        if self._losses.job_ends:
            gone = [task for task in tasks if exited(task)]
            tasks = [task for task in tasks if task not in gone]
            if gone:
                self.leave(gone)
        for stage in self.stages.present:
            tasks = stage.concluded(tasks)
        if tasks:
            self._to_output(tasks)

    def _gather(self, tasks: Tasks) -> None:
        """Stage the output of tasks after a delay that grows with the number of tasks.

        They end one by one, and handling each end on its own would delay the start of other tasks.
        """
        if not self._ended:
            in_hand = min(self._in_hand, MOST_AWAITED) if self._owner.awaited else self._in_hand
            self._loop.call_later(delay(in_hand), self._stage_ended)
        self._ended += tasks

    def _stage_ended(self) -> None:
        tasks, self._ended = self._ended, []
        self._stage(tasks)

    @_step('staging its output')
    def _stage(self, tasks: Tasks) -> None:
        self._to_stagers(tasks)

    def leave(self, tasks: Tasks) -> None:
        if self._copies.active:
            tasks = self._copies.drop(tasks)
        for stage in self.stages.present:
            tasks = stage.freed(tasks)
        self._in_hand -= len(tasks)
        for stage in self.stages.present:
            tasks = stage.left(tasks)
        if tasks:
            self._owner.left(tasks)

    # the ways on for tasks that a stage has kept

    def admit(self, tasks: Tasks) -> None:
        self._require(tasks)
        self._admit(tasks)

    def schedule(self, tasks: Tasks) -> None:
        for task in tasks if self._commands.added else [task for task in tasks if 'nice' in task.description]:
            self._commands.add(task)
        self._scheduler.put(tasks)

    def release(self, tasks: Tasks) -> None:
        self._scheduler.release(tasks)

    def stage_output(self, tasks: Tasks) -> None:
        self._to_output(tasks)

    def nodes_down(self, positions: Iterable[int], reason: str) -> None:
        self._scheduler.nodes_down(positions, reason)

    def attempt(self, task: AgentTask) -> None:
        tasks = [task]
        for stage in self.stages.present:   # a call goes to its RAPTOR master
            tasks = stage.staged(tasks)
        if tasks:
            self._admit(tasks)

    def start_again(self, task: AgentTask) -> None:
        task.clear()
        if task.placement is not None and self._losses.down.isdisjoint(task.placement.nodes()):
            self._scheduler.launch_again(task)
            return
        self._free([task])
        self._admit([task])

    def place_again(self, tasks: Tasks) -> None:
        tasks = self._copies.drop(tasks)
        if tasks:
            self._free(tasks)
            self._admit(tasks)

    def _free(self, tasks: Tasks) -> None:
        """Free the resources of tasks, which are placed again."""
        self._scheduler.release(tasks)
        for task in tasks:
            task.unplace()

    def restart(self, tasks: Tasks, reason: str) -> None:
        tasks = self._copies.drop(tasks)
        if tasks:
            self._scheduler.release(tasks)
        for task in tasks:
            for stage in self.stages.present:
                stage.lost(task, {'kind': NODE, 'sentence': reason})
