"""The link to masters: the socket that they connect to, the file with its access data, and the way to the component."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import zmq

from rp_agent import sandbox
from rp_agent.bootstrap.environment import additions
from rp_agent.components.build import make_tracer
from rp_agent.components.stage import Flow, Owner
from rp_agent.nodes.child import address_for_nodes
from rp_agent.raptor.component import Raptor
from rp_agent.resource_manager.base import Allocation
from rp_agent.task import AgentTask
from rp_api import raptor_link
from rp_api.errors import CoordinationError
from rp_api.loop.event_loop import Loop
from rp_api.raptor_link import link_file, master_file
from rp_api.transport.access import AccessPoint
from rp_api.transport.connection import arrivals
from rp_api.transport.keys import Tally
from rp_api.transport.resend import Resender
from rp_api.wire import codec


def remove_leftovers(pilot_sandbox: str, uid: str, address: str) -> None:
    """Remove the files of the master of that uid, which listened at `address` and whose process has ended.

    A socket is removed only if it is where masters put it: in a directory of its own that other users cannot enter.
    """
    with suppress(OSError):   # most masters have removed it
        os.unlink(master_file(pilot_sandbox, uid))
    path = address.removeprefix('ipc://')
    directory = os.path.dirname(path)
    if path == address or not os.path.basename(directory).startswith('rp.'):
        return
    with suppress(OSError):
        status = os.stat(directory)
        if status.st_uid == os.geteuid() and not status.st_mode & 0o077:
            with suppress(FileNotFoundError):   # the master was killed during its own clean-up
                os.unlink(path)
            os.rmdir(directory)


_log = logging.getLogger('radical.pilot.agent.raptor')

UID = 'agent_raptor.0000'

Receive = Callable[[bytes, str, list[Any]], object]


class MasterLink:
    """The socket at an address (None: a new one) that masters connect to; the access data is in `file`.

    `receive(sender, operation, arguments)` is called with each message.
    """

    def __init__(self, loop: Loop, file: str, address: str | None, receive: Receive) -> None:
        self._receive = receive
        self._masters: dict[bytes, Resender] = {}
        self._malformed = Tally('dropped what a RAPTOR master has sent')
        self._point = AccessPoint(loop)
        # no limit of messages: the credit of a master limits its tasks
        self._listener = self._point.listen(zmq.ROUTER, address, 0, self._arrived)
        self._file = file
        self._point.admit(self._listener.address).save(self._file)

    def send(self, master: bytes, *message: Any) -> None:
        """Send a message to a master that has sent `hello`; it is resent if the connection breaks.

        Raises ValueError if the message is too large.
        """
        data = codec.pack(message)
        known = self._masters.get(master)
        if known is not None:
            self._send(master, known.say(data))

    def forget(self, master: bytes) -> None:
        """Discard the unacknowledged messages for a master that has ended."""
        self._masters.pop(master, None)

    def refuse(self, why: object) -> None:
        """Count a dropped message."""
        self._malformed.add(why)

    def close(self) -> None:
        """Remove the file, and close the socket."""
        with suppress(FileNotFoundError):
            os.unlink(self._file)
        self._listener.close(0)
        self._point.close()

    def _arrived(self) -> None:
        for sender, *frames in arrivals(self._listener.socket):
            try:
                self._take(sender, frames)
            except CoordinationError as error:
                self.refuse(error)

    def _take(self, sender: bytes, frames: list[bytes]) -> None:
        known = self._masters.get(sender)
        data = (known or Resender()).hear(frames)
        if data is None:
            return
        operation, arguments = raptor_link.from_master(data)
        if known is None:
            known = Resender()
            if operation == 'hello':
                self._masters[sender] = known
        if operation == 'got':
            known.has_come(*arguments)
        elif operation == 'again':
            self._send(sender, [codec.pack(['again', known.heard])])
            for again in known.again(*arguments):
                self._send(sender, again)
        else:
            self._receive(sender, operation, arguments)
        if number := known.to_tell():
            self._send(sender, [codec.pack(['got', number])])

    def _send(self, master: bytes, frames: list[bytes]) -> None:
        try:
            self._listener.socket.send_multipart([master, *frames], zmq.NOBLOCK)
        except zmq.ZMQError as error:   # the master reconnects, or the executor reports its end
            _log.debug('cannot send to %r: %s', master, error)


class RaptorLink(MasterLink):
    """The link of a pilot, and its RAPTOR component, which uses it as its `ports`."""

    def __init__(self, config: Mapping[str, Any], loop: Loop, allocation: Allocation, flow: Flow,
                 owner: Owner) -> None:
        self._config = config
        self._knows = owner.knows
        self.environment: Mapping[str, str] = additions(config.get('environment'), os.environ)
        self.call_later = loop.call_later
        self.raptor = Raptor(UID, make_tracer(config, UID), self, flow, owner, {
            'nodes': len(set(allocation.names)), 'session': config['session'], 'pilot': config['pilot']})
        file = link_file(sandbox.of_pilot(config), str(config.get('partition', '')))
        super().__init__(loop, file, address_for_nodes(config, allocation), self.raptor.receive)

    def make(self, uid: str, description: dict[str, Any]) -> AgentTask | None:
        """Return a new task of this pilot; None if there is one of that uid."""
        if self._knows(uid):
            return None
        return AgentTask(uid, description, self._config['pilot'], sandbox.of_task(self._config, uid, description))

    def remove_leftovers(self, master: str, address: str) -> None:
        """Remove the files of a master that listened at that address."""
        remove_leftovers(sandbox.of_pilot(self._config), master, address)
