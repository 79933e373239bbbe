"""Agent_0 on a node of the pilot, if the job starts on another host, such as a login or service node.

The agent's configuration asks for it (`target: node`). The process that the bootstrap has started then determines the
nodes of the job, and launches the agent on the first one as it would launch a sub-agent. It keeps no connection to the
coordinator. The supervisor of a pilot with partitions launches the agents of partitions in the same way, if all nodes
of a partition are other hosts.

The agent on the node ends its pilot when its standard input ends, which most launchers forward: at a signal to the
first process, or when that process dies. The first line tells the agent that its input is forwarded.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from rp_agent.lifetime import job_age
from rp_agent.nodes import node_launch
from rp_agent.nodes.child import how_it_ended, tail
from rp_agent.nodes.node_agent import environment_on_node
from rp_agent.resource_manager import binding, shape
from rp_agent.resource_manager.base import Allocation
from rp_agent.resource_manager.systems.find import allocation_of, as_plain, from_plain
from rp_api.errors import PlatformError
from rp_api.loop.event_loop import Loop
from rp_api.system import private

NAME = 'agent_0.node'
"""Name of the agent on the node in `bootstrap_2.sh`, and prefix of the names of its files."""

END_TIMEOUT = 30.0
"""Seconds that the agent has to end after a signal."""

_FORWARDED = b'\n'


def elsewhere(config: dict[str, Any]) -> Allocation | None:
    """Return the allocation of a pilot whose agent has to run on another host; None if it has to run here.

    The configuration gets the allocation.
    """
    if config['agent'].get('target') != 'node' or 'allocation' in config:
        return None
    found = allocation_of(config)
    config['allocation'] = as_plain(found)
    return found if moves(config, found) else None


def moves(config: Mapping[str, Any], allocation: Allocation) -> bool:
    """Return whether the agent with this allocation has to be launched on its first node."""
    return config['agent'].get('target') == 'node' and len(allocation.elsewhere) == len(allocation.names)


def config_on_node(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration of an agent that this process launches on its node."""
    return {**config, 'relocated': True, 'job_age': job_age() + config.get('job_age', 0.0),
            'environment': config.get('environment') or dict(os.environ)}


def arrive(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration of an agent that was launched on its node: with the devices of this host."""
    allocation = from_plain(config['allocation'])
    here = shape.bound(replace(allocation, elsewhere=allocation.elsewhere[1:]), 0, os.environ)
    if 'gpus_of_node' in config:   # a partition may have only some of the GPUs
        here = replace(here, gpu_ids=binding.some_gpu_ids(os.environ, config['gpus_of_node']))
    found = {name: value for name, value in config.items() if name != 'relocated'}
    return found | {'allocation': as_plain(here), 'environment': environment_on_node(config['environment'], os.environ)}


class RelocationWatch:
    """The connection of an agent on a node to the process that has launched it, which is standard input."""

    def __init__(self, loop: Loop, told_to_end: Callable[[], object], descriptor: int = 0) -> None:
        self._loop = loop
        self._told_to_end = told_to_end
        self._descriptor = descriptor
        self._forwarded = False
        loop.add_fd(descriptor, self._read)

    def _read(self) -> None:
        if os.read(self._descriptor, 4096):
            self._forwarded = True
            return
        self._loop.remove_fd(self._descriptor)
        if self._forwarded:   # else the launcher has closed it at once
            self._told_to_end()


class RelocatedAgent:
    """The agent of a pilot on the first node, as the process that launches it sees it."""

    def __init__(self, config: Mapping[str, Any], loop: Loop, allocation: Allocation) -> None:
        self._loop = loop
        self._node = allocation.names[0]
        self._path = os.path.join(config['pilot_sandbox'], f'{NAME}.cfg')
        self._code: int | None = None
        launch = node_launch.launch_of_agent(config['platform'], allocation, NAME, config['pilot_sandbox'])
        private.write_file(self._path, json.dumps(config_on_node(config)).encode())
        self._child = node_launch.start(launch, config['pilot_sandbox'], f'{NAME}.err', stdin=subprocess.PIPE)
        self._child.write(_FORWARDED)
        self._child.handle.watch(loop, self._ended)

    def told_to_end(self) -> None:
        """End the pilot because of a signal."""
        stdin = self._child.process.stdin
        assert stdin is not None
        if stdin.closed:
            return
        with suppress(BrokenPipeError):
            stdin.close()
        self._child.end(self._loop, END_TIMEOUT)

    def warned(self, number: int) -> None:
        """Pass a warning on to the launcher; some forward it to the agent."""
        self._child.process.send_signal(number)

    def finish(self, state: str, reason: str) -> None:
        """End the pilot because of a defect; the agent on the node reports its state."""
        self.told_to_end()

    def check(self) -> None:
        """Raise `PlatformError` if the agent has failed."""
        if self._code:
            said = tail(self._child.output)
            lines = said.strip().splitlines()
            own = [line.removeprefix('rp-agent: ') for line in lines if line.startswith('rp-agent: ')] or lines or ['']
            # the bootstrap shows the last line as the reason
            raise PlatformError(f'the agent has failed on {self._node}:\n{said.strip()}\n'
                                f'the agent on {self._node}, launched by {self._child.name}, '
                                f'{how_it_ended(self._code)}; see {self._child.output}: {own[-1]}')

    def close(self) -> None:
        """End the launcher, and delete the configuration, which holds keys."""
        if self._code is None:
            self._child.process.kill()
            self._child.close()
        with suppress(OSError):   # the sandbox may be deleted
            os.unlink(self._path)

    def _ended(self) -> None:
        with suppress(BrokenPipeError):
            self._child.close()
        self._code = self._child.process.returncode
        self._loop.stop()
