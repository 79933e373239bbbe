"""Stage 1: Python on the first node of the job. Prepares the sandbox, starts the agent, and waits for its end.

The agent is `agent_0`. In a pilot with partitions this is the supervisor (`pilot_supervisor.py`), which starts one
agent per partition.
"""

from __future__ import annotations

import glob
import json
import os
import re
import socket
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import quote, urlsplit

from rp_agent.bootstrap import environment, stage_2
from rp_agent.bootstrap.child import BootstrapError, BootstrapProcess, report
from rp_agent.lineage import die_with_parent
from rp_api.system import private, signals
from rp_api.system.host import with_home

AGENT = 'agent_0'

CONFIG_ERROR, PREPARATION_ERROR = 20, 21
STARTED_AGAIN = 24
_MONGODB = re.compile(r'(mongodb://(?:[^/@?]*@)?)([^/?]*)/?([^?]*)\??(.*)', re.DOTALL)
NETWORK_ERROR, CLOCK_ERROR = 22, 23

CONNECT_TIMEOUT = 5.0
"""Seconds that a hub may take to answer."""

MOST_SKEW = 6 * 3600.0
"""Maximum clock difference in seconds. A larger one makes traces useless and certificates invalid."""


def main() -> int:
    """Run the agent of the pilot in the current directory until it ends; return the exit code."""
    signals.set_defaults()
    stage_0 = os.getppid()
    die_with_parent(stage_0)
    try:
        with BootstrapProcess() as child:
            config = _prepare(stage_0)
            child.start(['/bin/sh', stage_2.FILE, AGENT], AGENT)
            _record('bootstrap_0_ok', config)
            try:
                return child.wait()
            finally:
                _record('agent_gone', config)
    except BootstrapError as error:
        report(1, error)
        return error.code
    except OSError as error:
        report(1, BootstrapError(PREPARATION_ERROR, f'the pilot cannot be prepared on {os.uname().nodename}: {error}'))
        return PREPARATION_ERROR


def _prepare(stage_0: int) -> dict[str, Any]:
    """Write the files that the agent needs, check the node, and return the agent's configuration."""
    config = _read_config()
    _note_run(config)
    config['environment'] = with_home(environment.without_virtualenv(environment.of_process(stage_0)))
    tunnel = os.environ.get('RP_TUNNEL')
    if tunnel:
        config['coordination'] = through_tunnel(config['coordination'], tunnel)
    private.write_file(f'{AGENT}.cfg', json.dumps(config, indent=1).encode())
    check_clock(config.get('submitted', 0), time.time(), os.stat(f'{AGENT}.cfg').st_mtime)
    hub_answers(config['coordination'])
    platform = config['platform']
    stage_2.write(os.getcwd(), os.environ, platform['pre_bootstrap_1'], platform.get('shell', ''))
    return config


def _read_config() -> dict[str, Any]:
    path = os.path.abspath(f'{AGENT}.cfg')
    try:
        config = json.loads(private.read_file(path).decode())
        if not isinstance(config, dict):
            raise ValueError('it is not a JSON object')
        _ = config['coordination']['backend'], config['pilot'], config['profile'], config['platform']['pre_bootstrap_1']
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BootstrapError(CONFIG_ERROR, f'{path}, which the client writes, cannot be used: {error!r}') from error
    return config


def _note_run(config: dict[str, Any]) -> None:
    """Record this run in the configuration; raise `BootstrapError` if the job has run before and may not continue."""
    earlier = config.get('run')
    if earlier is not None:
        pilot, host = config['pilot'], earlier['host']
        again = f'the batch system has started the job of {pilot} again, after it had run on {host}'
        if not config.get('requeue'):
            raise BootstrapError(STARTED_AGAIN, f'{again}: a pilot continues only if its description has requeue=True')
        if config.get('partitions'):
            raise BootstrapError(STARTED_AGAIN, f'{again}: a pilot with partitions cannot continue')
        config['earlier'] = earlier
        for path in glob.glob('agent_*.prof'):   # one run per trace
            os.replace(path, f'{path}.old')
    config['run'] = {'host': os.uname().nodename, 'time': time.time()}


def _record(event: str, config: Mapping[str, Any]) -> None:
    """Append an event to the trace of stage 0; ignore errors."""
    if config['profile']:
        with suppress(OSError), open('bootstrap_0.prof', 'a', encoding='utf-8') as file:
            file.write(f'{time.time():.7f},{event},bootstrap_0,MainThread,{config["pilot"]},,\n')


def through_tunnel(access: Mapping[str, Any], socket: str) -> dict[str, Any]:
    """Return the access parameters with the endpoint replaced by the path of a socket."""
    if access.get('backend') != 'mongodb':
        return {**access, 'endpoint': f'ipc://{socket}'}
    return {**access, 'url': _mongodb(access['url'], socket)}


def _mongodb(url: str, socket: str) -> str:
    """Return the URL for this server only: the tunnel does not reach other members of its replica set."""
    match = _MONGODB.fullmatch(url)
    assert match is not None   # the client has validated it
    begin, _, database, options = match.groups()
    given = [option for option in options.split('&') if option and not option.lower().startswith(
        ('replicaset=', 'directconnection='))]
    return f'{begin}{quote(socket, safe="")}/{database}?{"&".join([*given, "directConnection=true"])}'


def check_clock(submitted: float, now: float, files: float) -> None:
    """Compare the clock of this node with the clocks of the client and the file system.

    Only a start before the submission is an error: a pilot may wait in the batch queue for days.
    """
    node = os.uname().nodename
    if submitted - now > MOST_SKEW:
        raise BootstrapError(CLOCK_ERROR, f'the clock of {node} is {_hours(submitted - now)} behind that of the '
                             'client: one of them has to be set')
    if abs(files - now) > MOST_SKEW:
        side = 'behind' if files > now else 'ahead of'
        raise BootstrapError(CLOCK_ERROR, f'the clock of {node} is {_hours(abs(files - now))} {side} that of the file '
                             'system in which the sandbox is: the administrators of the machine have to set it')


def hub_answers(access: Mapping[str, Any]) -> None:
    """Check that this node reaches the hub of the session; raise `BootstrapError` if it does not."""
    endpoint = str(access.get('endpoint', ''))
    url = urlsplit(endpoint)
    if access.get('backend') != 'hub' or url.scheme not in ('tcp', 'ipc'):
        return
    try:
        with _connected(url.scheme, url.hostname, url.port, url.path) as connection:
            if connection.recv(1):   # a ZeroMQ socket sends a greeting first
                return
        reason = 'the connection was closed at once'
    except TimeoutError:
        reason = f'no answer within {CONNECT_TIMEOUT:.0f} s'
    except OSError as error:
        reason = error.strerror or str(error)
    through = 'through the tunnel ' if 'RP_TUNNEL' in os.environ else ''
    raise BootstrapError(NETWORK_ERROR, f'{os.uname().nodename} does not reach the hub of the session {through}at '
                         f'{endpoint}: {reason}. It has to listen at an address that the nodes reach: set '
                         'RADICAL_PILOT_PROXY_HOST, in the environment of the application, to such an address, name or '
                         'network interface of its host. If it has none, a tunnel is needed (forward_tunnel_endpoint '
                         'of the platform)')


def _connected(scheme: str, host: str | None, port: int | None, path: str) -> socket.socket:
    if scheme == 'tcp':
        return socket.create_connection((host or '', port or 0), CONNECT_TIMEOUT)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(CONNECT_TIMEOUT)
    try:
        connection.connect(path)
    except OSError:
        connection.close()
        raise
    return connection


def _hours(seconds: float) -> str:
    return f'{seconds / 3600:.0f} hours'


if __name__ == '__main__':
    sys.exit(main())
