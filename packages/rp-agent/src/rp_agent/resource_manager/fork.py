"""The resource manager FORK: the machine that the agent runs on."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from rp_agent.resource_manager import machine
from rp_agent.resource_manager.base import Allocation, Request
from rp_api.errors import ResourceError


def allocate(request: Request, platform: Mapping[str, Any]) -> Allocation:
    """What a pilot gets on this machine.

    A node has what the platform definition says, or what the machine has. A pilot that asks for cores gets one node
    with just these: nobody else has a claim on the rest. More than there is can be had where the definition allows
    `fake_resources`; elsewhere it is a `ResourceError`.
    """
    cores = platform.get('cores_per_node') or machine.usable_cores()
    gpus = platform.get('gpus_per_node') or machine.usable_gpus(os.environ)
    fake = bool(platform.get('fake_resources'))
    if not fake:
        _refuse_more('nodes', request.nodes, 1)
        _refuse_more('cores', request.cores, cores)
        _refuse_more('gpus', request.gpus, gpus)
    if not request.nodes:
        cores, gpus = request.cores or cores, request.gpus
    return Allocation(names=('localhost',) * (request.nodes or 1), cores_per_node=cores, gpus_per_node=gpus,
                      mem_per_node=platform.get('mem_per_node') or machine.usable_memory(),
                      lfs_per_node=platform.get('lfs_size_per_node') or 0)


def _refuse_more(what: str, wanted: int, there: int) -> None:
    if wanted > there:
        raise ResourceError(f'{what}={wanted} of the pilot description is more than the {there} that this machine has')
