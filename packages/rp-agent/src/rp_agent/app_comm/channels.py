"""The channels of a pilot, as its agent or supervisor sees them: starts, watches and ends their broker."""

from __future__ import annotations

import json
import os
import select
import subprocess
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from rp_agent import network, sandbox
from rp_agent.nodes.child import NodeProcess
from rp_agent.resource_manager.base import Allocation
from rp_api.app_comm.protocol import channels_file, variables
from rp_api.errors import PlatformError
from rp_api.loop.event_loop import Loop
from rp_api.system import private
from rp_api.system.host import python_program
from rp_api.transport.access import Access

START_TIMEOUT = 30.0
"""Seconds that the broker has to open the channels."""

END_TIMEOUT = 5.0
"""Seconds that the broker has to end."""


class Channels:
    """The channels that the pilot's description asks for. Raises PlatformError if they cannot be opened.

    `broken` is called with the reason if the broker dies. `variables` are the environment variables of tasks.
    """

    def __init__(self, config: Mapping[str, Any], loop: Loop, allocation: Allocation,
                 broken: Callable[[str], object]) -> None:
        self._loop = loop
        self._broken = broken
        self._file = channels_file(sandbox.of_pilot(config))
        others = allocation.elsewhere
        address = network.listen_address(config['platform'], allocation.names[others[-1]]) if others else None
        self._child = self._start(config['pilot_sandbox'], {
            'names': config['app_comm'], 'address': address, 'hub': config['registry_address'], 'file': self._file})
        self.variables = self._addresses()
        self._child.handle.watch(loop, self._ended)

    def close(self) -> None:
        """End the broker."""
        self._loop.remove_fd(self._child.handle.fileno())
        process = self._child.process
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(END_TIMEOUT)
        except subprocess.TimeoutExpired:
            process.kill()
        self._child.close()
        with suppress(FileNotFoundError):
            os.unlink(self._file)

    def _start(self, directory: str, config: Mapping[str, Any]) -> NodeProcess:
        output = f'{directory}/app_comm.err'
        with open(output, 'ab') as errors:
            process = subprocess.Popen(python_program('rp_agent.app_comm.broker'), stdin=subprocess.PIPE,
                                       stdout=subprocess.PIPE, stderr=errors)
        assert process.stdin is not None
        assert process.stdout is not None
        child = NodeProcess('app_comm', process, output)
        with suppress(BrokenPipeError), process.stdout:
            process.stdin.write(json.dumps(config).encode() + b'\n')
            process.stdin.flush()
            if select.select([process.stdout], [], [], START_TIMEOUT)[0] and process.stdout.readline():
                return child
        process.kill()
        child.close()
        raise PlatformError(f'the channels of app_comm cannot be opened{child.words()}')

    def _addresses(self) -> dict[str, str]:
        channels = json.loads(private.read_file(self._file))
        return variables({name: {side: Access.read(access).address for side, access in sides.items()}
                          for name, sides in channels.items()})

    def _ended(self) -> None:
        self._child.process.wait()
        self._broken(f'has lost the channels of app_comm: their broker (process {self._child.process.pid}) has ended '
                     f'with exit code {self._child.process.returncode}{self._child.words()}')
