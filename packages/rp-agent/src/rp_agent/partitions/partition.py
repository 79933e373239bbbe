"""A partition of a pilot in its supervisor: the process of its agent, and its resources."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from rp_agent.bootstrap import stage_2
from rp_agent.nodes.child import how_it_ended, tail
from rp_agent.partitions import control_channel
from rp_agent.partitions.division import Parts
from rp_api.loop.event_loop import Loop
from rp_api.loop.process_handle import ProcessHandle
from rp_api.system import private, signals
from rp_api.system.host import python_program

AGENT = 'agent_0'


class Partition:
    """The agent of a partition, which runs with this configuration.

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
        ours, theirs = control_channel.pair()
        try:
            self._process = self._start(config, theirs.fileno())
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
        self._handle = ProcessHandle.of_child(self._process.pid)
        self._channel = control_channel.ControlChannel(loop, ours, lambda message: said(self, message))
        self._handle.watch(loop, self._on_end)

    def tell(self, state: str, reason: str, *, by_user: bool) -> None:
        """Request that the agent ends in a state, as a user wants it or not; only the first call counts."""
        if self.told is None:
            self.told = state, reason
            self._channel.say({'state': state, 'reason': reason, 'by_user': by_user})

    def warn(self, number: int) -> None:
        """Pass a warning on to the agent."""
        if self.code is None:
            self._handle.send_signal(signal.Signals(number))

    def kill(self) -> None:
        """Kill the agent."""
        if self.code is None:
            self._handle.send_signal(signal.SIGKILL)

    def output(self) -> tuple[str, str]:
        """Return the ends of the agent's standard output and standard error."""
        return tail(f'{self.directory}/{AGENT}.out'), tail(f'{self.directory}/{AGENT}.err')

    def how(self) -> str:
        """Return how the process of the agent ended, as a part of a sentence."""
        assert self.code is not None
        return how_it_ended(self.code)

    def close(self) -> None:
        """Kill the agent and release all resources."""
        self.kill()
        self._reap()

    def _start(self, config: Mapping[str, Any], fd: int) -> subprocess.Popen[bytes]:
        private.make_directory(self.directory, readable=True)
        path = f'{self.directory}/{AGENT}.cfg'
        known = {**config, 'keeper': {'fd': fd, 'pid': os.getpid()}}
        private.write_file(path, json.dumps(known, indent=1).encode())
        script = f'{os.path.dirname(self.directory)}/{stage_2.FILE}'
        command = [*python_program('rp_agent.cli'), path]
        if os.path.exists(script):   # else the pilot was started without a bootstrap
            command = ['/bin/sh', script, f'{os.path.basename(self.directory)}/{AGENT}']
        with (open(f'{self.directory}/{AGENT}.out', 'ab') as out, open(f'{self.directory}/{AGENT}.err', 'ab') as err):
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, pass_fds=[fd],
                                    preexec_fn=signals.ignore_warnings)

    def _on_end(self) -> None:
        self._reap()
        self._ended(self)

    def _reap(self) -> None:
        if self.code is None:
            self.code = self._process.wait()
            with suppress(OSError):   # the file holds keys; an agent removes it at a regular end
                os.unlink(f'{self.directory}/{AGENT}.cfg')
            self._handle.close()
            self._channel.receive()
            self._channel.close()
