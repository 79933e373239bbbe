"""The process of the hub, through which a client and its agents reach each other.

It reads its configuration (JSON, with its keys) from standard input, answers one line on standard output when it serves
(or says there why it cannot), and ends when its client says goodbye, or by the rule of `shutdown_rule.py`; at once if
the application that has started it dies before the session can be attached. What it does with the messages of its peers
is in `server.py`.
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

CLAIM = 5.0
"""Seconds that another hub may take to end which is at work in the directory, as it does when its application died."""

RETRY = 1.0
"""Seconds between attempts to open the file of a session that was served, while the disk is full."""

DESCRIPTORS = 48
"""Files that a hub needs to open: 20 without any agent, two for each, and some for its file."""

THREADS = 2
"""Those of ZeroMQ."""

FILE_SIZE = 64 << 20
"""Bytes that the file of a session, and what is on its way there, may have: those of some ten thousand tasks."""

UNREAD = 10_000
"""Most messages that wait for a peer; one that reads has far less, and one that does not gets no more."""

_log = logging.getLogger('radical.pilot.hub')


def serve(config: dict[str, Any], ready: Callable[[list[str]], object]) -> None:
    """Serve a session until it ends; calls `ready(endpoints)` when peers can come.

    A hub in place of one that died (`patient`) lets them come, and wait, while its file cannot be written.
    """
    directory = os.path.dirname(config['database'])
    claimed = claim(directory, CLAIM)
    if config['fresh']:
        _begin(Path(directory), config['database'])
    if config['runtime_dir']:
        private.make_directory(config['runtime_dir'])
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
        socket.setsockopt(zmq.SNDHWM, UNREAD)
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
        store.set_meta([(presence.HUB, '')])   # it ends in order
    finally:
        if strangers is not None:
            strangers.close()
        socket.close(linger=1000)
        gate.close()
        context.term()
        if store is not None:
            store.close()
        if tracer.begun:   # most hubs have nothing to tell, and their directory may be gone
            tracer.close()
        loop.close()
        shutil.rmtree(config['runtime_dir'], ignore_errors=True)
        release(claimed)


def _begin(directory: Path, database: str) -> None:
    """Make room for a new session; what is there belongs to a former one, or was opened a moment ago."""
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
    """The file, as soon as it can be written."""
    failed = False
    while True:
        try:
            return _open_store(config)
        except sqlite3.Error as error:
            if not is_passing(error):
                raise
            if not failed:
                _log.error('%s cannot be written: %s; nobody is served until it can', config['database'], error)
            failed = True
            time.sleep(RETRY)


def _bound(socket: zmq.Socket[bytes], wanted: str) -> str:
    """The endpoint at which the socket listens now."""
    socket.bind(wanted)
    endpoint = socket.getsockopt(zmq.LAST_ENDPOINT)
    assert isinstance(endpoint, bytes)
    return endpoint.rstrip(b'\0').decode()


def _answer(answer: dict[str, Any]) -> None:
    """Tell the owner how it went; it listens only until it has heard that the hub serves."""
    with suppress(BrokenPipeError):
        os.write(sys.stdout.fileno(), json.dumps(answer).encode() + b'\n')


def _abandoned() -> int:
    _log.warning('the application died that has started this hub, which ends')
    return 1


def _log_level() -> int:
    """The level that RADICAL_PILOT_LOG_LVL asks for; INFO if it is not a level that exists here."""
    name = os.environ.get('RADICAL_PILOT_LOG_LVL', '').partition('_')[0].upper()
    level = getattr(logging, name, None) if name.isalpha() else None
    return level if isinstance(level, int) else logging.INFO


def main() -> int:
    """Run a hub; the exit code."""
    signals.set_defaults()
    os.umask(0o077)   # all that it writes is for the owner of the session, also if that opens the directory to others
    gc.set_threshold(100_000, 20, 20)   # rows come and go by the thousand, and none of them is in a cycle
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
        limits.require_file_size('the hub', FILE_SIZE)
        serve(config, lambda endpoints: _answer({'ok': True, 'endpoints': endpoints}))
    except (OSError, sqlite3.Error, zmq.ZMQError, PilotError) as error:
        _log.exception('the hub cannot go on')
        passing = isinstance(error, sqlite3.Error) and is_passing(error)
        reason = f'{config["database"]} cannot be written' if passing else type(error).__name__
        _answer({'ok': False, 'error': f'{reason}: {error}'})
        return 1
    return 0


if __name__ == '__main__':
    sys.exit(main())
