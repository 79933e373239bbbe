"""The nodes of a simulated pilot, and their division among its launchers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rp_agent.instance_nodes import divide, parts
from rp_agent.resource_manager.base import Allocation
from rp_agent.resource_manager.granted import Node
from rp_agent.resource_manager.shape import Shape
from rp_api.simulation.contract import PilotPlan
from rp_api.simulation.model import Model


def allocation(plan: PilotPlan) -> Allocation:
    """Return the usable resources of the pilot's nodes, from the platform definition alone."""
    platform = plan.platform
    nodes = [Node(f'node-{number:06d}', platform['cores_per_node'], platform.get('gpus_per_node') or 0)
             for number in range(plan.nodes)]
    found = Shape(platform, {}, counts_threads=False).allocation(nodes, None)
    # without a value in the definition, the memory would be that of this machine
    return replace(found, mem_per_node=platform.get('mem_per_node') or 0)


def launching_platform(platform: Mapping[str, Any], model: Model) -> Mapping[str, Any]:
    """Return the definition with the launch method and the number of instances of the model."""
    method = model.launch_method
    if not method:
        return platform
    options = {'dvm_count': model.launchers} if model.launchers else {}
    return {**platform, 'launch_methods': {'order': [method], method: options}}


def divided(platform: Mapping[str, Any], model: Model, nodes: int) -> tuple[range, ...]:
    """Return the nodes of each launcher: the parts of DVMs, else equal parts by the model, else one part."""
    found = parts(platform, nodes)
    if not found and model.launchers:
        found = divide('of the model', nodes, {'instance_count': model.launchers})
    return found or (range(nodes),)
