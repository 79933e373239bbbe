"""The routers of services: processes of HAProxy on this host, which follow the registry of instances.

A router listens on a socket of the agent, which stays open when HAProxy dies: requests that come before it runs again
wait. It dies with the agent. Its other sockets are in a directory that only this user can enter.
"""

from __future__ import annotations

import ipaddress
import logging
import os
import shutil
import signal
import socket
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial

from rp_agent.executor.backends.launcher import Startup
from rp_agent.executor.backends.process import InstanceProcess, Processes
from rp_agent.logs import LOG
from rp_agent.services import haproxy
from rp_agent.services.haproxy import Address
from rp_agent.services.registry import Registry
from rp_api.backoff import Restarts
from rp_api.errors import PlatformError
from rp_api.loop.event_loop import Loop, Timer
from rp_api.loop.offload import Offload
from rp_api.system.network import resolved
from rp_api.system.shared_directory import SharedDirectory

_log = logging.getLogger(LOG)

PROGRAM = 'haproxy'

SYSTEM_PATH = ('/usr/local/sbin', '/usr/sbin')
"""Directories that have the program but are not in the PATH of all users."""

BACKLOG = 1024
"""Number of new connections that wait while HAProxy is started again."""

BACKOFF_S = 0.1, 5.0
"""The first and the longest delay before HAProxy is started again."""

STEADY_S = 10.0
"""Seconds after which a start of HAProxy counts as successful."""

MAX_RESTARTS = 8
"""Number of starts in a row that may fail."""

AT_ONCE = 50
"""Number of commands in one connection to HAProxy."""

_NO_FAULT = ('New server registered.', 'changed ', 'no need to change ', 'nothing changed')
"""How answers to commands begin that report no error."""

_ANSWER = 1 << 16

_MAX_PATH_BYTES = 64
"""Bytes of a path below which those of sockets have less than 108, the limit of the kernel."""


class Routers:
    """The routers of a pilot's services, which listen on the address `host`.

    `failed(name, reason)` is called when the router of a service does not run any more.
    """

    def __init__(self, loop: Loop, registry: Registry, offload: Offload, host: str,
                 failed: Callable[[str, str], object]) -> None:
        self._loop = loop
        self._registry = registry
        self._offload = offload
        self._host = host
        self._failed = failed
        self._routers: dict[str, Router] = {}
        self._opened = 0
        self._resolved: dict[str, str | None] = {}   # None while a name is being resolved
        path = os.pathsep.join([os.environ.get('PATH', os.defpath), *SYSTEM_PATH])
        self._path = path
        self._private = SharedDirectory()   # removed by the next one of this user if the agent is killed
        self._directory = self._private.path
        self._processes = Processes(loop, self._directory, {'PATH': path})
        registry.on_change(self._changed)

    def open(self, name: str, *, retry_unsafe: bool) -> Address:
        """Return the address of the router of a service, which is started if there is none.

        Args:
            name: The service.
            retry_unsafe: Repeat requests of all methods, not of the idempotent ones only.

        Raises:
            PlatformError: HAProxy is not installed, or cannot be started.
        """
        if name not in self._routers:
            if not shutil.which(PROGRAM, path=self._path):
                raise PlatformError(f'service {name} has a router, for which {PROGRAM} is needed on '
                                    f'{os.uname().nodename}: install HAProxy (the package haproxy of most '
                                    f'distributions) in a directory of PATH, which is {self._path}')
            if len(os.fsencode(self._directory)) > _MAX_PATH_BYTES:
                raise PlatformError(f'service {name} has a router, whose sockets need a shorter path than '
                                    f'{self._directory}: set TMPDIR to one, or make /dev/shm usable')
            self._opened += 1
            self._routers[name] = Router(self._loop, self._processes, f'{self._directory}/{self._opened}',
                                         self._host, partial(self._lost, name), retry_unsafe=retry_unsafe)
            self._changed(name)
        return self._routers[name].address

    def remove(self, name: str) -> None:
        """End the router of a service, if it has one."""
        router = self._routers.pop(name, None)
        if router is not None:
            router.close()

    def close(self) -> None:
        """End all routers."""
        for name in list(self._routers):
            self.remove(name)
        self._processes.close()
        self._private.close()

    def _lost(self, name: str, reason: str) -> None:
        self.remove(name)
        self._failed(name, f'the router of service {name} {reason}')

    def _changed(self, name: str) -> None:
        router = self._routers.get(name)
        if router is not None:
            addresses = {each.uid: (self._address(each.host), each.port) for each in self._registry.healthy(name)}
            router.serve({uid: Address(host, port) for uid, (host, port) in addresses.items() if host and port})

    def _address(self, host: str) -> str | None:
        """Return the address of a host; None if it is not known (yet)."""
        try:
            return str(ipaddress.ip_address(host))
        except ValueError:
            if host not in self._resolved:
                self._resolved[host] = None
                done = partial(self._found, host)
                self._offload(partial(resolved, host), done, lambda error: done(''))
            return self._resolved[host]

    def _found(self, host: str, address: str) -> None:
        if not address:
            _log.error('services on %s get no requests: the name cannot be resolved on %s', host, os.uname().nodename)
        self._resolved[host] = address
        for name in list(self._routers):
            self._changed(name)


class Router:
    """One HAProxy, with its files in paths that begin with `prefix`.

    `failed(reason)` is called, and no request accepted any more, when it cannot be started again and again.
    """

    def __init__(self, loop: Loop, processes: Processes, prefix: str, host: str, failed: Callable[[str], object], *,
                 retry_unsafe: bool) -> None:
        self._loop = loop
        self._processes = processes
        self._prefix = prefix
        self._failed = failed
        self._retry_unsafe = retry_unsafe
        family = socket.AF_INET6 if ':' in host else socket.AF_INET
        self._requests = socket.create_server((host, 0), family=family, backlog=BACKLOG)
        self.address = Address(*self._requests.getsockname()[:2])
        self._refusing = socket.socket()   # does not listen
        self._refusing.bind(('127.0.0.1', 0))
        self._waiting: socket.socket | None = None
        self._healthy: Mapping[str, Address] = {}
        self._known: dict[str, haproxy.Server] = {}
        self._commands: deque[str] = deque()
        self._talk: _Talk | None = None
        self._held: socket.socket | None = None
        self._process: InstanceProcess | None = None
        self._since = 0.0
        self._restarts = Restarts(MAX_RESTARTS, STEADY_S, *BACKOFF_S)
        self._timer: Timer | None = loop.call_later(0, self._start)   # with the instances that are known by then

    @property
    def pid(self) -> int | None:
        """The process of HAProxy; None between two."""
        running = self._process.process if self._process is not None else None
        return running.pid if running is not None else None

    def serve(self, healthy: Mapping[str, Address]) -> None:
        """Send requests to these instances from now on."""
        self._healthy = dict(healthy)
        if self._process is not None:
            commands, self._known = haproxy.update(self._known, self._healthy)
            self._commands += commands
            self._tell()

    def close(self) -> None:
        """End HAProxy, and accept no more requests."""
        if self._timer is not None:
            self._timer.cancel()
        process, self._process = self._process, None
        if process is not None:
            process.signal(signal.SIGKILL)
        self._hang_up()
        self._requests.close()
        self._refusing.close()

    def _start(self) -> None:
        self._timer = None
        self._since = time.monotonic()
        self._known = haproxy.enabled(self._healthy)
        file = f'{self._prefix}.cfg'
        text = haproxy.configuration(self._healthy, f'{self._prefix}.waiting', self._refusing.getsockname()[1],
                                     retry_unsafe=self._retry_unsafe)
        try:
            self._process = self._launched(Startup((PROGRAM, '-db', '-f', file), {file: text}))
        except OSError as error:
            self._ended(f'cannot be started: {error}')

    def _launched(self, startup: Startup) -> InstanceProcess:
        """Start HAProxy with new sockets, in which nothing waits of an earlier one."""
        self._waiting = _listener(f'{self._prefix}.waiting')
        self._loop.add_fd(self._waiting.fileno(), self._is_held)
        with _listener(f'{self._prefix}.hold') as hold, _listener(f'{self._prefix}.api') as api:
            self._held = _connected(f'{self._prefix}.hold', haproxy.HOLD_REQUEST)
            return self._processes.start(startup, _say, self._ended,
                                         pass_fds=(self._requests.fileno(), hold.fileno(), api.fileno()))

    def _is_held(self) -> None:
        """Make requests wait: the connection that is held is there."""
        assert self._waiting is not None
        self._loop.remove_fd(self._waiting.fileno())
        self._commands += haproxy.HELD
        self._tell()

    def _ended(self, how: str) -> None:
        if self._requests.fileno() < 0:   # closed
            return
        self._process = None
        self._hang_up()
        delay = self._restarts.next(time.monotonic() - self._since)
        reason = f'({PROGRAM}) {how}'
        if delay is None:
            self._failed(f'{reason}; it was started {self._restarts.count + 1} times')
            return
        _log.warning('a router %s; it is started again', reason)
        self._timer = self._loop.call_later(delay, self._start)

    def _hang_up(self) -> None:
        """Close all connections to HAProxy."""
        self._commands.clear()
        if self._talk is not None:
            self._talk.close()
            self._talk = None
        if self._held is not None:
            self._held.close()
            self._held = None
        if self._waiting is not None:
            self._loop.remove_fd(self._waiting.fileno())
            self._waiting.close()
            self._waiting = None

    def _tell(self) -> None:
        """Send the next commands, unless an answer is missing."""
        if self._commands and self._talk is None:
            commands = [self._commands.popleft() for _ in range(min(AT_ONCE, len(self._commands)))]
            connection = _connected(f'{self._prefix}.api', ';'.join(commands).encode() + b'\n')
            self._talk = _Talk(self._loop, connection, partial(self._answered, commands))

    def _answered(self, commands: list[str], answer: str) -> None:
        self._talk = None
        for line in answer.splitlines():
            if line.strip() and not line.startswith(_NO_FAULT):
                _log.error('a router answers %r to %s', line, '; '.join(commands))
        self._tell()


class _Talk:
    """The wait for the answer to commands, up to the end of the connection."""

    def __init__(self, loop: Loop, connection: socket.socket, answered: Callable[[str], object]) -> None:
        self._loop = loop
        self._connection = connection
        self._answered = answered
        self._answer = b''
        loop.add_fd(connection.fileno(), self._receive)

    def close(self) -> None:
        """Stop waiting."""
        self._loop.remove_fd(self._connection.fileno())
        self._connection.close()

    def _receive(self) -> None:
        try:
            data = self._connection.recv(_ANSWER)
        except ConnectionError:   # HAProxy has died
            data = b''
        self._answer += data
        if not data:
            self.close()
            self._answered(self._answer.decode(errors='replace'))


def _listener(path: str) -> socket.socket:
    """Return a socket that listens at a path."""
    with suppress(FileNotFoundError):
        os.unlink(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(path)
        listener.listen()
    except OSError:
        listener.close()
        raise
    return listener


def _connected(path: str, data: bytes) -> socket.socket:
    """Return a connection to a listening socket, on which data was sent, whether it is accepted or waits."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(path)
    connection.sendall(data)
    return connection


def _say(line: str) -> None:
    _log.debug('router: %s', line)
