"""The components of an agent, joined by channels: input stager > scheduler > executor > output stager."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rp_agent import sandbox
from rp_agent.executor.component import Executor
from rp_agent.executor.environment import PilotContext
from rp_agent.resource_manager.base import Allocation
from rp_agent.scheduler.component import Scheduler
from rp_agent.stager.input import StagerInput
from rp_agent.stager.output import StagerOutput
from rp_agent.task import AgentTask
from rp_api import states
from rp_api.component import Component
from rp_api.mesh.inproc import InprocQueue
from rp_api.mesh.loop import Loop
from rp_api.mesh.offload import Offload
from rp_api.resources import NodeList
from rp_api.staging.location import Sandboxes
from rp_profiling.tracer import Tracer

BULK = 1024
"""Most tasks that a component is given at a time."""

Left = Callable[[Sequence[AgentTask]], None]


class Pipeline:
    """Takes tasks in, and gives them to `left` when they are done with, one way or the other."""

    def __init__(self, config: Mapping[str, Any], loop: Loop, allocation: Allocation,
                 tracer: Callable[[str], Tracer], offload: Offload, left: Left) -> None:
        self._config = config
        self._left = left
        self.on_advanced: Callable[[Sequence[AgentTask], str], None] = lambda tasks, state: None
        nodes = NodeList(nodes=allocation.node_list())
        self._input = StagerInput('agent_staging_input.0000', tracer('agent_staging_input.0000'), self._sandboxes,
                                  offload, left)
        self._scheduler = Scheduler('agent_scheduling.0000', tracer('agent_scheduling.0000'), nodes, left)
        self._executor = Executor('agent_executing.0000', tracer('agent_executing.0000'), loop, self._context())
        self._output = StagerOutput('agent_staging_output.0000', tracer('agent_staging_output.0000'),
                                    self._sandboxes, offload)
        self._components = (self._input, self._scheduler, self._executor, self._output)
        for component in self._components:
            component.advanced = self._advanced
        self.put = _channel(loop, self._input)
        self._input.output = _channel(loop, self._scheduler)
        self._scheduler.output = _channel(loop, self._executor)
        self._to_output = _channel(loop, self._output)
        self._executor.output = self._executed
        self._output.output = left

    def cancel(self, tasks: Sequence[AgentTask]) -> None:
        """Cancel tasks, wherever they are."""
        for task in tasks:
            task.cancelled = True
        uids = [task.uid for task in tasks]
        self._input.cancel(uids)
        self._scheduler.cancel(uids)
        self._executor.cancel(uids)

    def refuse(self, tasks: Sequence[AgentTask], reason: str) -> None:
        """End tasks that come too late."""
        for task in tasks:
            task.target_state = states.CANCELED
            task.exception = reason
        if tasks:
            self._left(tasks)

    def stop(self, reason: str, stopped: Callable[[], None]) -> None:
        """End all tasks; `stopped()` is called when none is running any more."""
        self._input.cancel_all(reason)
        self._scheduler.cancel_all(reason)
        self._executor.stop(stopped, reason)

    def flush_traces(self) -> None:
        """Write the traces of all components to their files."""
        for component in self._components:
            component.tracer.flush()

    def close(self) -> None:
        """End all components."""
        for component in self._components:
            component.close()

    def _advanced(self, tasks: Sequence[AgentTask], state: str) -> None:
        self.on_advanced(tasks, state)

    def _executed(self, tasks: list[AgentTask]) -> None:
        self._scheduler.release(tasks)
        self._to_output(tasks)

    def _sandboxes(self, task: AgentTask) -> Sandboxes:
        config = self._config
        return Sandboxes(client=config['client_sandbox'], endpoint='/', resource=config['resource_sandbox'],
                         session=config['session_sandbox'], pilot=config['pilot_sandbox'], task=task.sandbox)

    def _context(self) -> PilotContext:
        config = self._config
        gtod, prof = sandbox.write_helpers(config['pilot_sandbox'])
        address = config['hub']['endpoint']   # registry, commands and their answers all go through the hub
        return PilotContext(
            session_id=config['session'], pilot_id=config['pilot'], resource=config['resource'],
            resource_sandbox=config['resource_sandbox'], session_sandbox=config['session_sandbox'],
            pilot_sandbox=config['pilot_sandbox'], registry_address=address, control_pub_address=address,
            control_sub_address=address, gtod=gtod, prof=prof, profiling=config['profile'],
            base_env=dict(os.environ))


def _channel(loop: Loop, component: Component) -> Callable[[list[AgentTask]], None]:
    """The entrance of a channel to a component in this process."""
    queue = InprocQueue(loop)

    def receive(tasks: list[AgentTask]) -> None:
        component.put(tasks)
        getter.done(len(tasks))

    getter = queue.getter(receive, BULK)
    return queue.put
