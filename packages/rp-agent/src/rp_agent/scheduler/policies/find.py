"""Finds the scheduling policy that a platform asks for.

A platform names its policy as `agent_scheduler`; names are those of the entry points `rp_agent.schedulers`, which any
distribution can add to.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from rp_agent.instance_nodes import DVM_METHODS
from rp_agent.scheduler.policy import Policy
from rp_api.errors import PlatformError

GROUP = 'rp_agent.schedulers'
DEFAULT = 'CONTINUOUS'


def find(platform: Mapping[str, Any]) -> type[Policy]:
    """The class of the policy that the platform asks for; `PlatformError`, with all names, if there is none."""
    name = platform.get('agent_scheduler') or DEFAULT
    if name == DEFAULT:
        methods = (platform.get('launch_methods') or {}).get('order', ())
        if 'JSRUN' in methods:
            name = 'CONTINUOUS_JSRUN'
        elif not DVM_METHODS.isdisjoint(methods):
            name = 'CONTINUOUS_DVM'
        else:
            # at once: loading what finds entry points takes longer than most of an agent's start
            from rp_agent.scheduler.policies.continuous import Continuous

            return Continuous
    from importlib.metadata import entry_points

    installed = entry_points(group=GROUP)
    if name not in installed.names:
        known = ', '.join(sorted({DEFAULT, *installed.names}))
        raise PlatformError(f'agent_scheduler {name!r} of the platform is unknown, installed are {known}')
    return cast('type[Policy]', installed[name].load())
