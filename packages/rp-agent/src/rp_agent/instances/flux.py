"""Flux: instances that are started on nodes of the pilot, each with a scheduler of its own.

Sources: flux-start(1), flux-uri(1), flux-broker-attributes(7).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import ClassVar

from rp_agent.instances.launcher import InstanceLauncher, Startup

_SAID = 'flux instance at '

# the first broker may be on another host, where others reach it by ssh
_INITIAL = f'''\
if test "$(hostname)" = "$RP_AGENT_HOST"; then uri=$FLUX_URI; else uri=$(flux uri --remote "$FLUX_URI"); fi
echo "{_SAID}$uri"
while :; do sleep 86400; done'''


class Flux(InstanceLauncher):
    """Instances of the `flux` on PATH, whose brokers get all cores and GPUs of their nodes.

    Brokers on several nodes are started by what the `resource_manager` has for that; `here` are the nodes that are this
    host.
    """

    NAME: ClassVar[str] = 'FLUX'
    SECONDS_TO_START: ClassVar[float] = 120.0
    SECONDS_TO_STOP: ClassVar[float] = 20.0

    def __init__(self, resource_manager: str = 'FORK', gpus_per_node: int = 0,
                 here: frozenset[str] = frozenset(('localhost',))) -> None:
        self._slurm = resource_manager == 'SLURM'
        self._gpus = gpus_per_node
        self._here = here

    def startup(self, number: int, nodes: Sequence[str], cores_per_node: int) -> Startup:
        """An instance whose first broker tells its address."""
        return Startup((*self._brokers(nodes, cores_per_node), 'flux', 'start', 'sh', '-c', _INITIAL),
                       environment={'RP_AGENT_HOST': os.uname().nodename})

    def address(self, line: str) -> str:
        """What the initial program says."""
        return line.removeprefix(_SAID) if line.startswith(_SAID) else ''

    def is_ready(self, line: str) -> bool:
        """The initial program runs when the instance is complete."""
        return bool(self.address(line))

    def _brokers(self, nodes: Sequence[str], cores: int) -> tuple[str, ...]:
        """The command that starts a broker on each node; none if the only one is this host."""
        count = str(len(nodes))
        if self._slurm:
            gpus = ('--gpus-per-task', str(self._gpus)) if self._gpus else ()
            return ('srun', '--nodes', count, '--ntasks', count, '--ntasks-per-node', '1',
                    '--nodelist', ','.join(nodes), '--cpus-per-task', str(cores), *gpus, '--export=ALL', '--overlap')
        if len(nodes) == 1 and nodes[0] in self._here:
            return ()
        return ('mpiexec', '-n', count, '--host', ','.join(nodes))
