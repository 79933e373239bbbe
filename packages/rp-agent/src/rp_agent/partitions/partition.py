"""A partition of a pilot in its supervisor: the process of its agent, and its resources."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from rp_agent.bootstrap import stage_2
from rp_agent.nodes import node_launch, relocation
from rp_agent.nodes.child import NodeProcess, how_it_ended, tail
from rp_agent.partitions import control_channel
from rp_agent.partitions.division import Parts
from rp_agent.resource_manager.systems.find import from_plain
from rp_api.errors import PlatformError
from rp_api.loop.event_loop import Loop
from rp_api.system import private, signals
from rp_api.system.host import python_program

AGENT = 'agent_0'


class Partition:
    """The agent of a partition, which runs with this configuration: on this host, or launched on its first node.

    Raises OSError or PlatformError if it cannot be started.

    `said(partition, message)` is called with its messages, `ended(partition)` when its process has ended with exit code
    `code`. `ending` is the final state and reason that the agent has announced, `told` the ones that it was sent.
    """

    def __init__(self, loop: Loop, number: int, parts: Parts, config: Mapping[str, Any],
                 said: Callable[[Partition, control_channel.Message], object],
                 ended: Callable[[Partition], object]) -> None:
        self.number = number
        self.parts = parts
        self.uid: str = config['pilot']
        self.directory: str = config['pilot_sandbox']
        self.ending: tuple[str, str] | None = None
        self.told: tuple[str, str] | None = None
        self.code: int | None = None
        self._loop = loop
        self._ended = ended
        ours, theirs = socket.socketpair()
        try:
            private.make_directory(self.directory, readable=True)
            self._child = self._start(config, theirs.fileno())
        except (OSError, PlatformError):
            ours.close()
            self._remove_config()
            raise
        finally:
            theirs.close()
        end = ours.detach()
        self._channel = control_channel.ControlChannel(loop, end, end, lambda message: said(self, message),
                                                       self._printed)
        self._channel.say({})
        self._child.handle.watch(loop, self._on_end)

    def tell(self, state: str, reason: str, *, by_user: bool) -> None:
        """Request that the agent ends in a state, as a user wants it or not; only the first call counts."""
        if self.told is None:
            self.told = state, reason
            self._channel.say({'state': state, 'reason': reason, 'by_user': by_user})

    def warn(self, number: int) -> None:
        """Pass a warning on to the agent."""
        self._channel.say({'warning': number})

    def kill(self) -> None:
        """Kill the agent, on another host by the signals that its launcher passes on or answers."""
        self._child.end(self._loop)

    def output(self) -> tuple[str, str]:
        """Return the ends of the agent's standard output and standard error."""
        return tail(f'{self.directory}/{AGENT}.out'), tail(f'{self.directory}/{AGENT}.err')

    def how(self) -> str:
        """Return how the process of the agent ended, as a part of a sentence."""
        assert self.code is not None
        return how_it_ended(self.code)

    def close(self) -> None:
        """Kill the agent and release all resources."""
        self._child.process.kill()
        self._reap()

    def _start(self, config: Mapping[str, Any], fd: int) -> NodeProcess:
        allocation = from_plain(config['allocation'])
        if not relocation.moves(config, allocation):
            return self._start_here(config, fd)
        whole, name = os.path.split(self.directory)
        launch = node_launch.launch_of_agent(config['platform'], allocation, f'{name}/{AGENT}', whole)
        self._write_config(relocation.config_on_node(config) | {'keeper': {}})
        return node_launch.start(launch, self.directory, f'{AGENT}.err', stdin=fd, stdout=fd)

    def _start_here(self, config: Mapping[str, Any], fd: int) -> NodeProcess:
        self._write_config({**config, 'keeper': {'read': fd, 'write': fd, 'pid': os.getpid()}})
        script = f'{os.path.dirname(self.directory)}/{stage_2.FILE}'
        command = [*python_program('rp_agent.cli'), self._config_path]
        if os.path.exists(script):   # else the pilot was started without a bootstrap
            command = ['/bin/sh', script, f'{os.path.basename(self.directory)}/{AGENT}']
        with (open(f'{self.directory}/{AGENT}.out', 'ab') as out, open(f'{self.directory}/{AGENT}.err', 'ab') as err):
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, pass_fds=[fd],
                                       preexec_fn=signals.ignore_warnings)
        return NodeProcess(AGENT, process, err.name)

    @property
    def _config_path(self) -> str:
        return f'{self.directory}/{AGENT}.cfg'

    def _write_config(self, config: Mapping[str, Any]) -> None:
        private.write_file(self._config_path, json.dumps(config, indent=1).encode())

    def _remove_config(self) -> None:
        """Remove the file, which holds keys; an agent removes it at a regular end."""
        with suppress(OSError):
            os.unlink(self._config_path)

    def _printed(self, line: bytes) -> None:
        """Keep what a launcher, or the shell on the node, has printed."""
        with open(f'{self.directory}/{AGENT}.out', 'ab') as file:
            file.write(line + b'\n')

    def _on_end(self) -> None:
        self._reap()
        self._ended(self)

    def _reap(self) -> None:
        if self.code is None:
            self._child.close()
            self.code = self._child.process.returncode
            self._remove_config()
            self._channel.receive()
            self._channel.close()
