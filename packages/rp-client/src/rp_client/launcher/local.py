"""The local launcher: starts agents as child processes of the application, without a shell.

In an attached session, agents were started by another process, which noted their process ids in their sandboxes; their
exit codes are unknown.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from rp_api import distributions
from rp_api.errors import PilotError, sentence
from rp_api.loop.process_handle import ProcessHandle
from rp_api.system import private
from rp_api.system.agent_process import AgentProcess, noted
from rp_api.system.disk import no_room
from rp_api.system.host import python_program, with_home
from rp_api.system.processes import exit_code, leave, reap_left, sweep
from rp_api.system.readable import end_of
from rp_client.launcher.base import Context, End, Launcher, Start

_CONFIG = 'agent_0.cfg'

_STAGE_0 = 'bootstrap_0.sh'
"""Name of the script that starts the pilot, in the sandboxes of all pilots: applications stage it."""
_SCRIPT = """#!/bin/sh
# The application has started the agent of this pilot, without a shell, by this command.
exec {}
"""

_TAIL = 2048
"""Bytes at the end of an agent's output that are shown when it fails."""

REAP_TIMEOUT = 5.0
"""Seconds to wait for the end of a killed process."""

_SECRET = {'RADICAL_PILOT_DBURL'}
"""Variables that may contain passwords; they are removed from the environment of agents, and so of tasks."""


class _Agent:
    __slots__ = ('handle', 'killed', 'process', 'sandbox', 'uid')

    def __init__(self, uid: str, sandbox: Path, process: subprocess.Popen[bytes] | None,
                 handle: ProcessHandle) -> None:
        self.uid = uid
        self.sandbox = sandbox
        self.process = process   # None: not a child of this process
        self.handle = handle
        self.killed = False

    def kill(self) -> None:
        self.killed = True
        self.handle.send_signal(signal.SIGKILL)

    def await_end(self) -> int | None:
        """Reap an agent that has ended or was killed, and return its exit code; None if unknown."""
        if self.process is not None:
            return exit_code(self.process)
        self.handle.wait(REAP_TIMEOUT)
        reap_left()   # it may be a child, from an earlier session of this application
        return None


class LocalLauncher(Launcher):
    """Starts `rp-agent` with the interpreter of the application."""

    near = True

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._loop = context.loop
        self._agents: dict[str, _Agent] = {}
        self._all_ended = threading.Condition()

    @staticmethod
    def takes(url: str) -> bool:
        if not url:
            return True
        found = urlsplit(url)
        return found.scheme in ('fork', 'local') and found.hostname in (None, 'localhost', '127.0.0.1')

    def launch(self, starts: Sequence[Start]) -> None:
        for start in starts:
            try:
                self._launch(start)
            except Exception as error:   # fails this pilot only
                full = no_room(str(start.sandbox)) if isinstance(error, OSError) else ''
                self.context.reports.refused(start.uid, f'cannot write to {full}' if full else sentence(error))
            else:
                self.context.reports.launched(start.uid, {})

    def _launch(self, start: Start) -> None:
        distributions.require('rp-agent')
        config = start.sandbox / _CONFIG
        command = [*python_program('rp_agent.cli'), str(config)]
        private.write_file(config, json.dumps({**start.config, 'launcher': os.getpid()}, indent=1).encode())
        private.write_file(start.sandbox / _STAGE_0, os.fsencode(_SCRIPT.format(shlex.join(command))))
        ours, theirs = socket.socketpair()
        with (ours, theirs, open(start.sandbox / 'agent_0.out', 'ab') as out,
              open(start.sandbox / 'agent_0.err', 'ab') as err):
            process = subprocess.Popen(
                command, stdin=theirs.fileno(), stdout=out, stderr=err,
                env={name: value for name, value in with_home(os.environ).items() if name not in _SECRET},
                start_new_session=True)
            try:
                handle = _noted(process.pid, start.sandbox)
            except (OSError, PilotError):   # the agent cannot be watched
                process.kill()
                process.wait()
                raise
            ours.shutdown(socket.SHUT_RDWR)   # lets the agent start; a fork of the application may hold the socket, too
        self._watch(_Agent(start.uid, start.sandbox, process, handle))

    def adopt(self, uid: str, sandbox: Path, handle: Mapping[str, Any]) -> bool:
        agent = noted(sandbox)
        process = ProcessHandle.open(*agent) if agent is not None else None
        if process is not None:
            self._watch(_Agent(uid, sandbox, None, process))
        return process is not None

    def _watch(self, agent: _Agent) -> None:
        self._agents[agent.uid] = agent
        agent.handle.watch(self._loop, lambda: self._ended(agent.uid))

    def clear(self, uid: str) -> None:
        sweep({**self.context.belongs, 'RP_PILOT_ID': uid}, signal.SIGKILL)

    def kill(self, uid: str) -> None:
        agent = self._agents.get(uid)
        if agent is not None:
            agent.kill()

    def leave(self) -> None:
        for agent in self._agents.values():
            agent.handle.close()
            if agent.process is not None:
                leave(agent.process)
        self._agents.clear()

    def close(self, timeout: float) -> None:
        with self._all_ended:
            if not self._all_ended.wait_for(lambda: not self._agents, timeout):
                for agent in self._agents.values():
                    agent.kill()
                self._all_ended.wait_for(lambda: not self._agents, timeout)
        for agent in list(self._agents.values()):   # the event loop has ended, and does not reap them
            self._reap(agent)

    def _ended(self, uid: str) -> None:
        agent = self._agents.get(uid)
        if agent is None:
            return
        code = self._reap(agent)
        self.context.reports.ended(End(uid, _reason(agent, code), _tail(agent.sandbox / 'agent_0.out'),
                        _tail(agent.sandbox / 'agent_0.err')))

    def _reap(self, agent: _Agent) -> int | None:
        """Reap an agent, end its tasks if it did not end normally, and return its exit code if known."""
        code = agent.await_end()
        if code or agent.killed:
            self.clear(agent.uid)
        with self._all_ended:
            if self._agents.pop(agent.uid, None) is not None:
                agent.handle.close()
            self._all_ended.notify_all()
        return code


def _noted(pid: int, sandbox: Path) -> ProcessHandle:
    """Note a new agent in its sandbox, for later applications, and return its handle."""
    agent = AgentProcess.of(pid)
    handle = ProcessHandle.open(*agent) if agent is not None else None
    if agent is None or handle is None:   # if SIGCHLD is ignored, a child vanishes when it ends
        raise PilotError(f'the agent ended when it was started, see {sandbox}/agent_0.err')
    try:
        agent.note(sandbox)
    except OSError:
        handle.close()
        raise
    return handle


def _reason(agent: _Agent, code: int | None) -> str | None:
    if not code:
        return None
    if code < 0:
        names = {number.value: f' ({number.name})' for number in signal.Signals}   # real-time signals have none
        return f'the agent of {agent.uid} was killed by signal {-code}{names.get(-code, "")}'
    full = no_room(str(agent.sandbox))   # a full disk keeps the agent from reporting it
    return f'the agent of {agent.uid} ended with exit code {code}' + (f': cannot write to {full}' if full else '')


def _tail(path: Path) -> str:
    return end_of(path, _TAIL).decode(errors='replace')
