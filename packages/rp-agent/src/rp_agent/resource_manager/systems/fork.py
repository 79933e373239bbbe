"""Resource managers FORK, DEBUG and YARN: the machine that the agent runs on.

DEBUG simulates the requested nodes on it. For YARN it is a front end of a running Hadoop cluster.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rp_agent.resource_manager import binding, machine, shape
from rp_agent.resource_manager.base import Allocation, Domain, Request, below
from rp_agent.resource_manager.system import System
from rp_api.errors import PlatformError, ResourceError
from rp_api.platforms.systems import JOB_VARIABLES
from rp_api.system.gpus import HIP_GPUS, VISIBLE_GPUS


class ForkNodes:
    def allocate(self, request: Request, platform: Mapping[str, Any], system: System) -> Allocation:
        found = allocate(request, platform, system.environ)
        return replace(found, hint='; '.join(filter(None, (_in_job(system), _shared_cores(found)))))


class Debug:
    def allocate(self, request: Request, platform: Mapping[str, Any], system: System) -> Allocation:
        """Return the requested allocation, regardless of the machine's resources."""
        return allocate(request, {**platform, 'fake_resources': True}, system.environ)


class Yarn:
    """YARN; `Allocation.facts` has the address of its file system (`namenode`) and its nodes (`yarn_nodes`)."""

    def allocate(self, request: Request, platform: Mapping[str, Any], system: System) -> Allocation:
        """Return the resources of this machine; raise `PlatformError` if the cluster is down or has no nodes."""
        namenode = system.run('hdfs', 'getconf', '-nnRpcAddresses').split()
        if not namenode:
            raise PlatformError('`hdfs getconf -nnRpcAddresses` names no address')
        nodes = running_nodes(system.run('yarn', 'node', '-list'))
        if not nodes:
            raise PlatformError('`yarn node -list` names no node that is RUNNING')
        return replace(allocate(request, platform, system.environ),
                       facts={'namenode': namenode[0], 'yarn_nodes': ','.join(nodes)})


def _in_job(system: System) -> str:
    """Return the hint for a pilot that uses one node of the application's job; empty outside of a job."""
    if not any(map(system.environ.get, JOB_VARIABLES)):
        return ''
    from rp_agent.resource_manager.systems.find import hint

    return hint(system, 1)


def _shared_cores(pilot: Allocation) -> str:
    """Return the hint for a pilot that has more cores than this machine; empty for any other."""
    usable = machine.usable_cores()
    if pilot.cores <= usable:
        return ''
    return (f'{os.uname().nodename} has {usable} usable cores and the pilot has more, so its tasks share them: the '
            'resource local.exact with nodes=1 has as many cores as the machine')


def allocate(request: Request, platform: Mapping[str, Any], environ: Mapping[str, str] | None = None) -> Allocation:
    """Return the resources of a pilot on this machine.

    A node has the resources of the platform definition, else of the machine, without blocked cores and GPUs. A pilot
    that requests cores or GPUs instead of nodes gets whole nodes if the definition has `cores_per_node`, otherwise one
    node with exactly these. A larger request raises `ResourceError`, unless the platform sets `fake_resources`.

    Cores are counted, numbered and blocked as hardware threads: `cores_per_node` of the definition is multiplied by
    `smt`, which the environment variable RADICAL_SMT overrides.
    """
    environ = os.environ if environ is None else environ
    threads = shape.threads_per_core(platform, environ)
    blocked_cores, blocked_gpus = (shape.blocked(platform, name) for name in ('blocked_cores', 'blocked_gpus'))
    all_cores = platform.get('cores_per_node', 0) * threads or machine.usable_cores()
    all_gpus = machine.bounded_gpus(platform.get('gpus_per_node') or machine.usable_gpus(environ), environ)
    cores, gpus = shape.usable(all_cores, blocked_cores), shape.usable(all_gpus, blocked_gpus)
    if not cores:
        raise PlatformError(f'system_architecture.blocked_cores blocks all {all_cores} cores of a node')
    fake, defined = platform.get('fake_resources'), platform.get('cores_per_node')
    if not fake:
        _refuse_more('nodes', request.nodes, 1)
        _refuse_more('cores', request.cores, cores)
    if not fake or machine.visible_gpus(environ) is not None:
        _refuse_more('gpus', request.gpus, gpus, environ)
    nodes = request.nodes or 1
    if not request.nodes and defined:
        nodes = _nodes_for(request, cores, gpus)
        gpus = gpus or math.ceil(request.gpus / nodes)
    elif not request.nodes:
        cores, gpus = request.cores or cores, request.gpus
    blocked_cores, blocked_gpus = below(cores, blocked_cores), below(gpus, blocked_gpus)
    cpus: tuple[int, ...] = ()
    near: tuple[Domain, ...] = ()
    if nodes == 1 and not (fake and defined):   # otherwise the cores are not those of the machine
        cpus, near = binding.of_this_host(cores + len(blocked_cores), gpus + len(blocked_gpus), blocked_cores, threads)
    return Allocation(
        names=('localhost',) * nodes, cores_per_node=cores, gpus_per_node=gpus,
        mem_per_node=platform.get('mem_per_node') or machine.usable_memory(),
        lfs_per_node=platform.get('lfs_size_per_node') or 0, blocked_cores=blocked_cores, blocked_gpus=blocked_gpus,
        domains=shape.domains(platform, cores + len(blocked_cores), gpus + len(blocked_gpus)) or near,
        threads_per_core=threads, cpus=cpus, gpu_ids=binding.gpu_ids(environ, gpus + len(blocked_gpus)))


def _nodes_for(request: Request, cores: int, gpus: int) -> int:
    """Return the number of nodes of this size that have the cores and GPUs of a request, at least one.

    Nodes without GPUs do not limit the request: it gets its GPUs on the nodes that its cores need.
    """
    return max(1, math.ceil(request.cores / cores), math.ceil(request.gpus / gpus) if gpus else 1)


def _refuse_more(what: str, wanted: int, there: int, environ: Mapping[str, str] = {}) -> None:
    if wanted > there:
        bounds = ', '.join(f'{name}={environ[name]}' for name in (*VISIBLE_GPUS.values(), HIP_GPUS) if name in environ)
        raise ResourceError(f'{what}={wanted} of the pilot description is more than the {there} that this machine has'
                            + (f' (with {bounds} in the environment of the pilot)' if bounds else ''))


def running_nodes(text: str) -> list[str]:
    """Return the hosts of nodes in the state RUNNING; lines have `host:port`, state, address and containers."""
    return re.findall(r'^\s*(\S+):\d+\s+RUNNING\s', text, re.MULTILINE)
