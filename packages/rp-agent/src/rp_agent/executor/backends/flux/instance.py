"""Flux: the instance that the agent runs in, or instances that are started on nodes of the pilot.

Sources: flux-start(1), flux-run(1), flux-uri(1), flux-broker-attributes(7).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from rp_agent.executor.backends.flux import flux_runner
from rp_agent.executor.backends.launcher import InstanceLauncher, Node, Startup
from rp_agent.launch_method.flux import HERE

RUNNER = str(Path(flux_runner.__file__))
"""The program that runs and ends jobs; it needs the Python of Flux."""

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

# The enclosing instance is not ours to start or end.
_ENCLOSING = f'''\
flux getattr size >/dev/null || exit 1
echo "{_SAID}$FLUX_URI"
while :; do sleep 86400; done'''

# Run with the runner, and the arguments of `flux run`. That leaves its job when it is killed: so a second one,
# which the agent does not kill, ends the job when the pipe between them has no writer any more.
_NESTED = '''\
trap : HUP INT TERM
mark="$PWD nested $$"
runner=$1
shift
exec 3>&1
flux run --setattr="user.rp=$mark" "$@" 9>&1 >&3 3>&- |
    setsid env -u RP_INSTANCE -u RP_SESSION_ID flux python "$runner" --guard "$mark" >/dev/null 2>&1
exit 1'''


class _FluxInstances(InstanceLauncher):
    """Instances of the `flux` on PATH."""

    NAME: ClassVar[str] = 'FLUX'
    SECONDS_TO_START: ClassVar[float] = 120.0
    SECONDS_TO_STOP: ClassVar[float] = 20.0

    def address(self, line: str) -> str:
        """What the initial program says."""
        return line.removeprefix(_SAID) if line.startswith(_SAID) else ''

    def is_ready(self, line: str) -> bool:
        """The initial program runs when the instance is complete."""
        return bool(self.address(line))


class EnclosingFlux(_FluxInstances):
    """The instance at this address, in which the agent runs, and whose nodes are those of the pilot."""

    def __init__(self, uri: str) -> None:
        self._environment = {'FLUX_URI': uri}

    def startup(self, number: int, nodes: Sequence[Node]) -> Startup:
        """A process that tells the address, and stands for the instance."""
        return Startup(('sh', '-c', _ENCLOSING), environment=self._environment)


class NestedFlux(_FluxInstances):
    """Instances that are jobs of the one at this address, in which the agent runs.

    What nodes have is counted in cores with so many `threads`.
    """

    def __init__(self, uri: str, threads: int = 1) -> None:
        self._environment = {'FLUX_URI': uri}
        self._threads = threads

    def startup(self, number: int, nodes: Sequence[Node]) -> Startup:
        """An instance whose first broker tells its address."""
        count = str(len(nodes))
        names = dict.fromkeys(HERE if node.name == 'localhost' else node.name for node in nodes)
        job = (f'--nodes={count}', f'--ntasks={count}', *self._devices(nodes), f'--requires=hosts:{",".join(names)}',
               'flux', 'start', 'sh', '-c', _INITIAL, 'sh', HERE, count, 'flux run')
        return Startup(('sh', '-c', _NESTED, 'sh', RUNNER, *job), environment=self._environment)

    def _devices(self, nodes: Sequence[Node]) -> tuple[str, ...]:
        """Options for what brokers get of their nodes, which is all of them where they differ."""
        devices = {(node.cores, node.gpus) for node in nodes}
        if len(devices) > 1:
            return ('--exclusive',)
        (cores, gpus), = devices
        found = (f'--cores-per-task={math.ceil(cores / self._threads)}',)
        return (*found, f'--gpus-per-task={gpus}') if gpus else found


class Flux(_FluxInstances):
    """Instances whose brokers get all cores and GPUs of their nodes.

    Brokers on several nodes are started by what the `resource_manager` has for that, and find each other by a PMI that
    every Slurm has, though perhaps not as its default, and the `mpiexec` of MPICH and its relatives; with that of Open
    MPI, Flux needs a plugin. `here` are the nodes that are this host.
    """

    USES_TMPDIR: ClassVar[bool] = True

    def __init__(self, resource_manager: str = 'FORK', here: frozenset[str] = frozenset(('localhost',))) -> None:
        self._slurm = resource_manager == 'SLURM'
        self._here = here

    def startup(self, number: int, nodes: Sequence[Node]) -> Startup:
        """An instance whose first broker tells its address."""
        brokers = self._brokers(nodes)
        starter = brokers[0] if brokers else 'flux start'
        return Startup((*brokers, 'sh', '-c', _TIDY, 'sh', 'flux', 'start', 'sh', '-c', _INITIAL, 'sh',
                        HERE, str(len(nodes)), starter))

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
