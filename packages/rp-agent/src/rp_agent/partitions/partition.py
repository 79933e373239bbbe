"""One partition of a pilot, as the pilot's supervisor has it: the process of its agent, and what it was given."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from rp_agent.bootstrap import stage_2
from rp_agent.partitions import control_channel
from rp_agent.partitions.division import Parts
from rp_api.loop.event_loop import Loop
from rp_api.loop.process_handle import ProcessHandle
from rp_api.system import private
from rp_api.system.host import python_program

AGENT = 'agent_0'

_TAIL = 2048
"""Bytes of an agent's output that are shown when it dies."""


class Partition:
    """Runs the agent with this configuration; what it says goes to `said(partition, message)`.

    `ended(partition)` is called when its process has ended, and `code` says how. `ending` is the state in which it
    wants to end, and the reason, once it has said so; `told` is what it was told.
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

    def tell(self, state: str, reason: str) -> None:
        """Have the agent end in that state; asking again changes nothing."""
        if self.told is None:
            self.told = state, reason
            self._channel.say({'state': state, 'reason': reason})

    def kill(self) -> None:
        """End the agent without giving it time."""
        if self.code is None:
            self._handle.send_signal(signal.SIGKILL)

    def output(self) -> tuple[str, str]:
        """The last lines that it wrote to standard output and error."""
        return _tail(f'{self.directory}/{AGENT}.out'), _tail(f'{self.directory}/{AGENT}.err')

    def how(self) -> str:
        """How the process of the agent ended."""
        code = self.code
        if code is None or code >= 0:
            return f'ended with exit code {code}'
        names = {number.value: f' ({number.name})' for number in signal.Signals}   # real-time signals have none
        return f'was killed by signal {-code}{names.get(-code, "")}'

    def close(self) -> None:
        """Leave nothing of it."""
        self.kill()
        self._reap()

    def _start(self, config: Mapping[str, Any], fd: int) -> subprocess.Popen[bytes]:
        private.make_directory(self.directory, readable=True)
        path = f'{self.directory}/{AGENT}.cfg'
        known = {**config, 'keeper': {'fd': fd, 'pid': os.getpid()}}
        private.write_file(path, json.dumps(known, indent=1).encode())
        script = f'{os.path.dirname(self.directory)}/{stage_2.FILE}'
        command = [*python_program('rp_agent.cli'), path]
        if os.path.exists(script):   # else no bootstrap was needed here
            command = ['/bin/sh', script, f'{os.path.basename(self.directory)}/{AGENT}']
        with (open(f'{self.directory}/{AGENT}.out', 'ab') as out, open(f'{self.directory}/{AGENT}.err', 'ab') as err):
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, pass_fds=[fd])

    def _on_end(self) -> None:
        self._reap()
        self._ended(self)

    def _reap(self) -> None:
        if self.code is None:
            self.code = self._process.wait()
            with suppress(OSError):   # it holds keys; an agent that has ended in order has removed it
                os.unlink(f'{self.directory}/{AGENT}.cfg')
            self._handle.close()
            self._channel.receive()
            self._channel.close()


def _tail(path: str) -> str:
    try:
        with open(path, 'rb') as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL))
            return file.read().decode(errors='replace')
    except OSError:
        return ''
