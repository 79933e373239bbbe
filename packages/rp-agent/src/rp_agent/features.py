"""The optional parts of an agent, such as environments and services: each is made when something first asks for it.

Each part registers the calls that it answers, and provides what tasks wait for at the gate of the pipeline. Its modules
are imported here in functions, so that agents without it do not load them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from rp_agent.calls import Call, Calls
from rp_agent.pipeline.pipeline import Pipeline
from rp_agent.resource_manager.base import Allocation
from rp_agent.task import AgentTask
from rp_api.loop.event_loop import Loop
from rp_api.loop.offload import Offload

if TYPE_CHECKING:
    from rp_agent.endpoint import Endpoint
    from rp_agent.environments.environments import Done, Failed
    from rp_agent.environments.preparation import OnNodes, Preparation
    from rp_agent.environments.published import Built
    from rp_agent.services.supervisor import Supervisor


class FeaturePorts(NamedTuple):
    """The agent, as its optional parts use it."""

    config: Mapping[str, Any]
    loop: Loop
    offload: Offload
    allocation: Allocation
    calls: Calls
    pipeline: Pipeline
    report: Callable[[AgentTask, dict[str, Any]], None]
    """Sends new information on a task that executes to the application."""
    finish: Callable[..., None]
    """Ends the pilot in a state, for a reason; `by_user` means that its tasks end with it."""
    notice: Callable[[str], None]
    """Tells the application a sentence about the pilot."""
    run_own: Callable[[list[dict[str, Any]], Callable[[AgentTask], object]], None]
    """Takes descriptions, each with its uid, of tasks that the application does not know, and a function that gets each
    of them at its end."""
    find: Callable[[str], AgentTask | None]
    """Returns the task of that uid that the agent has now."""
    has_seen: Callable[[str], bool]
    """Returns whether the agent has or had a task of that uid."""
    cancel: Callable[[Sequence[str]], None]
    """Cancels the tasks of these uids."""


class Feature(Protocol):
    """An optional part of the agent."""

    def stop(self, reason: str) -> None:
        """End all work, as the pilot ends."""

    def close(self) -> None:
        """Release all resources."""


class Features:
    """The optional parts of one agent."""

    def __init__(self, ports: FeaturePorts) -> None:
        self._ports = ports
        self._parts: dict[str, Feature] = {}
        self._endpoint: Endpoint | None = None
        self._on_nodes: OnNodes | None = None
        self._preparation: Preparation | None = None
        self._supervisor: Supervisor | None = None

    def start(self) -> None:
        """Make the parts that the pilot's description asks for."""
        config, calls = self._ports.config, self._ports.calls
        calls.register('prepare_env', lambda call: self._environments().answer(call))
        calls.register('register_service', self._register_service)
        calls.register('service_signal', self._service_signal)
        if config.get('earlier'):   # the batch system has started the job again
            self._environments().restore()
        if config.get('prepare_env'):
            self._environments().prepare_all(config['prepare_env'])
        services = config.get('services')
        if services:
            self._services().of_pilot([service['uid'] for service in services])
            self._ports.run_own([dict(service) for service in services], lambda task: None)

    def add_services(self, tasks: Sequence[AgentTask]) -> None:
        """Take charge of service tasks that are about to enter the pipeline; those that are not valid fail."""
        self._services().add(tasks)

    def endpoint(self) -> Endpoint:
        """Return the endpoint for processes on the pilot's nodes, which the first call opens."""
        if self._endpoint is None:
            from rp_agent.endpoint import open_endpoint
            from rp_agent.local_tasks import LocalPorts, LocalTasks

            ports = self._ports
            LocalTasks(ports.config['pilot'], LocalPorts(
                ports.run_own, ports.find, ports.has_seen, ports.cancel, ports.finish)).register(ports.calls)
            self._endpoint = self._parts['endpoint'] = open_endpoint(ports.config, ports.loop, ports.allocation,
                                                                     ports.calls)
        return self._endpoint

    def stop(self, reason: str) -> None:
        """End the work of all parts."""
        for part in self._parts.values():
            part.stop(reason)

    def close(self) -> None:
        """Release the resources of all parts."""
        for part in self._parts.values():
            part.close()

    # environments and services

    def _environments(self) -> Preparation:
        """Return the part for environments, which the first call makes."""
        if self._preparation is None:
            from rp_agent.environments.preparation import Preparation

            ports = self._ports
            self._preparation = self._parts['environments'] = Preparation(ports.config, ports.loop, ports.pipeline.gate,
                                                                          ports.notice)
            self._preparation.environments.distribute = self._distribute
        return self._preparation

    def _distribute(self, built: Built, done: Done, failed: Failed) -> None:
        """Copy an environment to the nodes if it is to be copied, then call `done()`."""
        wanted = built.spec['pack'] or self._ports.config['agent'].get('node_local_envs', False)
        if built.path and wanted:
            self._copies().distribute(built, done)
        else:
            done()

    def _copies(self) -> OnNodes:
        """Return the part for environments on the disks of nodes, which the first one makes."""
        if self._on_nodes is None:
            from rp_agent.environments.preparation import OnNodes
            from rp_agent.node_copies.copies import NodeCopies

            config, loop, offload, allocation, *_ = self._ports
            here = len(allocation.elsewhere) < len(allocation.names)
            copies = NodeCopies(config, loop, offload, self._ports.pipeline.sub_agents, here)
            self._parts['copies'] = self._on_nodes = OnNodes(config, copies, self._ports.notice)
        return self._on_nodes

    def _services(self) -> Supervisor:
        """Return the supervisor of service tasks, which the first call makes."""
        if self._supervisor is None:
            from rp_agent.services.supervisor import ServicePorts, Supervisor

            ports, pipeline = self._ports, self._ports.pipeline
            self._supervisor = self._parts['services'] = Supervisor(ports.loop, ServicePorts(
                pipeline.gate, pipeline.end_run, pipeline.run_again, pipeline.stage_output, ports.report,
                ports.finish, self.endpoint, self._address))
            pipeline.supervise(self._supervisor)
        return self._supervisor

    def _address(self) -> str:
        """Return the IP address of this host for services that it runs."""
        from rp_agent.network import service_address

        config, allocation = self._ports.config, self._ports.allocation
        others = [allocation.names[position] for position in allocation.elsewhere]
        return service_address(config['platform'], others, config['registry_address'])

    def _register_service(self, call: Call) -> None:
        """Register a service outside of the pilot: its uid, and the information for the tasks that use it."""
        self._services().register(*call.args, **call.kwargs)
        call.done()

    def _service_signal(self, call: Call) -> None:
        """Take the report of a service that it is ready: its uid, its information, and its name if it is new."""
        self._services().signal(*call.args, **call.kwargs)
        call.done()
