"""Makes the components of an agent; the same ones in Agent_0's process and in any other."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from rp_agent import sandbox
from rp_agent.components.names import EXECUTING, STAGING_INPUT, STAGING_OUTPUT
from rp_agent.executor import registry
from rp_agent.executor.launching.environment import NodePorts, PilotContext
from rp_agent.executor.launching.launchers import Launchers
from rp_agent.task import AgentTask
from rp_api.loop.event_loop import Loop
from rp_api.loop.offload import Offload
from rp_profiling.write.detail import Detail
from rp_profiling.write.host_clock import HostClock
from rp_profiling.write.tracer import Tracer

if TYPE_CHECKING:   # sub-agents on nodes have no stagers
    from rp_agent.stager.input import StagerInput
    from rp_agent.stager.output import StagerOutput
    from rp_api.staging.location import Sandboxes

    Worker = StagerInput | registry.AnyExecutor | StagerOutput
    """A component of which there may be several instances, in any process."""


HOST_CLOCK = HostClock()
"""The clock that all events of this process are recorded by."""


class ComponentPorts(NamedTuple):
    """Where an instance of a component hands on its tasks, and tells of their states."""

    output: Callable[[list[AgentTask]], None]
    failed: Callable[[list[AgentTask]], None]
    """Takes tasks that must not go on to the next component."""
    advanced: Callable[[Sequence[AgentTask], str], None]


class Builder:
    """Makes components for a pilot, whose configuration it knows, that run in a loop; `ports` are for executors."""

    def __init__(self, config: Mapping[str, Any], loop: Loop, offload: Offload,
                 ports: NodePorts | None = None) -> None:
        self._config = config
        self._ports = ports or NodePorts()
        self._loop = loop
        self._offload = offload
        self._launchers = Launchers(config['platform'], config.get('setting', {}), _of_the_user(config),
                                    config['pilot_sandbox'], offload, config.get('here'))

    def make(self, component: str, uid: str, ports: ComponentPorts) -> Worker:
        """An instance of a component that is joined to others."""
        made = self._make(component, uid, make_tracer(self._config, uid), ports.failed)
        made.output = ports.output
        made.advanced = ports.advanced
        return made

    def _make(self, component: str, uid: str, tracer: Tracer, failed: Callable[[list[AgentTask]], None]) -> Worker:
        if component == STAGING_INPUT:
            from rp_agent.stager.input import StagerInput

            return StagerInput(uid, tracer, self._sandboxes, self._offload, failed)
        if component == EXECUTING:
            return self._executor(uid, tracer)
        assert component == STAGING_OUTPUT, component
        from rp_agent.stager.output import StagerOutput

        return StagerOutput(uid, tracer, self._sandboxes, self._offload)

    def _executor(self, uid: str, tracer: Tracer) -> registry.AnyExecutor:
        """The executor that the platform asks for, with the options that the agent's configuration has for it."""
        make = registry.spawner(self._config['platform']['agent_spawner'])
        context = pilot_context(self._config)._replace(launchers=self._launchers, ports=self._ports)
        return make(uid, tracer, self._loop, context, self._config['agent'].get('spawner', {}))

    def _sandboxes(self, task: AgentTask) -> Sandboxes:
        from rp_api.staging.location import Sandboxes

        config = self._config
        return Sandboxes(client=config['client_sandbox'], endpoint='/', resource=config['resource_sandbox'],
                         session=config['session_sandbox'], pilot=sandbox.of_pilot(config), task=task.sandbox)


def make_tracer(config: Mapping[str, Any], name: str) -> Tracer:
    """The trace of that name in the pilot's sandbox."""
    detail = Detail.parse(config['profile']).of_component(name, config.get('profiles', {}))
    return Tracer(f'{config["pilot_sandbox"]}/{name}.prof', name, clock=HOST_CLOCK, detail=detail)


def task_detail(config: Mapping[str, Any]) -> Detail:
    """The detail of what tasks record themselves: that of the executor, even if that itself records nothing."""
    detail = Detail.parse(config['profile'])
    own = detail.of_component(EXECUTING, config.get('profiles', {}))
    return own if own.on else detail


def belongs(config: Mapping[str, Any]) -> dict[str, str]:
    """The variables that all processes of the pilot's tasks, and of no others, have in their environment.

    The address tells sessions apart that were given the same uid.
    """
    own = {'RP_PARTITION_ID': str(config['partition'])} if 'partition' in config else {}
    return {'RP_SESSION_ID': config['session'], 'RP_PILOT_ID': pilot_id(config),
            'RP_REGISTRY_ADDRESS': config['registry_address'], **own}


def pilot_id(config: Mapping[str, Any]) -> str:
    """What tasks know as their pilot: all of it, if the agent has one of its partitions."""
    uid: str = config['whole']['pilot'] if 'whole' in config else config['pilot']
    return uid


def pilot_context(config: Mapping[str, Any]) -> PilotContext:
    """What all tasks of the pilot have in common."""
    gtod, prof = sandbox.helpers(config['pilot_sandbox'])
    address = config['registry_address']   # commands and their answers all go that way, too
    return PilotContext(
        session_id=config['session'], pilot_id=pilot_id(config), resource=config['resource'],
        resource_sandbox=config['resource_sandbox'], session_sandbox=config['session_sandbox'],
        pilot_sandbox=sandbox.of_pilot(config), agent_sandbox=config['pilot_sandbox'],
        partition=config.get('partition'), registry_address=address, control_pub_address=address,
        control_sub_address=address, gtod=gtod, prof=prof, detail=task_detail(config),
        base_env=_of_the_user(config),
        cpus=tuple(config['cpus']), gpu_ids=tuple(config['gpu_ids']))


def _of_the_user(config: Mapping[str, Any]) -> dict[str, str]:
    """The environment that the tasks start from: the bootstrap keeps that of the job."""
    return config.get('environment') or dict(os.environ)
