"""Registry of executors: find the `agent_spawner` of a platform.

Entry points of the group `radical_pilot.executors` add executors. Each is a function (`Spawner`) that returns an
executor (`AnyExecutor`), usually a subclass of `rp_agent.executor.base.BaseExecutor`.
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
"""Entry-point group of executors."""
DEFAULT = 'POPEN'
"""Name of the default executor."""
_OURS = {
    'POPEN': 'popen.component:Executor',   # processes that the agent starts without a shell
    'SHELL': 'shell:ShellExecutor',        # processes that one persistent /bin/sh starts
    'SIMULATED': 'simulated:simulated',    # none; the option `launch_model` sets launch times, tasks set durations
    'NOOP': 'simulated:noop',              # like SIMULATED, without launch times
    'FLUX': 'backends.flux.executor:executor',         # jobs of Flux instances
    'DRAGON': 'backends.dragon.executor:executor',     # processes of Dragon runtimes
}
"""The executors of this project."""


class AnyExecutor(Protocol):
    """The interface of executors that the pipeline uses; `BaseExecutor` describes the methods."""

    uid: str
    """Identifier of the component."""
    tracer: Tracer
    """Records events."""
    output: Callable[[list[Any]], None]
    """Receives batches of tasks that have ended; the pipeline sets it."""
    advanced: Callable[..., None]
    """Called when tasks change their state; the pipeline sets it."""

    def __contains__(self, uid: object) -> bool:
        """Return whether the task with this uid is here and has not ended."""

    def put(self, tasks: list[AgentTask]) -> None:
        """Run tasks that have slots, in state AGENT_EXECUTING_PENDING."""

    def expect(self, expected: Callable[[int], Sequence[AgentTask]]) -> None:
        """Accept a forecast: `expected(count)` returns at most `count` tasks that are likely to be put next."""

    def cancel(self, uids: Iterable[str]) -> None:
        """End tasks as CANCELED; ignore unknown uids."""

    def stop(self, on_empty: Callable[[], Any], reason: str) -> None:
        """End all tasks as CANCELED for this reason; call `on_empty` when the last one has been handed on."""

    def sweep(self, uids: Iterable[str]) -> None:
        """Kill processes that ended tasks have left on this node."""

    def forward_signal(self, number: int) -> None:
        """Pass a signal on to the running tasks that want it."""

    def check(self) -> None:
        """Verify all invariants; raise AssertionError."""

    def close(self) -> None:
        """Release all resources; called when the executor has no tasks."""


Spawner = Callable[[str, Tracer, Loop, PilotContext, Mapping[str, Any]], AnyExecutor]
"""Creates an executor from its uid, the tracer, the event loop, the context of the pilot, and options by name.

An executor ignores options that it does not know.
"""


def spawner(name: str) -> Spawner:
    """Return the function that creates executors of that name.

    Args:
        name: Name of the executor, as in `agent_spawner` of a platform definition.

    Returns:
        The function of the table or of the entry point.

    Raises:
        PlatformError: No executor has that name; the text lists all names.
    """
    own = {each: f'rp_agent.executor.{where}' for each, where in _OURS.items()}
    return cast('Spawner', find(GROUP, name, own, f'agent_spawner {name!r}'))


def spans_nodes(platform: Mapping[str, Any]) -> bool:
    """Return whether the executor of a platform starts tasks on all nodes by itself."""
    if platform['agent_spawner'] in ('DRAGON', 'FLUX'):
        return True
    order = (platform.get('launch_methods') or {}).get('order', ())
    # launch methods that use DVMs cannot start sub-agents
    return bool(order) and not platform.get('agent_launch_method') and DVM_METHODS.issuperset(order)


def has_instances(platform: Mapping[str, Any]) -> bool:
    """Return whether the executor of a platform keeps launchers that span nodes; the agent has only one of it."""
    return spans_nodes(platform) or launches_into_dvms(platform)


def launches_into_dvms(platform: Mapping[str, Any]) -> bool:
    """Return whether MPI tasks can go to DVMs, which one executor of the agent keeps."""
    order = (platform.get('launch_methods') or {}).get('order', ())
    return platform['agent_spawner'] == DEFAULT and not DVM_METHODS.isdisjoint(order)
