"""The resource manager DEBUG: as many nodes as the pilot asks for, all of which are the agent's own machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rp_agent.resource_manager.base import Allocation, Request
from rp_agent.resource_manager.system import System
from rp_agent.resource_manager.systems import fork


class Debug:
    """Pretended nodes."""

    def allocate(self, request: Request, platform: Mapping[str, Any], system: System) -> Allocation:
        """What the pilot asks for, whatever the machine has."""
        return fork.allocate(request, {**platform, 'fake_resources': True}, system.environ)
