"""The executor FLUX: tasks are jobs of Flux instances, which place and start them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from rp_agent.executor.backends.flux.instance import EnclosingFlux, FluxInstances, FluxLauncher, NestedFlux
from rp_agent.executor.backends.jobs import JobExecutor
from rp_agent.executor.backends.launcher import nodes_of
from rp_agent.executor.backends.process import Processes
from rp_agent.executor.backends.runner import Broken, JobKind, News, PipeRunner, Runner
from rp_agent.executor.launching.environment import PilotContext
from rp_agent.executor.launching.launchers import Launchers
from rp_agent.instance_nodes import divide
from rp_agent.lookup import LaunchRefused
from rp_agent.resource_manager.systems.flux import SIZE, URI
from rp_agent.task import DEFAULTS, AgentTask
from rp_api.constants import RAPTOR_WORKER
from rp_api.loop.event_loop import Loop
from rp_profiling.write.tracer import Tracer

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
