"""The instances of an agent's components: construction in this process and in sub-agents, and their pools."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from rp_agent import sandbox
from rp_agent.components import layout
from rp_agent.components.build import Builder, ComponentPorts
from rp_agent.components.layout import ComponentInstance, Layout
from rp_agent.components.names import ANYWHERE, EXECUTING, INLINE, STAGING_INPUT, STAGING_OUTPUT
from rp_agent.components.pool import InstancePool, Member
from rp_agent.components.stage import Flow, Owner, Tasks
from rp_agent.executor import registry
from rp_agent.executor.base import BaseExecutor
from rp_agent.executor.launching.environment import NodePorts
from rp_agent.executor.launching.launchers import is_mpi
from rp_agent.nodes.remote import Remote
from rp_agent.nodes.sub_agents import SubAgents
from rp_agent.pipeline import task_copies
from rp_agent.pipeline.losses import Losses
from rp_agent.resource_manager.base import Allocation
from rp_agent.stager.component import StagerInput
from rp_agent.task import AgentTask
from rp_api.component import Component
from rp_api.errors import PlatformError
from rp_api.loop.event_loop import Loop
from rp_api.loop.offload import Offload

if TYPE_CHECKING:
    from rp_agent.components.build import Worker


class Instances(NodePorts):
    """The instances of all components of an agent except the scheduler. `ports` are their outputs, by component.

    Raises PlatformError if the platform does not allow their layout.
    """

    def __init__(self, config: Mapping[str, Any], loop: Loop, offload: Offload, allocation: Allocation,
                 ports: Mapping[str, ComponentPorts], losses: Losses, flow: Flow, owner: Owner) -> None:
        plan = _layout(config, allocation)
        sandbox.write_helpers(config['pilot_sandbox'])
        self._config = config
        self._losses = losses
        self._flow = flow
        self._owner = owner
        self._builder = Builder(config, loop, offload, self)
        self._ports = {**ports, EXECUTING: ports[EXECUTING]._replace(sweep_elsewhere=self.sweep_elsewhere,
                                                                     signalled=self._signalled)}
        self._told_to_end: set[str] = set()   # executors in sub-agents that got SIGTERM
        self.local: list[Component] = []
        """The instances in this process."""
        self.sub_agents: SubAgents | None = None
        remotes = self._start(plan, loop, allocation)
        self.pools = {component: self._pool(plan.of(component), remotes)
                      for component in (STAGING_INPUT, EXECUTING, STAGING_OUTPUT)}
        self.inputs = cast('InstancePool[StagerInput | Remote]', self.pools[STAGING_INPUT])
        self.executors = cast('InstancePool[BaseExecutor | Remote]', self.pools[EXECUTING])
        self.only_executor = cast('BaseExecutor | None', _only(self.executors))
        """The executor if there is only one, in this process."""

    def entrance(self, component: str) -> Callable[[Tasks], None]:
        """Return the input of a pool, or that of its only member if this cannot get lost."""
        pool = self.pools[component]
        return (_only(pool) or pool).put

    def have(self, uid: str) -> bool:
        """Return whether an instance has a task of that uid."""
        return any(uid in member for pool in self.pools.values() for member in pool.all_members())

    def sweep_elsewhere(self, uid: str, positions: Sequence[int]) -> None:
        """Kill what is left on these nodes of a task whose launcher ran on this host."""
        for position in positions:
            remote = self.executors.on_node(position)
            if isinstance(remote, Remote):
                remote.sweep([uid])

    # construction

    def _start(self, plan: Layout, loop: Loop, allocation: Allocation) -> dict[str, Remote]:
        """Start all sub-agents and return the proxies of their components, by uid."""
        hosts, on_nodes = plan.hosts(), plan.on_nodes()
        if not hosts and not on_nodes:
            return {}
        started = self.sub_agents = SubAgents(self._config, loop, allocation, on_nodes, self._ports, self._dismiss,
                                              self._on_died, self._owner.moment, self._owner.trace_part)
        try:
            remotes = [remote for name, instances in hosts.items() for remote in started.start(name, instances)]
            remotes += started.start_on_nodes() if on_nodes else []
        except PlatformError:
            started.close()
            raise
        return {remote.uid: remote for remote in remotes}

    def _pool(self, instances: Sequence[ComponentInstance], remotes: Mapping[str, Remote]) -> InstancePool[Any]:
        """Return the pool of all instances of a component."""
        on_nodes = {each.node: remotes[each.uid] for each in instances if each.node != ANYWHERE}
        members = [remotes.get(each.uid) or self._make(each) for each in instances if each.node == ANYWHERE]
        if on_nodes and registry.launches_into_dvms(self._config['platform']):
            return InstancePool(members, on_nodes, is_mpi)   # Agent_0 launches all MPI tasks, into DVMs
        return InstancePool(members, on_nodes)

    def _make(self, instance: ComponentInstance) -> Worker:
        """Construct an instance in this process."""
        made = self._builder.make(instance.component, instance.uid, self._ports[instance.component])
        self.local.append(made)
        return made

    # events

    def _signalled(self, uid: str, number: int) -> None:
        """Handle a signal to the sub-agent of an executor; one node alone may be taken down."""
        if number == signal.SIGTERM:
            self._told_to_end.add(uid)
            here = {remote.uid for remote in self.executors.all_members() if isinstance(remote, Remote)}
            if not here <= self._told_to_end:
                return
        self._owner.signalled(number)

    def _dismiss(self, remote: Remote, reason: str) -> None:
        self.pools[remote.component].dismiss(remote)
        if remote.node != ANYWHERE:   # place no more tasks there, which executors of other nodes would receive
            self._losses.node_dismissed(remote, self.executors, reason)

    def _on_died(self, remote: Remote, tasks: Tasks, reason: str) -> None:
        pool = self.pools[remote.component]
        pool.remove(remote)
        if remote.node != ANYWHERE:
            self._losses.node_died(remote, tasks, reason)
        else:
            self._losses.process_died(remote, pool, tasks, reason)
        remote.emptied()

    def place_again(self, task: AgentTask, reason: str) -> bool:
        """Place a task on other nodes that an executor has not run."""
        self.executors.left([task])
        self._flow.place_again([task])
        return True

    def nodes_lost(self, nodes: range, reason: str) -> None:
        """Stop using nodes whose launcher is lost."""
        self._losses.nodes_unusable(nodes, reason)


def _layout(config: Mapping[str, Any], allocation: Allocation) -> Layout:
    """Return the layout of the components; raise PlatformError if the platform does not allow it."""
    platform = config['platform']
    # if its launchers span nodes, one executor starts tasks on all of them
    elsewhere = () if registry.spans_nodes(platform) else allocation.elsewhere
    plan = layout.read(config['agent'], len(allocation.names), elsewhere)
    task_copies.plan(config['agent'])   # raises an error before any process is started
    hosts = [instance.host for instance in plan.of(EXECUTING) if instance.node == ANYWHERE]
    if hosts != [INLINE] and registry.has_instances(platform):
        raise PlatformError(f'the platform launches tasks with instances that span nodes, which one '
                            f'{EXECUTING} in Agent_0 has to keep: the agent configuration asks for '
                            f'{len(hosts)} (in {", ".join(host or "Agent_0" for host in hosts)})')
    return plan


def _only(pool: InstancePool[Any]) -> Member | None:
    """Return the only member of a pool if it runs in this process, which cannot get lost."""
    members: Iterable[Member] = pool.members
    only = [member for member in members if not isinstance(member, Remote)]
    return only[0] if len(only) == 1 == len(pool.all_members()) else None
