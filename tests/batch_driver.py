"""The process that talks to batch systems, without a launcher: requests in, events out."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rp_client.launcher.batch.frames import Frames, pack

TIMEOUT = 50.0


class BatchDriver:
    """One process, which serves one job URL at a time for the test."""

    def __init__(self, environ: Mapping[str, str], prefix: tuple[str, ...], log: Path) -> None:
        self._channel, theirs = socket.socketpair()
        self._log = log
        with open(log, 'ab') as output:
            self._process = subprocess.Popen([*prefix, sys.executable, '-m', 'rp_client.launcher.batch.process'],
                                             stdin=theirs.fileno(), stdout=output, stderr=output,
                                             env=os.environ | dict(environ))
        theirs.close()
        self._frames = Frames()
        self._events: list[dict[str, Any]] = []
        self._described = 0
        self.last = ''
        """The key of the job that was described last."""

    def ask(self, op: str, url: str, **values: Any) -> None:
        """Send a request."""
        self._channel.sendall(pack({'op': op, 'url': url, **values}))

    def event(self, *names: str, key: str | None = None) -> dict[str, Any]:
        """The next event of one of these names, and of this job (default: the last one); others are kept."""
        wanted = (None, key or self.last)
        deadline = time.monotonic() + TIMEOUT
        while True:
            for event in self._events:
                if event['event'] in names and event.get('key') in wanted:
                    self._events.remove(event)
                    return event
            self._channel.settimeout(max(0.01, deadline - time.monotonic()))
            try:
                data = self._channel.recv(1 << 16)
            except TimeoutError:
                data = b''
            if not data:
                pytest.fail(f'no {" or ".join(names)} came, but {self._events}; it said {self._log.read_text()}')
            self._events += self._frames.feed(data)

    def submitted(self, url: str, name: str, sandbox: Path, script: str, **request: Any) -> str:
        """Submit a job that runs a shell script in its sandbox; gives the batch system's id of it."""
        self.ask('submit', url, jobs=[self.job(name, sandbox, script, **request)])
        event = self.event('submitted', 'refused', 'trouble')
        assert event['event'] == 'submitted', event
        return str(event['job'])

    def job(self, name: str, sandbox: Path, script: str, **request: Any) -> dict[str, Any]:
        """What a request to submit has for a job; its key is one that no other job has had."""
        self._described += 1
        self.last = f'{name}.{self._described}'
        known = {'command': ['/bin/sh', f'{sandbox}/bootstrap_0.sh'], 'directory': str(sandbox), 'minutes': 10,
                 'output': f'{sandbox}/bootstrap_0.out', 'error': f'{sandbox}/bootstrap_0.err', 'name': name,
                 'cores': 8}
        return {'key': self.last, 'sandbox': str(sandbox), 'files': {'bootstrap_0.sh': script.encode()},
                'request': {'environment': {}, **known, **request}}

    def close(self) -> None:
        """End the process."""
        self._channel.close()
        try:
            self._process.wait(10)
        finally:
            self._process.kill()
            self._process.wait()


@contextmanager
def batch_driver(environ: Mapping[str, str], directory: Path, prefix: tuple[str, ...] = ()) -> Iterator[BatchDriver]:
    """A process in that environment; what it keeps for itself goes below `directory`."""
    driver = BatchDriver({'RADICAL_BASE': str(directory), 'HOME': str(directory), **environ}, prefix,
                        directory / 'batch.log')
    try:
        yield driver
    finally:
        driver.close()
