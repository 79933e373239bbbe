"""The process of the hub, which connects a client and its agents.

It reads its configuration (JSON, including keys) from standard input, and answers one line on standard output when it
serves, or with the reason why it cannot. It ends when its client says goodbye, or according to `shutdown_rule.py`; at
once if the application that started it dies before the session can be attached. `exchange.py` and `server.py`
process the messages of peers.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import shutil
import sqlite3
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import zmq

from rp_api.coordination import presence
from rp_api.coordination.connections import hub_file
from rp_api.coordination.contract import PROTOCOL
from rp_api.coordination.hub.database import is_passing
from rp_api.coordination.hub.server import HubServer
from rp_api.coordination.hub.store import Store, claim, release, set_aside
from rp_api.errors import CoordinationError, PilotError
from rp_api.loop.event_loop import Loop
from rp_api.loop.process_handle import ProcessHandle
from rp_api.system import limits, private, signals
from rp_api.transport import keys
from rp_api.transport.connection import Strangers
from rp_profiling.write.detail import chosen
from rp_profiling.write.tracer import Tracer

CLAIM_TIMEOUT_S = 5.0
"""Seconds to wait for the end of another hub in the directory, whose application died."""

RETRY_INTERVAL_S = 1.0
"""Seconds between attempts to open the database of an existing session while the disk is full."""

DESCRIPTORS = 48
"""Open files that a hub needs: 20 without any agent, two for each agent, and some for its database."""

THREADS = 2
"""Threads of ZeroMQ."""

FILE_BYTES = 64 << 20
"""Bytes needed for the database of a session and its log: those of some ten thousand tasks."""

MAX_UNREAD_MESSAGES = 10_000
"""Maximum number of messages that wait for a peer; a peer that does not read them gets no more."""

_RUNTIME = 'hub.dir'
"""Name of the file with the path of the directory for the socket of a hub that runs."""

_log = logging.getLogger('radical.pilot.hub')


def serve(config: dict[str, Any], ready: Callable[[list[str]], object]) -> None:
    """Serve a session until it ends; call `ready(endpoints)` when peers can connect.

    A hub that replaces one that died (`patient`) lets peers connect and wait while its database cannot be written.
    """
    directory = os.path.dirname(config['database'])
    claimed = claim(directory, CLAIM_TIMEOUT_S)
    if config['fresh']:
        _begin(Path(directory), config['database'])
    _make_runtime_directory(Path(directory, _RUNTIME), config['runtime_dir'])
    context = zmq.Context()
    loop = Loop()
    store = None if config.get('patient') else _open_store(config)
    tracer = Tracer(os.path.join(directory, 'hub.prof'), 'hub', detail=chosen())
    gate = keys.Gate(context, loop)
    for public in config['peers'].values():
        gate.allow(public.encode())
    socket: zmq.Socket[bytes] = context.socket(zmq.ROUTER)
    strangers: Strangers | None = None
    try:
        socket.setsockopt(zmq.ROUTER_HANDOVER, 1)
        socket.setsockopt(zmq.SNDHWM, MAX_UNREAD_MESSAGES)
        keys.make_server(socket, keys.KeyPair(config['public'].encode(), config['secret'].encode()))
        endpoints = [_bound(socket, endpoint) for endpoint in config['endpoints']]
        strangers = Strangers(loop, socket, ', '.join(endpoints))
        if store is None:
            ready(endpoints)
            store = _open_in_time(config)

        def listen(address: str) -> list[str]:
            if len(endpoints) == 1:
                if not address.startswith('tcp://'):
                    raise ValueError('only tcp:// is known')
                endpoints.append(_bound(socket, address))
            return endpoints

        server = HubServer(loop, socket, store, {public: role for role, public in config['peers'].items()},
                           lease=config['lease'], orphan_timeout=config['orphan_timeout'], tracer=tracer,
                           listen=listen, attachable=lambda: hub_file.exists(Path(directory)))
        starter = config.get('starter')
        if starter is not None:
            starter.watch(loop, server.starter_died)
        if not config.get('patient'):
            ready(endpoints)
        loop.run()
        server.close()
        store.set_meta([(presence.HUB, '')])   # a regular end
    finally:
        if strangers is not None:
            strangers.close()
        socket.close(linger=1000)
        gate.close()
        context.term()
        if store is not None:
            store.close()
        if tracer.begun:   # most hubs trace nothing, and their directory may have been removed
            tracer.close()
        loop.close()
        _remove_runtime_directory(Path(directory, _RUNTIME), config['runtime_dir'])
        release(claimed)


def _make_runtime_directory(note: Path, path: str) -> None:
    """Make the directory for the socket, and remove that of a hub that was killed before its client had saved it.

    A served hub, whose path is empty, has no such directory.
    """
    if not path:
        return
    with suppress(FileNotFoundError):
        if (former := private.read_file(note).decode()) != path:
            shutil.rmtree(former, ignore_errors=True)
    private.write_file(note, path.encode())
    private.make_directory(path)


def _remove_runtime_directory(note: Path, path: str) -> None:
    if path:
        shutil.rmtree(path, ignore_errors=True)
        note.unlink(missing_ok=True)


def _begin(directory: Path, database: str) -> None:
    """Make room for a new session; existing files belong to a former one, or to one that was just opened."""
    if hub_file.read_open(directory) is not None:
        raise CoordinationError(f'another application has just opened a session in {directory}')
    set_aside(database)
    hub_file.remove(directory)


def _open_store(config: dict[str, Any]) -> Store:
    store = Store(config['database'])
    store.set_meta([('session', config['session']), ('protocol', str(PROTOCOL)), (presence.HUB, presence.own_note())])
    if not store.meta('created', ''):
        store.set_meta([('created', str(time.time()))])
    store.commit()
    return store


def _open_in_time(config: dict[str, Any]) -> Store:
    """Return the store as soon as the database can be written."""
    failed = False
    while True:
        try:
            return _open_store(config)
        except sqlite3.Error as error:
            if not is_passing(error):
                raise
            if not failed:
                _log.error('%s cannot be written: %s; the hub waits until it can', config['database'], error)
            failed = True
            time.sleep(RETRY_INTERVAL_S)


def _bound(socket: zmq.Socket[bytes], wanted: str) -> str:
    """Return the endpoint at which the socket listens."""
    socket.bind(wanted)
    endpoint = socket.getsockopt(zmq.LAST_ENDPOINT)
    assert isinstance(endpoint, bytes)
    return endpoint.rstrip(b'\0').decode()


def _answer(answer: dict[str, Any]) -> None:
    """Report the result of the start to the application, which reads only one line."""
    with suppress(BrokenPipeError):
        os.write(sys.stdout.fileno(), json.dumps(answer).encode() + b'\n')


def _abandoned() -> int:
    _log.warning('the application that started this hub died, so the hub ends')
    return 1


def _log_level() -> int:
    """Return the level in RADICAL_PILOT_LOG_LVL; INFO if it is unset or unknown."""
    name = os.environ.get('RADICAL_PILOT_LOG_LVL', '').partition('_')[0].upper()
    level = getattr(logging, name, None) if name.isalpha() else None
    return level if isinstance(level, int) else logging.INFO


def main() -> int:
    """Run a hub, and return the exit code."""
    signals.set_defaults()
    os.umask(0o077)   # files are private, even if the owner opens the directory to others
    gc.set_threshold(100_000, 20, 20)   # rows are created and freed by the thousand, without cycles
    logging.basicConfig(stream=sys.stderr, format='%(asctime)s %(levelname)s %(message)s', level=_log_level())
    line = sys.stdin.readline()
    if not line.endswith('\n'):
        return _abandoned()
    config = json.loads(line)
    if 'starter' in config:
        config['starter'] = ProcessHandle.open(*config['starter'])
        if config['starter'] is None:
            return _abandoned()
    try:
        limits.raise_descriptors()
        limits.require_descriptors('the hub', DESCRIPTORS)
        limits.require_threads('the hub', THREADS)
        limits.require_file_size('the hub', FILE_BYTES)
        serve(config, lambda endpoints: _answer({'ok': True, 'endpoints': endpoints}))
    except (OSError, sqlite3.Error, zmq.ZMQError, PilotError) as error:
        _log.exception('the hub fails')
        passing = isinstance(error, sqlite3.Error) and is_passing(error)
        reason = f'{config["database"]} cannot be written' if passing else type(error).__name__
        _answer({'ok': False, 'error': f'{reason}: {error}'})
        return 1
    return 0


if __name__ == '__main__':
    sys.exit(main())
