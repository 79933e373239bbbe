"""The batch system of a job URL."""

from __future__ import annotations

from urllib.parse import urlsplit

from rp_client.launcher.saga.batch.base import BatchSystem
from rp_client.launcher.saga.batch.cobalt import Cobalt
from rp_client.launcher.saga.batch.condor import Condor
from rp_client.launcher.saga.batch.host import Host
from rp_client.launcher.saga.batch.loadleveler import LoadLeveler
from rp_client.launcher.saga.batch.lsf import LSF
from rp_client.launcher.saga.batch.pbs import PBSPro, Torque
from rp_client.launcher.saga.batch.sge import GridEngine
from rp_client.launcher.saga.batch.slurm import Slurm

_SYSTEMS: dict[str, type[BatchSystem]] = {
    'fork': Host, 'local': Host, 'ssh': Host, 'gsissh': Host, 'cobalt': Cobalt,
    'slurm': Slurm, 'pbspro': PBSPro, 'torque': Torque, 'sge': GridEngine, 'lsf': LSF,
    'loadl': LoadLeveler, 'condor': Condor}


def batch_system(url: str) -> BatchSystem:
    """The batch system of a URL such as `slurm+ssh://host/`; `KeyError` if it is of none."""
    return _SYSTEMS[urlsplit(url).scheme.partition('+')[0]]()
