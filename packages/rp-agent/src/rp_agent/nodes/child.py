"""Child processes of the agent that run or launch sub-agents, and the report of how they ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import zmq

from rp_agent import network
from rp_agent.executor.launching.outcome import explain_code
from rp_agent.resource_manager.base import Allocation
from rp_api.loop.event_loop import Loop, Timer
from rp_api.loop.process_handle import ProcessHandle
from rp_api.system import signals
from rp_api.system.host import python_program
from rp_api.system.readable import end_of

INSISTENCE = 0.5
"""Seconds between two signals to a process that does not end."""

_TAIL = 2048
"""Bytes of a process' output that the report of its end quotes."""


class NodeProcess:
    """A child process. Its output goes to the file `output`; the signals `cancel`, one after the other, end it."""

    __slots__ = ('cancel', 'handle', 'name', 'output', 'process')

    def __init__(self, name: str, process: subprocess.Popen[bytes], output: str,
                 cancel: Sequence[signal.Signals] = (signal.SIGKILL,)) -> None:
        self.name = name
        self.process = process
        self.output = output
        self.cancel = cancel
        self.handle = ProcessHandle.of_child(process.pid)

    def write(self, data: bytes) -> None:
        """Write to its standard input, a pipe; does nothing if it died at once, which the watcher reports."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.write(data)
            self.process.stdin.flush()

    def end(self, loop: Loop, delay: float = 0.0) -> list[Timer]:
        """Send the signals after a delay, one after the other, until the process has been waited for."""
        return [loop.call_later(delay + number * INSISTENCE, self.process.send_signal, sent)
                for number, sent in enumerate(self.cancel)]

    def close(self) -> None:
        """Release the resources of a process that has ended or was killed."""
        self.handle.close()
        self.process.wait()
        if self.process.stdin is not None:
            self.process.stdin.close()

    def how(self, name: str) -> str:
        """Return a sentence on the end of the process, and with it of the sub-agent `name`, with its last output."""
        launched = '' if name == self.name else f' launched by {self.name}'
        return (f'sub-agent {name}{launched} (process {self.process.pid}) '
                f'{how_it_ended(self.process.returncode)}{self.words()}')

    def words(self) -> str:
        """Return the path and the last lines of the output, as the end of a sentence."""
        said = tail(self.output).strip()
        words = f', its last lines:\n{said}' if said else ''
        return f'; see {self.output}{words}'


def start_sub_agent(config: Mapping[str, Any], output: str) -> NodeProcess:
    """Start a sub-agent on this host; its output goes to the file `output`.

    It reads its configuration from standard input, which stays open: the sub-agent ends when it is closed. It stays in
    the agent's session, by which the executor recognises children that are not its own.
    """
    with open(output, 'ab') as file:
        process = subprocess.Popen(python_program('rp_agent.nodes.sub_agent'), stdin=subprocess.PIPE, stdout=file,
                                   stderr=file, env=os.environ,   # tasks inherit it, too
                                   preexec_fn=signals.ignore_warnings)
    child = NodeProcess(config['sub_agent']['name'], process, output)
    child.write(json.dumps(config).encode() + b'\n')
    return child


def address_beside(hub: str) -> str | None:
    """Return an address in the hub's directory, which the session always removes, if the hub is on this host.

    None means that the agent needs a directory of its own.
    """
    scheme, _, path = hub.partition('://')
    directory = os.path.dirname(path)
    own = f'{directory}/{os.urandom(6).hex()}'
    if scheme != 'ipc' or len(os.fsencode(own)) > zmq.IPC_PATH_MAX_LEN or not os.path.isdir(directory):
        return None
    return None if os.stat(directory).st_mode & 0o077 else f'ipc://{own}'


def address_for_nodes(config: Mapping[str, Any], allocation: Allocation) -> str | None:
    """Return the address to listen at for all nodes of a pilot; None if a directory has to be made for it."""
    others = allocation.elsewhere
    return (network.listen_address(config['platform'], allocation.names[others[-1]]) if others else
            address_beside(config['registry_address']))


def how_it_ended(code: int) -> str:
    """Return how a process with this exit code ended, as a part of a sentence."""
    return f'was {explain_code(code, shell=False)}' if code < 0 else f'ended with exit code {code}'


def tail(path: str) -> str:
    """Return the end of a process' output."""
    return end_of(path, _TAIL).decode(errors='replace')
