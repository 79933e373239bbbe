"""The sub-agents of an agent: processes that host components, and the queues to them.

Rules of this file:

- A sub-agent that dies costs the tasks that it had, nothing else. What it has said before counts.
- Nothing of a sub-agent stays: what its tasks left running is killed, and it dies itself with Agent_0.
- Keys travel over a pipe, and never to a file.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import zmq

from rp_agent import layout
from rp_agent.build import belongs
from rp_agent.layout import Instance
from rp_agent.remote import Item, Remote, in_bulks
from rp_agent.task import AgentTask
from rp_api import processes
from rp_api.host import pidfd_open, python_program
from rp_api.mesh.keys import Gate, generate
from rp_api.mesh.loop import Loop, Timer
from rp_api.mesh.star import Star

_log = logging.getLogger('radical.pilot.agent')

DRAIN = 0.25
"""Seconds that what a sub-agent has said before its death has to arrive."""

END_PATIENCE = 3.0
"""Seconds that sub-agents have to end in order."""

_TAIL = 2048
"""Bytes of a sub-agent's output that are shown when it dies."""

Dismiss = Callable[[Remote], None]
Bury = Callable[[Remote, list[AgentTask], str], None]


class SubAgent:
    """A process that hosts components."""

    __slots__ = ('name', 'output', 'pidfd', 'process', 'remotes')

    def __init__(self, name: str, process: subprocess.Popen[bytes], output: str, remotes: list[Remote]) -> None:
        pidfd = pidfd_open(process.pid)
        assert pidfd is not None   # it is our child, and we have not waited for it
        self.name = name
        self.process = process
        self.output = output
        self.remotes = remotes
        self.pidfd = pidfd


class SubAgents:
    """Starts the sub-agents of a layout, and joins the components in them to Agent_0.

    When one dies, `dismiss(remote)` is called at once for each component that it hosted, and a little later
    `bury(remote, tasks, reason)` with the tasks that died with it.
    """

    def __init__(self, config: Mapping[str, Any], loop: Loop, failed: Callable[[list[AgentTask]], None],
                 dismiss: Dismiss, bury: Bury) -> None:
        self._config = config
        self._loop = loop
        self._failed = failed
        self._dismiss = dismiss
        self._bury = bury
        self._context: zmq.Context[Any] = zmq.Context()
        self._gate = Gate(self._context, loop)
        self._keys = generate()
        self._star = Star(loop, self._keys, self._gate, self._receive, address_beside(config['registry_address']))
        self._remotes: dict[str, Remote] = {}
        self._running: dict[str, SubAgent] = {}
        self._on_end: Callable[[], object] | None = None
        self._timer: Timer | None = None

    def start(self, name: str, instances: Sequence[Instance]) -> list[Remote]:
        """Start a sub-agent; gives what stands for the components that it hosts."""
        remotes = [Remote(each.uid, each.component, partial(self._star.put, name), self._failed) for each in instances]
        keys = generate()
        self._gate.allow(keys.public)
        config = dict(self._config) | {'coordination': {}, 'sub_agent': {   # its secrets are Agent_0's alone
            'name': name, 'instances': [(each.component, each.uid) for each in instances], 'parent': os.getpid(),
            'address': self._star.address, 'server': self._keys.public.decode(),
            'public': keys.public.decode(), 'secret': keys.secret.decode()}}
        output = os.path.join(self._config['pilot_sandbox'], f'{name}.err')
        sub_agent = SubAgent(name, start_process(config, output), output, remotes)
        self._running[name] = sub_agent
        self._loop.add_fd(sub_agent.pidfd, partial(self._ended, sub_agent))
        self._remotes.update((remote.uid, remote) for remote in remotes)
        return remotes

    def end(self, done: Callable[[], object]) -> None:
        """Have all sub-agents end; `done()` is called when they have, or were killed because they did not."""
        self._on_end = done
        for name in self._running:
            self._star.put(name, [{'component': '', 'op': 'end'}])
        self._timer = self._loop.call_later(END_PATIENCE, self.kill)
        self._check_end()

    def kill(self) -> None:
        """Kill all sub-agents that still run."""
        for sub_agent in self._running.values():
            _log.warning('sub-agent %s is killed, as it does not end', sub_agent.name)
            sub_agent.process.kill()

    def close(self) -> None:
        """Leave no process, descriptor or socket behind."""
        for sub_agent in list(self._running.values()):
            sub_agent.process.kill()
            self._reap(sub_agent)
            self._sweep(sub_agent)
        self._star.close(0)
        self._gate.close()
        self._context.term()

    def _receive(self, items: list[Item]) -> None:
        for uid, op, bulk in in_bulks(items):
            self._remotes[uid].receive(op, bulk)

    def _ended(self, sub_agent: SubAgent) -> None:
        self._reap(sub_agent)
        if self._on_end is not None:
            self._sweep(sub_agent)
            self._check_end()
            return
        reason = _reason(sub_agent)
        _log.error('%s', reason)
        for remote in sub_agent.remotes:
            remote.leave()
            self._dismiss(remote)
        self._loop.call_later(DRAIN, self._lost, sub_agent, reason)

    def _lost(self, sub_agent: SubAgent, reason: str) -> None:
        """All that the dead sub-agent has said has arrived by now: its tasks have died with it."""
        self._star.forget(sub_agent.name)
        self._sweep(sub_agent)
        for remote in sub_agent.remotes:
            self._bury(remote, remote.bury(), reason)

    def _check_end(self) -> None:
        if self._on_end is not None and not self._running:
            on_end, self._on_end = self._on_end, None
            if self._timer is not None:
                self._timer.cancel()
            on_end()

    def _reap(self, sub_agent: SubAgent) -> None:
        """Forget a process that has ended or was killed."""
        del self._running[sub_agent.name]
        self._loop.remove_fd(sub_agent.pidfd)
        os.close(sub_agent.pidfd)
        sub_agent.process.wait()
        assert sub_agent.process.stdin is not None
        sub_agent.process.stdin.close()

    def _sweep(self, sub_agent: SubAgent) -> None:
        """Kill what its tasks have left running: the kernel has killed only the processes that it started itself."""
        uids = [uid for remote in sub_agent.remotes if remote.component == layout.EXECUTING for uid in remote.tasks]
        if uids:
            processes.sweep({**belongs(self._config), 'RP_TASK_ID': uids}, signal.SIGKILL)


def start_process(config: Mapping[str, Any], output: str) -> subprocess.Popen[bytes]:
    """Start a sub-agent on this machine; its messages go to the file `output`.

    It reads its configuration from its standard input, which stays open: its end would be the end of the sub-agent.
    It stays in our session, by which the executor knows children that are not its own.
    """
    with open(output, 'ab') as file:
        process = subprocess.Popen(python_program('rp_agent.sub_agent'), stdin=subprocess.PIPE, stdout=file,
                                   stderr=file, env=os.environ)   # which tasks inherit, too
    assert process.stdin is not None
    with suppress(BrokenPipeError):   # it died at once, which will be noticed
        process.stdin.write(json.dumps(config).encode() + b'\n')
        process.stdin.flush()
    return process


def address_beside(hub: str) -> str | None:
    """Where to listen: in the hub's directory, which the session removes whatever happens to this agent, if it is here.

    None means a directory of our own.
    """
    scheme, _, path = hub.partition('://')
    directory = os.path.dirname(path)
    own = f'{directory}/{os.urandom(6).hex()}'
    if scheme != 'ipc' or len(os.fsencode(own)) > zmq.IPC_PATH_MAX_LEN or not os.path.isdir(directory):
        return None
    return None if os.stat(directory).st_mode & 0o077 else f'ipc://{own}'


def _reason(sub_agent: SubAgent) -> str:
    """How it ended, and its last words."""
    code = sub_agent.process.returncode
    if code < 0:
        names = {number.value: f' ({number.name})' for number in signal.Signals}   # real-time signals have none
        how = f'was killed by signal {-code}{names.get(-code, "")}'
    else:
        how = f'ended with exit code {code}'
    said = _tail(sub_agent.output)
    words = f', its last lines:\n{said}' if said else ''
    return f'sub-agent {sub_agent.name} (process {sub_agent.process.pid}) {how}; see {sub_agent.output}{words}'


def _tail(path: str) -> str:
    try:
        with open(path, 'rb') as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL))
            return file.read().decode(errors='replace').strip()
    except OSError:
        return ''
