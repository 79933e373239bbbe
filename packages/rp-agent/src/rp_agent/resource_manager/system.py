"""The host that the agent runs on, as far as resource managers ask it: environment, files, programs, names.

Resource managers get it as an argument and touch nothing else, so that tests can give them a made-up one.
"""

from __future__ import annotations

import glob
import os
import socket
import subprocess
from collections.abc import Mapping, Sequence

from rp_api.errors import PlatformError

COMMAND_TIMEOUT = 20.0
"""Seconds that a program of a batch system may take to answer."""


class System:
    """This host."""

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        self.environ = os.environ if environ is None else environ

    def read(self, path: str) -> str:
        """The text of a file; `PlatformError` if it cannot be read."""
        try:
            with open(path, encoding='utf-8', errors='replace') as file:
                return file.read()
        except OSError as error:
            raise PlatformError(f'{path} cannot be read: {error.strerror}') from None

    def newest(self, pattern: str) -> str | None:
        """The path that matches the pattern (`~` is the home directory) and was written last; None if there is none."""
        return max(glob.glob(os.path.expanduser(pattern)), key=os.path.getmtime, default=None)

    def run(self, *command: str) -> str:
        """What a program prints; `PlatformError` with its words if it fails, is missing, or takes too long."""
        said = ' '.join(command)
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors='replace',
                                  timeout=COMMAND_TIMEOUT, check=False)
        except subprocess.TimeoutExpired:
            raise PlatformError(f'`{said}` has not ended after {COMMAND_TIMEOUT:g} seconds') from None
        except OSError as error:
            raise PlatformError(f'`{said}` cannot be run: {error.strerror}') from None
        if done.returncode:
            words = (done.stderr or done.stdout).strip()
            raise PlatformError(f'`{said}` failed with exit code {done.returncode}: {words}')
        return done.stdout

    def sick(self, names: Sequence[str]) -> dict[str, str]:
        """Those of these hosts that are out of order, and why."""
        from rp_agent.resource_manager import health  # few pilots have backup nodes

        return health.sick(names)

    def is_here(self, name: str) -> bool:
        """Whether a node of that name is this host: by its name, else by its addresses."""
        hosts = {'localhost', os.uname().nodename}
        if short(name) in map(short, hosts):
            return True
        try:
            found = socket.getaddrinfo(name, None, type=socket.SOCK_DGRAM)
        except OSError:
            return False
        return any(_is_own(family, address) for family, _, _, _, address in found)


def short(name: str) -> str:
    """A host's name without its domain."""
    return name.partition('.')[0]


def _is_own(family: int, address: tuple[str | int, ...] | tuple[int, bytes]) -> bool:
    """Whether this host has the address: a socket can be bound to no other."""
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind(address)
        except OSError:
            return False
    return True
