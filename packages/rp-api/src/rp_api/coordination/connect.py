"""Which backend coordinates a session, and how client and agents get to it.

Backends are imported when they are needed: a session of the one does not need what the other is made of.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from rp_api.coordination.contract import LEASE, AgentConnection
from rp_api.coordination.coordinator import Coordinator
from rp_api.errors import CoordinationError
from rp_api.mesh.loop import Loop

_COORDINATORS = {'hub': ('process', 'HubProcess'), 'served': ('service_client', 'ServedHub'),
                 'mongodb': ('mongodb', 'MongoCoordinator')}
_AGENT_CONNECTIONS = {'hub': ('embedded', 'agent_connection'), 'mongodb': ('mongodb', 'agent_connection')}


@dataclass(frozen=True, slots=True)
class Settings:
    """How a session wants to be coordinated; what is empty is not asked for.

    `dburl` names a MongoDB, `hub_url` a stand-alone hub. Otherwise the session has a hub of its own, which also listens
    at the network interface `listen` (`tcp://<interface>[:<port>]`), and whose agents are told to connect to `address`
    (what a tunnel or a gateway makes of it). `lease` are the seconds after which a silent agent counts as lost,
    `orphan_timeout` those that pilots without work wait for an application that died.
    """

    dburl: str = ''
    hub_url: str = ''
    listen: str = ''
    address: str = ''
    lease: float = LEASE
    orphan_timeout: float = 60.0


def coordinator(session: str, directory: Path, settings: Settings) -> Coordinator:
    """What coordinates the session of that uid, whose files are in this directory; not started yet."""
    kind = 'mongodb' if settings.dburl else 'served' if settings.hub_url else 'hub'
    return cast(Coordinator, _load(_COORDINATORS[kind])(session, directory, settings))


def agent_connection(loop: Loop, access: Mapping[str, Any], pilot: str, agent: str) -> AgentConnection:
    """The connection of an agent of a pilot; `access` is what `Coordinator.agent_access` gave."""
    backend = access.get('backend')
    if backend not in _AGENT_CONNECTIONS:
        raise CoordinationError(f'the session is coordinated by {backend!r}, which this agent does not know (known '
                                f'are: {", ".join(_AGENT_CONNECTIONS)}): upgrade rp-agent and rp-api')
    return cast(AgentConnection, _load(_AGENT_CONNECTIONS[backend])(loop, access, pilot, agent))


def _load(where: tuple[str, str]) -> Any:
    module, name = where
    return getattr(importlib.import_module(f'rp_api.coordination.{module}'), name)
