"""Who a sub-agent on a node is: which node it is on, and what that means for its tasks.

All sub-agents on nodes have the same configuration. Some are told the position of their node; others were started by
one launcher for all nodes, in whatever order that has, and look for their node by its name, or by their rank.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, cast

from rp_agent.bootstrap.environment import is_of_a_process
from rp_agent.components.names import EXECUTING, sub_agent_on
from rp_api.errors import PlatformError
from rp_api.system.host import host_id

_OF_THE_NODE = ('HOSTNAME', 'SLURMD_NODENAME')
"""Variables that tell a process about its node."""


def own_config(config: Mapping[str, Any], arguments: Sequence[str]) -> dict[str, Any]:
    """The configuration of the sub-agent on this node, of that of all; the arguments may have its position."""
    shared = config['sub_agent']
    index = _index(config, int(arguments[0]) if arguments else None)
    position = shared['positions'][index]
    own = shared | {'name': sub_agent_on(position), 'relay': index < shared['relays'],
                    'instances': [(EXECUTING, shared['uids'][index])]}
    here = None if config.get('here') is None else [position]
    found = dict(config) | {'sub_agent': own, 'here': here}
    if host_id() == shared['host']:   # then what the agent has found out holds here, too
        return found | {'environment': _environment(config['environment'], os.environ)}
    from rp_agent.resource_manager import binding

    cores, blocked, gpus = dict(shared['smaller']).get(position, shared['devices'])
    cpus, _ = binding.of_this_host(cores, gpus, tuple(blocked), shared['threads'])
    mine = config.get('gpus_of_node')   # a partition may have only some of them
    gpu_ids = binding.gpu_ids(os.environ, gpus) if mine is None else binding.some_gpu_ids(os.environ, mine)
    return found | {'cpus': cpus, 'gpu_ids': gpu_ids,
                    'environment': _environment(config['environment'], os.environ)}


def _index(config: Mapping[str, Any], position: int | None) -> int:
    """Which of the nodes that have sub-agents this is."""
    shared = config['sub_agent']
    if position is not None:
        return int(shared['positions'].index(position))
    names = shared['names']
    if len(set(names)) == len(names):   # else they are pretended
        found = _by_name(config['platform'].get('resource_manager'), names)
        if found is not None:
            return found
    rank = next((os.environ[name] for name in shared['rank_variables'] if name in os.environ), '')
    if not rank.isdecimal() or int(rank) >= len(names):
        raise PlatformError(f'{os.uname().nodename} is none of the nodes {", ".join(names[:5])} ..., and none of the '
                            f'variables {", ".join(shared["rank_variables"])} has the number of a rank')
    return int(rank)


def _by_name(manager: str | None, names: Sequence[str]) -> int | None:
    """Which of these nodes this host is; None if it is none of them."""
    from rp_agent.resource_manager.batch import BatchSystem
    from rp_agent.resource_manager.granted import Node
    from rp_agent.resource_manager.system import System
    from rp_agent.resource_manager.systems import find

    found = find.find(manager or find.FORK)
    nodes = [Node(name) for name in names]
    system = System()
    if isinstance(found, BatchSystem):
        own = found.own(nodes, system)
        return None if own is None else nodes.index(own)
    return next((index for index, name in enumerate(names) if system.is_here(name)), None)


def _environment(tasks: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """The environment that tasks start from: the same on all nodes, but for what tells them where they are."""
    found = {name: value for name, value in tasks.items() if not is_of_a_process(name)}
    return found | {name: own[name] for name in _OF_THE_NODE if name in own}


def shared_config(config: Mapping[str, Any], shared: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration of all sub-agents on nodes: the agent's, without what is only for the agent."""
    own = cast('dict[str, Any]', dict(config))
    return own | {'coordination': {}, 'sub_agent': dict(shared),
                  'environment': config.get('environment') or dict(os.environ)}
