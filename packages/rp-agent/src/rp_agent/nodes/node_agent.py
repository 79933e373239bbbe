"""The configuration of a sub-agent on a node: finds the position of its node, and the devices for its tasks.

All sub-agents on nodes have the same configuration file. Some get the position of their node as an argument. Others are
started by one launcher for all nodes, in an unknown order, and find their node by its name or by their rank.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, cast

from rp_agent.bootstrap.environment import is_of_a_process
from rp_api.errors import PlatformError
from rp_api.system.host import host_id

_OF_THE_NODE = ('HOSTNAME', 'SLURMD_NODENAME')
"""Environment variables with the name of the node."""


def own_config(config: Mapping[str, Any], arguments: Sequence[str]) -> dict[str, Any]:
    """Return the configuration of the sub-agent on this node, given that of all and, perhaps, its position."""
    shared = config['sub_agent']
    index = _index(config, int(arguments[0]) if arguments else None)
    position = shared['positions'][index]
    name, instances = shared['hosted'][index]
    own = shared | {'name': name, 'relay': index < shared['relays'], 'instances': instances}
    here = [position] if shared['spread'] else None   # else these are simulated nodes of one host
    found = dict(config) | {'sub_agent': own, 'here': here,
                            'environment': environment_on_node(config['environment'], os.environ)}
    if host_id() == shared['host']:   # the agent has found the devices of this host
        return found
    from rp_agent.resource_manager import binding

    cores, blocked, gpus = dict(shared['smaller']).get(position, shared['devices'])
    cpus, _ = binding.of_this_host(cores, gpus, tuple(blocked), shared['threads'])
    mine = config.get('gpus_of_node')   # a partition may have only some of the GPUs
    gpu_ids = binding.gpu_ids(os.environ, gpus) if mine is None else binding.some_gpu_ids(os.environ, mine)
    return found | {'cpus': cpus, 'gpu_ids': gpu_ids}


def _index(config: Mapping[str, Any], position: int | None) -> int:
    """Return the index of this node among those with sub-agents; raise PlatformError if it is unknown."""
    shared = config['sub_agent']
    if position is not None:
        return int(shared['positions'].index(position))
    names = shared['names']
    if len(set(names)) == len(names):   # else these are simulated nodes
        found = _by_name(config['platform'].get('resource_manager'), names)
        if found is not None:
            return found
    rank = next((os.environ[name] for name in shared['rank_variables'] if name in os.environ), '')
    if not rank.isdecimal() or int(rank) >= len(names):
        raise PlatformError(f'{os.uname().nodename} is not one of the nodes {", ".join(names[:5])} ..., and none of '
                            f'the variables {", ".join(shared["rank_variables"])} has the number of a rank')
    return int(rank)


def _by_name(manager: str | None, names: Sequence[str]) -> int | None:
    """Return the index of this host among these nodes; None if it is not one of them."""
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


def environment_on_node(tasks: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """Return the base environment of tasks: the same on all nodes, except for the name of the node."""
    found = {name: value for name, value in tasks.items() if not is_of_a_process(name)}
    return found | {name: own[name] for name in _OF_THE_NODE if name in own}


def shared_config(config: Mapping[str, Any], shared: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration of all sub-agents on nodes: the agent's, without its access to the coordinator."""
    own = cast('dict[str, Any]', dict(config))
    return own | {'coordination': {}, 'sub_agent': dict(shared),
                  'environment': config.get('environment') or dict(os.environ)}
