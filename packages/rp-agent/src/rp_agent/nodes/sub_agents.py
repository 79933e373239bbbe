"""The sub-agents of an agent: processes that host components, and the bridge that connects them to Agent_0.

Rules of this file:

- If a sub-agent dies or hangs, only its tasks are lost, and its node if it is bound to one. Messages that it sent
  before its death count.
- No process of a sub-agent remains: processes of its tasks are killed, and it ends with Agent_0.
- Keys travel over a pipe, or in a file that only its owner can read.
"""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from rp_agent import network
from rp_agent.components import layout
from rp_agent.components.build import HOST_CLOCK, ComponentPorts, belongs
from rp_agent.components.layout import ComponentInstance, NodeHost
from rp_agent.components.names import ANYWHERE, EXECUTING
from rp_agent.executor.launching.outcome import explain_code
from rp_agent.nodes import node_agent, node_launch
from rp_agent.nodes.child import NodeProcess, address_beside, start_sub_agent
from rp_agent.nodes.remote import Item, Remote
from rp_agent.resource_manager.base import Allocation
from rp_agent.task import AgentTask
from rp_api.loop.event_loop import Loop, Timer
from rp_api.system import processes
from rp_api.system.host import host_id
from rp_api.transport.access import AccessPoint
from rp_api.tree.root import Root, relays_for

if TYPE_CHECKING:
    from rp_agent.node_copies.copies import NodeCopies

_log = logging.getLogger('radical.pilot.agent')

DRAIN = 0.25
"""Seconds to wait for the last messages of a sub-agent that has died."""

START_TIMEOUT = 180.0
"""Seconds that sub-agents have to connect; they try for as long."""

END_TIMEOUT = 3.0
"""Seconds that sub-agents have to end by themselves."""

BRIDGE = 'agent_0.bridge'
"""The bridge in traces."""

Dismiss = Callable[[Remote, str], None]
Ended = Callable[[Remote, list[AgentTask], str], None]


@dataclass(slots=True, eq=False)
class SubAgent:
    """A process that hosts components: a child of the agent, or a process on a node that a launcher has started."""

    name: str
    remotes: list[Remote]
    child: NodeProcess
    """The sub-agent itself, or its launcher, which may have started others."""
    on_node: bool
    """True if a launcher has started it on a node."""


class SubAgents:
    """The sub-agents of a layout: starts and watches them, and connects their components to Agent_0.

    `ports` has the outputs of each kind of component. When a sub-agent dies, `dismiss(remote, reason)` is called at
    once for each of its components, and `DRAIN` seconds later `ended(remote, tasks, reason)` with the tasks that died.
    `on_moment(message, when, name)` is called with clock readings of sub-agents and their time on this host's clock,
    `trace(event, name)` with the starts and stops of the bridge, of components, and of sub-agents.
    """

    def __init__(self, config: Mapping[str, Any], loop: Loop, allocation: Allocation, on_nodes: Sequence[NodeHost],
                 ports: Mapping[str, ComponentPorts], dismiss: Dismiss, ended: Ended,
                 on_moment: Callable[[str, int, str], object], trace: Callable[[str, str], object]) -> None:
        self._config = config
        self._sandbox: str = config['pilot_sandbox']
        self._loop = loop
        self._allocation = allocation.whole
        self._on_nodes = on_nodes
        self._ports = ports
        self._dismiss = dismiss
        self._on_died = ended
        self._on_moment = on_moment
        self._trace = trace
        self._heartbeat = layout.heartbeat(config['agent'])
        self._relays = relays_for(len(on_nodes))
        self._point = AccessPoint(loop)
        self._root = Root(loop, self._point.keys, self._point.gate, self._address(), self._receive, self._silent,
                          nodes=len(on_nodes), relays=self._relays, interval=self._heartbeat.interval,
                          timeout=self._heartbeat.timeout, greeted=self._came, clock=HOST_CLOCK.reference,
                          moment=self._moment)
        trace('bridge_start', BRIDGE)
        self._remotes: dict[str, Remote] = {}
        self._running: dict[str, SubAgent] = {}
        self._children: set[NodeProcess] = set()
        """Running sub-agents and launchers."""
        self._ends: node_launch.Reader | None = None
        self._on_end: Callable[[], object] | None = None
        self.copies: NodeCopies | None = None
        """The copies of environments on nodes, if there are any."""
        self._timers: list[Timer] = []

    def start(self, name: str, instances: Sequence[ComponentInstance]) -> list[Remote]:
        """Start a sub-agent on this host and return the proxies of its components."""
        config = dict(self._config) | {'coordination': {}, 'sub_agent': self._access() | {
            'name': name, 'instances': [(each.component, each.uid) for each in instances], 'relay': False}}
        child = start_sub_agent(config, os.path.join(self._sandbox, f'{name}.err'))
        self._watch(child)
        return self._add(name, instances, child)

    def start_on_nodes(self) -> list[Remote]:
        """Start the sub-agents on nodes and return the proxies of their components.

        Raises `PlatformError` if no launch method can start them.
        """
        hosts = {each.position: each for each in self._on_nodes}
        launches = node_launch.launches(self._config['platform'], self._allocation, self._on_nodes, self._sandbox)
        names = [self._allocation.names[position] for position in hosts]
        node_launch.write_config(node_agent.shared_config(self._config, self._access() | {
            'positions': list(hosts), 'names': names, 'spread': bool(self._allocation.elsewhere),
            'hosted': [(each.name, [(one.component, one.uid) for one in each.instances]) for each in self._on_nodes],
            'relays': self._relays, 'rank_variables': launches[0].rank_variables,
            **_devices(self._allocation)}), self._sandbox)
        remotes: list[Remote] = []
        for launch in launches:
            child = node_launch.start(launch, self._sandbox)
            self._watch(child)
            if child.process.stdout is not None:
                self._ends = node_launch.Reader(self._loop, child.process.stdout, child.output, names, self._told_end)
            for each in (hosts[position] for position in launch.positions):
                remotes += self._add(each.name, each.instances, child, on_node=True)
        self._timers.append(self._loop.call_later(START_TIMEOUT, self._check_start))
        return remotes

    def on_nodes(self) -> dict[str, str]:
        """Return the names of the sub-agents that start tasks on a node, with the name of the node."""
        return {name: self._allocation.names[each.remotes[0].node] for name, each in self._running.items()
                if each.remotes[0].node != ANYWHERE}

    def put(self, name: str, item: Item) -> None:
        """Send an item on a copy to a sub-agent."""
        self._root.put(name, [{'component': '', 'op': 'copy'} | item])

    def spread(self, names: Sequence[str], item: Item) -> None:
        """Send an item on a copy to several sub-agents; it may be lost."""
        self._root.spread(names, {'component': '', 'op': 'copy'} | item)

    def end(self, done: Callable[[], object]) -> None:
        """End all sub-agents, by signals after `END_TIMEOUT`; `done()` is called when they have ended."""
        self._on_end = done
        for name in self._running:
            self._root.put(name, [{'component': '', 'op': 'end'}])
        self._timers.append(self._loop.call_later(END_TIMEOUT, self._insist))
        self._check_end()

    def kill(self) -> None:
        """Give up all sub-agents that still have tasks."""
        for sub_agent in [each for each in self._running.values() if any(remote.tasks for remote in each.remotes)]:
            _log.warning('sub-agent %s is given up, as it does not end its tasks', sub_agent.name)
            if self._is_alone(sub_agent):
                sub_agent.child.process.kill()
            else:
                self._dead(sub_agent, f'sub-agent {sub_agent.name} was given up, as it did not end its tasks')

    def close(self) -> None:
        """Leave no process, descriptor or socket behind."""
        for timer in self._timers:
            timer.cancel()
        for child in list(self._children):
            child.process.kill()
            self._reap(child)
        self._sweep(self._running.values())
        self._running.clear()
        self._root.close(0)
        self._trace('bridge_stop', BRIDGE)
        self._point.close()

    # start

    def _address(self) -> str | None:
        """Return the address to listen at: on a network only if the pilot has other hosts."""
        elsewhere = self._allocation.elsewhere
        if elsewhere:
            return network.listen_address(self._config['platform'], self._allocation.names[elsewhere[-1]])
        return 'tcp://127.0.0.1' if self._relays else address_beside(self._config['registry_address'])

    def _access(self) -> dict[str, Any]:
        """Return the part of a sub-agent's configuration that it needs to connect."""
        return {**self._point.admit(self._root.address).as_dict(), 'host': host_id(), 'parent': os.getpid(),
                'heartbeat': self._heartbeat, 'let_in': START_TIMEOUT}

    def _add(self, name: str, instances: Sequence[ComponentInstance], child: NodeProcess, *,
             on_node: bool = False) -> list[Remote]:
        remotes = [Remote(each.uid, each.component, partial(self._root.put, name), self._ports[each.component],
                          each.node) for each in instances]
        self._root.expect(name)
        self._running[name] = SubAgent(name, remotes, child, on_node)
        for remote in remotes:
            self._trace('comp_start', remote.uid)
        self._remotes.update((remote.uid, remote) for remote in remotes)
        return remotes

    def _watch(self, child: NodeProcess) -> None:
        self._children.add(child)
        child.handle.watch(self._loop, partial(self._ended, child))

    def _check_start(self) -> None:
        for sub_agent in [each for each in self._running.values() if each.on_node and not each.remotes[0].came]:
            self._dead(sub_agent, f'sub-agent {sub_agent.name} has not started within {START_TIMEOUT:g} s'
                       f'{sub_agent.child.words()}')

    # messages

    def _receive(self, name: str, items: list[Item]) -> None:
        for item in items:
            remote = self._remotes.get(item['component'])
            if remote is not None:
                remote.receive(item)
            elif item['op'] == 'copy' and self.copies is not None:
                self.copies.receive(name, item)

    def _came(self, name: str) -> None:
        sub_agent = self._running.get(name)
        for remote in sub_agent.remotes if sub_agent else ():
            remote.came = True

    def _moment(self, name: str, message: str, when: int) -> None:
        here = HOST_CLOCK.here(when)
        if name in self._running and here is not None:
            self._on_moment(message, here, name)

    # end

    def _told_end(self, index: int, code: int) -> None:
        """Handle the last line of a sub-agent's script. The connection shows the end of one that has connected."""
        sub_agent = self._running.get(self._on_nodes[index].name)
        if self._on_end is not None or sub_agent is None or sub_agent.remotes[0].came:
            return
        self._dead(sub_agent, f'sub-agent {sub_agent.name} launched by {sub_agent.child.name} has ended before it was '
                   f'connected: {explain_code(code, shell=True)}{sub_agent.child.words()}')

    def _silent(self, name: str, why: str) -> None:
        """Handle a sub-agent that sends no heartbeat: a node is lost, a child is killed."""
        sub_agent = self._running.get(name)
        if sub_agent is None:
            self._root.forget(name)
        elif sub_agent.on_node:
            self._dead(sub_agent, f'sub-agent {name} is lost: {why}{sub_agent.child.words()}')
        elif sub_agent.child in self._children:
            _log.error('sub-agent %s is killed: %s', name, why)
            sub_agent.child.process.kill()

    def _ended(self, child: NodeProcess) -> None:
        """Handle the end of a child: a sub-agent, or a launcher, which ends after its sub-agents."""
        self._reap(child)
        dead = [each for each in self._running.values() if each.child is child]
        if self._on_end is not None:
            for sub_agent in dead:
                self._stopped(sub_agent)
            self._sweep(dead)
            self._check_end()
            return
        for sub_agent in dead:
            self._dead(sub_agent, child.how(sub_agent.name))

    def _dead(self, sub_agent: SubAgent, reason: str) -> None:
        _log.error('%s', reason)
        self._stopped(sub_agent)
        for remote in sub_agent.remotes:
            remote.leave()
            self._dismiss(remote, reason)
        self._loop.call_later(DRAIN, self._lost, sub_agent, reason)

    def _stopped(self, sub_agent: SubAgent) -> None:
        del self._running[sub_agent.name]
        for remote in sub_agent.remotes:
            self._trace('comp_stop', remote.uid)
        self._trace('sub_agent_stop', sub_agent.name)
        if self.copies is not None:
            self.copies.lost(sub_agent.name)

    def _lost(self, sub_agent: SubAgent, reason: str) -> None:
        """Return the tasks that died with a sub-agent, whose last messages have arrived by now."""
        self._root.forget(sub_agent.name)
        self._sweep([sub_agent])
        if self._is_alone(sub_agent):
            self._timers += sub_agent.child.end(self._loop)
        for remote in sub_agent.remotes:
            self._remotes.pop(remote.uid, None)
            self._on_died(remote, remote.take_tasks(), reason)

    def _insist(self) -> None:
        """Signal the children that have not ended in time."""
        for child in self._children:
            _log.warning('%s is killed, as it does not end', child.name)
            self._timers += child.end(self._loop)

    def _check_end(self) -> None:
        if self._on_end is not None and not self._children:
            on_end, self._on_end = self._on_end, None
            for timer in self._timers:
                timer.cancel()
            on_end()

    def _reap(self, child: NodeProcess) -> None:
        """Reap a process that has ended or was killed."""
        self._children.discard(child)
        if child.process.stdout is not None and self._ends is not None:
            self._ends.close()
        child.close()

    def _sweep(self, dead: Iterable[SubAgent]) -> None:
        """Kill the processes of tasks on this host: the kernel has killed only direct children of the sub-agents."""
        uids = [uid for sub_agent in dead for remote in sub_agent.remotes
                if remote.component == EXECUTING for uid in remote.tasks]
        if uids:
            processes.sweep({**belongs(self._config), 'RP_TASK_ID': uids}, signal.SIGKILL)

    def _is_alone(self, sub_agent: SubAgent) -> bool:
        """Return whether the child of a sub-agent runs and belongs to no other sub-agent."""
        child = sub_agent.child
        return child in self._children and not any(each.child is child for each in self._running.values()
                                                   if each is not sub_agent)


def _devices(allocation: Allocation) -> dict[str, Any]:
    """Return the devices of a node, with blocked ones, and those of smaller nodes by position."""
    return {'threads': allocation.threads_per_core,
            'devices': (allocation.cores_per_node + len(allocation.blocked_cores), allocation.blocked_cores,
                        allocation.gpus_per_node + len(allocation.blocked_gpus)),
            'smaller': [(index, allocation.all_devices(index)) for index in allocation.smaller]}
