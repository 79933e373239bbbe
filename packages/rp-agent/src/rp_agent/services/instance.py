"""A service task in the agent: its settings, its port, its current run, and the sentences about its end."""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Container, Mapping
from pathlib import Path
from typing import Any

from rp_agent.executor.launching.rank_script import host_of
from rp_agent.services.probes import Look, Seen, Target, can_repeat, look_of
from rp_agent.services.watch import Watch
from rp_agent.task import AgentTask
from rp_api import states
from rp_api.backoff import Restarts
from rp_api.description.service import RESTART, probe_of
from rp_api.failures.kinds import EXIT
from rp_api.loop.event_loop import Timer
from rp_api.system.readable import end_of

_QUOTED_BYTES = 1024
"""Bytes of each output that a message quotes."""

_LOWEST = 10000
_HIGHEST = 32767
_RANGE = Path('/proc/sys/net/ipv4/ip_local_port_range')


class ServiceTask:
    """A task that is an instance of a service."""

    def __init__(self, task: AgentTask) -> None:
        description = task.description
        settings: dict[str, Any] = description['service']
        self.task = task
        self.uid = task.uid
        self.name: str = settings.get('name') or task.uid
        self.probe = probe_of(settings, description['info_pattern'])
        self.limit: float = description.pop('startup_timeout', 0.0)   # of the service, not of the processes
        self.liveness: bool = settings.get('liveness', True)
        self.restarts = restarts_of(settings.get('restart') or RESTART)
        self.router: dict[str, Any] | None = settings.get('router')
        self.wanted_port: int | None = settings.get('port')
        self.port = self.wanted_port or 0
        self.proven: dict[str, int] = {}
        """The port at which it was ready last, by the name of the node: it gets this port there again if it is free."""
        self.watch: Watch | None = None
        self.ready_since: float | None = None
        """Time at which the current run became ready; None before."""
        self.given_up = ''
        """The reason why the current run is being ended; '' if it is not."""
        self.executed = False
        """True once a run has begun: later ones change no state of the task."""
        self.pause: Timer | None = None
        """Ends the pause before the next start; None without a pause."""
        self.told: str | None = None
        """The information that the application has; None before the service is ready, and before it is so again."""
        self._info: str | None = settings.get('info')

    @property
    def names(self) -> tuple[str, ...]:
        """The names by which tasks can ask for this instance: that of the service, and its uid."""
        return (self.name,) if self.name == self.uid else (self.name, self.uid)

    @property
    def may_signal(self) -> bool:
        """True if the service may report itself that it is ready: nothing else tells so."""
        return 'signal' in self.probe or 'runs' in self.probe

    @property
    def target(self) -> Target:
        """The place of the current run."""
        task, description = self.task, self.task.description
        return Target(self.host, self.port, task.sandbox,
                      os.path.join(task.sandbox, description['stdout'] or f'{task.uid}.out'),
                      os.path.join(task.sandbox, description['stderr'] or f'{task.uid}.err'))

    @property
    def host(self) -> str:
        """The name of the node of its first rank; '' before it is placed or, without slots, before it has started."""
        slots = self.task.slots
        return str(slots[0]['node_name']) if slots else host_of(self.task.sandbox, self.uid)

    def look(self) -> Look:
        """Return the look at a run that begins."""
        at_once = look_of(self.probe, self.target)
        if self.task.slots:
            return at_once

        def look() -> Seen:
            if not self.host:
                return Seen(False, 'its first rank has not started')
            return (look_of(self.probe, self.target) if can_repeat(self.probe) else at_once)()
        return look

    def info_at(self, host: str, port: int) -> str:
        """Return the information for users who reach the service at this place."""
        return f'{host}:{port}' if self._info is None else self._info.format(host=host, port=port)

    def info(self, found: str) -> str:
        """Return the information for users, given what the probe has found."""
        if self._info is not None:
            return self.info_at(self.host, self.port)
        if found or 'pattern' in self.probe or 'signal' in self.probe:
            return found
        return self.info_at(self.host, self.port) if self.wanted_port is not None else ''

    def end(self) -> str:
        """Return how the last run has ended."""
        if self.given_up:
            return self.given_up
        task = self.task
        when = 'ended' if self.ready_since is not None else 'ended before it was ready'
        how = task.exception_detail or task.exception or f'exit code: {task.exit_code}'
        return f'it {when}: {how.splitlines()[0]}'

    def fail(self, reason: str) -> None:
        """Set FAILED as the state of the task, with the reason and the last lines of its outputs."""
        record = self.task.error or {}
        self.task.target_state = None
        self.task.fail(reason, '\n'.join([reason, *self._last_lines()]), record.get('kind', EXIT))

    @property
    def has_failed(self) -> bool:
        """True if the last run was given up, or its task has failed."""
        return bool(self.given_up) or self.task.target_state != states.DONE

    def _last_lines(self) -> list[str]:
        found = [(path, end_of(path, _QUOTED_BYTES).decode(errors='replace')) for path in self.target[3:]]
        return [f'{path} ends with:\n{text}' for path, text in found if text]


def restarts_of(policy: Mapping[str, Any]) -> Restarts:
    """Return the count of restarts by the policy of a service, in which `limit` is also that of the delays."""
    limit = policy['limit']
    return Restarts(policy['attempts'], limit, min(policy['delay'], limit), limit, policy['factor'])


def free_port(used: Container[int], preferred: int = 0) -> int:
    """Return a free port that is not in `used`, the preferred one if possible.

    If none is found, it is any port, and the service reports the problem.
    """
    candidates = random.sample(_candidates(), 200)
    port = 0
    for port in [preferred, *candidates] if preferred else candidates:
        if port not in used and _is_free(port):
            break
    return port


def _candidates() -> range:
    try:
        first = int(_RANGE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        first = _HIGHEST + 1
    return range(_LOWEST, first) if first - _LOWEST >= 1000 else range(_LOWEST, _HIGHEST + 1)


def _is_free(port: int) -> bool:
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as tested:
            tested.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)   # as servers do, despite old connections
            tested.bind(('', port))
    except OSError:
        return False
    return True
