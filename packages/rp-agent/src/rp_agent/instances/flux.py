"""Flux: instances that are started on nodes of the pilot, each with a scheduler of its own.

Sources: flux-start(1), flux-uri(1), flux-broker-attributes(7).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import ClassVar

from rp_agent.instances.launcher import InstanceLauncher, Node, Startup

_SAID = 'flux instance at '

# A killed broker leaves its directory, and one that ends in order perhaps a file in it. Signals are for the broker: the
# shell goes on.
_TIDY = '''\
trap : HUP INT TERM
mkdir -m 700 "$TMPDIR" 2>/dev/null || test -O "$TMPDIR" || exit 1
"$@"
code=$?
rm -rf "$TMPDIR"
exit "$code"'''

# Run with the agent's host, the number of brokers, and what starts them. Brokers that find no PMI are an instance each.
# The first one may be on another host, where others reach it by ssh.
_INITIAL = f'''\
size=$(flux getattr size)
if test "$size" != "$2"; then
    echo "instance of $size broker(s) instead of $2: $3 offers no PMI that this Flux knows" >&2
    exit 1
fi
if test "$(hostname)" = "$1"; then uri=$FLUX_URI; else uri=$(flux uri --remote "$FLUX_URI"); fi
echo "{_SAID}$uri"
while :; do sleep 86400; done'''


class Flux(InstanceLauncher):
    """Instances of the `flux` on PATH, whose brokers get all cores and GPUs of their nodes.

    Brokers on several nodes are started by what the `resource_manager` has for that, and find each other by a PMI that
    every Slurm has, though perhaps not as its default, and the `mpiexec` of MPICH and its relatives; with that of Open
    MPI, Flux needs a plugin. `here` are the nodes that are this host.
    """

    NAME: ClassVar[str] = 'FLUX'
    SECONDS_TO_START: ClassVar[float] = 120.0
    SECONDS_TO_STOP: ClassVar[float] = 20.0
    USES_TMPDIR: ClassVar[bool] = True

    def __init__(self, resource_manager: str = 'FORK', here: frozenset[str] = frozenset(('localhost',))) -> None:
        self._slurm = resource_manager == 'SLURM'
        self._here = here

    def startup(self, number: int, nodes: Sequence[Node]) -> Startup:
        """An instance whose first broker tells its address."""
        brokers = self._brokers(nodes)
        starter = brokers[0] if brokers else 'flux start'
        return Startup((*brokers, 'sh', '-c', _TIDY, 'sh', 'flux', 'start', 'sh', '-c', _INITIAL, 'sh',
                        os.uname().nodename, str(len(nodes)), starter))

    def address(self, line: str) -> str:
        """What the initial program says."""
        return line.removeprefix(_SAID) if line.startswith(_SAID) else ''

    def is_ready(self, line: str) -> bool:
        """The initial program runs when the instance is complete."""
        return bool(self.address(line))

    def _brokers(self, nodes: Sequence[Node]) -> tuple[str, ...]:
        """The command that starts a broker on each node; none if the only one is this host."""
        count = str(len(nodes))
        names = ','.join(node.name for node in nodes)
        if self._slurm:
            return ('srun', '--nodes', count, '--ntasks', count, '--ntasks-per-node', '1', '--nodelist', names,
                    *_devices(nodes), '--export=ALL', '--overlap', '--mpi=pmi2')
        if len(nodes) == 1 and nodes[0].name in self._here:
            return ()
        return ('mpiexec', '-n', count, '--host', names)


def _devices(nodes: Sequence[Node]) -> tuple[str, ...]:
    """The options by which a step of one process on each node gets the cores and GPUs of the nodes.

    Slurm takes one number of cores for all processes. If it is told none, each has all that the job has on its node, as
    long as it is not bound to a part of them. GPUs can be told in all; of more than the smallest node has, Slurm 22.05
    gives none.
    """
    cores, gpus = {node.cores for node in nodes}, {node.gpus for node in nodes}
    found = ('--cpus-per-task', str(*cores)) if len(cores) == 1 else ('--cpu-bind=none',)
    if len(gpus) == 1:
        each = str(*gpus)
        return found if each == '0' else (*found, '--gpus-per-task', each)
    return (*found, '--gpus', str(sum(node.gpus for node in nodes)))
