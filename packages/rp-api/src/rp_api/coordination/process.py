"""The hub's process, as its owner sees it: start, watch, start again, end."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import subprocess
from pathlib import Path
from typing import Any

from rp_api.coordination.embedded import HubAddress
from rp_api.errors import CoordinationError
from rp_api.host import pidfd_open, python_program
from rp_api.mesh import keys
from rp_api.mesh.connection import make_private_directory


class HubProcess:
    """Starts the hub of a session in a process of its own, and knows how to reach it.

    `address` and `agent_address` are for the client and for agents: the same socket, different keys.
    """

    def __init__(self, session: str, directory: Path, orphan_timeout: float) -> None:
        self._log = directory / 'hub.log'
        self._runtime_dir = make_private_directory()
        server, client, agent = keys.generate(), keys.generate(), keys.generate()
        endpoint = f'ipc://{self._runtime_dir}/s'
        self.address = _address(endpoint, server, client)
        self.agent_address = _address(endpoint, server, agent)
        self._config = {
            'session': session, 'database': str(directory / 'hub.db'), 'endpoint': endpoint,
            'runtime_dir': self._runtime_dir, 'orphan_timeout': orphan_timeout,
            'public': server.public.decode(), 'secret': server.secret.decode(),
            'peers': [client.public.decode(), agent.public.decode()]}
        self._process: subprocess.Popen[str] | None = None

    @property
    def pid(self) -> int:
        """The process id; the hub must have been started."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start the hub, or start it again after it died; returns at once, see `wait_ready`."""
        os.makedirs(self._runtime_dir, mode=0o700, exist_ok=True)
        with open(self._log, 'a', encoding='utf-8') as log:
            config = self._config | {'fresh': self._process is None}   # else the session's own file is there
            self._process = subprocess.Popen(
                python_program('rp_api.coordination.hub'), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
                text=True, start_new_session=True)
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):   # it died at once: `wait_ready` tells why
            self._process.stdin.write(json.dumps(config) + '\n')
            self._process.stdin.close()

    def wait_ready(self) -> None:
        """Return when the hub serves; raise `CoordinationError` with its reason if it cannot."""
        assert self._process is not None
        assert self._process.stdout is not None
        answer: dict[str, Any] = json.loads(self._process.stdout.readline() or '{}')
        self._process.stdout.close()
        if not answer.get('ok'):
            self.stop(1.0)
            reason = answer.get('error') or self.last_words()
            raise CoordinationError(f'the hub of the session did not start: {reason} (see {self._log})')

    def ended(self) -> int | None:
        """The exit code when the process has ended (and reap it then)."""
        assert self._process is not None
        return self._process.poll()

    def last_words(self, lines: int = 5) -> str:
        """The last lines of the hub's log."""
        try:
            return '\n'.join(self._log.read_text(encoding='utf-8', errors='replace').splitlines()[-lines:])
        except OSError:
            return ''

    def stop(self, patience: float) -> None:
        """Wait at most that many seconds for the hub to end by itself, end it otherwise, and leave nothing behind."""
        if self._process is not None:
            self._await_end(patience)
            if self._process.poll() is None:
                self._process.kill()
                self._process.wait()
            assert self._process.stdout is not None
            self._process.stdout.close()
        shutil.rmtree(self._runtime_dir, ignore_errors=True)

    def _await_end(self, patience: float) -> None:
        """Return when the process has ended, at the latest after that many seconds."""
        pidfd = pidfd_open(self.pid) if self.ended() is None else None
        if pidfd is not None:
            poll = select.poll()
            poll.register(pidfd, select.POLLIN)
            poll.poll(patience * 1000)
            os.close(pidfd)


def _address(endpoint: str, server: keys.KeyPair, peer: keys.KeyPair) -> HubAddress:
    return HubAddress(endpoint, server.public.decode(), peer.public.decode(), peer.secret.decode())
