"""The findings about a platform: on its definition, and on the platform itself."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from rp_api.errors import PlatformError
from rp_api.platforms.definition import ResourceConfig
from rp_api.platforms.review import review
from rp_api.platforms.systems import submitter
from rp_client.bootstrap.prepare import Client
from rp_client.launcher.batch.saga.adaptors import require_adaptor
from rp_client.launcher.batch.shell import Shell, is_remote, target
from rp_client.launcher.batch.systems.base import Delegated
from rp_client.launcher.batch.systems.registry import batch_system
from rp_client.launcher.batch.transfer import receive
from rp_client.launcher.network import own_address
from rp_client.launcher.sandbox import files_endpoint
from rp_client.platform_check.probe import MARK, script

OK, NOTE, BAD = 'ok', 'note', 'bad'

_COORDINATORS = ('RADICAL_PILOT_DBURL', 'RADICAL_PILOT_PROXY_URL')
"""Variables that name a coordinator other than a hub on this host."""

CHECK_TIMEOUT = 120.0
"""Seconds in which the script must end."""

_REMOTE = {'ssh': ('ssh', '-oBatchMode=yes', '-oConnectTimeout=15'), 'gsissh': ('gsissh', '-oBatchMode=yes')}


class Finding(NamedTuple):
    """The result of one check: `ok`, `note` (worth knowing) or `bad` (pilots will fail)."""

    verdict: str
    name: str
    words: str


def check(config: ResourceConfig) -> Iterator[Finding]:
    """Yield the findings; leaves no files on the platform, and submits no job."""
    if config.retired:
        yield Finding(NOTE, 'retired', 'the machine does not exist any more: its definition is kept for simulations')
    questions = review(config)
    yield from (Finding(NOTE, 'definition', sentence) for sentence in questions)
    if not questions:
        yield Finding(OK, 'definition', 'no questions')
    try:
        path = way(config)
        with ExitStack() as stack:
            back = ''
            if expects_connections(config):
                try:
                    back = stack.enter_context(listening(config))
                except PlatformError as error:   # this concerns only this host
                    yield Finding(BAD, 'back', str(error))
            output = run(path, script(config, path.batch_system, Client.here(), back))
    except PlatformError as error:
        yield Finding(BAD, 'reach', str(error))
        return
    yield Finding(OK, 'reach', path.host)
    yield from findings(output)
    yield from _files(config)


def _files(config: ResourceConfig) -> Iterator[Finding]:
    """Yield the finding on file staging between this host and a platform on another host."""
    endpoint = files_endpoint(config)
    if endpoint and is_remote(config.job_manager_endpoint):
        shell = Shell(endpoint)
        try:
            receive(shell.command('command -v tar'), Path(os.devnull), f'files cannot be staged to {shell.host}')
            yield Finding(OK, 'files', shell.host)
        except PlatformError as error:
            yield Finding(NOTE, 'files', str(error))


def findings(output: str) -> Iterator[Finding]:
    """Yield the findings in the output of the script; truncated output is a finding, too."""
    lines = [line.split(' ', 3) for line in output.splitlines() if line.startswith(f'{MARK} ')]
    for line in lines:
        if len(line) == 4:
            yield Finding(*line[1:])
    if [MARK, 'end'] not in lines:
        last = lines[-1][2] if lines and len(lines[-1]) > 2 else 'the beginning'
        yield Finding(BAD, 'shell', f'the shell on the platform ended early, after {last}')


def expects_connections(config: ResourceConfig) -> bool:
    """Return whether agents of the platform connect to a hub on this host without a tunnel."""
    return (is_remote(config.job_manager_endpoint) and not config.forward_tunnel_endpoint
            and not any(map(os.environ.get, _COORDINATORS)))


@contextmanager
def listening(config: ResourceConfig) -> Iterator[str]:
    """Open a socket that listens, and greets, as a session's hub does; yield its endpoint, `tcp://HOST:PORT`."""
    import zmq

    address = own_address(config)
    with zmq.Context() as context, context.socket(zmq.ROUTER) as socket:
        try:
            socket.bind(f'tcp://{address}:*')
        except zmq.ZMQError as error:
            raise PlatformError(f'a hub on this host cannot listen at {address}: {error}; set RADICAL_PILOT_PROXY_HOST '
                                'to an address, name or network interface of this host') from None
        yield socket.getsockopt_string(zmq.LAST_ENDPOINT)


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
