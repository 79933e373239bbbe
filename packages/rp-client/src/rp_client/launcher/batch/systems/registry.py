"""The batch systems by the scheme of their URLs: a row for each module of this package.

`rp_api.platforms.names.BATCH_SYSTEMS` has the same schemes, for those who only look at definitions.
"""

from __future__ import annotations

import importlib
from urllib.parse import urlsplit

from rp_client.launcher.batch.systems.base import BatchSystem

SYSTEMS = {
    'cobalt': 'cobalt:Cobalt',
    'condor': 'condor:Condor',
    'flux': 'flux:Flux',
    'loadl': 'loadleveler:LoadLeveler',
    'lsf': 'lsf:LSF',
    'pbspro': 'pbspro:PBSPro',
    'sge': 'sge:GridEngine',
    'slurm': 'slurm:Slurm',
    'torque': 'torque:Torque',
}
"""The module and the class of each."""

HOSTS = ('fork', 'local', 'ssh', 'gsissh')
"""Schemes of hosts without a batch system."""

_HOPS = ('', 'ssh', 'gsissh')


def is_known(url: str) -> bool:
    """Whether jobs can be submitted to a URL."""
    kind, _, hop = urlsplit(url).scheme.partition('+')
    return (kind in SYSTEMS and hop in _HOPS) or (kind in HOSTS and not hop)


def batch_system(url: str) -> BatchSystem:
    """The batch system of a URL such as `slurm+ssh://host/`; `KeyError` if it is of none."""
    kind = urlsplit(url).scheme.partition('+')[0]
    module, _, name = ('host:Host' if kind in HOSTS else SYSTEMS[kind]).partition(':')
    found: type[BatchSystem] = getattr(importlib.import_module(f'{__package__}.{module}'), name)
    return found()
