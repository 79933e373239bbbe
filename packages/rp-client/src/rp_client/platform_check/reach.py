"""Runs the script on the platform: locally, or on the host that its URL names."""

from __future__ import annotations

import subprocess
from typing import NamedTuple
from urllib.parse import urlsplit

from rp_api.errors import PlatformError
from rp_api.platforms.definition import ResourceConfig
from rp_api.platforms.systems import submitter
from rp_client.launcher.batch.saga.adaptors import require_adaptor
from rp_client.launcher.batch.shell import target
from rp_client.launcher.batch.systems.base import Delegated
from rp_client.launcher.batch.systems.registry import batch_system

CHECK_TIMEOUT = 120.0
"""Seconds in which the script must end."""

_REMOTE = {'ssh': ('ssh', '-oBatchMode=yes', '-oConnectTimeout=15'), 'gsissh': ('gsissh', '-oBatchMode=yes')}


class Way(NamedTuple):
    """The command that runs a shell on the platform, its host, and the scheme of its batch system (empty: none)."""

    command: list[str]
    host: str
    batch_system: str


def way(config: ResourceConfig) -> Way:
    """Return the connection that the job manager's URL names; raise `PlatformError` if it is not supported."""
    url = config.job_manager_endpoint
    parts = urlsplit(url)
    system, _, hop = parts.scheme.partition('+')
    if system in _REMOTE:
        system, hop = '', system
    if system in ('fork', 'local'):
        system = ''
    if system and not submitter(system):
        raise PlatformError(f'job_manager_endpoint is {url!r}: {parts.scheme!r} is not known')
    if system and isinstance(batch_system(url), Delegated):
        require_adaptor(url)
        raise PlatformError(f'job_manager_endpoint is {url!r}, which only an adaptor of radical.saga reaches: it '
                            'cannot be checked')
    if not hop:
        if parts.hostname not in (None, 'localhost'):
            raise PlatformError(f'job_manager_endpoint is {url!r}: {parts.hostname} can only be reached through ssh')
        return Way(['/bin/sh', '-s'], 'this host', system)
    if hop not in _REMOTE or not parts.hostname:
        raise PlatformError(f'job_manager_endpoint is {url!r}, which names no host that can be reached')
    host = target(url)
    return Way([*_REMOTE[hop], *host.words, '/bin/sh', '-s'], host.name, system)


def run(path: Way, script: str) -> str:
    """Run the script and return its output; raise `PlatformError` if the platform cannot be reached."""
    try:
        done = subprocess.run(path.command, input=script, capture_output=True, text=True, errors='replace',
                              timeout=CHECK_TIMEOUT, check=False)
    except subprocess.TimeoutExpired:
        raise PlatformError(f'{path.host} has not answered within {CHECK_TIMEOUT:g} seconds') from None
    except OSError as error:
        raise PlatformError(f'{path.command[0]} cannot be run: {error.strerror}') from None
    if done.returncode == 255 and path.command[0] != '/bin/sh':   # ssh itself has failed
        raise PlatformError(f'{path.host} cannot be reached: {" ".join(done.stderr.split())}')
    return done.stdout
