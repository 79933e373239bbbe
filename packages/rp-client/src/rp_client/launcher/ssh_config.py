"""The host that ssh connects to for a URL; hosts in URLs may be aliases from the user's `~/.ssh/config`."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from rp_client.launcher.batch.shell import Target, target

_TIMEOUT = 10.0
"""Seconds in which ssh must have read its configuration, which may run commands."""

_MOST_JUMPS = 8
"""Nested jump hosts that are followed at most, as there may be a cycle."""


def nearest_host(url: str) -> str:
    """Return the first host on the route to the host of a URL, by its name or address in the network.

    This is the host that `ssh -G` reports, or its first jump host; without ssh, it is the host in the URL.
    """
    hop = target(url)
    for _ in range(_MOST_JUMPS):
        known = _configuration([hop.program, '-G', *hop.words]) if hop.program else {}
        first = known.get('proxyjump', 'none').partition(',')[0]
        if first == 'none':
            return known.get('hostname', hop.host)
        hop = _jump(hop.program, first)
    return hop.host


def _jump(program: str, name: str) -> Target:
    """Return a jump host given as `user@host:port` or as an ssh URL."""
    return target(name if '://' in name else f'ssh://{name}')._replace(program=program)


def _configuration(command: Sequence[str]) -> dict[str, str]:
    """Return the configuration that ssh prints for a host; empty on failure."""
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                              text=True, errors='replace', timeout=_TIMEOUT, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return {}
    if done.returncode:
        return {}
    pairs = (line.partition(' ') for line in done.stdout.splitlines())
    return {name: value for name, _, value in pairs if value}
