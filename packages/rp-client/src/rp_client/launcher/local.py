"""The launcher for the machine that the application runs on: agents are child processes, no shell in between."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from rp_api import parts
from rp_api.host import pidfd_open, python_program
from rp_api.mesh.loop import Loop
from rp_api.processes import sweep
from rp_client.launcher.base import End, Launcher, Start

_TAIL = 2048
"""Bytes of an agent's output that are shown when it fails."""


class _Agent:
    __slots__ = ('pidfd', 'process', 'start')

    def __init__(self, start: Start, process: subprocess.Popen[bytes], pidfd: int) -> None:
        self.start = start
        self.process = process
        self.pidfd = pidfd


class LocalLauncher(Launcher):
    """Starts `rp-agent` with the interpreter of the application.

    `belongs` are variables that all processes of the session's tasks, and of no others, have in their environment.
    """

    def __init__(self, loop: Loop, belongs: Mapping[str, str], on_end: Callable[[End], None]) -> None:
        super().__init__(on_end)
        self._loop = loop
        self._belongs = belongs
        self._agents: dict[str, _Agent] = {}
        self._buried = threading.Condition()

    def launch(self, start: Start) -> None:
        parts.require('rp-agent')
        config = start.sandbox / 'agent_0.cfg'
        _write_private(config, json.dumps(start.config, indent=1))
        with open(start.sandbox / 'agent_0.out', 'ab') as out, open(start.sandbox / 'agent_0.err', 'ab') as err:
            process = subprocess.Popen(
                [*python_program('rp_agent.cli'), str(config)], stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                start_new_session=True)
        try:
            pidfd = pidfd_open(process.pid)
        except OSError:   # nobody would notice its end
            process.kill()
            process.wait()
            raise
        assert pidfd is not None   # it is our child, and we have not waited for it
        self._agents[start.uid] = _Agent(start, process, pidfd)
        self._loop.add_fd(pidfd, lambda: self._ended(start.uid))

    def kill(self, uid: str) -> None:
        agent = self._agents.get(uid)
        if agent is not None:
            agent.process.kill()

    def close(self, patience: float) -> None:
        with self._buried:
            if not self._buried.wait_for(lambda: not self._agents, patience):
                for agent in self._agents.values():
                    agent.process.kill()
                self._buried.wait_for(lambda: not self._agents, patience)
        for agent in list(self._agents.values()):   # nobody else does: the loop has ended
            self._bury(agent)

    def _ended(self, uid: str) -> None:
        agent = self._agents.get(uid)
        if agent is None:
            return
        self._loop.remove_fd(agent.pidfd)
        self._bury(agent)
        sandbox = agent.start.sandbox
        self.on_end(End(uid, _reason(uid, agent.process.returncode), _tail(sandbox / 'agent_0.out'),
                        _tail(sandbox / 'agent_0.err')))

    def _bury(self, agent: _Agent) -> None:
        """Reap an agent, and end what it may have left running if it did not end in order."""
        if agent.process.wait() != 0:
            sweep({**self._belongs, 'RP_PILOT_ID': agent.start.uid}, signal.SIGKILL)
        with self._buried:
            if self._agents.pop(agent.start.uid, None) is not None:
                os.close(agent.pidfd)
            self._buried.notify_all()


def _reason(uid: str, code: int) -> str | None:
    if code == 0:
        return None
    if code < 0:
        names = {number.value: f' ({number.name})' for number in signal.Signals}   # real-time signals have none
        return f'the agent of {uid} was killed by signal {-code}{names.get(-code, "")}'
    return f'the agent of {uid} ended with exit code {code}'


def _write_private(path: Path, text: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with open(fd, 'w', encoding='utf-8') as file:
        os.fchmod(fd, 0o600)   # it may have been there with other bits
        file.write(text)


def _tail(path: Path) -> str:
    try:
        with open(path, 'rb') as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL))
            return file.read().decode(errors='replace')
    except OSError:
        return ''
