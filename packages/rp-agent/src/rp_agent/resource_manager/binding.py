"""Which CPUs of the operating system the cores of the agent's own node are, and how they lie."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from rp_agent.resource_manager import machine, topology
from rp_agent.resource_manager.base import Domain


def of_this_host(cores: int, gpus: int, blocked: tuple[int, ...],
                 threads: int) -> tuple[tuple[int, ...], tuple[Domain, ...]]:
    """The CPUs of so many cores, blocked ones counted, and the NUMA domains of cores and GPUs.

    There are CPUs only if the pilot has all that this process may use: otherwise pilots that share the machine would
    all bind their tasks to the same ones. There are domains if there are several of them, and only with CPUs.
    """
    mask = os.sched_getaffinity(0)
    cpus = _cpus(mask, cores, blocked)
    if not cpus and len(mask) > cores:   # perhaps because more threads of each core may be used than are counted
        cpus = _cpus(set(topology.threads_of_cores(mask, threads)), cores, blocked)
    return cpus, _domains(cpus, gpus)


def gpu_ids(environ: Mapping[str, str], gpus: int) -> tuple[str, ...]:
    """What the GPUs of this host are called in a visible-devices variable; empty if just by their index."""
    visible = machine.visible_gpus(environ) or ()
    return visible[:gpus] if len(visible) >= gpus else ()   # there may be fewer than a platform pretends to have


def some_gpu_ids(environ: Mapping[str, str], gpus: Sequence[int]) -> tuple[str, ...]:
    """What these GPUs of this host, given by their indices, are called in a visible-devices variable."""
    names = gpu_ids(environ, 1 + max(gpus, default=-1))
    return tuple(names[gpu] if names else str(gpu) for gpu in gpus)


def _cpus(mask: set[int], cores: int, blocked: tuple[int, ...]) -> tuple[int, ...]:
    if len(mask) == cores:
        return tuple(sorted(mask))
    if blocked and mask == set(range(cores)).difference(blocked):   # the system has taken out what is blocked
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
    near = near if len(near) == gpus else []   # otherwise it is not known which of them the pilot has
    found = ((tuple(core for core, cpu in enumerate(cpus) if node_of.get(cpu) == node),
              tuple(gpu for gpu, place in enumerate(near) if place == node)) for node in sorted(nodes))
    return tuple(domain for domain in found if domain[0])
