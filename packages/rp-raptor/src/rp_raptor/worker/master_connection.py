"""A worker's connection to its master, with a watch for the master's end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rp_api.loop.event_loop import Loop
from rp_api.loop.soon import Soon
from rp_api.system.host import host_id
from rp_api.transport.connection import PeerWatch
from rp_raptor.carriers.channel import OpenFile
from rp_raptor.wire.batch import pack_message
from rp_raptor.wire.call_buffer import ResultGatherer
from rp_raptor.wire.carried_results import CARRIED
from rp_raptor.wire.protocol import PING, SILENCE, WORKER, parse_from_master
from rp_raptor.worker.master_link import OpenLink

_ENDS = frozenset({'results', 'returned', 'died'})   # messages about calls that have ended here


class MasterConnection:
    """Exchanges messages with the master after the first handshake; messages sent before are dropped.

    Results wait for others until the next turn of the loop, as each rank sends those of long calls one by one.

    `connected()` is called after each handshake, `heard(operation, arguments)` for each message, and `lost(reason)`
    when the master is lost or was never reached.
    """

    def __init__(self, loop: Loop, open_link: OpenLink, connected: Callable[[], object],
                 heard: Callable[[str, list[Any]], object], lost: Callable[[str], object]) -> None:
        self._loop = loop
        self._connected = connected
        self._heard = heard
        self._lost = lost
        self._results = ResultGatherer(lambda ids, payloads: self._send(['results', ids, payloads]))
        self._flush_soon = Soon(loop, self._results.flush)
        self._answered = False
        self._master = PeerWatch()
        self._link = open_link(self)
        loop.call_later(PING, self._watch)

    @property
    def place(self) -> str:
        """The place whose files the master may refer to."""
        return self._link.place

    def send(self, message: list[Any]) -> None:
        """Send a message to the master."""
        if message[0] in _ENDS:
            self._link.done(message[1])
        if message[0] == 'results':
            self._results.add(message[1], message[2])
            self._flush_soon()
        else:
            self._results.flush()
            self._send(message)

    def ask(self, id: bytes) -> bool:
        """Ask the first manager for an object, see `MasterLink`; it is heard of as `object_came`."""
        return self._link.ask(id)

    def close(self) -> None:
        """Close the connection after pending messages are sent."""
        self._master.stop()
        self._link.close()

    # of the link

    def connected(self) -> None:
        """Handle a handshake."""
        self._connected()

    def received(self, data: bytes) -> None:
        """Handle a message of the master."""
        self._answered = True
        self._master.hear()
        operation, arguments = parse_from_master(data, WORKER)
        if operation == 'welcome':
            self._welcome(arguments[0])
        elif operation == 'refused':
            self._lost(f'the master refuses this worker: {arguments[0]}')
        elif operation != 'pong':
            self._heard(operation, arguments)

    def lost(self, reason: str) -> None:
        """Handle the end of the master."""
        self._lost(reason)

    def object_came(self, id: bytes, file: OpenFile | None) -> None:
        """Handle an object that was asked for, or will not come."""
        self._heard('object_came', [id, file])

    def _send(self, message: list[Any]) -> None:
        self._link.send(pack_message(message), filed=message[0] == 'results' and message[2].has(CARRIED[0]))

    def _welcome(self, info: dict[str, Any]) -> None:
        if self._master.by_process or info.get('host') != host_id():
            return
        if not self._master.start(self._loop, int(info['pid']), info.get('started'), self._master_ended):
            self._lost('the master has ended')

    def _master_ended(self) -> None:
        self._link.receive()   # the last messages
        self._lost('the master has ended')

    def _watch(self) -> None:
        """Send a heartbeat, and check that of a master on another node; one on this node has a process to watch."""
        if self._answered and self._master.silent(SILENCE):
            self._lost(f'the master has sent nothing for {SILENCE:g} s')
        self.send(['ping'])
        self._loop.call_later(PING, self._watch)
