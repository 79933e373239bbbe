"""The layout of an agent: the number and placement of the instances of each component. No I/O.

    components          {component: {'count': 1, 'target': 'inline'}}
        `count` instances in Agent_0's process ('inline') or in one process each ('process'). An executor with the
        target 'node' runs in a sub-agent on each node of the pilot, including the host of Agent_0
    target              'local'
        the host of Agent_0: that on which the job starts ('local'), or the first node of the pilot ('node'; see
        `nodes.relocation`)
    agents              {name: {'target': 'local', 'components': {component: {'count': 1}}}}
        sub-agents: processes that host components, on the machine of Agent_0 ('local') or on a node that is reserved
        for it ('node')
    number_of_workers   {worker: count}
        old names of a component's `count`
    blowup_factor, drop_clones
        see `pipeline.task_copies`
    node_local_envs     False
        whether the named environments are copied to the local disks of the nodes, also without `pack`
    heartbeat           {'interval': 10, 'timeout': 60}
        seconds between two heartbeats of sub-agents and Agent_0, and seconds without one until the other side is lost

One bridge (`rp_api.tree.root`) connects Agent_0 and the instances in other processes, if there are any.

The last nodes of the pilot are reserved for the sub-agents with the target 'node': one node each, in the order of the
sub-agents, on which no tasks run. Each other node on another host than Agent_0's has a sub-agent with an executor by
default. All other executors start tasks on Agent_0's host, and tasks on several nodes; if one of them is on a reserved
node, Agent_0's host has a sub-agent with an executor, too. A component that is not listed under `components` has one
inline instance, unless a sub-agent has one. There is one scheduler, in Agent_0.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from rp_agent.components.names import (
    ANYWHERE,
    COMPONENTS,
    EXECUTING,
    INLINE,
    SCHEDULING,
    STAGING_INPUT,
    STAGING_OUTPUT,
    sub_agent_on,
)
from rp_api.errors import DescriptionError
from rp_api.platforms.agent_config import check_keys, checked_count, mapping, worker_counts, wrong

_WORKERS = {'StageinWorker': STAGING_INPUT, 'ExecWorker': EXECUTING, 'StageoutWorker': STAGING_OUTPUT}
_KEYS = ('components', 'agents', 'target', 'number_of_workers', 'heartbeat', 'node_local_envs',
         'spawner', 'blowup_factor', 'drop_clones')   # the last ones are for executors and `task_copies`
_INLINE_OR_PROCESS = "'inline' (in the agent's process) or 'process' (its own)"
_TARGETS = _INLINE_OR_PROCESS, f"{_INLINE_OR_PROCESS} or 'node' (in a sub-agent on each node)"
_NAME = re.compile(r'[A-Za-z0-9_][A-Za-z0-9_.-]*')


class ComponentInstance(NamedTuple):
    """An instance of a component. `uid` is also the name of its trace, and `host` that of its process.

    `node` is the position of the node on which an executor starts tasks.
    """

    component: str
    uid: str
    host: str
    node: int = ANYWHERE


class Layout(NamedTuple):
    """All instances; those of a component are in the order of their numbers.

    `reserved` has the names of the sub-agents on reserved nodes, by the positions of these nodes.
    """

    instances: tuple[ComponentInstance, ...]
    reserved: Mapping[int, str]

    def of(self, component: str) -> list[ComponentInstance]:
        """Return the instances of a component."""
        return [instance for instance in self.instances if instance.component == component]

    def hosts(self) -> dict[str, list[ComponentInstance]]:
        """Return the other processes on Agent_0's host, by name, with the instances in each."""
        found: dict[str, list[ComponentInstance]] = {}
        elsewhere = {INLINE, *self.reserved.values()}
        for instance in self.instances:
            if instance.host not in elsewhere and instance.node == ANYWHERE:
                found.setdefault(instance.host, []).append(instance)
        return found

    def on_nodes(self) -> list[NodeHost]:
        """Return the sub-agents on nodes: first those with an executor that is bound to the node."""
        bound = [NodeHost(each.host, each.node, [each]) for each in self.instances if each.node != ANYWHERE]
        return bound + [NodeHost(name, position, [each for each in self.instances if each.host == name])
                        for position, name in self.reserved.items()]


class NodeHost(NamedTuple):
    """A sub-agent on the node at a position, and the instances in it."""

    name: str
    position: int
    instances: list[ComponentInstance]


class Heartbeat(NamedTuple):
    """Seconds between two heartbeats, and seconds without one after which a sub-agent is lost."""

    interval: float = 10.0
    timeout: float = 60.0


def read(settings: Mapping[str, Any], nodes: int = 1, elsewhere: Iterable[int] = ()) -> Layout:
    """Return the layout that an agent's configuration asks for; raise DescriptionError if it is invalid.

    The pilot has `nodes` nodes for tasks; those at the positions `elsewhere` are other hosts than Agent_0's. Reserved
    nodes follow them (see `reserved_nodes`).
    """
    check_keys('', settings, _KEYS)
    if settings.get('target', 'local') not in ('local', 'node'):
        raise wrong('target', settings['target'], "'local' (where the job starts) or 'node' (the pilot's first node)")
    if not isinstance(settings.get('node_local_envs', False), bool):
        raise wrong('node_local_envs', settings['node_local_envs'], 'true or false')
    here = _of_agent_0(settings)
    agents = _sub_agents(settings)
    reserved = dict(enumerate(_on_reserved_nodes(settings), nodes))
    instances: list[ComponentInstance] = []
    for component in COMPONENTS:
        hosted = [name for name, counts in agents.items() for _ in range(counts.get(component, 0))]
        count, target = here.get(component, (0 if hosted else 1, 'inline'))
        number = count + len(hosted)
        if not number:
            raise wrong(f'components.{component}.count', 0, 'at least 1, unless a sub-agent has some')
        uids = [f'{component}.{index:04d}' for index in range(number)]
        hosts = [uid if target == 'process' else INLINE for uid in uids[:count]] + hosted
        instances += [ComponentInstance(component, uid, host) for uid, host in zip(uids, hosts, strict=True)]
        if component == EXECUTING:
            everywhere = target == 'node' or not set(hosted).isdisjoint(reserved.values())
            instances += _on_nodes(range(nodes) if everywhere else elsewhere, number)
    _check_names(agents, instances)
    return Layout(tuple(instances), reserved)


def reserved_nodes(settings: Mapping[str, Any], nodes: int) -> int:
    """Return how many of a pilot's nodes are reserved for sub-agents.

    Raises DescriptionError if the configuration is invalid, or no node is left for tasks.
    """
    names = _on_reserved_nodes(settings)
    if names and len(names) >= nodes:
        raise DescriptionError(f"agent configuration: agents has {len(names)} with the target 'node' "
                               f'({", ".join(names)}), allowed: at most {nodes - 1} in a pilot with {nodes} node(s), '
                               'as tasks need one, too')
    return len(names)


def heartbeat(settings: Mapping[str, Any]) -> Heartbeat:
    """Return the heartbeat that an agent's configuration asks for; raise DescriptionError if it is invalid."""
    values = mapping('heartbeat', settings.get('heartbeat', {}))
    check_keys('heartbeat.', values, Heartbeat._fields)
    found = Heartbeat(**values)
    for name, value in found._asdict().items():
        if type(value) not in (int, float) or not value > 0:
            raise wrong(f'heartbeat.{name}', value, 'a number of seconds above 0')
    if found.timeout < 2 * found.interval:
        raise wrong('heartbeat.timeout', found.timeout, f'at least twice the interval, {found.interval:g}')
    return found


def _on_nodes(positions: Iterable[int], first: int) -> list[ComponentInstance]:
    """Return an executor for each of these nodes, numbered from `first`."""
    return [ComponentInstance(EXECUTING, f'{EXECUTING}.{number:04d}', sub_agent_on(position), position)
            for number, position in enumerate(positions, first)]


def _of_agent_0(settings: Mapping[str, Any]) -> dict[str, tuple[int, str]]:
    """Return number and target of the components that are listed for Agent_0."""
    found = {}
    for component, options in mapping('components', settings.get('components', {})).items():
        where = f'components.{component}'
        _check_component('components', component)
        options = mapping(where, options)
        check_keys(f'{where}.', options, ('count', 'target'))
        target = options.get('target', 'inline')
        if target not in ('inline', 'process') and (component, target) != (EXECUTING, 'node'):
            raise wrong(f'{where}.target', target, _TARGETS[component == EXECUTING])
        count = checked_count(f'{where}.count', options.get('count', 1), 0)
        if target == 'node' and count != 1:
            raise wrong(f'{where}.count', count, "1 with the target 'node'")
        if component == SCHEDULING and (count, target) != (1, 'inline'):
            raise wrong(where, options, 'one inline instance, as one scheduler places all tasks')
        found[component] = count, target
    return found | _of_workers(settings, found)


def _of_workers(settings: Mapping[str, Any], found: Mapping[str, tuple[int, str]]) -> dict[str, tuple[int, str]]:
    counts = worker_counts(settings)
    both = [_WORKERS[name] for name in counts if _WORKERS[name] in found]
    if both:
        raise DescriptionError(f'agent configuration: the number of {both[0]} is set twice, in components and in '
                               'number_of_workers: set one of them')
    return {_WORKERS[name]: (count, 'inline') for name, count in counts.items()}


def _on_reserved_nodes(settings: Mapping[str, Any]) -> list[str]:
    """Return the names of the sub-agents that have a node of their own."""
    agents = mapping('agents', settings.get('agents', {}))
    return [name for name, options in agents.items() if mapping(f'agents.{name}', options).get('target') == 'node']


def _sub_agents(settings: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    """Return the number of each component in each sub-agent."""
    found = {}
    for name, options in mapping('agents', settings.get('agents', {})).items():
        where = f'agents.{name}'
        options = mapping(where, options)
        check_keys(f'{where}.', options, ('target', 'components'))
        if options.get('target', 'local') not in ('local', 'node'):
            raise wrong(f'{where}.target', options['target'],
                        "'local' (on the host of Agent_0) or 'node' (on a node that is reserved for it)")
        components = mapping(f'{where}.components', options.get('components', {}))
        if not components:
            raise wrong(f'{where}.components', {}, 'at least one component')
        found[name] = {each: _count_in(f'{where}.components', each, value) for each, value in components.items()}
    return found


def _count_in(where: str, component: str, options: Any) -> int:
    """Return the number of instances of a component in a sub-agent."""
    _check_component(where, component)
    if component == SCHEDULING:
        raise DescriptionError(f'agent configuration: {where} has {component}, but the scheduler runs in Agent_0')
    options = mapping(f'{where}.{component}', options)
    check_keys(f'{where}.{component}.', options, ('count',))
    return checked_count(f'{where}.{component}.count', options.get('count', 1), 1)


def _check_names(agents: Iterable[str], instances: Iterable[ComponentInstance]) -> None:
    """Check the names of sub-agents, which also name files in the sandbox."""
    taken = {'agent_0', *(instance.uid for instance in instances),
             *(instance.host for instance in instances if instance.node != ANYWHERE)}
    for name in agents:
        if not _NAME.fullmatch(name) or name in taken:
            raise wrong('agents', name, "unique names of letters, digits, '_', '-' and '.'")


def _check_component(where: str, component: str) -> None:
    if component not in COMPONENTS:
        raise wrong(where, component, ', '.join(COMPONENTS))
