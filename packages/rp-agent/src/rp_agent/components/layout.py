"""How many instances of each component an agent has, and where each of them lives: read from its configuration.

    components          {component: {'count': 1, 'target': 'inline'}}
        `count` instances in Agent_0's process ('inline') or each in a process of its own ('process'). An executor with
        the target 'node' is in a sub-agent on each node of the pilot, whether that is another host or not
    agents              {name: {'target': 'local', 'components': {component: {'count': 1}}}}
        sub-agents: processes that host components, on the machine of Agent_0 ('local')
    number_of_workers   {worker: count}
        old names, with the same meaning as a component's `count`
    blowup_factor, drop_clones
        see `clones`
    heartbeat           {'interval': 10, 'timeout': 60}
        seconds between two signs of life of sub-agents and Agent_0, and after how many without one they are lost

Agent_0 and instances in other processes are joined by one bridge (`rp_api.tree.root`), which is there when they are.

Each node that is another host than Agent_0's has a sub-agent with an executor, without being mentioned. All other
executors start tasks on Agent_0's host, and those that are spread over several nodes. A component that is not mentioned
under `components` has one inline instance, unless a sub-agent has some. There is one scheduler, in Agent_0. Here is no
I/O: values in, values out.
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

MOST = 1024
"""Most instances of a component in one place."""

_WORKERS = {'StageinWorker': STAGING_INPUT, 'ExecWorker': EXECUTING, 'StageoutWorker': STAGING_OUTPUT}
_UPDATE_WORKER = 'UpdateWorker'
_KEYS = ('components', 'agents', 'number_of_workers', 'heartbeat',
         'spawner', 'blowup_factor', 'drop_clones')   # the last ones are for executors and `clones`
_INLINE_OR_PROCESS = "'inline' (in the agent's process) or 'process' (its own)"
_TARGETS = _INLINE_OR_PROCESS, f"{_INLINE_OR_PROCESS} or 'node' (in a sub-agent on each node)"
_NAME = re.compile(r'[A-Za-z0-9_][A-Za-z0-9_.-]*')


class Instance(NamedTuple):
    """One instance of a component; `uid` also names its trace, `host` is the process that it lives in.

    `node` is the position of the node on which an executor starts tasks.
    """

    component: str
    uid: str
    host: str
    node: int = ANYWHERE


class Layout(NamedTuple):
    """All instances, with those of a component in the order of their numbers."""

    instances: tuple[Instance, ...]

    def of(self, component: str) -> list[Instance]:
        """The instances of a component."""
        return [instance for instance in self.instances if instance.component == component]

    def hosts(self) -> dict[str, list[Instance]]:
        """The processes beside Agent_0 on its own machine by name, and what lives in each."""
        found: dict[str, list[Instance]] = {}
        for instance in self.instances:
            if instance.host != INLINE and instance.node == ANYWHERE:
                found.setdefault(instance.host, []).append(instance)
        return found

    def on_nodes(self) -> list[Instance]:
        """The executors that have a node of their own."""
        return [instance for instance in self.instances if instance.node != ANYWHERE]


class Heartbeat(NamedTuple):
    """How often signs of life are given, and after how many seconds without one a sub-agent is lost."""

    interval: float = 10.0
    timeout: float = 60.0


def read(settings: Mapping[str, Any], nodes: int = 1, elsewhere: Iterable[int] = ()) -> Layout:
    """The layout that an agent's configuration asks for; DescriptionError names what is wrong, and what is allowed.

    The pilot has so many nodes; those at the positions `elsewhere` are other hosts.
    """
    _check_keys('', settings, _KEYS)
    here = _of_agent_0(settings)
    agents = _sub_agents(_mapping('agents', settings.get('agents', {})))
    instances: list[Instance] = []
    for component in COMPONENTS:
        hosted = [name for name, counts in agents.items() for _ in range(counts.get(component, 0))]
        count, target = here.get(component, (0 if hosted else 1, 'inline'))
        number = count + len(hosted)
        if not number:
            raise _wrong(f'components.{component}.count', 0, 'at least 1, unless a sub-agent has some')
        uids = [f'{component}.{index:04d}' for index in range(number)]
        hosts = [uid if target == 'process' else INLINE for uid in uids[:count]] + hosted
        instances += [Instance(component, uid, host) for uid, host in zip(uids, hosts, strict=True)]
        if component == EXECUTING:
            instances += _on_nodes(range(nodes) if target == 'node' else elsewhere, number)
    _check_names(agents, instances)
    return Layout(tuple(instances))


def heartbeat(settings: Mapping[str, Any]) -> Heartbeat:
    """The heartbeat that an agent's configuration asks for."""
    values = _mapping('heartbeat', settings.get('heartbeat', {}))
    _check_keys('heartbeat.', values, Heartbeat._fields)
    found = Heartbeat(**values)
    for name, value in found._asdict().items():
        if type(value) not in (int, float) or not value > 0:
            raise _wrong(f'heartbeat.{name}', value, 'a number of seconds above 0')
    if found.timeout < 2 * found.interval:
        raise _wrong('heartbeat.timeout', found.timeout, f'at least twice the interval, {found.interval:g}')
    return found


def _on_nodes(positions: Iterable[int], first: int) -> list[Instance]:
    """Executors with a node of their own; their numbers begin with `first`."""
    return [Instance(EXECUTING, f'{EXECUTING}.{number:04d}', sub_agent_on(position), position)
            for number, position in enumerate(positions, first)]


def _of_agent_0(settings: Mapping[str, Any]) -> dict[str, tuple[int, str]]:
    """Number and target of the components that are mentioned for Agent_0."""
    found = {}
    for component, options in _mapping('components', settings.get('components', {})).items():
        where = f'components.{component}'
        _check_component('components', component)
        options = _mapping(where, options)
        _check_keys(f'{where}.', options, ('count', 'target'))
        target = options.get('target', 'inline')
        if target not in ('inline', 'process') and (component, target) != (EXECUTING, 'node'):
            raise _wrong(f'{where}.target', target, _TARGETS[component == EXECUTING])
        count = _count(f'{where}.count', options.get('count', 1), 0)
        if target == 'node' and count != 1:
            raise _wrong(f'{where}.count', count, "1 with the target 'node'")
        if component == SCHEDULING and (count, target) != (1, 'inline'):
            raise _wrong(where, options, 'one inline instance: there is one view of the nodes')
        found[component] = count, target
    return found | _of_workers(settings, found)


def _of_workers(settings: Mapping[str, Any], found: Mapping[str, tuple[int, str]]) -> dict[str, tuple[int, str]]:
    workers = _mapping('number_of_workers', settings.get('number_of_workers', {}))
    _check_keys('number_of_workers.', workers, (*_WORKERS, _UPDATE_WORKER))
    counts = {name: _count(f'number_of_workers.{name}', value, 1) for name, value in workers.items()}
    if counts.pop(_UPDATE_WORKER, 1) != 1:
        raise _wrong(f'number_of_workers.{_UPDATE_WORKER}', workers[_UPDATE_WORKER], '1: updates are sent in order')
    both = [_WORKERS[name] for name in counts if _WORKERS[name] in found]
    if both:
        raise DescriptionError(f'agent configuration: the number of {both[0]} is set twice, in components and in '
                               'number_of_workers: set one of them')
    return {_WORKERS[name]: (count, 'inline') for name, count in counts.items()}


def _sub_agents(agents: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    """The number of components in each sub-agent."""
    found = {}
    for name, options in agents.items():
        where = f'agents.{name}'
        options = _mapping(where, options)
        _check_keys(f'{where}.', options, ('target', 'components'))
        if options.get('target', 'local') != 'local':
            raise _wrong(f'{where}.target', options['target'], "'local', the machine of the agent; other nodes have "
                         'sub-agents without being mentioned')
        components = _mapping(f'{where}.components', options.get('components', {}))
        if not components:
            raise _wrong(f'{where}.components', {}, 'at least one component')
        found[name] = {each: _count_in(f'{where}.components', each, value) for each, value in components.items()}
    return found


def _count_in(where: str, component: str, options: Any) -> int:
    """The number of a component in a sub-agent."""
    _check_component(where, component)
    if component == SCHEDULING:
        raise DescriptionError(f'agent configuration: {where} holds {component}, but the scheduler lives in Agent_0')
    options = _mapping(f'{where}.{component}', options)
    _check_keys(f'{where}.{component}.', options, ('count',))
    return _count(f'{where}.{component}.count', options.get('count', 1), 1)


def _check_names(agents: Iterable[str], instances: Iterable[Instance]) -> None:
    """Names of processes are names of files, and there are others in that directory."""
    taken = {'agent_0', *(instance.uid for instance in instances)}
    for name in agents:
        if not _NAME.fullmatch(name) or name in taken:
            raise _wrong('agents', name, "names of letters, digits, '_', '-' and '.', that nothing else has")


def _check_component(where: str, component: str) -> None:
    if component not in COMPONENTS:
        raise _wrong(where, component, ', '.join(COMPONENTS))


def _check_keys(where: str, values: Mapping[str, Any], allowed: tuple[str, ...]) -> None:
    for key in values:
        if key not in allowed:
            raise DescriptionError(f'agent configuration: {where}{key} is not known, allowed are: {", ".join(allowed)}')


def _mapping(where: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise _wrong(where, value, 'a dict')
    return value


def _count(where: str, value: Any, least: int) -> int:
    if type(value) is not int or not least <= value <= MOST:
        raise _wrong(where, value, f'a whole number from {least} to {MOST}')
    return value


def _wrong(where: str, value: Any, allowed: str) -> DescriptionError:
    return DescriptionError(f'agent configuration: {where} is {value!r}, allowed: {allowed}')
