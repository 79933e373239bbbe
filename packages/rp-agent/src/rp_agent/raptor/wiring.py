"""The wiring of the RAPTOR component: connects it to the pipeline and to the link to masters."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from rp_agent import network, sandbox
from rp_agent.bootstrap.environment import additions
from rp_agent.components.build import make_tracer
from rp_agent.components.stage import Flow, Owner
from rp_agent.nodes.child import address_beside
from rp_agent.raptor.component import Raptor
from rp_agent.raptor.link import MasterLink, remove_leftovers
from rp_agent.resource_manager.base import Allocation
from rp_agent.task import AgentTask
from rp_api.loop.event_loop import Loop
from rp_api.raptor_link import link_file

UID = 'agent_raptor.0000'


class Wiring:
    """The implementation of `ports.RaptorPorts`, which owns the component and the link to masters."""

    def __init__(self, config: Mapping[str, Any], loop: Loop, allocation: Allocation, flow: Flow,
                 owner: Owner) -> None:
        self._config = config
        self._knows = owner.knows
        self.environment: Mapping[str, str] = additions(config.get('environment'), os.environ)
        self.call_later = loop.call_later
        self.raptor = Raptor(UID, make_tracer(config, UID), self, flow, owner, {
            'nodes': len(set(allocation.names)), 'session': config['session'], 'pilot': config['pilot']})
        others = allocation.elsewhere
        address = (network.listen_address(config['platform'], allocation.names[others[-1]]) if others else
                   address_beside(config['registry_address']))
        file = link_file(sandbox.of_pilot(config), str(config.get('partition', '')))
        self._link = MasterLink(loop, file, address, self.raptor.receive)
        self.send = self._link.send
        self.forget = self._link.forget
        self.refuse = self._link.refuse

    def make(self, uid: str, description: dict[str, Any]) -> AgentTask | None:
        """Return a new task of this pilot; None if there is one of that uid."""
        if self._knows(uid):
            return None
        return AgentTask(uid, description, self._config['pilot'], sandbox.of_task(self._config, uid, description))

    def remove_leftovers(self, master: str, address: str) -> None:
        """Remove the files of a master that listened at that address."""
        remove_leftovers(sandbox.of_pilot(self._config), master, address)

    def close(self) -> None:
        """Close the link."""
        self._link.close()
