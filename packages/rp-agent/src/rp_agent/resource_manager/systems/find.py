"""Which resource manager a platform asks for: the name `resource_manager` of its definition.

Those of this project are in the table `rp_api.platforms.systems`; others can be added as entry points
`radical_pilot.resource_managers`, or with a batch system (`radical_pilot.batch_systems`). A resource manager is a class
that is made without arguments and has `allocate(request, platform, system)`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, cast

from rp_agent.resource_manager.base import Allocation, Request
from rp_agent.resource_manager.system import System
from rp_api import extensions
from rp_api.platforms.systems import RESOURCE_MANAGERS, other_systems

GROUP = 'radical_pilot.resource_managers'
FORK = 'FORK'
"""The resource manager of a platform that names none."""


class ResourceManager(Protocol):
    """Finds out what a pilot gets."""

    def allocate(self, request: Request, platform: Mapping[str, Any], system: System) -> Allocation:
        """What the pilot gets; `ResourceError` if it is less than it asks for, `PlatformError` if it is not known."""


def allocate(request: Request, platform: Mapping[str, Any], system: System | None = None) -> Allocation:
    """What a pilot gets on this platform, by its resource manager."""
    return find(platform.get('resource_manager') or FORK).allocate(request, platform, system or System())


def find(name: str) -> ResourceManager:
    """The resource manager of that name; `PlatformError`, with all names, if there is none."""
    own = RESOURCE_MANAGERS
    if name not in own:
        own = own | {system.resource_manager: system.agent for system in other_systems() if system.agent}
    return cast('ResourceManager',
                extensions.find(GROUP, name, own, f'resource_manager {name!r} of the platform')())
