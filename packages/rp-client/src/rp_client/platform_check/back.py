"""The connection from a platform back to this host: a socket in place of a session's hub."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from rp_api.errors import PlatformError
from rp_api.platforms.definition import ResourceConfig
from rp_client.launcher.batch.shell import is_remote
from rp_client.launcher.network import own_address

_COORDINATORS = ('RADICAL_PILOT_DBURL', 'RADICAL_PILOT_PROXY_URL')
"""Variables that name a coordinator other than a hub on this host."""


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
