"""Resource manager DEBUG: simulates the requested nodes on the agent's own machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rp_agent.resource_manager.base import Allocation, Request
from rp_agent.resource_manager.system import System
from rp_agent.resource_manager.systems import fork


class Debug:
    def allocate(self, request: Request, platform: Mapping[str, Any], system: System) -> Allocation:
        """Return the requested allocation, regardless of the machine's resources."""
        return fork.allocate(request, {**platform, 'fake_resources': True}, system.environ)
