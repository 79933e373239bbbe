"""The way back: a socket at the address at which agents of a platform would find the hub of a session."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from rp_api.errors import PlatformError
from rp_api.platforms.definition import ResourceConfig
from rp_client.launcher.batch.shell import is_remote
from rp_client.launcher.network import own_address

_COORDINATORS = ('RADICAL_PILOT_DBURL', 'RADICAL_PILOT_PROXY_URL')
"""Variables that name another coordinator than a hub on this host."""


def expects_connections(config: ResourceConfig) -> bool:
    """Whether agents of the platform connect from its host to a hub on this one, without a tunnel."""
    return (is_remote(config.job_manager_endpoint) and not config.forward_tunnel_endpoint
            and not any(map(os.environ.get, _COORDINATORS)))


@contextmanager
def listening(config: ResourceConfig) -> Iterator[str]:
    """A socket that listens, and greets, as the hub of a session would; gives its endpoint, `tcp://HOST:PORT`."""
    import zmq

    address = own_address(config)
    with zmq.Context() as context, context.socket(zmq.ROUTER) as socket:
        try:
            socket.bind(f'tcp://{address}:*')
        except zmq.ZMQError as error:
            raise PlatformError(f'a hub on this host cannot listen at {address}: {error}; set RADICAL_PILOT_PROXY_HOST '
                                'to an address, name or network interface of this host') from None
        yield socket.getsockopt_string(zmq.LAST_ENDPOINT)
