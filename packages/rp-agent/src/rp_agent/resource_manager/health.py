"""Which nodes of a job are out of order: those that ssh cannot run a command on."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

NODE_TIMEOUT = 15.0
"""Seconds that a node may take to answer."""

AT_ONCE = 64

_SSH = ('ssh', '-oBatchMode=yes', '-oForwardAgent=no', '-oLogLevel=ERROR',
        # nothing is told to the node, and the user's list of hosts is not ours to add to
        '-oStrictHostKeyChecking=no', '-oUserKnownHostsFile=/dev/null')


def sick(names: Sequence[str]) -> dict[str, str]:
    """The nodes that do not answer, and why; they are all asked at the same time."""
    if not names:
        return {}
    with ThreadPoolExecutor(min(AT_ONCE, len(names))) as helpers:
        reasons = dict(zip(names, helpers.map(_ask, names), strict=True))
    return {name: reason for name, reason in reasons.items() if reason}


def _ask(name: str) -> str:
    """Why the node is out of order; empty if it is not."""
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
