"""The pipeline of an agent: input stagers > scheduler > executors > output stagers.

Tasks that need an environment or a service pass a gate before the scheduler (`prerequisites.gate`). There is one
scheduler, in this process. The other components may have several instances, here or in other processes
(see `layout`). Instances in this process are connected by direct calls; to and from other processes, tasks travel as
plain data (see `remote`). After their execution tasks return to this process, where the scheduler frees their
resources.
"""

from __future__ import annotations

import math
import os
import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from rp_agent import sandbox
from rp_agent.components import layout
from rp_agent.components.build import Builder, ComponentPorts, make_tracer
from rp_agent.components.isolation import Isolation, step, unless
from rp_agent.components.killed import HeldBack, is_killed
from rp_agent.components.layout import ComponentInstance, Layout
from rp_agent.components.names import ANYWHERE, EXECUTING, INLINE, SCHEDULING, STAGING_INPUT, STAGING_OUTPUT
from rp_agent.components.pool import InstancePool, Member, NodePool, all_of
from rp_agent.executor import registry
from rp_agent.executor.launching.environment import NodePorts
from rp_agent.executor.launching.launchers import is_mpi
from rp_agent.executor.registry import AnyExecutor
from rp_agent.lifetime import in_batch
from rp_agent.nodes.remote import Remote
from rp_agent.nodes.sub_agents import SubAgents
from rp_agent.pipeline import retry, task_copies
from rp_agent.pipeline.batching import Gather
from rp_agent.pipeline.job_end import TaskRun, Verdict, exited, verdict
from rp_agent.pipeline.node_health import ROW, NodeHealth
from rp_agent.pipeline.task_commands import with_commands
from rp_agent.pipeline.task_copies import TaskCopies
from rp_agent.prerequisites.needs import has_needs
from rp_agent.raptor.task_kind import concerns_raptor, divided
from rp_agent.resource_manager.base import Allocation
from rp_agent.scheduler.component import Scheduler
from rp_agent.stager.input import StagerInput
from rp_agent.task import AgentTask, differing
from rp_api import states
from rp_api.errors import PlatformError
from rp_api.failures.kinds import EXIT, LOST, NODE, SIGNAL
from rp_api.failures.losses import DEATH, is_suspect, suspicion
from rp_api.loop.event_loop import Loop
from rp_api.loop.offload import Offload

if TYPE_CHECKING:
    from rp_agent.components.build import Worker
    from rp_agent.pipeline.attempts import Attempts
    from rp_agent.prerequisites.gate import Gate
    from rp_agent.raptor.component import Raptor
    from rp_agent.raptor.wiring import Wiring
    from rp_agent.raptor.worker_parts import WorkerParts
    from rp_agent.services.supervisor import Supervisor

GATE = 'agent_prerequisites.0000'

MOST_AWAITED = 20
"""Tasks that count at most for the delay of an end for which others wait: it is 2 ms."""

STOP_TIMEOUT = 12.0
"""Seconds that executors in sub-agents have to end their tasks; longer than the time-outs of the executors."""

_EXECUTING = states.TASK.value(states.AGENT_EXECUTING)

_TO_SCHEDULER = 'scheduling'
"""The step at which tasks enter gate and scheduler."""


class AgentPorts(NamedTuple):
    """Callbacks of the pipeline to the agent."""

    left: Callable[[Sequence[AgentTask]], None]
    """Takes tasks that leave the pipeline."""
    broken: Callable[[str], None]
    """Called with the reason when the last instance of a component is lost."""
    advanced: Callable[[Sequence[AgentTask], str], None] = lambda tasks, state: None
    """Called with tasks that have reached a state."""
    nodes_lost: Callable[[Sequence[int], str], None] = lambda positions, reason: None
    """Called with the positions of lost nodes and the reason."""
    moment: Callable[[str, int, str], object] = lambda message, when, name: None
    """Called with a clock reading of a sub-agent, its time on this host's clock, and the name of the sub-agent."""
    trace_part: Callable[[str, str], object] = lambda event, name: None
    """Called with an event of a sub-agent, a component in it, or the bridge to it, and with the name of that part."""
    master_up: Callable[[AgentTask, dict[str, str]], None] = lambda task, access: None
    """Called with the task of a RAPTOR master that is up, and the addresses to reach the master."""
    knows: Callable[[str], bool] = lambda uid: False
    """Returns whether the agent has a task of that uid."""
    report: Callable[[AgentTask, dict[str, Any]], None] = lambda task, info: None
    """Called with new information on a task in AGENT_EXECUTING."""
    awaited: Callable[[], bool] = lambda: False
    """Returns whether tasks wait outside of the pipeline for others to end."""
    waits: Callable[..., None] = lambda tasks, text, state='': None
    """Called with tasks that wait for a prerequisite, and its description."""
    signalled: Callable[[int], None] = lambda number: None
    """Called with a signal that a sub-agent got; SIGTERM if all sub-agents on nodes did."""
    left_s: Callable[[], float] = lambda: math.inf
    """Returns the seconds until the job has to end."""


class Pipeline:
    """The connected components of an agent, and the way of tasks through them."""

    def __init__(self, config: Mapping[str, Any], loop: Loop, allocation: Allocation, offload: Offload,
                 ports: AgentPorts) -> None:
        self._config = config
        self._loop = loop
        self._ports = ports
        self.isolation = Isolation(self._take_back, self._give_up)
        self._in_hand = 0
        self._names = allocation.names
        self._allocation = allocation
        self._lost_nodes: set[int] = set()   # a node may be lost that was taken out of use before
        self._late: list[list[AgentTask]] = []   # placed, while their services have ended
        self._down: set[int] = set()   # nodes on which no more task is placed
        self._health = NodeHealth(len(allocation.names)) if len(allocation.names) > 1 else None
        self._spread_failures: dict[str, str] = {}   # tasks on several nodes, one of which is lost, and the reason
        self._stopping = False
        self._told_to_end: set[str] = set()   # executors in sub-agents that got SIGTERM
        self._job_ends = False   # whether runs that end now are parts of the end of the job
        self._held_back = HeldBack(loop, in_job=in_batch(config['platform']), restarts=retry.restarts,
                                   is_doubtful=self._is_doubtful)
        self._wiring: Wiring | None = None   # made for the first task that concerns RAPTOR
        self._raptor: Raptor | None = None
        self._parts: WorkerParts | None = None   # made with `_raptor`
        self._gate: Gate | None = None   # made for the first task that has to wait for more than resources
        self._supervisor: Supervisor | None = None   # set when there are services
        self._offload = offload
        self._attempts: Attempts | None = None   # made for the first task that may run again
        plan = self._layout(allocation)
        sandbox.write_helpers(config['pilot_sandbox'])
        self._builder = Builder(config, loop, offload,
                                NodePorts(self._sweep, self._place_again, self._nodes_unusable))
        self._component_ports = {STAGING_INPUT: ComponentPorts(self._staged, self._leave, self._advanced),
                                 EXECUTING: ComponentPorts(self._executed, self._leave, self._advanced, self._sweep,
                                                           self._signalled),
                                 STAGING_OUTPUT: ComponentPorts(self._leave, self._leave, self._advanced)}
        self.sub_agents: SubAgents | None = None
        remotes = self._start(plan, allocation)
        uid = f'{SCHEDULING}.0000'
        self._scheduler = Scheduler(uid, make_tracer(config, uid), allocation, config, self._unplaced, loop.call_later)
        self._scheduler.advanced = self._advanced
        self._schedule = with_commands(config['platform'], self._scheduler.put)
        self._local: list[Scheduler | Worker | Raptor | Gate] = [self._scheduler]
        self._task_copies = TaskCopies(config['agent'], self._scheduler.tracer, self._scheduler.release)
        self._pools = {component: self._pool(plan.of(component), remotes)
                       for component in (STAGING_INPUT, EXECUTING, STAGING_OUTPUT)}
        self._inputs = cast('InstancePool[StagerInput | Remote]', self._pools[STAGING_INPUT])
        self._executors = cast('InstancePool[AnyExecutor | Remote]', self._pools[EXECUTING])
        self._wire()

    @property
    def held_back(self) -> int:
        """Number of tasks that wait for other tasks to arrive or end, and not for resources."""
        others = (self._raptor, self._gate, self._attempts)
        return self._scheduler.held_back + sum([other.held_back for other in others if other])

    @property
    def gate(self) -> Gate:
        """The gate before the scheduler, for those who provide what tasks need; the first use makes it."""
        if self._gate is None:
            from rp_agent.bootstrap.environment import additions
            from rp_agent.prerequisites.gate import Gate, GatePorts
            from rp_agent.prerequisites.needs import ENVIRONMENT, Need
            from rp_api.description.environment import OWN

            self._gate = Gate(GATE, make_tracer(self._config, GATE), GatePorts(self._leave, self._ports.waits))
            self._gate.output = self._schedule
            self._gate.advanced = self._advanced
            own = additions(self._config.get('environment'), os.environ)
            self._gate.provide(Need(ENVIRONMENT, OWN), lambda task: own)
            self._local.append(self._gate)
        return self._gate

    def brings(self) -> bool:
        """Return whether an environment or a service is on its way, for which tasks may wait."""
        return bool(self._gate and self._gate.expects) or bool(self._supervisor and self._supervisor.starts)

    def put(self, tasks: list[AgentTask]) -> None:
        """Take new tasks."""
        self._in_hand += len(tasks)
        self._enter(tasks)

    @step('taking it')
    def _enter(self, tasks: list[AgentTask]) -> None:
        if any(map(retry.concerns_attempts, differing(tasks))):
            tasks = self._with_attempts().checked(tasks)
        self._to_input(tasks)

    def cancel(self, tasks: Sequence[AgentTask]) -> None:
        """Cancel tasks in any component."""
        for task in tasks:
            task.cancelled = True
        uids = [task.uid for task in tasks]
        for stager in self._inputs.all_members():
            stager.cancel(uids)
        self._scheduler.cancel(uids)
        if self._gate:
            self._gate.cancel(uids)
        if self._raptor:
            self._raptor.cancel(uids)
        if self._supervisor:
            self._supervisor.cancel(uids)
        if self._attempts:
            self._attempts.cancel(uids)
        if self._parts:
            uids = self._parts.uids(uids)
        for executor in self._executors.that_have(tasks):
            executor.cancel(uids)

    def supervise(self, supervisor: Supervisor) -> None:
        """Pass service tasks to a supervisor, and start tasks only if their services are still ready."""
        self._supervisor = supervisor
        self._scheduler.output = self._task_copies.entrance(EXECUTING, self._start_served)

    def forward_signal(self, number: int) -> None:
        """Pass a signal on to the running tasks that want it."""
        for executor in self._executors.all_members():
            executor.forward_signal(number)

    def _signalled(self, uid: str, number: int) -> None:
        """Handle a signal to the sub-agent of an executor; one node alone may be taken down."""
        if number == signal.SIGTERM:
            self._told_to_end.add(uid)
            here = {remote.uid for remote in self._executors.all_members() if isinstance(remote, Remote)}
            if not here <= self._told_to_end:
                return
        self._ports.signalled(number)

    def end_run(self, task: AgentTask) -> None:
        """End the processes of a service, which the supervisor then gets back."""
        for executor in self._executors.that_have([task]):
            executor.cancel([task.uid])

    def run_again(self, task: AgentTask) -> None:
        """Run a service again that the supervisor has got back: in its place, or elsewhere if that was lost."""
        task.clear()
        if task.placement is not None and self._down.isdisjoint(task.placement.nodes()):
            self._scheduler.launch_again(task)
            return
        self._scheduler.release([task])
        retry.reset(task)
        self._admit([task])

    def stage_output(self, task: AgentTask) -> None:
        """Release a service that the supervisor has got back."""
        self._scheduler.release([task])
        self._to_output([task])

    def refuse(self, tasks: Sequence[AgentTask], reason: str) -> None:
        """End tasks that have not entered the pipeline as CANCELED."""
        for task in tasks:
            task.target_state = states.CANCELED
            task.exception = reason
        raptor = self._raptor_for(tasks)
        if raptor:
            for task in tasks:
                raptor.comes_back(task)
        if tasks:
            self._ports.left(tasks)

    def stop(self, reason: str, stopped: Callable[[], None], *, job_ends: bool = False) -> None:
        """End all tasks; `stopped()` is called when none runs any more.

        `job_ends` means that no user ends them, so that the outcomes of runs that end now say little (see `job_end`).
        """
        self._stopping = True
        self._job_ends = job_ends
        for stager in self._inputs.all_members():
            stager.cancel_all(reason)
        if self._raptor:
            self._raptor.stop(reason)
        if self._gate:
            self._gate.cancel_all(reason)
        if self._attempts:
            self._attempts.stop(reason)
        self._scheduler.cancel_all(reason)
        self._held_back.release()
        executors = self._executors.all_members()
        one_stopped = all_of(max(1, len(executors)), stopped)
        for executor in executors:
            executor.stop(one_stopped, reason)
        if not executors:
            self._loop.call_soon(one_stopped)
        if self.sub_agents:
            self._loop.call_later(STOP_TIMEOUT, self.sub_agents.kill)

    def end(self, ended: Callable[[], None]) -> None:
        """End the sub-agents; `ended()` is called when they have ended."""
        if self._wiring:
            self._wiring.close()
        if self.sub_agents:
            self.sub_agents.end(ended)
        else:
            ended()

    def flush_traces(self) -> None:
        """Write the traces of all components in this process to their files."""
        for component in self._local:
            component.tracer.flush()

    def close(self) -> None:
        """Close all components."""
        for component in self._local:
            component.close()
        if self._wiring:
            self._wiring.close()
        if self.sub_agents:
            self.sub_agents.close()

    # construction

    def _start(self, plan: Layout, allocation: Allocation) -> dict[str, Remote]:
        """Start all sub-agents and return the proxies of their components, by uid."""
        hosts, on_nodes = plan.hosts(), plan.on_nodes()
        if not hosts and not on_nodes:
            return {}
        started = self.sub_agents = SubAgents(self._config, self._loop, allocation, on_nodes, self._component_ports,
                                               self._dismiss, self._on_died, self._ports.moment,
                                               self._ports.trace_part)
        try:
            remotes = [remote for name, instances in hosts.items() for remote in started.start(name, instances)]
            remotes += started.start_on_nodes() if on_nodes else []
        except PlatformError:
            started.close()
            raise
        return {remote.uid: remote for remote in remotes}

    def _layout(self, allocation: Allocation) -> Layout:
        """Return the layout of the components; raise PlatformError if the platform does not allow it."""
        platform = self._config['platform']
        # if its launchers span nodes, one executor starts tasks on all of them
        elsewhere = () if registry.spans_nodes(platform) else allocation.elsewhere
        plan = layout.read(self._config['agent'], len(allocation.names), elsewhere)
        task_copies.plan(self._config['agent'])   # raises an error before any process is started
        hosts = [instance.host for instance in plan.of(EXECUTING) if instance.node == ANYWHERE]
        if hosts != [INLINE] and registry.has_instances(platform):
            raise PlatformError(f'the platform launches tasks with instances that span nodes, which one '
                                f'{EXECUTING} in Agent_0 has to keep: the agent configuration asks for '
                                f'{len(hosts)} (in {", ".join(host or "Agent_0" for host in hosts)})')
        return plan

    def _pool(self, instances: Sequence[ComponentInstance], remotes: Mapping[str, Remote]) -> InstancePool[Any]:
        """Return the pool of all instances of a component."""
        on_nodes = {each.node: remotes[each.uid] for each in instances if each.node != ANYWHERE}
        members = [remotes.get(each.uid) or self._make(each) for each in instances if each.node == ANYWHERE]
        if not on_nodes:
            return InstancePool(members)
        # Agent_0 launches all MPI tasks, into DVMs
        central = is_mpi if registry.launches_into_dvms(self._config['platform']) else None
        return NodePool(members, on_nodes, central)

    def _make(self, instance: ComponentInstance) -> Worker:
        """Construct an instance in this process."""
        made = self._builder.make(instance.component, instance.uid, self._component_ports[instance.component])
        self._local.append(made)
        return made

    def _wire(self) -> None:
        outputs = self._pools[STAGING_OUTPUT]
        entrance = self._task_copies.entrance
        stage_output = partial(self.isolation.run, 'staging its output', _entrance(outputs))
        to_output = Gather(self._loop, stage_output, self._load).put
        self._to_input = entrance(STAGING_INPUT, self._inputs.put)
        self._to_scheduler = entrance(SCHEDULING, self._admit)
        self._to_executors = _entrance(self._executors)
        self._scheduler.output = entrance(EXECUTING, self._execute)
        self._to_output = entrance(STAGING_OUTPUT, to_output)
        self._only_executor = cast('AnyExecutor | None', _only(self._executors))
        if self._only_executor:   # with several, the executor of a task is known only after placement
            self._only_executor.expect(self._scheduler.upcoming)

    def _load(self) -> int:
        """Return the number of tasks that may delay the ends of others."""
        return min(self._in_hand, MOST_AWAITED) if self._ports.awaited() else self._in_hand

    def _with_raptor(self) -> Raptor:
        """Return the component for RAPTOR, which the first call makes."""
        if self._raptor is None:
            from rp_agent.raptor.wiring import PipelinePorts, Wiring
            from rp_agent.raptor.worker_parts import WorkerParts

            ports = PipelinePorts(self.put, self._conclude, self._leave, self.cancel, self._admit,
                                  self._advanced, self._ports.knows, self._ports.master_up, self._ports.waits)
            self._wiring = Wiring(self._config, self._loop, self._allocation, ports)
            self._raptor = self._wiring.raptor
            self._local.append(self._raptor)
            if self._allocation.elsewhere:   # else one manager starts all ranks of a worker
                self._parts = WorkerParts(self._raptor.part_ended)
        return self._raptor

    def _raptor_for(self, tasks: Sequence[AgentTask]) -> Raptor | None:
        """Return the component for RAPTOR if there is one or these tasks need it."""
        if self._raptor is None and any(map(concerns_raptor, differing(tasks))):
            return self._with_raptor()
        return self._raptor

    # errors that one task causes

    def _holds(self, task: AgentTask) -> bool:
        """Return whether a component has a task, which leaves it by itself."""
        others = (self._scheduler, self._gate, self._raptor, self._attempts)
        members = (member for pool in self._pools.values() for member in pool.all_members())
        return any(part is not None and task.uid in part for part in (*others, *members))

    def _take_back(self, task: AgentTask) -> bool:
        """Take a task out of gate and scheduler; return False if another component has it."""
        if task.step == _TO_SCHEDULER:
            for part in (self._gate, self._scheduler):
                if part is not None:
                    part.take_back(task)
            if task.placement is not None:
                self._scheduler.release([task])
                retry.reset(task)
        return not self._holds(task)

    def _give_up(self, task: AgentTask) -> None:
        """End a task that has failed because of an error of the agent."""
        if self._holds(task):
            self.cancel([task])
            return
        self._executors.left([task])
        if task.placement is not None and states.TASK.value(task.state) <= _EXECUTING:
            self._scheduler.release([task])
        self._leave([task])

    def _not_shown(self, task: AgentTask, error: Exception) -> None:
        task.broke(error, 'following its state')
        if self._holds(task):   # else it is about to leave
            self.cancel([task])

    # outputs of the components

    def _advanced(self, tasks: Sequence[AgentTask], state: str) -> None:
        try:
            self._show(tasks, state)
        except Exception as error:
            if len(tasks) == 1:   # later: the component is about to pass it on
                self._loop.call_soon(self._not_shown, tasks[0], error)
            for task in tasks if len(tasks) > 1 else ():
                self._advanced([task], state)

    def _show(self, tasks: Sequence[AgentTask], state: str) -> None:
        if self._parts:
            tasks = self._parts.advanced(tasks, state)
        if self._raptor:
            tasks = self._raptor.visible(tasks, state)
        if self._supervisor:
            tasks = self._supervisor.visible(tasks, state)
        if self._attempts:
            tasks = self._attempts.visible(tasks, state)
        self._ports.advanced(self._task_copies.visible(tasks), state)

    @step('passing it on')
    def _staged(self, tasks: list[AgentTask]) -> None:
        theirs, others = divided(tasks)
        if theirs:
            self._with_raptor().put(theirs)
        if others:
            self._to_scheduler(others)

    @step(_TO_SCHEDULER)
    def _admit(self, tasks: list[AgentTask]) -> None:
        """Pass tasks to the scheduler, those with prerequisites through the gate."""
        if self._gate is not None and not self._gate.is_open:
            self._gate.put(tasks)
            return
        needy = [task for task in tasks if has_needs(task)]
        if needy:
            self.gate.put(needy)
            tasks = [] if len(needy) == len(tasks) else [task for task in tasks if not has_needs(task)]
        if tasks:
            self._schedule(tasks)

    @step('looking at its services')
    def _start_served(self, tasks: list[AgentTask]) -> None:
        """Pass placed tasks to the executors, but those back to the gate whose services have ended meanwhile."""
        late = [task for task in tasks if has_needs(task) and not self.gate.recheck(task)]
        if late:
            tasks = [task for task in tasks if task not in late]
            self._return_late(late)
        if tasks:
            self._execute(tasks)

    @step('starting')
    def _execute(self, tasks: list[AgentTask]) -> None:
        """Pass placed tasks to the executors."""
        self._to_executors(self._parts.divide(tasks) if self._parts else tasks)

    def _return_late(self, tasks: list[AgentTask]) -> None:
        """Put placed tasks back to the gate; the next tasks get their places, and may come here within this call."""
        self._late.append(tasks)
        if len(self._late) == 1:
            while self._late:
                self._run_again(self._late[0])
                del self._late[0]

    def _unplaced(self, tasks: list[AgentTask]) -> None:
        """Take tasks that the scheduler has given up; the executor may have prepared their launch."""
        if self._only_executor:
            self._only_executor.cancel([task.uid for task in tasks])
        self._leave(tasks)

    def _executed(self, tasks: list[AgentTask]) -> None:
        self._executors.left(tasks)
        if self._parts:
            tasks = self._parts.joined(tasks)
        if self._spread_failures:
            tasks = self._after_loss(tasks)
        self._end_execution(self._held_back.hold(tasks, self._end_execution))

    def _is_doubtful(self, task: AgentTask) -> bool:
        """Return whether the failure of a task may be a sign of the end of the job."""
        if (task.error or {}).get('kind') not in (EXIT, SIGNAL) or not retry.restarts(task):
            return False
        run = TaskRun(task.target_state, restartable=True, killed=is_killed(task), last=retry.is_last(task))
        return verdict(run, ending=False, left=self._ports.left_s()) is Verdict.LATE

    def _end_execution(self, tasks: list[AgentTask]) -> None:
        if self._supervisor:   # services that start again keep their place, as all others may be taken by their users
            tasks = unless(tasks, self._supervisor.comes_back, 'ending its run')
        if self._health:
            tasks = unless(tasks, partial(self._look_at_node, self._health), 'judging its node')
        self._scheduler.release(self._task_copies.with_slots(tasks))
        if self._raptor:
            tasks = unless(tasks, self._raptor.comes_back, 'ending its run')
        if tasks:
            self._conclude(tasks)

    def _look_at_node(self, health: NodeHealth, task: AgentTask) -> None:
        """Take the node of a task out of use if tasks fail there that do not fail elsewhere."""
        position = health.ended(task)
        if position is not None and position not in self._down:
            self._nodes_unusable(range(position, position + 1), f'it is not used any more, as the last {ROW} tasks '
                                 f'on it have failed, such as {task.uid}, and those on other nodes have not')

    def _conclude(self, tasks: list[AgentTask]) -> None:
        """Pass on tasks that have run, whose resources are free: to the output stagers, or to their next attempt."""
        if self._job_ends:
            gone = [task for task in tasks if exited(task)]
            tasks = [task for task in tasks if task not in gone]
            if gone:
                self._leave(gone)
        if self._attempts is not None:
            mine = [task for task in tasks
                    if retry.concerns_attempts(task) and not isinstance(task, task_copies.TaskCopy)]
            if mine:
                self._attempts.put(mine)
                tasks = [task for task in tasks if task not in mine]
        if tasks:
            self._to_output(tasks)

    def _with_attempts(self) -> Attempts:
        """Return the part for tasks that may run again, which the first call makes."""
        if self._attempts is None:
            from rp_agent.pipeline.attempts import AttemptPorts, Attempts

            self._attempts = Attempts(self._loop, self._offload, self._scheduler.tracer,
                                      retry.limits_of(self._allocation),
                                      AttemptPorts(self._to_output, self._leave, self._attempt, self._report))
        return self._attempts

    def _report(self, task: AgentTask, info: dict[str, Any]) -> None:
        """Report the attempts of a task, unless a RAPTOR master has submitted it, which alone gets its result."""
        if self._raptor is None or not self._raptor.is_own(task):
            self._ports.report(task, info)

    def _attempt(self, task: AgentTask) -> None:
        """Begin the next attempt of a task: at the scheduler, or for a call at its RAPTOR master."""
        if concerns_raptor(task):
            self._with_raptor().put([task])
        else:
            self._admit([task])

    def _sweep(self, uid: str, positions: Sequence[int]) -> None:
        """Kill what is left on these nodes of a task whose launcher ran on this host."""
        for position in positions:
            remote = self._executors.on_node(position)
            if isinstance(remote, Remote):
                remote.sweep([uid])

    def _leave(self, tasks: list[AgentTask]) -> None:
        tasks = self._task_copies.drop(tasks)
        raptor = self._raptor_for(tasks)
        if raptor:   # tasks that its masters have run (`packed`) come from itself
            tasks = unless(tasks, lambda task: task.packed is None and raptor.comes_back(task), 'leaving')
        self._in_hand -= len(tasks)
        if self._supervisor:
            tasks = unless(tasks, self._supervisor.left, 'leaving')
        if raptor and raptor.has_own:
            tasks = unless(tasks, raptor.was_own, 'leaving')
        if tasks:
            self._ports.left(tasks)

    # loss of a process

    def _dismiss(self, remote: Remote, reason: str) -> None:
        self._pools[remote.component].dismiss(remote)
        if remote.node != ANYWHERE:   # place no more tasks there, which executors of other nodes would receive
            self._down.add(remote.node)
            self._scheduler.nodes_down([remote.node], reason)
            self._fail_spread_tasks(remote)

    def _on_died(self, remote: Remote, tasks: list[AgentTask], reason: str) -> None:
        """End the tasks that a component had when it died, and those that no instance is left for."""
        pool = self._pools[remote.component]
        pool.remove(remote)
        if remote.node != ANYWHERE:
            self._lose_node(remote, tasks, reason)
            return
        if pool.lost:
            # first, so that no task is placed on resources that become free now
            self._ports.broken(f'has lost its last {remote.component}: {reason}')
            tasks, pool.unassigned = tasks + pool.unassigned, []
        if remote.component == EXECUTING:
            if not pool.lost and not self._stopping:   # others can run them
                again = [task for task in tasks if retry.may_run_again(task, remote.came)]
                tasks = [task for task in tasks if task not in again]
                self._executors.left(again)
                self._restart(again, reason)
            _end(tasks, reason, LOST)
            self._executed(tasks)
        elif tasks:
            self._stage_again(remote.component, tasks, reason)
        remote.emptied()

    def _stage_again(self, component: str, tasks: list[AgentTask], reason: str) -> None:
        """Give the tasks of a stager that has died to another one; end those for which that is impossible.

        Repeated actions have the same result, or fail because their source was moved. Output with `cleanup` is not
        staged again: what is missing may have been removed, or never written.
        """
        pool, of_input = self._pools[component], component == STAGING_INPUT
        again: list[AgentTask] = []
        ended: list[AgentTask] = []
        for task in tasks:
            if of_input:
                ends = self._stopping or task.cancelled
            else:
                ends = task.state == states.AGENT_STAGING_OUTPUT and task.description['cleanup']
            (ended if pool.lost or ends else again).append(task)
        for task in ended if self._job_ends else ():
            if of_input:
                task.cancel(reason)   # it has not started
            else:
                exited(task)   # its run is lost
        _end(ended, reason, LOST)
        if ended:
            self._leave(ended)
        if again:
            self.isolation.run('staging it again', pool.put, again)

    # loss of a node

    def _fail_spread_tasks(self, remote: Remote) -> None:
        """End the tasks that are on the lost node and on others."""
        spread = [task for task in self._executors.spread.values() if remote.node in task.placement.nodes()]
        self._spread_failures.update((task.uid, f'node {self._names[remote.node]} is lost') for task in spread)
        for executor in self._executors.that_have(spread) if spread else ():
            executor.cancel([task.uid for task in spread])

    def _after_loss(self, tasks: list[AgentTask]) -> list[AgentTask]:
        """Run tasks again that a lost node has ended, if they may run again, and return the others."""
        again = []
        for task in tasks:
            reason = self._spread_failures.pop(task.uid, None)
            if reason is not None and task.target_state == states.CANCELED and not task.cancelled:
                task.target_state = None
                again.append(task) if retry.may_run_again(task, True) else _end_of_node([task], reason)
                if task in again:
                    self._restart([task], reason)
        return [task for task in tasks if task not in again]

    def _lose_node(self, remote: Remote, tasks: list[AgentTask], reason: str) -> None:
        """Run the tasks of a lost node again that may run again, and end the others."""
        if self._health and remote.node not in self._lost_nodes:
            self._health.lost(remote.node)
        self._lost_nodes.add(remote.node)
        self._ports.nodes_lost([remote.node], reason)
        if len(self._lost_nodes) == len(self._names):
            self._ports.broken(f'has lost its last node: {reason}')
            self._stopping = True
        again = [task for task in tasks if not self._stopping and retry.may_run_again(task, remote.came)]
        others = [task for task in tasks if task not in again]
        _end_of_node(others, f'node {self._names[remote.node]} is lost: {reason}')
        self._executed(others)
        if remote.came:
            self._restart(again, f'node {self._names[remote.node]} is lost: {reason}')
        else:
            self._run_again(again)
        remote.emptied()

    def _place_again(self, task: AgentTask, reason: str) -> None:
        """Place a task on other nodes that an executor has not run."""
        self._executors.left([task])
        self._run_again([task])

    def _nodes_unusable(self, nodes: range, reason: str) -> None:
        """Take nodes out of use on which an executor cannot launch tasks any more."""
        if self._health:
            for position in set(nodes) - self._lost_nodes:
                self._health.lost(position)
        self._lost_nodes.update(nodes)
        self._down.update(nodes)
        self._scheduler.nodes_down(nodes, reason)
        self._ports.nodes_lost(nodes, reason)
        if len(self._lost_nodes) == len(self._names):
            # later: the executor is about to return the tasks that wait for these nodes
            self._loop.call_soon(self._ports.broken, f'has lost its last node: {reason}')

    def _run_again(self, tasks: list[AgentTask]) -> None:
        """Place tasks again that have not started."""
        tasks = self._task_copies.drop(tasks)
        if tasks:
            self._scheduler.release(tasks)
            for task in tasks:
                retry.reset(task)
            self._admit(tasks)

    def _restart(self, tasks: list[AgentTask], reason: str) -> None:
        """Begin the next attempt of tasks that a lost node has ended."""
        tasks = self._task_copies.drop(tasks)
        if tasks:
            self._scheduler.release(tasks)
        for task in tasks:
            self._with_attempts().lost(task, {'kind': NODE, 'sentence': reason})


def _entrance(pool: InstancePool[Any]) -> Callable[[list[AgentTask]], None]:
    """Return the input of a pool, or that of its only member if this cannot get lost."""
    return (_only(pool) or pool).put


def _only(pool: InstancePool[Any]) -> Member | None:
    """Return the only member of a pool if it runs in this process, which cannot get lost."""
    members: Iterable[Member] = pool.members
    only = [member for member in members if not isinstance(member, Remote)]
    return only[0] if len(only) == 1 == len(pool.all_members()) else None


def _end_of_node(tasks: Sequence[AgentTask], reason: str) -> None:
    """Set the final state of tasks of a lost node that do not run again."""
    for task in tasks:
        history = retry.history_of(task)
        if not task.cancelled and retry.restarts(task, NODE) and is_suspect(history):
            reason_of_task = suspicion(task.uid, history, reason)
            task.fail(repr(RuntimeError(reason_of_task)), reason_of_task, NODE, sentence=reason_of_task, lost=DEATH)
        else:
            _end([task], reason, NODE)


def _end(tasks: Sequence[AgentTask], reason: str, kind: str) -> None:
    """Set the final state of tasks that died with a process: FAILED, or CANCELED if they were being cancelled."""
    for task in tasks:
        if task.cancelled and task.target_state is None:
            task.target_state = states.CANCELED
            task.exception = reason
        else:
            task.fail(repr(RuntimeError(reason.partition('; see ')[0])), reason, kind, sentence=reason)
