"""CPU numbers, NUMA domains and GPU names of the agent's host, for binding tasks."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from rp_agent.resource_manager import machine, topology
from rp_agent.resource_manager.base import Domain


def of_this_host(cores: int, gpus: int, blocked: tuple[int, ...],
                 threads: int) -> tuple[tuple[int, ...], tuple[Domain, ...]]:
    """Return the CPUs of that many cores (including blocked ones) and the NUMA domains of cores and GPUs.

    The CPUs are empty unless the pilot has all CPUs of this process: pilots that share a machine would otherwise bind
    their tasks to the same CPUs. The domains are empty without CPUs, or if there is only one.
    """
    mask = os.sched_getaffinity(0)
    cpus = _cpus(mask, cores, blocked)
    if not cpus and len(mask) > cores:   # the mask may include hardware threads that do not count as cores
        cpus = _cpus(set(topology.threads_of_cores(mask, threads)), cores, blocked)
    return cpus, _domains(cpus, gpus)


def gpu_ids(environ: Mapping[str, str], gpus: int) -> tuple[str, ...]:
    """Return the names of this host's GPUs in a visible-devices variable; empty if they are named by index."""
    visible = machine.visible_gpus(environ) or ()
    return visible[:gpus] if len(visible) >= gpus else ()   # fewer if the platform simulates resources


def some_gpu_ids(environ: Mapping[str, str], gpus: Sequence[int]) -> tuple[str, ...]:
    """Return the names that a visible-devices variable has for the GPUs with these indices."""
    names = gpu_ids(environ, 1 + max(gpus, default=-1))
    return tuple(names[gpu] if names else str(gpu) for gpu in gpus)


def _cpus(mask: set[int], cores: int, blocked: tuple[int, ...]) -> tuple[int, ...]:
    if len(mask) == cores:
        return tuple(sorted(mask))
    if blocked and mask == set(range(cores)).difference(blocked):   # the system excludes the blocked cores itself
        return tuple(range(cores))
    return ()


def _domains(cpus: tuple[int, ...], gpus: int) -> tuple[Domain, ...]:
    if not cpus:
        return ()
    nodes = topology.numa_nodes()
    node_of = {cpu: node for node, members in nodes.items() for cpu in members}
    if len({node_of.get(cpu) for cpu in cpus}) < 2:
        return ()
    near = topology.gpu_numa_nodes()
    near = near if len(near) == gpus else []   # otherwise the pilot's GPUs among them are unknown
    found = ((tuple(core for core, cpu in enumerate(cpus) if node_of.get(cpu) == node),
              tuple(gpu for gpu, place in enumerate(near) if place == node)) for node in sorted(nodes))
    return tuple(domain for domain in found if domain[0])
