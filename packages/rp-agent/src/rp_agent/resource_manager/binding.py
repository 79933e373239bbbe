"""CPU numbers, NUMA domains and GPU names of the agent's host, for binding tasks."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from rp_agent.resource_manager import machine
from rp_agent.resource_manager.base import Domain
from rp_agent.resource_manager.granted import indices
from rp_agent.resource_manager.machine import listdir, read

_CPUS = 'sys/devices/system/cpu'
_NODES = 'sys/devices/system/node'
_PCI = 'sys/bus/pci/devices'
_NVIDIA = 'proc/driver/nvidia/gpus'
_AMD = 'sys/class/kfd/kfd/topology/nodes'


def of_this_host(cores: int, gpus: int, blocked: tuple[int, ...],
                 threads: int) -> tuple[tuple[int, ...], tuple[Domain, ...]]:
    """Return the CPUs of that many cores (including blocked ones) and the NUMA domains of cores and GPUs.

    The CPUs are empty unless the pilot has all CPUs of this process: pilots that share a machine would otherwise bind
    their tasks to the same CPUs. The domains are empty without CPUs, or if there is only one.
    """
    mask = os.sched_getaffinity(0)
    cpus = _cpus(mask, cores, blocked)
    if not cpus and len(mask) > cores:   # the mask may include hardware threads that do not count as cores
        cpus = _cpus(set(threads_of_cores(mask, threads)), cores, blocked)
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
    nodes = numa_nodes()
    node_of = {cpu: node for node, members in nodes.items() for cpu in members}
    if len({node_of.get(cpu) for cpu in cpus}) < 2:
        return ()
    near = gpu_numa_nodes()
    near = near if len(near) == gpus else []   # otherwise the pilot's GPUs among them are unknown
    found = ((tuple(core for core, cpu in enumerate(cpus) if node_of.get(cpu) == node),
              tuple(gpu for gpu, place in enumerate(near) if place == node)) for node in sorted(nodes))
    return tuple(domain for domain in found if domain[0])


def numa_nodes(root: Path = Path('/')) -> dict[int, list[int]]:
    """Return the CPUs of each NUMA node that has any; empty if the kernel does not report them."""
    found = {number: cpu_list(read(root / _NODES / f'node{number}' / 'cpulist'))
             for number in _numbers(root / _NODES, 'node')}
    return {number: cpus for number, cpus in found.items() if cpus}


def threads_of_cores(cpus: Iterable[int], threads: int, root: Path = Path('/')) -> list[int]:
    """Return the first `threads` of these CPUs per core, sorted; all CPUs if the kernel does not report cores."""
    left: dict[tuple[int, ...], int] = {}
    chosen = []
    for cpu in sorted(cpus):
        core = tuple(cpu_list(read(root / _CPUS / f'cpu{cpu}' / 'topology/thread_siblings_list'))) or (cpu,)
        left[core] = left.get(core, threads) - 1
        if left[core] >= 0:
            chosen.append(cpu)
    return chosen


def gpu_numa_nodes(root: Path = Path('/')) -> list[int]:
    """Return the NUMA node of each NVIDIA or AMD GPU by number; -1 where the kernel does not report one."""
    return [_numa_of(root, address) for address in _nvidia(root) or _amd(root)]


def cpu_list(text: str) -> list[int]:
    """Return the numbers of a list such as `0-3,8,10-11`."""
    return list(map(int, indices(text)))


def _nvidia(root: Path) -> list[str]:
    """Return the PCI addresses of NVIDIA GPUs, by the number of their device file."""
    found = {}
    for address in listdir(root / _NVIDIA):
        minor = re.search(r'^Device Minor:\s*(\d+)', read(root / _NVIDIA / address / 'information'), re.MULTILINE)
        if minor:
            found[int(minor[1])] = address
    return [found[minor] for minor in sorted(found)]


def _amd(root: Path) -> list[str]:
    """Return the PCI addresses of AMD GPUs in driver order; entries without SIMD units are processors."""
    found = []
    for number in _numbers(root / _AMD, ''):
        properties = dict(line.split(maxsplit=1) for line in read(root / _AMD / str(number) / 'properties').splitlines()
                          if len(line.split()) == 2)
        if int(properties.get('simd_count', 0)):
            place = int(properties.get('location_id', 0))
            found.append(f'{int(properties.get("domain", 0)):04x}:{place >> 8:02x}:{place >> 3 & 31:02x}.{place & 7}')
    return found


def _numa_of(root: Path, address: str) -> int:
    text = read(root / _PCI / address.lower() / 'numa_node').strip()
    return int(text) if text.lstrip('-').isdecimal() else -1


def _numbers(directory: Path, prefix: str) -> list[int]:
    return sorted(int(match[1]) for match in (re.fullmatch(prefix + r'(\d+)', name) for name in listdir(directory))
                  if match)
