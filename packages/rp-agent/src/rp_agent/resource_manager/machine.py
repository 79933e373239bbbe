"""Resources of this machine that this process may use, within affinity mask, cgroups and device variables."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from itertools import takewhile
from pathlib import Path

from rp_api.system.gpus import HIP_GPUS, VISIBLE_GPUS


def usable_cores(root: Path = Path('/')) -> int:
    """Return the number of hardware threads in the affinity mask, limited by the CPU quota of the cgroup."""
    mask = len(os.sched_getaffinity(0))
    quota = cpu_quota(root)
    return max(1, mask if quota is None else min(mask, math.ceil(quota)))


def usable_memory(root: Path = Path('/')) -> int:
    """Return the memory of the machine in MB, limited by the cgroup."""
    total = os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES')
    limits = [int(text) for text in _values(root, ('memory.max', 'memory/memory.limit_in_bytes')) if text.isdigit()]
    return int(min([total, *limits]) // 2**20)


def usable_gpus(environ: Mapping[str, str], root: Path = Path('/')) -> int:
    """Return the number of GPUs in a visible-devices variable, else of NVIDIA or AMD GPUs found on the machine.

    Intel GPUs are only found through the variable.
    """
    visible = visible_gpus(environ)
    if visible is not None:
        return len(visible)
    nvidia = [path for path in listdir(root / 'dev') if re.fullmatch(r'nvidia\d+', path)]
    return len(nvidia) or _amd_gpus(root)


def visible_gpus(environ: Mapping[str, str]) -> tuple[str, ...] | None:
    """Return the GPUs in a visible-devices variable, that with most of them; None if no such variable is set.

    Batch systems set several, of which the others hide GPUs of other vendors, or have the same value.
    """
    set_ones = [environ[name].split(',') for name in (*VISIBLE_GPUS.values(), HIP_GPUS) if name in environ]
    # an entry that is not a device hides all entries after it
    found = (tuple(takewhile(lambda device: device not in ('', '-1', 'NoDevFiles'), map(str.strip, devices)))
             for devices in set_ones)
    return max(found, key=len, default=None)


def bounded_gpus(gpus: int, environ: Mapping[str, str]) -> int:
    """Return a number of GPUs of this machine, of which a visible-devices variable may hide some."""
    visible = visible_gpus(environ)
    return gpus if visible is None else min(gpus, len(visible))


def cpu_quota(root: Path) -> float | None:
    """Return the smallest CPU limit of this process's cgroups in cores; None if there is no limit."""
    quotas = []
    for text in _values(root, ('cpu.max',)):
        quota, _, period = text.partition(' ')
        if quota.isdigit() and period.isdigit():
            quotas.append(int(quota) / int(period))
    for quota, period in zip(_values(root, ('cpu/cpu.cfs_quota_us',)), _values(root, ('cpu/cpu.cfs_period_us',)),
                             strict=False):
        if quota.isdigit():
            quotas.append(int(quota) / int(period))
    return min(quotas, default=None)


def _values(root: Path, names: tuple[str, ...]) -> list[str]:
    """Return the contents of control files in this process's cgroups, outermost first.

    Version 2 has one hierarchy; version 1 has one per controller, and file names start with the controller's name.
    """
    found = []
    for line in read(root / 'proc/self/cgroup').splitlines():
        _, controllers, path = line.split(':', 2)
        for name in names:
            controller, _, file = name.rpartition('/')
            if controller not in controllers.split(','):
                continue
            top = root / 'sys/fs/cgroup' / controller
            own = top / path.strip('/')
            found += [read(directory / file) for directory in [*reversed(own.parents), own]
                      if directory == top or top in directory.parents]
    return [text.strip() for text in found if text.strip()]


def _amd_gpus(root: Path) -> int:
    nodes = root / 'sys/class/kfd/kfd/topology/nodes'
    return sum(bool(re.search(r'^simd_count [1-9]', read(nodes / name / 'properties'), re.MULTILINE))
               for name in listdir(nodes))


def listdir(path: Path) -> list[str]:
    """Return the names in a directory; empty if it cannot be read."""
    try:
        return os.listdir(path)
    except OSError:
        return []


def read(path: Path) -> str:
    """Return the text of a file; empty if it cannot be read."""
    try:
        return path.read_text(encoding='ascii', errors='replace')
    except OSError:
        return ''
