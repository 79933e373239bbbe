"""The optional parts of an agent, such as environments and services: each is made when something first asks for it.

Each part registers the calls that it answers, and provides what tasks wait for at the gate of the pipeline. Its modules
are imported here in functions, so that agents without it do not load them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from rp_agent.calls import Call, Calls
from rp_agent.components.stage import Owner
from rp_agent.pipeline.pipeline import Pipeline
from rp_agent.resource_manager.base import Allocation
from rp_api.loop.event_loop import Loop
from rp_api.loop.offload import Offload

if TYPE_CHECKING:
    from rp_agent.endpoint import Endpoint
    from rp_agent.environments.environments import Done
    from rp_agent.environments.preparation import OnNodes, Preparation
    from rp_agent.environments.published import Built
    from rp_agent.services.supervisor import Supervisor


class Features:
    """The optional parts of one agent, besides the stages of its pipeline."""

    def __init__(self, config: Mapping[str, Any], loop: Loop, offload: Offload, allocation: Allocation, calls: Calls,
                 pipeline: Pipeline, agent: Owner) -> None:
        self._config = config
        self._loop = loop
        self._offload = offload
        self._allocation = allocation
        self._calls = calls
        self._pipeline = pipeline
        self._agent = agent
        self._parts: list[Endpoint | Preparation | OnNodes] = []

    def start(self) -> None:
        """Make the parts that the pilot's description asks for."""
        config, calls = self._config, self._calls
        calls.register('prepare_env', lambda call: self._environments.answer(call))
        calls.register('register_service', self._register_service)
        calls.register('service_signal', self._service_signal)
        if config.get('earlier'):   # the batch system has started the job again
            self._environments.restore()
        if config.get('prepare_env'):
            self._environments.prepare_all(config['prepare_env'])
        services = config.get('services')
        if services:
            self.services.of_pilot([service['uid'] for service in services])
            self._agent.run_own([dict(service) for service in services], lambda task: None)

    @cached_property
    def endpoint(self) -> Endpoint:
        """The endpoint for processes on the pilot's nodes, which the first use opens."""
        from rp_agent.endpoint import open_endpoint
        from rp_agent.local_tasks import LocalTasks

        LocalTasks(self._config['pilot'], self._agent).register(self._calls)
        endpoint = open_endpoint(self._config, self._loop, self._allocation, self._calls)
        self._parts.append(endpoint)
        return endpoint

    def stop(self, reason: str) -> None:
        """End the work of all parts."""
        for part in self._parts:
            part.stop(reason)

    def close(self) -> None:
        """Release the resources of all parts."""
        for part in self._parts:
            part.close()

    # environments and services

    @cached_property
    def _environments(self) -> Preparation:
        """The part for environments, which the first use makes."""
        from rp_agent.environments.preparation import Preparation

        made = Preparation(self._config, self._loop, self._pipeline.stages.gate, self._agent.notice, self._distribute)
        self._parts.append(made)
        return made

    def _distribute(self, built: Built, done: Done) -> None:
        """Copy an environment to the nodes if it is to be copied, then call `done()`."""
        wanted = built.spec['pack'] or self._config['agent'].get('node_local_envs', False)
        if built.path and wanted:
            self._copies.distribute(built, done)
        else:
            done()

    @cached_property
    def _copies(self) -> OnNodes:
        """The part for environments on the disks of nodes, which the first use makes."""
        from rp_agent.environments.preparation import OnNodes
        from rp_agent.node_copies.copies import NodeCopies

        here = len(self._allocation.elsewhere) < len(self._allocation.names)
        copies = NodeCopies(self._config, self._loop, self._offload, self._pipeline.sub_agents, here)
        made = OnNodes(self._config, copies, self._agent.notice)
        self._parts.append(made)
        return made

    @cached_property
    def services(self) -> Supervisor:
        """The supervisor of service tasks, which the first use adds to the pipeline."""
        from rp_agent.services.supervisor import Supervisor

        made = Supervisor(self._loop, self._pipeline.stages.gate, self._pipeline, self._agent, lambda: self.endpoint,
                          self._address)
        self._pipeline.stages.add(made)
        return made

    def _address(self) -> str:
        """Return the IP address of this host for services that it runs."""
        from rp_agent.network import service_address

        others = [self._allocation.names[position] for position in self._allocation.elsewhere]
        return service_address(self._config['platform'], others, self._config['registry_address'])

    def _register_service(self, call: Call) -> None:
        """Register a service outside of the pilot: its uid, and the information for the tasks that use it."""
        self.services.register(*call.args, **call.kwargs)
        call.done()

    def _service_signal(self, call: Call) -> None:
        """Take the report of a service that it is ready: its uid, its information, and its name if it is new."""
        self.services.signal(*call.args, **call.kwargs)
        call.done()
