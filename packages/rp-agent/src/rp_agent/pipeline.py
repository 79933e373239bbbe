"""The components of an agent, joined: input stagers > scheduler > executors > output stagers.

There is one scheduler, in this process. Of the others there may be several, here or in other processes (see `layout`).
What is here is joined by direct calls; to the others, and back, tasks travel as plain data (see `remote`). After the
execution tasks pass through this process, where the scheduler takes their resources back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

from rp_agent import clones, layout, sandbox
from rp_agent.build import Builder, make_tracer
from rp_agent.clones import Clones
from rp_agent.components import ANYWHERE, EXECUTING, INLINE, SCHEDULING, STAGING_INPUT, STAGING_OUTPUT
from rp_agent.crew import Crew, Member, NodeCrew, all_of
from rp_agent.executor import spawners
from rp_agent.executor.launchers import is_mpi
from rp_agent.executor.spawners import AnyExecutor, UsesNodes
from rp_agent.gather import Gather
from rp_agent.killed import HeldBack
from rp_agent.layout import Instance, Layout
from rp_agent.lifetime import in_batch
from rp_agent.raptor.which import concerns_raptor
from rp_agent.remote import Remote
from rp_agent.rerun import may_run_again, reset
from rp_agent.resource_manager.base import Allocation
from rp_agent.scheduler.component import Scheduler
from rp_agent.stager.input import StagerInput
from rp_agent.sub_agents import SubAgents
from rp_agent.task import AgentTask
from rp_api import states
from rp_api.errors import PlatformError
from rp_api.mesh.loop import Loop
from rp_api.mesh.offload import Offload

if TYPE_CHECKING:
    from rp_agent.build import Worker
    from rp_agent.raptor.component import Raptor
    from rp_agent.raptor.surroundings import Surroundings

STOP_PATIENCE = 12.0
"""Seconds that executors in sub-agents have to end their tasks; it is more than the executors themselves take."""

Left = Callable[[Sequence[AgentTask]], None]

AnyComponent = TypeVar('AnyComponent', bound='Scheduler | Worker')


class Pipeline:
    """Takes tasks in, and gives them to `left` when they are done with, one way or the other.

    `broken(reason)` is called when the last instance of a component is gone.
    """

    def __init__(self, config: Mapping[str, Any], loop: Loop, allocation: Allocation, offload: Offload, left: Left,
                 broken: Callable[[str], None]) -> None:
        self._config = config
        self._loop = loop
        self._left = left
        self._broken = broken
        self._in_hand = 0
        self.on_advanced: Callable[[Sequence[AgentTask], str], None] = lambda tasks, state: None
        self.on_moment: Callable[[str, int, str], object] = lambda message, when, uid: None
        self.on_sub_agent_stop: Callable[[str], object] = lambda name: None
        self.on_master_up: Callable[[AgentTask, dict[str, str]], None] = lambda task, access: None
        self.on_nodes_lost: Callable[[Sequence[int], str], None] = lambda positions, reason: None
        self.knows: Callable[[str], bool] = lambda uid: False
        self._names = allocation.names
        self._allocation = allocation
        self._lost_nodes = 0
        self._doomed: dict[str, str] = {}   # why tasks on several nodes are ended, one of which was lost
        self._stopping = False
        self._held_back = HeldBack(loop) if in_batch(config['platform']) else None
        self._surroundings: Surroundings | None = None   # made for the first task that has to do with RAPTOR
        self._raptor: Raptor | None = None
        plan = self._layout(allocation)
        sandbox.write_helpers(config['pilot_sandbox'])
        self._builder = Builder(config, loop, offload)
        self._local: list[Scheduler | Worker] = []
        self._sub_agents: SubAgents | None = None
        remotes = self._start(plan, allocation)
        self._scheduler = self._make_scheduler(allocation)
        self._clones = Clones(config['agent'], self._scheduler.tracer, self._scheduler.release)
        self._crews = {component: self._crew(plan.of(component), remotes)
                       for component in (STAGING_INPUT, EXECUTING, STAGING_OUTPUT)}
        self._inputs = cast('Crew[StagerInput | Remote]', self._crews[STAGING_INPUT])
        self._executors = cast('Crew[AnyExecutor | Remote]', self._crews[EXECUTING])
        self._wire()

    @property
    def held_back(self) -> int:
        """Number of tasks that wait for other tasks to come or to end, whatever room there is."""
        return self._scheduler.held_back + (self._raptor.held_back if self._raptor else 0)

    def put(self, tasks: list[AgentTask]) -> None:
        """Take tasks in."""
        self._in_hand += len(tasks)
        self._to_input(tasks)

    def cancel(self, tasks: Sequence[AgentTask]) -> None:
        """Cancel tasks, wherever they are."""
        for task in tasks:
            task.cancelled = True
        uids = [task.uid for task in tasks]
        for stager in self._inputs.everybody():
            stager.cancel(uids)
        self._scheduler.cancel(uids)
        if self._raptor:
            self._raptor.cancel(uids)
        for executor in self._executors.that_have(tasks):
            executor.cancel(uids)

    def refuse(self, tasks: Sequence[AgentTask], reason: str) -> None:
        """End tasks that come too late."""
        for task in tasks:
            task.target_state = states.CANCELED
            task.exception = reason
        raptor = self._raptor_for(tasks)
        if raptor:
            for task in tasks:
                raptor.comes_back(task)
        if tasks:
            self._left(tasks)

    def stop(self, reason: str, stopped: Callable[[], None]) -> None:
        """End all tasks; `stopped()` is called when none is running any more."""
        self._stopping = True
        for stager in self._inputs.everybody():
            stager.cancel_all(reason)
        if self._raptor:
            self._raptor.stop(reason)
        self._scheduler.cancel_all(reason)
        if self._held_back:
            self._held_back.release()
        executors = self._executors.everybody()
        one_stopped = all_of(max(1, len(executors)), stopped)
        for executor in executors:
            executor.stop(one_stopped, reason)
        if not executors:
            self._loop.call_soon(one_stopped)
        if self._sub_agents:
            self._loop.call_later(STOP_PATIENCE, self._sub_agents.kill)

    def end(self, ended: Callable[[], None]) -> None:
        """End the processes of components; `ended()` is called when they have ended."""
        if self._surroundings:
            self._surroundings.disconnect()
        if self._sub_agents:
            self._sub_agents.end(ended)
        else:
            ended()

    def flush_traces(self) -> None:
        """Write the traces of all components in this process to their files."""
        for component in self._local:
            component.tracer.flush()
        if self._raptor:
            self._raptor.tracer.flush()

    def close(self) -> None:
        """End all components."""
        for component in self._local:
            component.close()
        if self._surroundings:
            self._surroundings.close()
        if self._sub_agents:
            self._sub_agents.close()

    # how it is put together

    def _start(self, plan: Layout, allocation: Allocation) -> dict[str, Remote]:
        """Start all sub-agents; gives what stands for their components, by uid."""
        hosts, on_nodes = plan.hosts(), plan.on_nodes()
        if not hosts and not on_nodes:
            return {}
        started = self._sub_agents = SubAgents(self._config, self._loop, allocation, on_nodes, self._leave,
                                               self._dismiss, self._bury, lambda *moment: self.on_moment(*moment),
                                               lambda name: self.on_sub_agent_stop(name))
        try:
            remotes = [remote for name, instances in hosts.items() for remote in started.start(name, instances)]
            remotes += started.start_on_nodes() if on_nodes else []
        except PlatformError:
            started.close()
            raise
        for remote in remotes:
            remote.advanced = self._advanced
        return {remote.uid: remote for remote in remotes}

    def _layout(self, allocation: Allocation) -> Layout:
        """Where the components live."""
        platform = self._config['platform']
        # an executor whose launchers span nodes starts tasks on all of them
        elsewhere = () if spawners.spans_nodes(platform) else allocation.elsewhere
        plan = layout.read(self._config['agent'], len(allocation.names), elsewhere)
        clones.plan(self._config['agent'])   # what makes no sense is refused before anything is started
        hosts = [instance.host for instance in plan.of(EXECUTING) if instance.node == ANYWHERE]
        if hosts != [INLINE] and spawners.has_instances(platform):
            raise PlatformError(f'the platform launches tasks with instances that span nodes, which one '
                                f'{EXECUTING} in Agent_0 has to keep: the agent configuration asks for '
                                f'{len(hosts)} (in {", ".join(host or "Agent_0" for host in hosts)})')
        return plan

    def _crew(self, instances: Sequence[Instance], remotes: Mapping[str, Remote]) -> Crew[Any]:
        """All instances of a component."""
        on_nodes = {each.node: remotes[each.uid] for each in instances if each.node != ANYWHERE}
        members = [remotes.get(each.uid) or self._make(each) for each in instances if each.node == ANYWHERE]
        if not on_nodes:
            return Crew(members)
        # virtual machines are Agent_0's, and all MPI tasks go there
        central = is_mpi if spawners.launches_into_dvms(self._config['platform']) else None
        return NodeCrew(members, on_nodes, central)

    def _make_scheduler(self, allocation: Allocation) -> Scheduler:
        uid = f'{SCHEDULING}.0000'
        return self._adopt(Scheduler(uid, make_tracer(self._config, uid), allocation, self._config, self._unplaced,
                                     self._loop.call_later))

    def _make(self, instance: Instance) -> Worker:
        """An instance in this process."""
        return self._adopt(self._builder.make(instance.component, instance.uid, self._leave))

    def _adopt(self, component: AnyComponent) -> AnyComponent:
        component.advanced = self._advanced
        self._local.append(component)
        return component

    def _wire(self) -> None:
        outputs = self._crews[STAGING_OUTPUT]
        entrance = self._clones.entrance
        to_output = Gather(self._loop, _entrance(outputs), lambda: self._in_hand).put
        self._to_input = entrance(STAGING_INPUT, self._inputs.put)
        self._to_scheduler = entrance(SCHEDULING, self._scheduler.put)
        self._scheduler.output = entrance(EXECUTING, _entrance(self._executors))
        self._to_output = entrance(STAGING_OUTPUT, to_output)
        self._only_executor = cast('AnyExecutor | None', _only(self._executors))
        if self._only_executor:   # else nobody knows which one a task will go to
            self._only_executor.expect(self._scheduler.upcoming)
        for stager in self._inputs.members:
            stager.output = self._staged
        for executor in self._executors.everybody():
            executor.output = self._executed
            if isinstance(executor, UsesNodes):
                executor.place_again, executor.nodes_lost = self._place_again, self._nodes_unusable
            if not isinstance(executor, Remote):
                executor.sweep_elsewhere = self._sweep
        for output in outputs.members:
            output.output = self._leave

    def _with_raptor(self) -> Raptor:
        """The component for RAPTOR, from now on."""
        if self._raptor is None:
            from rp_agent.raptor.surroundings import Pipes, Surroundings

            pipes = Pipes(self.put, self._stage_output, self._leave, self.cancel, lambda uid: self.knows(uid),
                          lambda task, access: self.on_master_up(task, access))
            self._surroundings = Surroundings(self._config, self._loop, self._allocation, pipes)
            self._raptor = self._surroundings.raptor
            self._raptor.advanced = self._advanced
            self._raptor.output = self._scheduler.put
        return self._raptor

    def _raptor_for(self, tasks: Sequence[AgentTask]) -> Raptor | None:
        """The component for RAPTOR, if it has to hear of these tasks: of a master, even if that was never started."""
        if self._raptor is None and any(concerns_raptor(task) for task in tasks):
            return self._with_raptor()
        return self._raptor

    # what the components say

    def _advanced(self, tasks: Sequence[AgentTask], state: str) -> None:
        if self._raptor:
            tasks = self._raptor.visible(tasks, state)
        self.on_advanced(self._clones.visible(tasks), state)

    def _staged(self, tasks: list[AgentTask]) -> None:
        theirs = [task for task in tasks if concerns_raptor(task)]
        if theirs:
            tasks = [] if len(theirs) == len(tasks) else [task for task in tasks if not concerns_raptor(task)]
            self._with_raptor().put(theirs)
        if tasks:
            self._to_scheduler(tasks)

    def _unplaced(self, tasks: list[AgentTask]) -> None:
        """The scheduler has given up tasks, which the executor may have prepared for."""
        if self._only_executor:
            self._only_executor.cancel([task.uid for task in tasks])
        self._leave(tasks)

    def _executed(self, tasks: list[AgentTask]) -> None:
        self._executors.left(tasks)
        if self._doomed:
            tasks = self._after_loss(tasks)
        if self._held_back:
            tasks = self._held_back.hold(tasks, self._end_execution)
        self._end_execution(tasks)

    def _end_execution(self, tasks: list[AgentTask]) -> None:
        self._scheduler.release(self._clones.with_slots(tasks))
        if self._raptor:
            tasks = [task for task in tasks if not self._raptor.comes_back(task)]
        if tasks:
            self._to_output(tasks)

    def _sweep(self, uid: str, positions: Sequence[int]) -> None:
        """Have the executors on these nodes clear up after a task whose launcher an executor here has started."""
        for position in positions:
            remote = self._executors.on_node(position)
            if isinstance(remote, Remote):
                remote.sweep([uid])

    def _stage_output(self, tasks: list[AgentTask]) -> None:
        self._to_output(tasks)

    def _leave(self, tasks: list[AgentTask]) -> None:
        tasks = self._clones.drop(tasks)
        raptor = self._raptor_for(tasks)
        if raptor:   # it need not hear again of what its masters have run
            tasks = [task for task in tasks if task.packed is not None or not raptor.comes_back(task)]
        self._in_hand -= len(tasks)
        if raptor and raptor.has_own:
            tasks = [task for task in tasks if not raptor.was_own(task)]
        if tasks:
            self._left(tasks)

    # when a process with components dies

    def _dismiss(self, remote: Remote) -> None:
        self._crews[remote.component].dismiss(remote)
        if remote.node != ANYWHERE:   # else tasks that are placed there would go to those who are on other nodes
            self._scheduler.node_down(remote.node)
            self._doom(remote)

    def _bury(self, remote: Remote, tasks: list[AgentTask], reason: str) -> None:
        """End the tasks that a component had when it died, and those that no other one is left for."""
        crew = self._crews[remote.component]
        crew.bury(remote)
        if remote.node != ANYWHERE:
            self._lose_node(remote, tasks, reason)
            return
        if not crew.everybody():
            # first, so that nothing more is placed on what becomes free now
            self._broken(f'has lost its last {remote.component}: {reason}')
            tasks, crew.stranded = tasks + crew.stranded, []
        _end(tasks, reason)
        if remote.component == EXECUTING:
            self._executed(tasks)
        elif tasks:
            self._leave(tasks)
        remote.emptied()

    # when a node is lost

    def _doom(self, remote: Remote) -> None:
        """End the tasks that are on the lost node and on others as well."""
        spread = [task for task in self._executors.spread.values() if remote.node in task.placement.nodes()]
        self._doomed.update((task.uid, f'node {self._names[remote.node]} is lost') for task in spread)
        for executor in self._executors.that_have(spread) if spread else ():
            executor.cancel([task.uid for task in spread])

    def _after_loss(self, tasks: list[AgentTask]) -> list[AgentTask]:
        """Those of the tasks that have left an executor which do not run again, because of a node that was lost."""
        again = []
        for task in tasks:
            reason = self._doomed.pop(task.uid, None)
            if reason is not None and task.target_state == states.CANCELED and not task.cancelled:
                task.target_state = None
                again.append(task) if may_run_again(task, True) else _end([task], reason)
        self._run_again(again, True)
        return [task for task in tasks if task not in again]

    def _lose_node(self, remote: Remote, tasks: list[AgentTask], reason: str) -> None:
        """Tasks have died with a node: let those run on others that may, and end the others."""
        self._lost_nodes += 1
        self.on_nodes_lost([remote.node], reason)
        if self._lost_nodes == len(self._names):
            self._broken(f'has lost its last node: {reason}')
            self._stopping = True
        again = [task for task in tasks if not self._stopping and may_run_again(task, remote.came)]
        others = [task for task in tasks if task not in again]
        _end(others, f'node {self._names[remote.node]} is lost: {reason}')
        self._executed(others)
        self._run_again(again, remote.came)
        remote.emptied()

    def _place_again(self, task: AgentTask, reason: str) -> None:
        """A task that an executor has not run is to be placed on other nodes."""
        self._executors.left([task])
        self._run_again([task], False)

    def _nodes_unusable(self, nodes: range, reason: str) -> None:
        """An executor can launch nothing on these nodes any more."""
        self._lost_nodes += len(nodes)
        self._scheduler.nodes_down(nodes)
        self.on_nodes_lost(nodes, reason)
        if self._lost_nodes >= len(self._names):
            # later: the executor is about to say what becomes of the tasks that wait for them
            self._loop.call_soon(self._broken, f'has lost its last node: {reason}')

    def _run_again(self, tasks: list[AgentTask], started: bool) -> None:
        tasks = self._clones.drop(tasks)
        if tasks:
            self._scheduler.release(tasks)
            for task in tasks:
                reset(task, started)
            self._scheduler.put(tasks)


def _entrance(crew: Crew[Any]) -> Callable[[list[AgentTask]], None]:
    """Where tasks go in: straight to the only member, if that cannot get lost."""
    return (_only(crew) or crew).put


def _only(crew: Crew[Any]) -> Member | None:
    """The only member, if there is no other one and it cannot get lost."""
    members: Iterable[Member] = crew.members
    only = [member for member in members if not isinstance(member, Remote)]
    return only[0] if len(only) == 1 == len(crew.everybody()) else None


def _end(tasks: Sequence[AgentTask], reason: str) -> None:
    """Make tasks that died with a process failed ones, or cancelled ones where that was under way."""
    for task in tasks:
        if task.cancelled and task.target_state is None:
            task.target_state = states.CANCELED
            task.exception = reason
        else:
            task.fail(repr(RuntimeError(reason.partition('; see ')[0])), reason)
