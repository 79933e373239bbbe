"""The executor FLUX: tasks are jobs of Flux instances, which place them on their nodes and start them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rp_agent.executor.backends.flux.instance import RUNNER, EnclosingFlux, Flux, NestedFlux
from rp_agent.executor.backends.flux.jobspec import jobspec
from rp_agent.executor.backends.jobs import Job, JobExecutor
from rp_agent.executor.backends.launcher import InstanceLauncher, Startup, nodes_of
from rp_agent.executor.backends.process import Processes
from rp_agent.executor.backends.runner import Broken, News, PipeRunner, Runner
from rp_agent.executor.launching.environment import PilotContext
from rp_agent.executor.launching.launchers import Launchers
from rp_agent.instance_nodes import divide
from rp_agent.resource_manager.systems.flux import SIZE, URI
from rp_api.loop.event_loop import Loop
from rp_profiling.write.tracer import Tracer

# of the instance that the agent may run in itself
_OUTER = ('FLUX_URI', 'FLUX_JOB_ID', 'FLUX_TASK_RANK', 'FLUX_TASK_LOCAL_ID', 'FLUX_JOB_SIZE', 'FLUX_JOB_NNODES',
          'FLUX_KVS_NAMESPACE')


class FluxKind:
    """What is particular to Flux; what the pilot calls a core is a hardware thread if cores have several `threads`."""

    NAME: str = 'FLUX'
    RANK_VARIABLES: tuple[str, ...] = ('FLUX_TASK_RANK',)
    BINDS: bool = True

    def __init__(self, launcher: InstanceLauncher, threads: int = 1) -> None:
        self.launcher = launcher
        self._threads = threads

    def request(self, job: Job) -> dict[str, Any]:
        """The jobspec."""
        environment = {name: value for name, value in job.environment.items() if name not in _OUTER}
        return {'jobspec': jobspec(job.task.description, job.argv, environment, job.task.sandbox, job.output,
                                   self._threads)}

    def runner(self, started: Processes, address: str, news: News, broken: Broken) -> Runner:
        """`flux python` with the bindings of that Flux, whatever Python we run in."""
        startup = Startup(('flux', 'python', RUNNER), environment={'FLUX_URI': address})
        return PipeRunner(started, startup, news, broken)

    def begin(self, heard: Callable[[int, str], object]) -> None:
        """Instances tell what there is to tell by their output."""

    def close(self) -> None:
        """Nothing is held."""


def executor(uid: str, tracer: Tracer, loop: Loop, context: PilotContext) -> JobExecutor:
    """The executor FLUX of a pilot; PlatformError if the platform says something about it that makes no sense."""
    assert context.launchers is not None
    platform, setting = context.launchers.platform, context.launchers.setting
    options = platform['launch_methods'].get('FLUX') or {}
    parts = divide('FLUX', len(setting['nodes']), options, platform['n_partitions'])
    threads = setting['threads_per_core']
    kind = FluxKind(_launcher(context, context.launchers, len(parts), threads), threads)
    return JobExecutor(uid, tracer, loop, context, kind, parts, nodes_of(setting))


def _launcher(context: PilotContext, launchers: Launchers, instances: int, threads: int) -> InstanceLauncher:
    """What has so many instances of Flux for a pilot: the one that it runs in, if it has just the nodes of that."""
    names, facts = tuple(launchers.setting['nodes']), launchers.setting.get('facts') or {}
    if URI not in facts:
        here = frozenset(name for position, name in enumerate(names) if launchers.is_here(position))
        return Flux(launchers.platform['resource_manager'], here)
    whole = instances == 1 and context.partition is None and facts[SIZE] == str(len(names))
    return EnclosingFlux(facts[URI]) if whole else NestedFlux(facts[URI], threads)
