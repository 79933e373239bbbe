"""Resource manager FORK: the machine that the agent runs on."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rp_agent.resource_manager import architecture, binding, machine
from rp_agent.resource_manager.base import Allocation, Request, below
from rp_agent.resource_manager.system import System
from rp_api.errors import PlatformError, ResourceError
from rp_api.platforms.systems import JOB_VARIABLES


class Fork:
    def allocate(self, request: Request, platform: Mapping[str, Any], system: System) -> Allocation:
        found = allocate(request, platform, system.environ)
        if any(map(system.environ.get, JOB_VARIABLES)):
            from rp_agent.resource_manager.systems.enclosing import hint

            return replace(found, hint=hint(system, 1))
        return found


def allocate(request: Request, platform: Mapping[str, Any], environ: Mapping[str, str] | None = None) -> Allocation:
    """Return the resources of a pilot on this machine.

    A node has the resources of the platform definition, else of the machine, without blocked cores and GPUs. A
    pilot that requests cores instead of nodes gets one node with exactly these. A larger request raises
    `ResourceError`, unless the platform sets `fake_resources`.

    Cores are counted, numbered and blocked as hardware threads: `cores_per_node` of the definition is multiplied by
    `smt`, which the environment variable RADICAL_SMT overrides.
    """
    environ = os.environ if environ is None else environ
    threads = architecture.threads_per_core(platform, environ)
    blocked_cores, blocked_gpus = (architecture.blocked(platform, name) for name in ('blocked_cores', 'blocked_gpus'))
    all_cores = platform.get('cores_per_node', 0) * threads or machine.usable_cores()
    all_gpus = platform.get('gpus_per_node') or machine.usable_gpus(environ)
    cores, gpus = architecture.usable(all_cores, blocked_cores), architecture.usable(all_gpus, blocked_gpus)
    if not cores:
        raise PlatformError(f'system_architecture.blocked_cores blocks all {all_cores} cores of a node')
    if not platform.get('fake_resources'):
        _refuse_more('nodes', request.nodes, 1)
        _refuse_more('cores', request.cores, cores)
        _refuse_more('gpus', request.gpus, gpus)
    if not request.nodes:
        cores, gpus = request.cores or cores, request.gpus
    blocked_cores, blocked_gpus = below(cores, blocked_cores), below(gpus, blocked_gpus)
    cpus, near = binding.of_this_host(cores + len(blocked_cores), gpus + len(blocked_gpus), blocked_cores, threads)
    return Allocation(
        names=('localhost',) * (request.nodes or 1), cores_per_node=cores, gpus_per_node=gpus,
        mem_per_node=platform.get('mem_per_node') or machine.usable_memory(),
        lfs_per_node=platform.get('lfs_size_per_node') or 0, blocked_cores=blocked_cores, blocked_gpus=blocked_gpus,
        domains=architecture.domains(platform, cores + len(blocked_cores), gpus + len(blocked_gpus)) or near,
        threads_per_core=threads, cpus=cpus, gpu_ids=binding.gpu_ids(environ, gpus + len(blocked_gpus)))


def _refuse_more(what: str, wanted: int, there: int) -> None:
    if wanted > there:
        raise ResourceError(f'{what}={wanted} of the pilot description is more than the {there} that this machine has')
