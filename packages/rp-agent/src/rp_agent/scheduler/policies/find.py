"""Registry of scheduling policies: loads the one that a platform names as `agent_scheduler`.

Names are those of the entry-point group `radical_pilot.scheduling_policies`, which any distribution can extend.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from rp_agent.instance_nodes import DVM_METHODS
from rp_agent.scheduler.policy import Policy
from rp_api import extensions

GROUP = 'radical_pilot.scheduling_policies'
DEFAULT = 'CONTINUOUS'


def find(platform: Mapping[str, Any]) -> type[Policy]:
    """Return the class of the platform's policy; raise `PlatformError`, which lists all names, if it is unknown."""
    name = platform.get('agent_scheduler') or DEFAULT
    if name == DEFAULT:
        methods = (platform.get('launch_methods') or {}).get('order', ())
        if 'JSRUN' in methods:
            name = 'CONTINUOUS_JSRUN'
        elif not DVM_METHODS.isdisjoint(methods):
            name = 'CONTINUOUS_DVM'
    own = {DEFAULT: 'rp_agent.scheduler.policies.continuous:Continuous'}
    return cast('type[Policy]', extensions.find(GROUP, name, own, f'agent_scheduler {name!r} of the platform'))
