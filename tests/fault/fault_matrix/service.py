"""A stand-alone hub (`rp hub`) for one run."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

from fault_matrix.application import LossError

PROGRAM = [sys.executable, '-m', 'rp_client.cli', 'hub']
UNRELIABLE_SERVICE = str(Path(__file__).with_name('unreliable_service.py'))
HUB_COMMAND = 'RP_FAULT_MATRIX_HUB'
"""The variable that tells an unreliable service the program of its hubs."""

AGAIN = 0.2
"""Seconds between attempts to end it."""


class Service:
    """A stand-alone hub with its sessions in a directory; their hubs are run by another command if one is given."""

    def __init__(self, directory: Path, environ: dict[str, str], hub_command: list[str]) -> None:
        self._environ = environ | {HUB_COMMAND: json.dumps(hub_command)}
        program = [sys.executable, UNRELIABLE_SERVICE] if hub_command else PROGRAM
        self._start = [*program, 'start', '--directory', str(directory)]
        self.url = self.start()

    def start(self) -> str:
        """Start it, or start it again; gives its URL."""
        done = self._run(self._start)
        if done.returncode:
            raise LossError(f'rp hub did not start: {done.stderr}')
        return done.stdout.split()[0]

    def stop(self, deadline: float) -> None:
        """End it when it has noticed that the session was closed."""
        while (done := self._run([*PROGRAM, 'stop', self.url])).returncode:
            if time.monotonic() > deadline:
                raise LossError(f'hang: rp hub does not end: {done.stderr}')
            time.sleep(AGAIN)

    def _run(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, env=self._environ, capture_output=True, text=True)
