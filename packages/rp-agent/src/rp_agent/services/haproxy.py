"""Configuration of HAProxy as the router of a service, and commands of its runtime API. No I/O.

How it routes:

- Requests go to the instances in turn. The pilot's agent says which instances are healthy. An instance that refuses
  a connection gets no more requests until HAProxy can connect to it again.
- A request that is not answered is sent to another instance (`retry-on`), at most RETRIES times. If it may have reached
  the first one, this is done for idempotent methods only, unless the service allows it for all. HAProxy keeps a copy of
  the request for this, therefore it reads all of it before it sends any (`http-buffer-request`), and does not repeat
  requests above BUFFER bytes.
- A request waits if there is no healthy instance. HAProxy answers 503 to requests without an instance, but queues them
  while all instances are busy. Therefore there is one more, `waiting`, which is the last choice, takes one connection,
  and always has it: one that the router holds, to a socket from which nothing is accepted. Until this one is there
  when HAProxy starts, the last choice is `starting`, which refuses connections, and is tried again after a second.
- It has one thread: with several, HAProxy 2.6 may queue a request at the moment at which an instance becomes healthy,
  and then does not see that it can be sent.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

REQUESTS_FD, HOLD_FD, API_FD = 3, 4, 5
"""Descriptors of the sockets that HAProxy accepts on: for requests, for the held connection, for its runtime API."""

HOLD_REQUEST = b'GET / HTTP/1.1\r\nhost: waiting\r\n\r\n'
"""The request on the held connection."""

HELD = ('set server instances/waiting state ready', 'set server instances/starting state maint')
"""The commands once this connection is there."""

RETRIES = 50
"""How often a request is repeated: often, as all instances may die one after the other, but not for ever: it may be the
request that kills them."""

BUFFER = 128 * 1024
"""Bytes of the largest request that is repeated, with its header."""

QUEUE_TIMEOUT = 600
"""Seconds for which a request waits for a healthy instance."""

_IDEMPOTENT = 'GET HEAD OPTIONS PUT DELETE TRACE'

_CHECK = 'check inter 60s fastinter 200ms downinter 200ms rise 1 fall 1 observe layer4 error-limit 1 on-error mark-down'
"""The first failed connection takes an instance out, the first one that succeeds brings it back."""

_TEXT = '''\
global
    stats socket fd@{api} level admin
    nbthread 1
    maxconn 8192
    no strict-limits
    tune.bufsize {buffer}
defaults
    mode http
    timeout connect 2s
    timeout client 1h
    timeout server 1h
    timeout http-request 60s
    timeout http-keep-alive 1h
    timeout queue {queue}s
    option abortonclose
    option http-buffer-request
    option clitcpka
    option srvtcpka
    srvtcpka-idle 10s
    srvtcpka-intvl 5s
    srvtcpka-cnt 3
    retries {retries}
    option redispatch 1
    retry-on conn-failure empty-response junk-response response-timeout
frontend requests
    bind fd@{requests}
    default_backend instances
frontend hold
    bind fd@{hold}
    default_backend instances
backend instances
    balance roundrobin
    option allbackups
    http-request set-timeout server 24d if {{ fe_name hold }}
{rules}    force-persist if {{ fe_name hold }}
    use-server waiting if {{ fe_name hold }}
    server starting 127.0.0.1:{refusing} backup
    server waiting unix@{waiting} backup maxconn 1 disabled
{servers}'''


class Address(NamedTuple):
    """Where an instance listens: an IP address and a port."""

    host: str
    port: int


class Server(NamedTuple):
    """An instance, as HAProxy knows it."""

    address: Address
    enabled: bool


def configuration(instances: Mapping[str, Address], waiting: str, refusing: int, *, retry_unsafe: bool) -> str:
    """Return the configuration.

    Args:
        instances: The healthy instances by uid.
        waiting: The path of the socket from which nothing is accepted.
        refusing: A port of the loopback interface that refuses connections.
        retry_unsafe: Repeat requests of all methods.
    """
    rules = '' if retry_unsafe else f'    http-request disable-l7-retry unless {{ method {_IDEMPOTENT} }}\n'
    servers = ''.join(f'    server {_name(uid)} {_joined(address)} {_CHECK}\n' for uid, address in instances.items())
    return _TEXT.format(api=API_FD, buffer=BUFFER, queue=QUEUE_TIMEOUT, retries=RETRIES, requests=REQUESTS_FD,
                        hold=HOLD_FD, rules=rules, waiting=waiting, refusing=refusing, servers=servers)


def enabled(instances: Mapping[str, Address]) -> dict[str, Server]:
    """Return what HAProxy knows after it has read a configuration with these instances."""
    return {uid: Server(address, True) for uid, address in instances.items()}


def update(known: Mapping[str, Server], healthy: Mapping[str, Address]) -> tuple[list[str], dict[str, Server]]:
    """Return the commands after which only these instances get requests, and what HAProxy then knows.

    Instances that are not healthy, or gone, stay known to HAProxy: as long as connections to them are open, it does not
    remove them. Requests that are in progress go on.
    """
    commands = []
    after = dict(known)
    for uid, server in known.items():
        if server.enabled and uid not in healthy:
            commands.append(f'set server {_path(uid)} state maint')
            after[uid] = server._replace(enabled=False)
    for uid, address in healthy.items():
        commands += _enabling(uid, known.get(uid), address)
        after[uid] = Server(address, True)
    return commands, after


def _enabling(uid: str, server: Server | None, address: Address) -> list[str]:
    path = _path(uid)
    if server is None:
        return [f'add server {path} {_joined(address)} {_CHECK}', f'enable health {path}', f'enable server {path}']
    moved = [f'set server {path} addr {address.host} port {address.port}'] if server.address != address else []
    return moved if server.enabled else [*moved, f'set server {path} state ready']


def _path(uid: str) -> str:
    return f'instances/{_name(uid)}'


def _name(uid: str) -> str:
    """Return the name of an instance in HAProxy, in which only some characters are allowed; `waiting` is not one."""
    return 'i.' + re.sub(r'[^A-Za-z0-9_.-]', lambda found: f':{ord(found[0]):x}:', uid)


def _joined(address: Address) -> str:
    return f'ipv6@{address.host}:{address.port}' if ':' in address.host else f'{address.host}:{address.port}'
