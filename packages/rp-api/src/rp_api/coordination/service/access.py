"""Access files of stand-alone hubs, which hold the keys of a hub's owner.

A hub writes `<host>-<port>.json` in the directory of `access_directory()`. A copy of that file on another machine gives
access from there. The name of the file is the address of the hub as seen from the file's machine: a copy for a tunnel
at `tcp://localhost:4242` is named `localhost-4242.json`.
"""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from rp_api.errors import CoordinationError
from rp_api.system import private
from rp_api.transport.keys import KeyPair, read_private

_MAX_FILE_BYTES = 1 << 16
_URL = re.compile(r'tcp://(?P<host>[^\s:/*]+|\[[0-9a-fA-F:]+\]):(?P<port>[0-9]{1,5})')
_LOCAL = ('localhost', '127.0.0.1', '[::1]')


@dataclass(frozen=True)
class HubAccess:
    """The address and keys of a hub; `repr` omits the keys.

    The hub listens at `url`, `server` is its public key; `public` and `secret` are its owner's key pair; `directory`
    holds its sessions on `host`.
    """

    url: str
    host: str
    directory: str
    server: str
    public: str
    secret: str

    def __repr__(self) -> str:
        return f'HubAccess(url={self.url!r}, host={self.host!r}, directory={self.directory!r})'

    @property
    def keys(self) -> KeyPair:
        """The owner's key pair."""
        return KeyPair(self.public.encode(), self.secret.encode())


def access_directory() -> Path:
    """Return `~/.radical/pilot/hubs`, or the same below `$RADICAL_BASE` if that is set."""
    return Path(os.environ.get('RADICAL_BASE') or Path.home()) / '.radical' / 'pilot' / 'hubs'


def split_url(url: str) -> tuple[str, int]:
    """Return host and port of `tcp://host:port`; raise `CoordinationError` for other URLs."""
    match = _URL.fullmatch(url)
    if match is None or not 0 < int(match['port']) < 65536:
        raise CoordinationError(f'{url!r} is not the address of a hub: allowed is tcp://<host>:<port>')
    return match['host'], int(match['port'])


def short_name() -> str:
    """Return the name of this host without its domain."""
    return socket.gethostname().partition('.')[0]


def path_of(host: str, port: int) -> Path:
    """Return the path of the access file of the hub at this host and port."""
    return access_directory() / f'{host}-{port}.json'


def find(url: str) -> tuple[HubAccess, str]:
    """Return the access to the hub at `url`, and the URL to connect to; raise `CoordinationError` without access file.

    On the hub's own host, the host's name and `localhost` stand for the address at which the hub listens.
    """
    host, port = split_url(url)
    names = [host, host.partition('.')[0], *([short_name()] if host in _LOCAL else [])]
    found = [read(path) for path in (path_of(name, port) for name in names) if path.exists()]
    found += [access for access in all_known() if access.url == url]
    if not found:
        raise CoordinationError(
            f'no access to a hub at {url}: there is no file {path_of(host, port)}. If the hub runs on another host, '
            'copy the access file to this path (rp hub status shows its name there)')
    access = found[0]
    here = access.host == short_name() and split_url(access.url)[1] == port   # otherwise it is a tunnel
    return access, access.url if here else url


def all_known() -> Iterator[HubAccess]:
    """Yield the hubs with readable access files on this host."""
    for path in sorted(access_directory().glob('*-*.json')):
        try:
            yield read(path)
        except CoordinationError:   # a file of another version, or not private
            continue


def read(path: Path) -> HubAccess:
    """Return the content of an access file; raise `CoordinationError` if it is invalid, or others can read it."""
    try:
        found = json.loads(read_private(path, _MAX_FILE_BYTES))
        access = HubAccess(**{name: str(found[name]) for name in HubAccess.__dataclass_fields__})
        _ = access.keys
        split_url(access.url)
    except (ValueError, TypeError, KeyError) as error:
        raise CoordinationError(f'{path} is not the access file of a hub: {error!r}') from error
    return access


def write(access: HubAccess) -> Path:
    """Write an access file for its owner's programs, and return its path."""
    path = path_of(access.host, split_url(access.url)[1])
    private.make_directory(path.parent)
    for above in (path.parent.parent, path.parent.parent.parent):   # where $RADICAL_BASE is shared
        private.check_entry(above)
    private.write_file(path, json.dumps(asdict(access)).encode() + b'\n')
    return path
