"""The coordinator of a session in a stand-alone hub: requests that the hub serves the session, and connects to it."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import zmq

from rp_api.coordination.connections.embedded import HubClientConnection, agent_access
from rp_api.coordination.contract import PROTOCOL, ClientConnection
from rp_api.coordination.coordinator import Coordinator, Settings
from rp_api.coordination.service import access as hub_access
from rp_api.coordination.service.access import HubAccess, split_url
from rp_api.coordination.service.request import ask
from rp_api.errors import CoordinationError
from rp_api.loop.event_loop import Loop
from rp_api.transport.access import Access
from rp_api.transport.connection import PeerConnection, arrivals, refuse_loudly
from rp_api.wire import codec

OPEN_TIMEOUT_S = 60.0
"""Seconds that the hub may take to serve a session."""


class ServedHub(Coordinator):
    """The coordinator of a session, new or open, that the stand-alone hub at `settings.hub_url` serves.

    A client that reaches the hub through a tunnel connects to the session at the tunnel's host, with the port at which
    it is served. Agents connect to the hub's own address, or to `settings.address`.
    """

    def __init__(self, session: str, directory: Path, settings: Settings) -> None:
        self._session = session
        self._settings = settings
        self._access, self._url = hub_access.find(settings.hub_url)
        self._address: Access | None = None
        self._watcher: _Watcher | None = None
        self._watched = False

    def start(self) -> None:
        answer = ask(self._access, self._url, 'open', {
            'session': self._session, 'orphan_timeout': self._settings.orphan_timeout, 'lease': self._settings.lease},
            OPEN_TIMEOUT_S)
        served = answer['endpoint']
        self.endpoint = served if self._url == self._access.url else _at(split_url(self._url)[0], served)
        self.attached = answer['attached']
        self._address = Access(self.endpoint, answer['server'], **answer['client'])
        self.agent_access = agent_access(Access(
            _for_agents(self._settings.address, served), answer['server'], **answer['agent']))

    def connect(self, loop: Loop) -> ClientConnection:
        assert self._address is not None
        return HubClientConnection(loop, self._address, self._session, takes_over=self.attached)

    def watch(self, loop: Loop) -> None:
        self._watcher = _Watcher(loop, self._access, self._url, self._session)
        self._watched = True

    def ending(self) -> None:
        if self._watcher is not None:
            self._watcher.close()
            self._watcher = None

    def stop(self, patience: float, *, leave: bool = False) -> None:
        """Wait until the session's hub has ended after the last messages of its client, unless it shall continue."""
        self.ending()
        if self._watched and not leave:
            self._watched = False
            with suppress(CoordinationError):   # the expected answer: the session is no longer served
                ask(self._access, self._url, 'await', {'session': self._session}, patience)


class _Watcher:
    """Waits for the hub's report that the session cannot be served any more, and ends the loop with the reason.

    The session does not need the stand-alone hub, which may end and return meanwhile.
    """

    def __init__(self, loop: Loop, access: HubAccess, url: str, session: str) -> None:
        self._request = codec.pack([1, PROTOCOL, 'await', {'session': session}])
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._link = PeerConnection(loop, zmq.DEALER, url, access.keys, access.server.encode(), self._context,
                                self._receive, self._ask, refuse_loudly)
        self._link.open()

    def close(self) -> None:
        self._link.close(0)
        self._context.term()

    def _ask(self) -> None:
        self._link.socket.send(self._request)

    def _receive(self) -> None:
        for data, in arrivals(self._link.socket):
            _, _, reason = codec.unpack(data)
            raise CoordinationError(str(reason))


def _at(host: str, endpoint: str) -> str:
    """Return an endpoint with the same port at another host."""
    return f'tcp://{host}:{split_url(endpoint)[1]}'


def _for_agents(address: str, endpoint: str) -> str:
    """Return the endpoint for agents: the hub's own, or the user's address, by default with the same port."""
    if not address:
        return endpoint
    if address.rpartition(':')[2].isdigit():
        split_url(address)
        return address
    return _at(address.removeprefix('tcp://'), endpoint)
