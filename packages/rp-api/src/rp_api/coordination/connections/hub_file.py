"""The file `hub.json` in a session directory: the data to restart the hub of the session, or to reach it.

It holds the keys of the session, so only its owner can read it. It is written when the hub has accepted its client:
from then on another client can take the session over, until the session is closed.
"""

from __future__ import annotations

import json
import os
import sqlite3
from pathlib import Path
from typing import Any

from rp_api.coordination.contract import PROTOCOL
from rp_api.coordination.coordinator import Settings
from rp_api.errors import CoordinationError
from rp_api.system import private
from rp_api.system.host import host_id
from rp_api.transport import keys
from rp_api.transport.access import Access
from rp_api.transport.connection import new_directory_path

_NAME = 'hub.json'


def new_config(session: str, directory: Path, settings: Settings) -> dict[str, Any]:
    """Return the configuration of a new hub, with new keys and the path of a new directory for its socket."""
    server, client, agent = keys.generate(), keys.generate(), keys.generate()
    runtime_dir = new_directory_path()
    return {
        'session': session, 'protocol': PROTOCOL, 'database': str(directory / 'hub.db'), 'runtime_dir': runtime_dir,
        'endpoints': [f'ipc://{runtime_dir}/s', *([settings.listen] if settings.listen else [])],
        'address': settings.address, 'orphan_timeout': settings.orphan_timeout, 'lease': settings.lease,
        'public': server.public.decode(), 'secret': server.secret.decode(),
        'peers': {'client': client.public.decode(), 'agent': agent.public.decode()},
        'secrets': {'client': client.secret.decode(), 'agent': agent.secret.decode()}}


def read_open(directory: Path) -> dict[str, Any] | None:
    """Return the configuration of the hub of a session that was not closed; None if there is none.

    Raise `OwnershipError` if the directory or a file in it belongs to another user, whose hub may listen there. The
    process that answers at the socket is the hub: it proves to have the secret key of the public one in the file.
    """
    path = directory / _NAME
    try:
        private.check(directory)
        if not os.path.lexists(path) or is_closed(directory):
            return None
        config: dict[str, Any] = json.loads(private.read_file(path))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise CoordinationError(f'{path} is damaged, its session cannot be attached: {error}') from None
    if config.get('protocol') != PROTOCOL:
        raise CoordinationError(f'the session in {directory} was opened with protocol {config.get("protocol")}, this '
                                f'is {PROTOCOL}: attach it with the version of rp-api that it was opened with')
    return config


def save(directory: Path, config: dict[str, Any]) -> None:
    """Write the configuration of a hub that serves, replacing the file atomically."""
    there = config | {'host': host_id(), 'node': os.uname().nodename}
    private.write_file(directory / _NAME, json.dumps(there).encode())


def exists(directory: Path) -> bool:
    """Return whether the file exists; without it, only the client that started the hub can connect."""
    return (directory / _NAME).exists()


def remove(directory: Path) -> None:
    """Remove the file of a session that is closed, with its keys."""
    (directory / _NAME).unlink(missing_ok=True)


def address(config: dict[str, Any], role: str) -> Access:
    """Return the access to the hub for a role."""
    return Access(_endpoint(config, role), config['public'], config['peers'][role], config['secrets'][role])


def _endpoint(config: dict[str, Any], role: str) -> str:
    local, *remote = config['endpoints']
    if role == 'agent' and remote:
        return str(config['address'] or remote[0])
    if config.get('host', host_id()) == host_id():
        return str(local)
    if not remote:
        raise CoordinationError(f'the hub of the session is on {config["node"]}, which does not accept remote clients: '
                                "attach the session there, or open it with cfg={'hub': {'listen': 'tcp://...'}}")
    return str(remote[0])


def is_closed(directory: Path) -> bool:
    """Return whether the session was closed, or never opened."""
    database = directory / 'hub.db'
    try:
        private.check(database)
    except FileNotFoundError:
        return True
    connection = sqlite3.connect(f'{database.absolute().as_uri()}?mode=ro', uri=True)
    try:
        return connection.execute("SELECT 1 FROM meta WHERE key = 'closed'").fetchone() is not None
    except sqlite3.OperationalError:   # no such table: the hub died before it created one
        return True
    finally:
        connection.close()
