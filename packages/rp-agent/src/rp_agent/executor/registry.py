"""Which executor a platform asks for: its `agent_spawner`, found through the entry points `radical_pilot.executors`.

An entry point is a function (`Spawner`) that makes the executor: any component with `put`, `expect`, `cancel`, `stop`,
`sweep`, `check` and `close` as `rp_agent.executor.base.BaseExecutor` describes them. This distribution brings

    POPEN       processes started by the agent itself, without a shell; the default
    SHELL       processes started by one persistent /bin/sh
    SIMULATED   no processes; tasks run when the option `launch_model` says, and as long as they say
    NOOP        the same, with no time between launch and run
    FLUX        jobs of Flux instances
    DRAGON      processes of Dragon runtimes
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, cast

from rp_agent.executor.launching.environment import PilotContext
from rp_agent.instance_nodes import DVM_METHODS
from rp_agent.task import AgentTask
from rp_api.extensions import find
from rp_api.loop.event_loop import Loop
from rp_profiling.write.tracer import Tracer

GROUP = 'radical_pilot.executors'
DEFAULT = 'POPEN'


class AnyExecutor(Protocol):
    """What the pipeline needs of an executor."""

    uid: str
    tracer: Tracer
    output: Callable[[list[Any]], None]
    advanced: Callable[..., None]

    def put(self, tasks: list[AgentTask]) -> None: ...
    def expect(self, expected: Callable[[int], Sequence[AgentTask]]) -> None: ...
    def cancel(self, uids: Iterable[str]) -> None: ...
    def stop(self, on_empty: Callable[[], Any], reason: str) -> None: ...
    def sweep(self, uids: Iterable[str]) -> None: ...
    def check(self) -> None: ...
    def close(self) -> None: ...


Spawner = Callable[[str, Tracer, Loop, PilotContext, Mapping[str, Any]], AnyExecutor]
"""Makes an executor of this uid; the last argument are options, each of which an executor is free to know."""


def spawner(name: str) -> Spawner:
    """The function that makes executors of that name; PlatformError, with all names, if there is none."""
    return cast('Spawner', find(GROUP, name, {DEFAULT: f'{__name__}:popen'}, f'agent_spawner {name!r}'))


def popen(uid: str, tracer: Tracer, loop: Loop, context: PilotContext, options: Mapping[str, Any]) -> AnyExecutor:
    """The default executor, with the launch loop."""
    from rp_agent.executor.popen.component import Executor

    return Executor(uid, tracer, loop, context)


def shell(uid: str, tracer: Tracer, loop: Loop, context: PilotContext, options: Mapping[str, Any]) -> AnyExecutor:
    """The executor with a persistent shell."""
    from rp_agent.executor.shell.component import ShellExecutor

    return ShellExecutor(uid, tracer, loop, context)


def simulated(uid: str, tracer: Tracer, loop: Loop, context: PilotContext, options: Mapping[str, Any]) -> AnyExecutor:
    """An executor without processes; the option `launch_model` describes its launcher."""
    from rp_agent.executor.simulated.component import SimulatedExecutor
    from rp_agent.executor.simulated.launch_model import launch_model

    return SimulatedExecutor(uid, tracer, loop, launch_model(options.get('launch_model', {})))


def noop(uid: str, tracer: Tracer, loop: Loop, context: PilotContext, options: Mapping[str, Any]) -> AnyExecutor:
    """An executor without processes and without a launcher that would take time."""
    from rp_agent.executor.simulated.component import SimulatedExecutor

    return SimulatedExecutor(uid, tracer, loop)


def flux(uid: str, tracer: Tracer, loop: Loop, context: PilotContext, options: Mapping[str, Any]) -> AnyExecutor:
    """The executor with Flux instances."""
    from rp_agent.executor.backends.flux.executor import executor

    return executor(uid, tracer, loop, context)


def dragon(uid: str, tracer: Tracer, loop: Loop, context: PilotContext, options: Mapping[str, Any]) -> AnyExecutor:
    """The executor with Dragon runtimes."""
    from rp_agent.executor.backends.dragon.executor import executor

    return executor(uid, tracer, loop, context)


def spans_nodes(platform: Mapping[str, Any]) -> bool:
    """Whether the executor of a platform starts tasks on all nodes by itself."""
    if platform['agent_spawner'] in ('DRAGON', 'FLUX'):
        return True
    order = (platform.get('launch_methods') or {}).get('order', ())
    # what launches into virtual machines cannot start sub-agents
    return bool(order) and not platform.get('agent_launch_method') and DVM_METHODS.issuperset(order)


def has_instances(platform: Mapping[str, Any]) -> bool:
    """Whether the executor of a platform keeps launchers that span nodes, so that there can be only one of it."""
    return spans_nodes(platform) or launches_into_dvms(platform)


def launches_into_dvms(platform: Mapping[str, Any]) -> bool:
    """Whether MPI tasks may go to virtual machines, which one executor of the agent keeps."""
    order = (platform.get('launch_methods') or {}).get('order', ())
    return platform['agent_spawner'] == DEFAULT and not DVM_METHODS.isdisjoint(order)
