"""The wiring of the RAPTOR component: connects it to the pipeline and to the link to masters."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from rp_agent import network, sandbox
from rp_agent.bootstrap.environment import additions
from rp_agent.components.build import make_tracer
from rp_agent.nodes.child import address_beside
from rp_agent.raptor.component import Raptor
from rp_agent.raptor.link import MasterLink, remove_leftovers
from rp_agent.resource_manager.base import Allocation
from rp_agent.task import AgentTask
from rp_api.loop.event_loop import Loop
from rp_api.raptor_link import link_file

UID = 'agent_raptor.0000'


class PipelinePorts(NamedTuple):
    """Callbacks of the wiring to the pipeline; see `RaptorPorts`."""

    enter: Callable[[list[AgentTask]], None]
    stage_output: Callable[[list[AgentTask]], None]
    leave: Callable[[list[AgentTask]], None]
    cancel: Callable[[Sequence[AgentTask]], None]
    schedule: Callable[[list[AgentTask]], None]
    advanced: Callable[[Sequence[AgentTask], str], None]
    knows: Callable[[str], bool]
    master_is_up: Callable[[AgentTask, dict[str, str]], None]
    waits: Callable[[Sequence[AgentTask], str, str], None]


class Wiring:
    """The implementation of `ports.RaptorPorts`, which owns the component and the link to masters."""

    def __init__(self, config: Mapping[str, Any], loop: Loop, allocation: Allocation, ports: PipelinePorts) -> None:
        self._config = config
        self._knows = ports.knows
        self.environment: Mapping[str, str] = additions(config.get('environment'), os.environ)
        self.call_later = loop.call_later
        self.enter = ports.enter
        self.stage_output = ports.stage_output
        self.leave = ports.leave
        self.cancel = ports.cancel
        self.master_is_up = ports.master_is_up
        self.waits = ports.waits
        self.raptor = Raptor(UID, make_tracer(config, UID), self, {
            'nodes': len(set(allocation.names)), 'session': config['session'], 'pilot': config['pilot']})
        self.raptor.output = ports.schedule
        self.raptor.advanced = ports.advanced
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
        """Close the link to masters; may be called again."""
        self._link.close()
