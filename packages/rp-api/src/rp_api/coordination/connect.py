"""Selection of the coordination backend of a session, for client and agents.

Backends are imported on first use, so that the requirements of the others need not be installed.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from rp_api.coordination.contract import AgentConnection
from rp_api.coordination.coordinator import Coordinator, Settings
from rp_api.errors import CoordinationError
from rp_api.loop.event_loop import Loop

_COORDINATORS = {
    'hub': ('rp_api.coordination.hub_process', 'HubProcess'),
    'served': ('rp_api.coordination.service.client', 'ServedHub'),
    'mongodb': ('rp_api.coordination.mongodb', 'MongoCoordinator'),
}
_AGENT_CONNECTIONS = {
    'hub': ('rp_api.coordination.connections.embedded', 'agent_connection'),
    'mongodb': ('rp_api.coordination.mongodb', 'MongoAgentConnection'),
}


def coordinator(session: str, directory: Path, settings: Settings) -> Coordinator:
    """Return the coordinator of a session, not yet started; `directory` holds the session's files."""
    kind = 'mongodb' if settings.dburl else 'served' if settings.hub_url else 'hub'
    return cast(Coordinator, _load(_COORDINATORS[kind])(session, directory, settings))


def agent_connection(loop: Loop, access: Mapping[str, Any], pilot: str, agent: str) -> AgentConnection:
    """Return the connection of an agent of a pilot; `access` is `Coordinator.agent_access`."""
    backend = access.get('backend')
    if backend not in _AGENT_CONNECTIONS:
        raise CoordinationError(f'the session is coordinated by {backend!r}, which this agent does not support '
                                f'(supported: {", ".join(_AGENT_CONNECTIONS)}): upgrade rp-agent and rp-api')
    return cast(AgentConnection, _load(_AGENT_CONNECTIONS[backend])(loop, access, pilot, agent))


def _load(where: tuple[str, str]) -> Any:
    module, name = where
    return getattr(importlib.import_module(module), name)
