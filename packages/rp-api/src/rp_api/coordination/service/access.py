"""Access to stand-alone hubs: the files with which their owner, and nobody else, is let in.

A hub writes `<host>-<port>.json` in the directory of `access_directory()`. Whoever has that file can use the hub: on
another machine, it is copied there. Its name says how the hub is reached from where the file is, so that a copy for
a tunnel at `tcp://localhost:4242` is called `localhost-4242.json`.
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

_LARGEST = 1 << 16
_URL = re.compile(r'tcp://(?P<host>[^\s:/*]+|\[[0-9a-fA-F:]+\]):(?P<port>[0-9]{1,5})')
_LOCAL = ('localhost', '127.0.0.1', '[::1]')


@dataclass(frozen=True)
class Access:
    """Where a hub is, and the keys that open it; the secret ones show up in no representation.

    `url` is where it listens, `server` its public key, `public` and `secret` are its owner's, `directory` holds its
    sessions on `host`.
    """

    url: str
    host: str
    directory: str
    server: str
    public: str
    secret: str

    def __repr__(self) -> str:
        return f'Access(url={self.url!r}, host={self.host!r}, directory={self.directory!r})'

    @property
    def keys(self) -> KeyPair:
        """The owner's keys."""
        return KeyPair(self.public.encode(), self.secret.encode())


def access_directory() -> Path:
    """`~/.radical/pilot/hubs`, or below `$RADICAL_BASE` if that is set."""
    return Path(os.environ.get('RADICAL_BASE') or Path.home()) / '.radical' / 'pilot' / 'hubs'


def split_url(url: str) -> tuple[str, int]:
    """Host and port of `tcp://host:port`; `CoordinationError` if it is something else."""
    match = _URL.fullmatch(url)
    if match is None or not 0 < int(match['port']) < 65536:
        raise CoordinationError(f'{url!r} is not the address of a hub: allowed is tcp://<host>:<port>')
    return match['host'], int(match['port'])


def short_name() -> str:
    """The name of this host, without its domain."""
    return socket.gethostname().partition('.')[0]


def path_of(host: str, port: int) -> Path:
    """The access file of the hub that is reached at this host and port."""
    return access_directory() / f'{host}-{port}.json'


def find(url: str) -> tuple[Access, str]:
    """The access to the hub that is reached at `url`, and where to connect; `CoordinationError` if there is none here.

    On the hub's own host, its name, `localhost` and the address at which it listens all stand for the latter.
    """
    host, port = split_url(url)
    names = [host, host.partition('.')[0], *([short_name()] if host in _LOCAL else [])]
    found = [read(path) for path in (path_of(name, port) for name in names) if path.exists()]
    found += [access for access in all_known() if access.url == url]
    if not found:
        raise CoordinationError(
            f'no access to a hub at {url}: there is no file {path_of(host, port)}. If the hub runs on another host, '
            'copy the access file to this place (there, rp hub status tells its name)')
    access = found[0]
    here = access.host == short_name() and split_url(access.url)[1] == port   # else it is a tunnel
    return access, access.url if here else url


def all_known() -> Iterator[Access]:
    """The hubs whose access files are here and can be read."""
    for path in sorted(access_directory().glob('*-*.json')):
        try:
            yield read(path)
        except CoordinationError:   # left by another version, or not ours: it opens nothing
            continue


def read(path: Path) -> Access:
    """The content of an access file; `CoordinationError` if it is none, or others can read it."""
    try:
        found = json.loads(read_private(path, _LARGEST))
        access = Access(**{name: str(found[name]) for name in Access.__dataclass_fields__})
        _ = access.keys
        split_url(access.url)
    except (ValueError, TypeError, KeyError) as error:
        raise CoordinationError(f'{path} is not the access file of a hub: {error!r}') from error
    return access


def write(access: Access) -> Path:
    """Make the access known to the programs of its owner; gives the file."""
    path = path_of(access.host, split_url(access.url)[1])
    private.make_directory(path.parent)
    private.write_file(path, json.dumps(asdict(access)).encode() + b'\n')
    return path
