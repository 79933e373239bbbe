"""The executor FLUX: tasks are jobs of Flux instances, which place and start them.

The instances are the enclosing one of the agent, or others on nodes of the pilot. Sources: flux-start(1), flux-run(1),
flux-uri(1), flux-broker-attributes(7).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from rp_agent.executor.backends.flux import flux_runner
from rp_agent.executor.backends.jobs import JobExecutor
from rp_agent.executor.backends.launcher import InstanceLauncher, InstanceNode, Startup, nodes_of
from rp_agent.executor.backends.process import Processes
from rp_agent.executor.backends.runner import Broken, JobKind, News, PipeRunner, Runner
from rp_agent.executor.launching.environment import PilotContext
from rp_agent.executor.launching.launchers import Launchers
from rp_agent.instance_nodes import divide
from rp_agent.launch_method.flux import HERE
from rp_agent.lookup import LaunchRefused
from rp_agent.resource_manager.systems.flux import SIZE, URI
from rp_agent.task import DEFAULTS, AgentTask
from rp_api.constants import RAPTOR_WORKER
from rp_api.loop.event_loop import Loop
from rp_profiling.write.tracer import Tracer

RUNNER = str(Path(flux_runner.__file__))
"""Path of the program that runs and ends jobs; it needs Flux's Python."""

_AT = 'flux instance at '
"""Prefix of the line with the address of an instance."""

# A killed broker leaves its directory, and a broker that has ended normally may leave a file in it. The last process of
# the pipeline, which no sweep finds, removes it, also if agent, broker and these shells are killed. The shells ignore
# signals, which are meant for the broker.
_TIDY = """\
trap : HUP INT TERM
mkdir -m 700 "$TMPDIR" 2>/dev/null || test -O "$TMPDIR" || exit 1
exec 3>&1
{ trap : HUP INT TERM; "$@" >&3 3>&-; echo "$?"; } | setsid env -u RP_INSTANCE -u RP_SESSION_ID sh -c '
    read -r code || { code=1; sleep 2; }
    rm -rf "$TMPDIR"
    exit "$code"'"""

# Arguments: the agent's host, the number of brokers, and the program that starts them. Brokers without a common PMI
# form separate instances. If the first broker is on another host, its address tells how the runner gets there: by the
# enclosing instance, by srun, or else by ssh.
_INITIAL = f'''\
size=$(flux getattr size)
if test "$size" != "$2"; then
    echo "instance of $size broker(s) instead of $2: $3 offers no PMI that this Flux knows" >&2
    exit 1
fi
parent=$(flux getattr parent-uri 2>/dev/null)
if test "$(hostname)" = "$1"; then uri=$FLUX_URI
elif test -n "$parent"; then uri="exec $(FLUX_URI=$parent flux getattr rank) $FLUX_URI"
elif test "$3" = srun; then uri="srun $(hostname) $FLUX_URI"
else uri=$(flux uri --remote "$FLUX_URI")
fi
echo "{_AT}$uri"
while :; do sleep 86400; done'''

# The agent neither starts nor ends the enclosing instance.
_ENCLOSING = f'''\
flux getattr size >/dev/null || exit 1
echo "{_AT}$FLUX_URI"
while :; do sleep 86400; done'''

# Arguments: the runner, and those of `flux run`. A killed `flux run` leaves its job: so a guard, which the agent does
# not kill, ends the job when the pipe between them has no writer.
_NESTED = '''\
trap : HUP INT TERM
mark="$PWD nested $$"
runner=$1
shift
exec 3>&1
flux run --setattr="user.rp=$mark" "$@" 9>&1 >&3 3>&- |
    setsid env -u RP_INSTANCE -u RP_SESSION_ID flux python "$runner" --guard "$mark" >/dev/null 2>&1
exit 1'''


class FluxInstances(InstanceLauncher):
    """Instances of the `flux` in PATH."""

    NAME: ClassVar[str] = 'FLUX'
    SECONDS_TO_START: ClassVar[float] = 120.0
    SECONDS_TO_STOP: ClassVar[float] = 20.0
    USES_TMPDIR: ClassVar[bool] = True

    environment: Mapping[str, str] = {}
    """Variables with which the instance starts."""

    def address(self, line: str) -> str:
        """Return the address in the line that the initial program prints."""
        return line.removeprefix(_AT) if line.startswith(_AT) else ''

    def is_ready(self, line: str) -> bool:
        """Return whether the initial program runs, which starts when the instance is complete."""
        return bool(self.address(line))

    def runner(self, address: str) -> Startup:
        """Return the start of a runner by `flux python`, which has the Python bindings of that Flux."""
        *way, uri = address.split(' ')
        command = 'flux', 'python', RUNNER
        if not way:
            return Startup(command, environment={'FLUX_URI': uri})
        how, where = way
        prefix = (('stdbuf', '-oL', 'flux', 'exec', '--rank', where) if how == 'exec' else   # it writes to a pipe
                  ('srun', '--nodes', '1', '--ntasks', '1', '--nodelist', where, '--export=ALL', '--overlap'))
        return Startup((*prefix, 'env', f'FLUX_URI={uri}', *command), environment=self.environment)


class EnclosingFlux(FluxInstances):
    """The instance at this address, in which the agent runs, with the same nodes as the pilot."""

    USES_TMPDIR: ClassVar[bool] = False

    def __init__(self, uri: str) -> None:
        self.environment = {'FLUX_URI': uri}

    def startup(self, number: int, nodes: Sequence[InstanceNode]) -> Startup:
        """Return the start of a process that prints the address and represents the instance."""
        return Startup(('sh', '-c', _ENCLOSING), environment=self.environment)


class NestedFlux(FluxInstances):
    """Instances that are jobs of the one at this address, in which the agent runs.

    Flux counts cores with this number of hardware `threads`.
    """

    def __init__(self, uri: str, threads: int = 1) -> None:
        self.environment = {'FLUX_URI': uri}
        self._threads = threads

    def startup(self, number: int, nodes: Sequence[InstanceNode]) -> Startup:
        """Return the start of an instance whose first broker prints its address."""
        count = str(len(nodes))
        names = dict.fromkeys(HERE if node.name == 'localhost' else node.name for node in nodes)
        job = (f'--nodes={count}', f'--ntasks={count}', *self._devices(nodes), f'--requires=hosts:{",".join(names)}',
               'sh', '-c', _TIDY, 'sh', 'flux', 'start', 'sh', '-c', _INITIAL, 'sh', HERE, count, 'flux run')
        return Startup(('sh', '-c', _NESTED, 'sh', RUNNER, *job), environment=self.environment)

    def _devices(self, nodes: Sequence[InstanceNode]) -> tuple[str, ...]:
        """Return the options for the devices of brokers: whole nodes if nodes differ."""
        devices = {(node.cores, node.gpus) for node in nodes}
        if len(devices) > 1:
            return ('--exclusive',)
        (cores, gpus), = devices
        found = (f'--cores-per-task={math.ceil(cores / self._threads)}',)
        return (*found, f'--gpus-per-task={gpus}') if gpus else found


class FluxLauncher(FluxInstances):
    """Instances whose brokers get all cores and GPUs of their nodes.

    `srun` of a Slurm `resource_manager`, otherwise `mpiexec`, starts brokers on several nodes. They connect by PMI:
    every Slurm supports PMI-2, as does the `mpiexec` of MPICH and its relatives; with Open MPI, Flux needs a plugin.
    `here` are the names of this host.
    """

    def __init__(self, resource_manager: str = 'FORK', here: frozenset[str] = frozenset(('localhost',))) -> None:
        self._slurm = resource_manager == 'SLURM'
        self._here = here

    def startup(self, number: int, nodes: Sequence[InstanceNode]) -> Startup:
        """Return the start of an instance whose first broker prints its address."""
        brokers = self._brokers(nodes)
        starter = brokers[0] if brokers else 'flux start'
        return Startup((*brokers, 'sh', '-c', _TIDY, 'sh', 'flux', 'start', 'sh', '-c', _INITIAL, 'sh',
                        HERE, str(len(nodes)), starter))

    def _brokers(self, nodes: Sequence[InstanceNode]) -> tuple[str, ...]:
        """Return the command that starts a broker on each node; empty if the only node is this host."""
        count = str(len(nodes))
        names = ','.join(node.name for node in nodes)
        if self._slurm:
            return ('srun', '--nodes', count, '--ntasks', count, '--ntasks-per-node', '1', '--nodelist', names,
                    *_devices(nodes), '--export=ALL', '--overlap', '--mpi=pmi2')
        if len(nodes) == 1 and nodes[0].name in self._here:
            return ()
        return ('mpiexec', '-n', count, '--host', names)


def _devices(nodes: Sequence[InstanceNode]) -> tuple[str, ...]:
    """Return the options with which a step of one process per node gets the cores and GPUs of its nodes.

    Slurm takes one number of cores for all processes. Without it, each process has all cores of the job on its node,
    unless it is bound to some of them. The number of GPUs can be a total; if it exceeds the GPUs of the smallest node,
    Slurm 22.05 assigns none.
    """
    cores, gpus = {node.cores for node in nodes}, {node.gpus for node in nodes}
    found = ('--cpus-per-task', str(*cores)) if len(cores) == 1 else ('--cpu-bind=none',)
    if len(gpus) == 1:
        each = str(*gpus)
        return found if each == '0' else (*found, '--gpus-per-task', each)
    return (*found, '--gpus', str(sum(node.gpus for node in nodes)))


_OUTER = ('FLUX_URI', 'FLUX_JOB_ID', 'FLUX_TASK_RANK', 'FLUX_TASK_LOCAL_ID', 'FLUX_JOB_SIZE', 'FLUX_JOB_NNODES',
          'FLUX_KVS_NAMESPACE')
"""Names of variables of an instance in which the agent runs, which tasks must not inherit."""


class FluxKind(JobKind):
    """The Flux parts of the executor; a core of the pilot is one of `threads` hardware threads of a Flux core."""

    NAME: ClassVar[str] = 'FLUX'
    RANK_VARIABLES: ClassVar[tuple[str, ...]] = ('FLUX_TASK_RANK',)
    BINDS: ClassVar[bool] = True
    launcher: FluxInstances

    def __init__(self, launcher: FluxInstances, threads: int = 1) -> None:
        self.launcher = launcher
        self._threads = threads

    def request(self, task: AgentTask, argv: tuple[str, ...], environment: dict[str, str],
                output: tuple[str, str]) -> dict[str, Any]:
        """Return the jobspec of a task."""
        inner = {name: value for name, value in environment.items() if name not in _OUTER}
        return {'jobspec': jobspec(task.description, argv, inner, task.sandbox, output, self._threads)}

    def runner(self, started: Processes, address: str, news: News, broken: Broken) -> Runner:
        """Start a runner, on the host of the instance if need be."""
        return PipeRunner(started, self.launcher.runner(address), news, broken)


def executor(uid: str, tracer: Tracer, loop: Loop, context: PilotContext, options: Mapping[str, Any]) -> JobExecutor:
    """Create the executor FLUX of a pilot; raise PlatformError if the platform's options for Flux are invalid."""
    assert context.launchers is not None
    platform, setting = context.launchers.platform, context.launchers.setting
    options = platform['launch_methods'].get('FLUX') or {}
    parts = divide('FLUX', len(setting['nodes']), options, platform['n_partitions'])
    threads = setting['threads_per_core']
    kind = FluxKind(_launcher(context, context.launchers, len(parts), threads), threads)
    return JobExecutor(uid, tracer, loop, context, kind, parts, nodes_of(setting))


def _launcher(context: PilotContext, launchers: Launchers, instances: int, threads: int) -> FluxInstances:
    """Return the launcher of Flux instances; the enclosing instance is used if its nodes are those of the pilot."""
    names, facts = tuple(launchers.setting['nodes']), launchers.setting.get('facts') or {}
    if URI not in facts:
        here = frozenset(name for position, name in enumerate(names) if launchers.is_here(position))
        return FluxLauncher(launchers.platform['resource_manager'], here)
    whole = instances == 1 and context.partition is None and facts[SIZE] == str(len(names))
    return EnclosingFlux(facts[URI]) if whole else NestedFlux(facts[URI], threads)


def jobspec(description: Mapping[str, Any], argv: Sequence[str], environment: Mapping[str, str], directory: str,
            output: tuple[str, str], threads: int = 1) -> dict[str, Any]:
    """Return the jobspec of a task whose ranks run `argv` in a directory, with their output in two files.

    Cores of the description are hardware threads, of which each Flux core has `threads`; ranks do not share a core. The
    executor enforces time limits; one in Flux would end the job at the same time, for another reason. Raise
    LaunchRefused if a jobspec cannot express the description.
    """
    ranks = description['ranks']
    if description['mode'] == RAPTOR_WORKER:   # one manager, which starts the ranks
        each = {name: ranks * description[name] for name in ('cores_per_rank', 'gpus_per_rank')}
        description, ranks = {**DEFAULTS, **description, **each, 'ranks': 1}, 1
    resources, count = _resources(description, ranks, threads)
    stdout, stderr = output
    options: dict[str, Any] = {'output': {'stdout': {'type': 'file', 'path': stdout},
                                          'stderr': {'type': 'file', 'path': stderr}}}
    if ranks > 1:
        options['cpu-affinity'] = 'per-task'
        if description['gpus_per_rank']:
            options['gpu-affinity'] = 'per-task'
        if _is_mpi(description):
            options['exit-on-error'] = 1
        else:
            options['exit-timeout'] = 'none'
    return {
        'version': 1,
        'resources': [resources],
        'tasks': [{'command': list(argv), 'slot': 'task', 'count': count}],
        'attributes': {'system': {
            'duration': 0,
            'cwd': directory,
            'environment': dict(environment),
            'shell': {'options': options},
        }},
    }


def _resources(description: Mapping[str, Any], ranks: int, threads: int) -> tuple[dict[str, Any], dict[str, int]]:
    """Return the requested resources, as one vertex, and the count of ranks."""
    within = [{'type': 'core', 'count': math.ceil(description['cores_per_rank'] / threads)}]
    gpus = description['gpus_per_rank']
    if 0 < gpus < 1:
        raise LaunchRefused(f'gpus_per_rank is {gpus:g}, allowed with Flux: whole GPUs')
    if gpus:
        within.append({'type': 'gpu', 'count': math.ceil(gpus)})
    # ranks that are not MPI share a node
    most = description['ranks_per_node'] or (ranks if not _is_mpi(description) else 0)
    if ranks == 1 or not most:
        return {'type': 'slot', 'count': ranks, 'label': 'task', 'with': within}, {'per_slot': 1}
    nodes = -(-ranks // most)
    slots = -(-ranks // nodes)
    slot = {'type': 'slot', 'count': slots, 'label': 'task', 'with': within}
    counted = {'per_slot': 1} if nodes * slots == ranks else {'total': ranks}
    return {'type': 'node', 'count': nodes, 'with': [slot]}, counted


def _is_mpi(description: Mapping[str, Any]) -> bool:
    wanted = description['use_mpi']
    return description['ranks'] > 1 if wanted is None else bool(wanted)
