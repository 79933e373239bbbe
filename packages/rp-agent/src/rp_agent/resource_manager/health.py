"""Health check of the nodes of a job: each must run a command over ssh."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

NODE_TIMEOUT = 15.0
"""Seconds that a node may take to answer."""

AT_ONCE = 64

_SSH = ('ssh', '-oBatchMode=yes', '-oForwardAgent=no', '-oLogLevel=ERROR',
        # forward nothing to the node, and keep the user's known_hosts file unchanged
        '-oStrictHostKeyChecking=no', '-oUserKnownHostsFile=/dev/null')


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
