"""Resource manager SLURM: reads the environment of the job.

A heterogeneous job has one set of variables per group, with the suffix `_HET_GROUP_<number>`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from rp_agent.resource_manager.batch import BatchSystem
from rp_agent.resource_manager.granted import Node, expand, indices, merged, number, repeated
from rp_agent.resource_manager.system import System
from rp_api.errors import PlatformError

_GPUS_HERE = ('SLURM_JOB_GPUS', 'SLURM_STEP_GPUS', 'GPU_DEVICE_ORDINAL')
"""Variables that list the job's GPUs on the node of the batch script."""


class Slurm(BatchSystem):
    NAME: ClassVar[str] = 'SLURM'
    JOB: ClassVar[str] = 'SLURM_JOB_ID'

    def nodes(self, system: System) -> list[Node]:
        environ = system.environ
        groups = environ.get('SLURM_HET_SIZE')
        found = of_group(environ) if not groups else merged(
            node for group in range(number(groups, 'SLURM_HET_SIZE'))
            for node in of_group(environ, f'_HET_GROUP_{group}'))
        if all(node.gpus is None for node in found) and _grants_gpus(system, found[0].name):
            return [replace(node, gpus=0) for node in found]   # Slurm would have set a variable for granted GPUs
        return found

    def own(self, nodes: Sequence[Node], system: System) -> Node | None:
        name = system.environ.get('SLURMD_NODENAME')   # a host can be several nodes
        return next((node for node in nodes if node.name == name), None) or super().own(nodes, system)


def of_group(environ: Mapping[str, str], group: str = '') -> list[Node]:
    """Return the nodes of a job, or of one group of a heterogeneous job."""
    def get(*names: str) -> str:
        return next(filter(None, (environ.get(name + group) for name in names)), '')

    def amount(name: str) -> int:
        return number(get(name), name + group) if get(name) else 0

    names = expand(get('SLURM_JOB_NODELIST', 'SLURM_NODELIST'))
    if not names:
        raise PlatformError(f'the environment variable SLURM_JOB_NODELIST{group} is not set')
    gpus = amount('SLURM_GPUS_ON_NODE') or len(indices(get(*_GPUS_HERE))) or by_model(get('SLURM_GPUS_PER_NODE'))
    return [Node(name, cores, gpus or None, amount('SLURM_MEM_PER_NODE') or cores * amount('SLURM_MEM_PER_CPU')
                 or gpus * amount('SLURM_MEM_PER_GPU'))
            for name, cores in zip(names, _cores(get('SLURM_JOB_CPUS_PER_NODE'), amount('SLURM_CPUS_ON_NODE'),
                                                 len(names)), strict=True)]


def _grants_gpus(system: System, node: str) -> bool:
    """Return whether jobs must request the GPUs of the node; otherwise they may use all of them."""
    try:
        said = system.run('scontrol', 'show', 'node', node)
    except PlatformError:   # some sites have no scontrol on compute nodes
        return False
    return re.search(r'\bGres=\S*\bgpu\b', said) is not None


def by_model(text: str) -> int:
    """Return the number of GPUs in a request such as `4`, `a100:4` or `a100:2,h100:1`."""
    parts = [re.fullmatch(r'(?:[^:,()]+:)*(\d+)', part.strip()) for part in text.split(',') if part.strip()]
    if not all(parts):
        raise PlatformError(f'SLURM_GPUS_PER_NODE must be a number such as 4, a100:4 or a100:2,h100:1, not {text!r}')
    return sum(int(part[1]) for part in parts if part)


def _cores(each: str, here: int, nodes: int) -> list[int]:
    """Return the number of CPUs on each node; 0 where it is unknown."""
    if not each:
        return [here] * nodes
    counts = repeated(each, 'SLURM_JOB_CPUS_PER_NODE')
    if len(counts) != nodes:
        raise PlatformError(f'SLURM_JOB_CPUS_PER_NODE is {each!r}, which does not match {nodes} node(s)')
    return counts
