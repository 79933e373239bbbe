"""The transport between the nodes of a RAPTOR worker: MPI where it is faster and as safe as ZeroMQ, else ZeroMQ.

The description of a worker decides, else the platform definition. Without either, it is MPI if MPI uses a fabric, to
which only nodes of the machine are connected, and works: the agent's Python loads mpi4py with an MPI library, and the
platform has a launch method for MPI jobs. ZeroMQ encrypts; MPI over TCP does not.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

from rp_agent.task import Description
from rp_api.constants import TRANSPORT_MPI, TRANSPORT_ZMQ

_log = logging.getLogger('radical.pilot.agent.raptor')

_NO_MPI = frozenset(('FORK', 'SSH', 'RSH'))
"""Launch methods that start no MPI jobs."""

_TRIAL = 'import mpi4py; mpi4py.rc.initialize = False; from mpi4py import MPI'
_TRIAL_TIMEOUT_S = 20.0

UNPROTECTED = ("its calls travel between its nodes by MPI over TCP, which is neither encrypted nor authenticated; "
               "with transport='zmq' they are both")


def fabric(root: str = '/') -> str:
    """Return the name of the fabric that MPI uses on this host; empty if it would use TCP.

    `root` is the directory below which `sys` is. Virtual devices and those for Ethernet (RoCE, iWARP) do not count.
    """
    kinds = Path(root, 'sys/class')
    if any(kinds.glob('cxi/*')):
        return 'Slingshot'
    for state in sorted(kinds.glob('infiniband/*/ports/*/state')):
        device, port = state.parents[2], state.parent
        if 'ACTIVE' not in _read(state):
            continue
        if os.path.basename(os.path.realpath(device / 'device/driver')) == 'hfi1':
            return 'Omni-Path'
        if _read(port / 'link_layer') == 'InfiniBand':
            return 'InfiniBand'
    return ''


def _read(path: Path) -> str:
    with suppress(OSError):
        return path.read_text(encoding='ascii', errors='replace').strip()
    return ''


class Transports:
    """The choice of a transport for each worker of a pilot that spans nodes; `root` is as in `fabric`."""

    def __init__(self, platform: Mapping[str, Any], root: str = '/') -> None:
        self.fabric = fabric(root)
        self._named: str = (platform.get('raptor') or {}).get('transport', '')
        launches = not _NO_MPI.issuperset((platform.get('launch_methods') or {}).get('order', ()))
        # meanwhile, the first worker waits for its master and for resources
        self._trial = subprocess.Popen([sys.executable, '-c', _TRIAL], stdin=subprocess.DEVNULL,
                                       stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
                                       ) if self.fabric and launches and not self._named else None

    def of(self, uid: str, description: Description) -> str:
        """Return the transport of a worker."""
        transport, why = self._choose(description)
        _log.info('%s: %s between its nodes: %s', uid, transport, why)
        return transport

    def close(self) -> None:
        """End the trial of MPI."""
        if self._trial is not None and self._trial.stderr:
            self._trial.kill()
            self._trial.wait()
            self._trial.stderr.close()

    def _choose(self, description: Description) -> tuple[str, str]:
        if description['transport']:
            return description['transport'], 'its description says so'
        if description['container']:
            return TRANSPORT_ZMQ, 'it is in a container'
        if self._named:
            return self._named, 'the platform definition says so'
        if not self.fabric:
            return TRANSPORT_ZMQ, 'MPI would use TCP, without encryption'
        if description['named_env']:
            return TRANSPORT_ZMQ, 'it is not known whether MPI works in its environment'
        return (TRANSPORT_ZMQ, self._fault) if self._fault else (TRANSPORT_MPI, f'MPI uses {self.fabric}')

    @cached_property
    def _fault(self) -> str:
        """Why MPI does not work here; empty if it does."""
        if self._trial is None:
            return 'no launch method of the platform starts MPI jobs'
        try:
            errors = self._trial.communicate(timeout=_TRIAL_TIMEOUT_S)[1]
        except subprocess.TimeoutExpired:
            return f'mpi4py does not load within {_TRIAL_TIMEOUT_S:g} s'
        code = self._trial.returncode
        last = errors.strip().rpartition('\n')[2] or f'exit code {code}'
        return f'mpi4py cannot be used: {last}' if code else ''
