"""Running the script where the platform is: here, or on a host that its URLs name."""

from __future__ import annotations

import subprocess
from typing import NamedTuple
from urllib.parse import urlsplit

from rp_api.errors import PlatformError
from rp_api.platforms.definition import ResourceConfig
from rp_api.platforms.systems import submitter
from rp_client.launcher.batch.shell import target

CHECK_TIMEOUT = 120.0
"""Seconds that all of it may take."""

_REMOTE = {'ssh': ('ssh', '-oBatchMode=yes', '-oConnectTimeout=15'), 'gsissh': ('gsissh', '-oBatchMode=yes')}


class Way(NamedTuple):
    """How to run a shell on the platform, and which batch system it has (empty: none)."""

    command: list[str]
    host: str
    batch_system: str


def way(config: ResourceConfig) -> Way:
    """The way that the job manager's URL names; `PlatformError` if it cannot be gone."""
    url = config.job_manager_endpoint
    parts = urlsplit(url)
    system, _, hop = parts.scheme.partition('+')
    if system in _REMOTE:
        system, hop = '', system
    if system in ('fork', 'local'):
        system = ''
    if system and not submitter(system):
        raise PlatformError(f'job_manager_endpoint is {url!r}: {parts.scheme!r} is not known')
    if not hop:
        if parts.hostname not in (None, 'localhost'):
            raise PlatformError(f'job_manager_endpoint is {url!r}: {parts.hostname} can only be reached through ssh')
        return Way(['/bin/sh', '-s'], 'this host', system)
    if hop not in _REMOTE or not parts.hostname:
        raise PlatformError(f'job_manager_endpoint is {url!r}, which names no host that can be reached')
    host = target(url)
    return Way([*_REMOTE[hop], *host.words, '/bin/sh', '-s'], host.name, system)


def run(path: Way, script: str) -> str:
    """What the script prints; `PlatformError` if the platform cannot be reached."""
    try:
        done = subprocess.run(path.command, input=script, capture_output=True, text=True, errors='replace',
                              timeout=CHECK_TIMEOUT, check=False)
    except subprocess.TimeoutExpired:
        raise PlatformError(f'{path.host} has not answered within {CHECK_TIMEOUT:g} seconds') from None
    except OSError as error:
        raise PlatformError(f'{path.command[0]} cannot be run: {error.strerror}') from None
    if done.returncode == 255 and path.command[0] != '/bin/sh':   # it is ssh itself that has failed
        raise PlatformError(f'{path.host} cannot be reached: {" ".join(done.stderr.split())}')
    return done.stdout
