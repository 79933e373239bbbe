"""Registry of executors: find the `agent_spawner` of a platform.

Entry points of the group `radical_pilot.executors` add executors. Each is a function (`Spawner`) that returns an
executor, an `rp_agent.executor.base.BaseExecutor`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from rp_agent.executor.base import BaseExecutor
from rp_agent.executor.launching.environment import PilotContext
from rp_agent.instance_nodes import DVM_METHODS
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

Spawner = Callable[[str, Tracer, Loop, PilotContext, Mapping[str, Any]], BaseExecutor]
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
