"""The host that ssh connects to for a URL: names in URLs may be aliases of the user's `~/.ssh/config`."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from rp_client.launcher.batch.shell import Target, target

_TIMEOUT = 10.0
"""Seconds that ssh may take to read its configuration, which may run commands."""

_MOST_JUMPS = 8
"""How many jump hosts are looked at that are reached through jump hosts themselves: there may be a circle."""


def nearest_host(url: str) -> str:
    """The first host on the way to that of a URL, by the name or address that the network knows.

    It is the host that `ssh -G` tells, or the first of its jump hosts. It is the host in the URL if that is not reached
    by ssh, or if ssh cannot tell.
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
    """A jump host, as `user@host:port` or a URL of ssh."""
    return target(name if '://' in name else f'ssh://{name}')._replace(program=program)


def _configuration(command: Sequence[str]) -> dict[str, str]:
    """What ssh prints of its configuration for a host; empty if it cannot."""
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                              text=True, errors='replace', timeout=_TIMEOUT, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return {}
    if done.returncode:
        return {}
    pairs = (line.partition(' ') for line in done.stdout.splitlines())
    return {name: value for name, _, value in pairs if value}
