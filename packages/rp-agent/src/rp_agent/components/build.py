"""Construction of an agent's components, for Agent_0 and for sub-agents."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from rp_agent import sandbox
from rp_agent.components.names import EXECUTING, STAGING_INPUT
from rp_agent.executor import registry
from rp_agent.executor.base import BaseExecutor
from rp_agent.executor.launching.environment import NodePorts, PilotContext
from rp_agent.executor.launching.launchers import Launchers
from rp_agent.task import AgentTask
from rp_api.loop.event_loop import Loop
from rp_api.loop.offload import Offload
from rp_profiling.write.detail import Detail
from rp_profiling.write.host_clock import HostClock
from rp_profiling.write.tracer import Tracer

if TYPE_CHECKING:   # most sub-agents on nodes have no stagers
    from rp_agent.stager.component import StagerInput, StagerOutput
    from rp_api.staging.location import Sandboxes

    Worker = StagerInput | BaseExecutor | StagerOutput
    """A component of which there may be several instances, in any process."""


HOST_CLOCK = HostClock()
"""The clock of all events that this process records."""


class ComponentPorts(NamedTuple):
    """The outputs of a component: for its tasks and for their states."""

    output: Callable[[list[AgentTask]], None]
    failed: Callable[[list[AgentTask]], None]
    """Takes tasks that skip the next component because they have failed or were cancelled."""
    advanced: Callable[[Sequence[AgentTask], str], None]
    sweep_elsewhere: Callable[[str, Sequence[int]], object] = lambda uid, positions: None
    """See `rp_agent.executor.launching.environment.NodePorts`."""
    signalled: Callable[[str, int], object] = lambda uid, number: None
    """Called with the uid of an executor in a sub-agent that got a signal."""


class Builder:
    """The factory of a pilot's components; `ports` are for its executors."""

    def __init__(self, config: Mapping[str, Any], loop: Loop, offload: Offload,
                 ports: NodePorts | None = None) -> None:
        self._config = config
        self._ports = ports or NodePorts()
        self._loop = loop
        self._offload = offload
        self._launchers = Launchers(config['platform'], config.get('setting', {}), base_environment(config),
                                    config['pilot_sandbox'], offload, config.get('here'))

    def make(self, component: str, uid: str, ports: ComponentPorts) -> Worker:
        """Return an instance of a component that is connected to `ports`."""
        tracer = make_tracer(self._config, uid)
        made: Worker
        if component == EXECUTING:
            made = self._executor(uid, tracer)
        else:
            from rp_agent.stager.component import StagerInput, StagerOutput

            made = (StagerInput(uid, tracer, self._sandboxes, self._offload, ports.failed)
                    if component == STAGING_INPUT else StagerOutput(uid, tracer, self._sandboxes, self._offload))
        made.connect(ports.output, ports.advanced)
        return made

    def _executor(self, uid: str, tracer: Tracer) -> BaseExecutor:
        """Return the executor that the platform names, with its options from the agent's configuration."""
        make = registry.spawner(self._config['platform']['agent_spawner'])
        context = pilot_context(self._config)._replace(launchers=self._launchers, ports=self._ports)
        return make(uid, tracer, self._loop, context, self._config['agent'].get('spawner', {}))

    def _sandboxes(self, task: AgentTask) -> Sandboxes:
        from rp_api.staging.location import Sandboxes

        config = self._config
        return Sandboxes(client=config['client_sandbox'], endpoint='/', resource=config['resource_sandbox'],
                         session=config['session_sandbox'], pilot=sandbox.of_pilot(config), task=task.sandbox)


def make_tracer(config: Mapping[str, Any], name: str) -> Tracer:
    """Return the tracer that writes to the trace of that name in the pilot's sandbox."""
    detail = Detail.parse(config['profile']).of_component(name, config.get('profiles', {}))
    return Tracer(f'{config["pilot_sandbox"]}/{name}.prof', name, clock=HOST_CLOCK, detail=detail)


def task_detail(config: Mapping[str, Any]) -> Detail:
    """Return the detail of the traces that tasks write: the executor's, or the pilot's if the executor has none."""
    detail = Detail.parse(config['profile'])
    own = detail.of_component(EXECUTING, config.get('profiles', {}))
    return own if own.on else detail


def belongs(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the environment variables that identify the processes of the pilot's tasks.

    The address distinguishes sessions that have the same uid.
    """
    own = {'RP_PARTITION_ID': str(config['partition'])} if 'partition' in config else {}
    return {'RP_SESSION_ID': config['session'], 'RP_PILOT_ID': pilot_id(config),
            'RP_REGISTRY_ADDRESS': config['registry_address'], **own}


def pilot_id(config: Mapping[str, Any]) -> str:
    """Return the uid of the pilot as tasks see it: of the whole pilot if the agent has one of its partitions."""
    uid: str = config['whole']['pilot'] if 'whole' in config else config['pilot']
    return uid


def pilot_context(config: Mapping[str, Any]) -> PilotContext:
    """Return the context that all tasks of the pilot share."""
    gtod, prof = sandbox.helpers(config['pilot_sandbox'])
    address = config['registry_address']   # it also carries commands and their answers
    return PilotContext(
        session_id=config['session'], pilot_id=pilot_id(config), resource=config['resource'],
        resource_sandbox=config['resource_sandbox'], session_sandbox=config['session_sandbox'],
        pilot_sandbox=sandbox.of_pilot(config), agent_sandbox=config['pilot_sandbox'],
        partition=config.get('partition'), registry_address=address, control_pub_address=address,
        control_sub_address=address, gtod=gtod, prof=prof, detail=task_detail(config),
        base_env=base_environment(config), cpus=tuple(config['cpus']), gpu_ids=tuple(config['gpu_ids']),
        shell=config['platform'].get('shell', ''), container_tool=config['platform'].get('container_tool', ''),
        ctrl=sandbox.control(config['pilot_sandbox']), channels=config.get('channels', {}))


def base_environment(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the base environment of tasks: that of the job, which the bootstrap stores, and that of the platform."""
    of_the_job: dict[str, str] = config.get('environment') or dict(os.environ)
    of_the_platform: dict[str, str] = config['platform'].get('task_environment', {})
    return of_the_job | of_the_platform
