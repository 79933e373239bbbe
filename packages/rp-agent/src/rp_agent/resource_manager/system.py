"""The agent's host as resource managers see it: environment, files, programs, names; and the health of other hosts.

Resource managers access the host only through this class, so that tests can replace it.
"""

from __future__ import annotations

import glob
import os
import socket
import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from rp_api.errors import PlatformError

COMMAND_TIMEOUT = 20.0
"""Seconds that a program of a batch system may take to answer."""

NODE_TIMEOUT = 15.0
"""Seconds that a node may take to answer."""

AT_ONCE = 64
_SSH = ('ssh', '-oBatchMode=yes', '-oForwardAgent=no', '-oLogLevel=ERROR',
        # forward nothing to the node, and keep the user's known_hosts file unchanged
        '-oStrictHostKeyChecking=no', '-oUserKnownHostsFile=/dev/null')


class System:
    """The host that this process runs on."""

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        """Use these environment variables, by default the variables of this process."""
        self.environ = os.environ if environ is None else environ

    def read(self, path: str) -> str:
        """Return the text of a file; raise `PlatformError` if it cannot be read."""
        try:
            with open(path, encoding='utf-8', errors='replace') as file:
                return file.read()
        except OSError as error:
            raise PlatformError(f'{path} cannot be read: {error.strerror}') from None

    def newest(self, pattern: str) -> str | None:
        """Return the newest path that matches the pattern (`~` is the home directory); None if there is none."""
        return max(glob.glob(os.path.expanduser(pattern)), key=os.path.getmtime, default=None)

    def run(self, *command: str) -> str:
        """Return the output of a program.

        Raises:
            PlatformError: The program is missing, fails (with its error output), or takes longer than
                `COMMAND_TIMEOUT`.
        """
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
        """Return the hosts that fail the health check, with reasons."""
        return sick(names)

    def is_here(self, name: str) -> bool:
        """Return whether the name belongs to this host, by its host name or one of its addresses."""
        hosts = {'localhost', os.uname().nodename}
        if short(name) in map(short, hosts):
            return True
        try:
            found = socket.getaddrinfo(name, None, type=socket.SOCK_DGRAM)
        except OSError:
            return False
        return any(_is_own(family, address) for family, _, _, _, address in found)


def short(name: str) -> str:
    """Return a host name without its domain."""
    return name.partition('.')[0]


def _is_own(family: int, address: tuple[str | int, ...] | tuple[int, bytes]) -> bool:
    """Return whether the address belongs to this host: a socket cannot be bound to any other."""
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind(address)
        except OSError:
            return False
    return True


def sick(names: Sequence[str]) -> dict[str, str]:
    """Return the nodes that fail the check, with reasons. All nodes are checked at the same time."""
    if not names:
        return {}
    with ThreadPoolExecutor(min(AT_ONCE, len(names))) as helpers:
        reasons = dict(zip(names, helpers.map(_ask, names), strict=True))
    return {name: reason for name, reason in reasons.items() if reason}


def _ask(name: str) -> str:
    """Return why the node fails the check; empty if it is healthy."""
    try:
        done = subprocess.run([*_SSH, name, 'hostname'], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              errors='replace', timeout=NODE_TIMEOUT, check=False)
    except subprocess.TimeoutExpired:
        return f'no answer for {NODE_TIMEOUT:g} seconds'
    except OSError as error:
        return f'ssh cannot be run: {error.strerror}'
    if done.returncode:
        return ' '.join(done.stderr.split()) or f'exit code {done.returncode}'
    return ''
