"""The allocation of a pilot, from its resource manager or, as plain data, from the configuration of its agent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from rp_agent.resource_manager.base import Allocation, Request
from rp_agent.resource_manager.systems.find import allocate
from rp_agent.resource_manager.systems.flux import URI


def allocation_of(config: Mapping[str, Any]) -> Allocation:
    """Return the allocation of the pilot of an agent with this configuration.

    Raises `PlatformError` if the resources cannot be determined, `ResourceError` if there are fewer than requested.
    """
    if 'allocation' in config:
        return from_plain(config['allocation'])
    request = Request(config['nodes'], config['cores'], config['gpus'], config.get('backup_nodes', 0))
    return allocate(request, config['platform'])


def platform_of(platform: Mapping[str, Any], allocation: Allocation) -> Mapping[str, Any]:
    """Return the platform of a pilot: with the executor FLUX for `local.allocation` on several nodes of a Flux job."""
    if platform.get('resource_manager') != 'ALLOCATION' or URI not in allocation.facts or not allocation.elsewhere:
        return platform
    return {**platform, 'agent_spawner': 'FLUX', 'agent_scheduler': 'FLUX',
            'launch_methods': {'order': ['FLUX'], 'FLUX': {}}}


def as_plain(allocation: Allocation) -> dict[str, Any]:
    """Return an allocation as plain data, for the configuration of an agent."""
    return asdict(allocation) | {'smaller': list(allocation.smaller.items())}


def from_plain(data: Mapping[str, Any]) -> Allocation:
    """Return the allocation for the result of `as_plain`, also after a round trip through JSON."""
    return Allocation(**{name: _tuples(value) for name, value in data.items()} | {
        'smaller': dict(_tuples(data['smaller']))})


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list | tuple) else value
