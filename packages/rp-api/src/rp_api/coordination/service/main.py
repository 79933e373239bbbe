"""The stand-alone hub: one process that manages the sessions of one user, each served by a hub process of its own.

It listens at a control socket that requires its owner's key, starts a hub process for each requested session, restarts
those that die, and sends clients the address and keys of their session. Tasks and results do not pass through it: it
can end and restart while sessions continue.

Its directory holds `service.json` (its address and keys, mode 0600), `service.log`, and a directory per session. A hub
that is restarted in the same directory has the same address and keys, and resumes its sessions.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import select
import signal
import socket as net
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import zmq

from rp_api.coordination import sessions
from rp_api.coordination.contract import PROTOCOL
from rp_api.coordination.hub.main import DESCRIPTORS, THREADS
from rp_api.coordination.service import access as hub_access
from rp_api.coordination.service.access import HubAccess, split_url
from rp_api.coordination.service.request import DOMAIN, mismatch, parse
from rp_api.coordination.service.served import FAILED, SERVING, STARTING, ServedSession
from rp_api.errors import CoordinationError, PilotError
from rp_api.loop.event_loop import Loop
from rp_api.system import limits, private, signals
from rp_api.system.host import python_program
from rp_api.transport import keys
from rp_api.transport.connection import Listener, arrivals
from rp_api.wire import codec

STATE = 'service.json'

LOG = 'service.log'

START_TIMEOUT_S = 30.0
"""Seconds that a hub may take to start in the background."""

MAX_WAITING_ANSWERS = 1000
"""Maximum number of answers that wait for one client."""

_log = logging.getLogger('radical.pilot.service')

Reply = Callable[[str, Any], object]


class Service:
    """Answers requests at the control socket, and supervises the hubs of the sessions."""

    def __init__(self, loop: Loop, directory: Path, interface: str, ports: range) -> None:
        self._loop = loop
        self._directory = directory
        self._interface = interface
        self._ports = ports
        self._served: dict[str, ServedSession] = {}
        self._malformed = keys.Tally('refused a request')
        self._listener: Listener | None = None

    def listen(self, pair: keys.KeyPair, gate: keys.Gate, address: str) -> str:
        """Start to listen, and return the address with its port."""
        self._listener = Listener(self._loop, zmq.ROUTER, pair, gate, address, DOMAIN, MAX_WAITING_ANSWERS,
                                  self._receive)
        return self._listener.address

    def resume(self) -> None:
        """Resume the open sessions of an earlier service in this directory."""
        for path in sessions.find(self._directory):
            try:
                if sessions.summary(path).state in (sessions.OPEN, sessions.ORPHANED, sessions.CRASHED):
                    self._session(path.name).resume()
            except (OSError, sqlite3.Error, CoordinationError) as error:
                self._served.pop(path.name, None)
                _log.warning('cannot take over %s: %s', path, error)

    def close(self) -> None:
        """Stop the service; the hubs of the sessions continue."""
        for session in self._served.values():
            session.release()
        if self._listener is not None:
            self._listener.close(1.0)

    # requests

    def _receive(self) -> None:
        assert self._listener is not None
        for frames in arrivals(self._listener.socket):
            try:
                address, data = frames
                number, protocol, operation, arguments = parse(data)
            except (ValueError, CoordinationError) as error:
                self._malformed.add(error)
                continue
            self._answer(address, number, protocol, operation, arguments)

    def _answer(self, address: bytes, number: int, protocol: Any, operation: str, arguments: dict[str, Any]) -> None:
        def reply(kind: str, result: Any) -> None:
            assert self._listener is not None
            with suppress(zmq.ZMQError):   # the client has ended, or does not read
                self._listener.socket.send_multipart([address, codec.pack([number, kind, result])], zmq.NOBLOCK)

        known: dict[str, Callable[..., None]] = {
            'status': self._on_status, 'knows': self._on_knows, 'open': self._on_open, 'await': self._on_await,
            'stop': self._on_stop}
        if sentence := mismatch(protocol):
            reply('error', sentence)
        elif operation not in known:
            reply('error', f'the hub has no request {operation!r:.40}')
        else:
            try:
                known[operation](reply, **arguments)
            except TypeError as error:
                reply('error', f'wrong arguments of {operation!r}: {error}')
            except (OSError, ValueError, sqlite3.Error, CoordinationError) as error:
                _log.warning('%s: %s', operation, error)
                reply('error', str(error))

    def _on_status(self, reply: Reply) -> None:
        reply('ok', {'pid': os.getpid(), 'host': net.gethostname(), 'protocol': PROTOCOL,
                     'directory': str(self._directory),
                     'sessions': [session.summary() for session in self._served.values()]})

    def _on_knows(self, reply: Reply, session: str) -> None:
        """Answer whether there is an open session of that name, which a client can attach to."""
        _check_uid(session)
        reply('ok', session in self._served or self._is_open(self._directory / session))

    def _on_open(self, reply: Reply, session: str, orphan_timeout: float, lease: float) -> None:
        """Serve a session, new or existing, and answer with its address and keys."""
        _check_uid(session)
        served = self._session(session)
        if served.state == FAILED:
            served.resume()
        attached = True
        if served.state not in (SERVING, STARTING):
            attached = self._is_open(served.directory)
            if attached:
                served.resume()
            else:
                served.begin(self._endpoint(), orphan_timeout, lease)
        served.when_serving(lambda reason: reply('error', f'{session} is not served: {reason}') if reason
                            else reply('ok', _access(served, attached)))

    def _on_await(self, reply: Reply, session: str) -> None:
        """Answer when the session is no longer served: it has ended, or serving it failed."""
        served = self._served.get(session)
        if served is None or served.state == FAILED:
            reply('error', f'{session} is not served: {served.reason if served else "it is not open"}')
        else:
            served.watchers.append(lambda reason: reply('error', f'{session} is not served any more: {reason}'))

    def _on_stop(self, reply: Reply, force: bool) -> None:
        if self._served and not force:
            raise CoordinationError(f'these sessions are open: {", ".join(self._served)}. Close them, or end the hub '
                                    'with --force: their pilots continue without it, and a hub that is started in '
                                    f'{self._directory} later serves them again')
        for session in self._served.values():
            session.kill()
        reply('ok', list(self._served))
        self._served.clear()
        self._loop.stop()

    # sessions

    def _session(self, uid: str) -> ServedSession:
        if uid not in self._served:
            self._served[uid] = ServedSession(self._loop, uid, self._directory / uid, self._ended)
        return self._served[uid]

    def _ended(self, session: ServedSession) -> None:
        _log.info('%s has ended', session.uid)
        del self._served[session.uid]

    @staticmethod
    def _is_open(directory: Path) -> bool:
        return sessions.is_session(directory) and sessions.summary(directory).state != sessions.CLOSED

    def _endpoint(self) -> str:
        """Return an endpoint for the next session."""
        host = self._interface
        if not self._ports:
            return f'tcp://{host}:*'
        taken = {split_url(session.endpoint)[1] for session in self._served.values() if session.config}
        for port in self._ports:
            if port not in taken and _is_free(host, port):
                return f'tcp://{host}:{port}'
        raise CoordinationError(f'no port is free for another session: all of {self._ports[0]}-{self._ports[-1]} are '
                                'in use (rp hub start --ports)')


def serve(config: dict[str, Any], ready: Callable[[dict[str, Any]], object]) -> None:
    """Serve until a request to stop; call `ready(answer)` when requests can be sent."""
    directory = Path(config['directory'])
    private.make_directory(directory)
    claimed = _claim(directory)
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    loop = Loop()
    gate = keys.Gate(context, loop)
    found = _state(directory)
    address = config['listen'] or (found['url'] if found else 'tcp://127.0.0.1')
    server, owner = (_pair(found, 'server'), _pair(found, 'owner')) if found else (keys.generate(), keys.generate())
    gate.allow(owner.public, DOMAIN)
    first, last = config['ports'] or (1, 0)
    service = Service(loop, directory, split_interface(address), range(first, last + 1))
    try:
        url = service.listen(server, gate, address)
        _write_state(directory, url, server, owner)
        access = HubAccess(url, hub_access.short_name(), str(directory), server.public.decode(),
                           owner.public.decode(), owner.secret.decode())
        path = hub_access.write(access)
        service.resume()
        _stop_on_signal(loop)
        ready({'ok': True, 'url': url, 'pid': os.getpid(), 'access': str(path)})
        loop.run()
        path.unlink(missing_ok=True)
    finally:
        service.close()
        gate.close()
        context.term()
        loop.close()
        os.close(claimed)


def split_interface(address: str) -> str:
    """Return the interface in `tcp://interface[:port]`."""
    return address.removeprefix('tcp://').rpartition(':')[0] or address.removeprefix('tcp://')


def start(config: dict[str, Any]) -> dict[str, Any]:
    """Start a stand-alone hub in the background, and return its `url`, `pid` and `access` file.

    The hub outlives this process. Raise `CoordinationError` with the reason if it does not serve.
    """
    directory = Path(config['directory'])
    private.make_directory(directory)
    path = os.pathsep.join(os.path.abspath(part) for part in os.environ.get('PYTHONPATH', '').split(os.pathsep) if part)
    with open(directory / LOG, 'ab') as log:
        process = subprocess.Popen(
            python_program(__name__), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, cwd='/',
            env=os.environ | {'PYTHONPATH': path}, start_new_session=True)
    assert process.stdin is not None
    assert process.stdout is not None
    with suppress(BrokenPipeError), process.stdin:   # it has died
        process.stdin.write(json.dumps(config).encode() + b'\n')
    with process.stdout:
        said = process.stdout.read() if select.select([process.stdout], [], [], START_TIMEOUT_S)[0] else b''
    if not said:
        process.kill()
    answer: dict[str, Any] = json.loads(said or b'{}')
    if not answer.get('ok'):
        process.wait()
        reason = answer.get('error') or f'no answer within {START_TIMEOUT_S:g} s, see {directory / LOG}'
        raise CoordinationError(f'the hub did not start: {reason}')
    process.returncode = 0   # it continues, and must not be reported as not waited for
    return answer


def main() -> int:
    """Run a stand-alone hub with the configuration in JSON on standard input, and return the exit code."""
    signals.set_defaults()
    return run(json.loads(sys.stdin.readline()), _answer)


def run(config: dict[str, Any], ready: Callable[[dict[str, Any]], object]) -> int:
    """Run a stand-alone hub, and return the exit code; `ready` is called with the result of the start."""
    logging.basicConfig(stream=sys.stderr, format='%(asctime)s %(levelname)s %(message)s', level=logging.INFO)
    try:
        limits.raise_descriptors()
        limits.require_descriptors('the hub', DESCRIPTORS)
        limits.require_threads('the hub', THREADS)
        serve(config, ready)
    except (OSError, ValueError, zmq.ZMQError, PilotError) as error:
        ready({'ok': False, 'error': str(error)})
        return 1
    return 0


def _access(session: ServedSession, attached: bool) -> dict[str, Any]:
    return {'endpoint': session.endpoint, 'server': session.config['public'], 'attached': attached,
            **{role: {'public': session.config['peers'][role], 'secret': session.config['secrets'][role]}
               for role in ('client', 'agent')}}


def _check_uid(uid: Any) -> None:
    if not isinstance(uid, str) or not uid or '/' in uid or uid.startswith('.') or '\0' in uid:
        raise CoordinationError(f'{uid!r:.80} is not a valid session uid: it must be the name of a directory')


def _is_free(host: str, port: int) -> bool:
    with net.socket() as probe:
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def _claim(directory: Path) -> int:
    """Lock the directory against other services, until the descriptor is closed."""
    descriptor = private.open_directory(directory)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise CoordinationError(f'a hub runs already in {directory} (rp hub status); for a second one, name another '
                                'directory (--directory)') from None
    return descriptor


def _state(directory: Path) -> dict[str, Any]:
    path = directory / STATE
    if not path.exists():
        return {}
    try:
        found: dict[str, Any] = json.loads(keys.read_private(path, 1 << 16))
    except ValueError as error:
        raise CoordinationError(f'{path} is broken: {error}') from error
    return found


def _write_state(directory: Path, url: str, server: keys.KeyPair, owner: keys.KeyPair) -> None:
    pairs = {name: {'public': pair.public.decode(), 'secret': pair.secret.decode()}
             for name, pair in (('server', server), ('owner', owner))}
    private.write_file(directory / STATE, json.dumps({'url': url, **pairs}).encode())


def _pair(found: dict[str, Any], name: str) -> keys.KeyPair:
    return keys.KeyPair(found[name]['public'].encode(), found[name]['secret'].encode())


def _stop_on_signal(loop: Loop) -> None:
    """End the service, not the sessions, on SIGTERM and SIGINT."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: loop.stop())


def _answer(answer: dict[str, Any]) -> None:
    """Report the result of the start to the parent process, and close the pipe."""
    with suppress(BrokenPipeError):
        os.write(1, json.dumps(answer).encode() + b'\n')
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.close(null)
