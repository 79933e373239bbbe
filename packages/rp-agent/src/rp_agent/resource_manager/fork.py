"""The resource manager FORK: the machine that the agent runs on."""

from __future__ import annotations

import os
from collections.abc import Mapping
from itertools import count, islice
from typing import Any

from rp_agent.resource_manager import machine
from rp_agent.resource_manager.base import Allocation, Domain, Request
from rp_api.errors import PlatformError, ResourceError


def allocate(request: Request, platform: Mapping[str, Any]) -> Allocation:
    """What a pilot gets on this machine.

    A node has what the platform definition says, or what the machine has, without the cores and GPUs that the
    definition blocks. A pilot that asks for cores gets one node with just these: nobody else has a claim on the rest.
    More than there is can be had where the definition allows `fake_resources`; elsewhere it is a `ResourceError`.

    Cores are counted, numbered and blocked as hardware threads: `cores_per_node` of the definition is multiplied by its
    `smt`, for which the environment variable RADICAL_SMT can be set.
    """
    architecture = platform.get('system_architecture') or {}
    threads = _threads_per_core(architecture)
    blocked_cores, blocked_gpus = (_indices(architecture, name) for name in ('blocked_cores', 'blocked_gpus'))
    all_cores = platform.get('cores_per_node', 0) * threads or machine.usable_cores()
    all_gpus = platform.get('gpus_per_node') or machine.usable_gpus(os.environ)
    cores, gpus = _usable(all_cores, blocked_cores), _usable(all_gpus, blocked_gpus)
    if not cores:
        raise PlatformError(f'system_architecture.blocked_cores leaves none of the {all_cores} cores of a node')
    if not platform.get('fake_resources'):
        _refuse_more('nodes', request.nodes, 1)
        _refuse_more('cores', request.cores, cores)
        _refuse_more('gpus', request.gpus, gpus)
    if not request.nodes:
        cores, gpus = request.cores or cores, request.gpus
    blocked_cores, blocked_gpus = _below(cores, blocked_cores), _below(gpus, blocked_gpus)
    return Allocation(
        names=('localhost',) * (request.nodes or 1), cores_per_node=cores, gpus_per_node=gpus,
        mem_per_node=platform.get('mem_per_node') or machine.usable_memory(),
        lfs_per_node=platform.get('lfs_size_per_node') or 0, blocked_cores=blocked_cores, blocked_gpus=blocked_gpus,
        domains=_domains(platform, cores + len(blocked_cores), gpus + len(blocked_gpus)), threads_per_core=threads,
        cpus=_cpus(cores + len(blocked_cores)))


def _cpus(cores: int) -> tuple[int, ...]:
    """The CPUs that the cores of a node are, if the pilot has all that this process may use.

    Otherwise pilots that share the machine would all bind their tasks to the same CPUs.
    """
    usable = tuple(sorted(os.sched_getaffinity(0)))
    return usable if len(usable) == cores else ()


def _threads_per_core(architecture: Mapping[str, Any]) -> int:
    value = os.environ.get('RADICAL_SMT') or architecture.get('smt') or 1
    if not str(value).isdecimal() or int(value) < 1:
        raise PlatformError(f'the number of hardware threads for each core (system_architecture.smt, or RADICAL_SMT) '
                            f'must be at least 1, not {value!r}')
    return int(value)


def _indices(architecture: Mapping[str, Any], name: str) -> tuple[int, ...]:
    value = architecture.get(name) or ()
    if not isinstance(value, list | tuple) or not all(isinstance(index, int) and index >= 0 for index in value):
        raise PlatformError(f'system_architecture.{name} must be a list of indices, not {value!r}')
    return tuple(sorted(set(value)))


def _usable(there: int, blocked: tuple[int, ...]) -> int:
    return there - sum(index < there for index in blocked)


def _below(usable: int, blocked: tuple[int, ...]) -> tuple[int, ...]:
    """The blocked ones among the devices of a node that has so many usable ones, and no more than it needs for them."""
    last = next(islice((index for index in count() if index not in blocked), usable - 1, None)) if usable else -1
    return tuple(index for index in blocked if index < last)


def _domains(platform: Mapping[str, Any], cores: int, gpus: int) -> tuple[Domain, ...]:
    """The NUMA domains of the definition, in the order of their numbers, with those devices that a node has."""
    domains = (platform.get('numa_domain_map') or {}).items()
    return tuple((tuple(index for index in members.get('cores', ()) if index < cores),
                  tuple(index for index in members.get('gpus', ()) if index < gpus))
                 for _, members in sorted(domains, key=lambda each: int(each[0])))


def _refuse_more(what: str, wanted: int, there: int) -> None:
    if wanted > there:
        raise ResourceError(f'{what}={wanted} of the pilot description is more than the {there} that this machine has')
