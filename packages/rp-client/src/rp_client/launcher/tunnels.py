"""Tunnels through which an application reaches services on platforms that it reaches by ssh."""

from __future__ import annotations

import os
import re
import select
import socket
import subprocess
import threading
import time
from contextlib import suppress
from typing import NamedTuple

from rp_api.errors import PlatformError
from rp_client.launcher.batch.shell import TIMEOUT, Shell, is_remote

END_TIMEOUT = 5.0
"""Seconds that ssh has to end after its input is closed."""

HERE = '127.0.0.1'

_ADDRESS = re.compile(r'(?<![A-Za-z0-9_.:-])(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+)'
                      r':(?P<port>[0-9]{1,5})(?![0-9A-Za-z:])')


class Address(NamedTuple):
    """A host and port in the information on a service, with the text before and after them."""

    before: str
    host: str
    port: int
    after: str

    @classmethod
    def find(cls, info: str) -> Address | None:
        """Return the first address in a text, such as `http://node1:8000/v1`; None if there is none."""
        for found in _ADDRESS.finditer(info):
            if 0 < int(found['port']) < 1 << 16:
                return cls(info[:found.start()], found['host'], int(found['port']), info[found.end():])
        return None


class Tunnels:
    """The tunnels of a session. Each is one ssh, which ends with the session, and also if the application is killed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tunnels: dict[tuple[str, str, int], _Tunnel] = {}
        self._closed = False

    def reach(self, url: str, info: str) -> str:
        """Return the information on a service with an address that is reached from this host.

        Args:
            url: The URL of the platform's job manager.
            info: The information on the service, as tasks on the platform get it.

        Raises:
            ValueError: The platform is reached by ssh, and the information names no host and port.
            PlatformError: The tunnel cannot be opened.
            RuntimeError: The session was closed.
        """
        if not is_remote(url):
            return info
        address = Address.find(info)
        if address is None:
            raise ValueError(f'{info!r} names no host and port to which a tunnel could lead')
        key = (url, address.host, address.port)
        with self._lock:
            if self._closed:
                raise RuntimeError(f'no tunnel to {address.host}:{address.port}: the session was closed')
            tunnel = self._tunnels.get(key)
            if tunnel is None or not tunnel.is_open:
                if tunnel is not None:
                    tunnel.close()
                tunnel = self._tunnels[key] = _Tunnel(*key)
        return f'{address.before}{HERE}:{tunnel.port}{address.after}'

    def close(self) -> None:
        """Close all tunnels, and open no more."""
        with self._lock:
            self._closed = True
            for tunnel in self._tunnels.values():
                tunnel.close()
            self._tunnels.clear()


class _Tunnel:
    """One tunnel to a host and port beyond the host of a URL.

    A program there copies its input until it ends: ssh, whose input is a pipe of this process, so ends with it.
    """

    def __init__(self, url: str, host: str, port: int) -> None:
        self.port = _free_port()
        mark = os.urandom(8).hex()
        shell = Shell(url)
        forward = f'-L{HERE}:{self.port}:{host}:{port}'
        self._cancel = shell.command('', '-Ocancel', forward)
        command = shell.command(f'echo {mark}; exec cat', '-oExitOnForwardFailure=yes', forward)
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                         stderr=subprocess.STDOUT, start_new_session=True)
        said = self._read_until(mark.encode())
        if mark.encode() not in said:
            self.close()
            text = ' '.join(said.decode(errors='replace').split())
            raise PlatformError(f'no tunnel to {host}:{port} by {shell.host}: {text or "no answer"}')

    @property
    def is_open(self) -> bool:
        """True unless ssh has ended."""
        return self._process.poll() is None

    def close(self) -> None:
        """End the tunnel."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(END_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        # connections that several ssh share would keep the port open
        with suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(self._cancel, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                           timeout=END_TIMEOUT, check=False)

    def _read_until(self, mark: bytes) -> bytes:
        """Return the output up to this mark, its end, or the timeout."""
        assert self._process.stdout is not None
        output = self._process.stdout.fileno()
        poll = select.poll()
        poll.register(output, select.POLLIN)
        deadline = time.monotonic() + TIMEOUT
        said = b''
        while mark not in said and (left := deadline - time.monotonic()) > 0:
            if poll.poll(left * 1000 + 1):
                data = os.read(output, 1 << 16)
                if not data:
                    break
                said += data
        return said


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HERE, 0))
        port: int = probe.getsockname()[1]
        return port
