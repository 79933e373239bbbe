"""The hub: the process through which a client and its agents reach each other (`python -m rp_api.coordination.hub`).

It reads its configuration (JSON, with its keys) from standard input, answers one line on standard output when it serves
(or says there why it cannot), and ends when its client says goodbye, or by the rule of `orphan.py`.

Messages are msgpack lists. A peer sends `[number, operation, arguments...]`; operations with a number above 0 are
acknowledged (`['ack', number]`) once they are durable. A peer that the hub does not know is asked who it is (`['who']`)
and answers with `hello`: so a restarted hub finds its peers again, and they send again what was not acknowledged.
The hub sends what is new for a peer as `['feed', revision, ...]`, at most `WINDOW` of them before the peer confirms
(`seen`); what a slow peer has not taken yet waits in the file, not in memory.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import sqlite3
import sys
import time
from pathlib import Path
from typing import Any

import zmq

from rp_api import states
from rp_api.coordination.contract import BULK, PROTOCOL
from rp_api.coordination.orphan import Orphanage
from rp_api.coordination.store import Store
from rp_api.errors import CoordinationError
from rp_api.mesh import codec, keys
from rp_api.mesh.loop import Loop, Timer
from rp_api.host import host_id, pidfd_open

WINDOW = 8
"""Feeds that may be on their way to one peer."""

LEASE = 60.0
"""Seconds after which a silent peer on another host counts as lost."""

_log = logging.getLogger('radical.pilot.hub')


class Peer:
    """One connected client or agent."""

    __slots__ = ('address', 'cursor', 'heard', 'in_flight', 'pidfd', 'role', 'uid')

    def __init__(self, address: bytes, role: str, uid: str, cursor: int) -> None:
        self.address = address
        self.role = role
        self.uid = uid
        self.cursor = cursor
        self.in_flight = 0
        self.heard = time.monotonic()
        self.pidfd: int | None = None


class Hub:
    """Serves one session on a ROUTER socket."""

    def __init__(self, loop: Loop, socket: zmq.Socket[bytes], store: Store, orphan_timeout: float) -> None:
        self._loop = loop
        self._socket = socket
        self._store = store
        self._orphanage = Orphanage(orphan_timeout)
        self._orphan_timer: Timer | None = None
        self._peers: dict[bytes, Peer] = {}
        self._acks: dict[bytes, int] = {}
        self._turn_pending = False
        self._malformed = 0
        loop.add_socket(socket, self._receive)
        loop.call_later(LEASE, self._check_leases)

    def _receive(self) -> None:
        """Take in all messages that are there; what follows from them is done once, at the end of the turn."""
        while True:
            try:
                address, data = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                break
            except ValueError:
                self._reject('not two frames')
                continue
            self._handle(address, data)
        if not self._turn_pending:
            self._turn_pending = True
            self._loop.call_soon(self._turn)

    def _handle(self, address: bytes, data: bytes) -> None:
        try:
            number, operation, *arguments = codec.unpack(data)
            peer = self._peers.get(address)
            if peer is None and operation != 'hello':
                self._send(address, ['who'])
                return
            if peer:
                peer.heard = time.monotonic()
            getattr(self, f'_on_{operation}')(address, *arguments)
            if number:
                self._acks[address] = number
        except (CoordinationError, AttributeError, TypeError, ValueError) as error:
            self._reject(str(error))

    def _reject(self, reason: str) -> None:
        self._malformed += 1
        if self._malformed & (self._malformed - 1) == 0:   # the 1st, 2nd, 4th, 8th ...: no flood in the log
            _log.warning('%d malformed messages dropped; the last one: %s', self._malformed, reason)

    def _turn(self) -> None:
        """Make this turn's messages durable, acknowledge them, and pass on what they brought."""
        self._turn_pending = False
        self._store.commit()
        for address, number in self._acks.items():
            self._send(address, ['ack', number])
        self._acks.clear()
        for peer in list(self._peers.values()):
            self._feed(peer)
        if self._orphanage.orphaned:
            self._orphan_check_soon()

    def _send(self, address: bytes, message: list[Any]) -> None:
        try:
            self._socket.send_multipart([address, codec.pack(message)], zmq.NOBLOCK)
        except zmq.ZMQError as error:   # the peer has gone, or does not read; it will say hello again if it lives
            _log.debug('cannot send to %r: %s', address, error)

    # what peers say

    def _on_hello(self, address: bytes, hello: dict[str, Any]) -> None:
        if hello['protocol'] != PROTOCOL:
            self._send(address, ['refused', (
                f'{hello["role"]} speaks protocol {hello["protocol"]}, the hub {PROTOCOL}: install the same major '
                'version of rp-api with the client and the agent (pip install --upgrade rp-api)')])
            return
        self._forget(address)
        peer = Peer(address, hello['role'], hello['uid'], hello['since'])
        self._peers[address] = peer
        if hello['host'] == host_id():
            self._watch(peer, hello['pid'])
        if peer.role == 'client':
            self._orphanage.client_attached()
        self._send(address, ['welcome', {'pid': os.getpid(), 'host': host_id()}])
        _log.info('%s %s is attached', peer.role, peer.uid)

    def _watch(self, peer: Peer, pid: int) -> None:
        """Notice the death of a peer on this host at once."""
        fd = pidfd_open(pid)
        if fd is None:
            self._loop.call_soon(self._lost, peer)
            return
        peer.pidfd = fd
        self._loop.add_fd(fd, lambda: self._lost(peer))

    def _on_ping(self, address: bytes) -> None:
        self._send(address, ['pong'])

    def _on_seen(self, address: bytes) -> None:
        self._peers[address].in_flight -= 1

    def _on_bye(self, address: bytes) -> None:
        role = self._peers[address].role
        self._forget(address)
        if role == 'client' and not any(peer.role == 'client' for peer in self._peers.values()):
            self._loop.call_soon(self._loop.stop)

    def _on_pilots(self, _: bytes, pilots: list[tuple[str, bytes]]) -> None:
        self._store.insert_pilots(pilots)

    def _on_tasks(self, _: bytes, pilot: str, shared: bytes, tasks: list[tuple[str, bytes]]) -> None:
        self._store.insert_tasks(pilot, shared, tasks)

    def _on_command(self, _: bytes, pilot: str, command: bytes) -> None:
        self._store.insert_command(pilot, command)

    def _on_update_pilots(self, address: bytes, updates: list[tuple[str, str, bytes | None]]) -> None:
        self._store.update_pilots(updates, announce=self._peers[address].role == 'agent')

    def _on_update_tasks(self, address: bytes, updates: list[tuple[str, str, bytes | None]]) -> None:
        self._store.update_tasks(updates, announce=self._peers[address].role == 'agent')

    # what peers are told

    def _feed(self, peer: Peer) -> None:
        while peer.in_flight < WINDOW and peer.cursor < self._store.rev:
            feed = self._client_feed(peer) if peer.role == 'client' else self._agent_feed(peer)
            if feed is None:
                break
            self._send(peer.address, ['feed', peer.cursor, *feed])
            peer.in_flight += 1

    def _agent_feed(self, peer: Peer) -> tuple[list[Any], list[Any]] | None:
        """New tasks by the bulk (shared part, [uid, rest]) and the commands that were given before the last of them."""
        rows = self._store.new_tasks(peer.uid, peer.cursor, BULK)
        last = rows[-1][0] if len(rows) == BULK else self._store.rev
        commands = [command for rev, command in self._store.new_commands(peer.uid, peer.cursor, BULK) if rev <= last]
        peer.cursor = last
        bulks: dict[int, list[tuple[str, bytes]]] = {}
        for _, uid, shared_id, description in rows:
            bulks.setdefault(shared_id, []).append((uid, description))
        if not rows and not commands:
            return None
        return [(self._store.shared(shared_id), tasks) for shared_id, tasks in bulks.items()], commands

    def _client_feed(self, peer: Peer) -> tuple[list[Any], list[Any]] | None:
        """New states of tasks and of pilots."""
        rows = self._store.tasks_since(peer.cursor, BULK)
        last = rows[-1][0] if len(rows) == BULK else self._store.rev
        pilots = [row[1:] for row in self._store.pilots_since(peer.cursor, BULK) if row[0] <= last]
        peer.cursor = last
        if not rows and not pilots:
            return None
        return [row[1:] for row in rows], pilots

    # peers that are gone

    def _forget(self, address: bytes) -> Peer | None:
        peer = self._peers.pop(address, None)
        if peer is not None and peer.pidfd is not None:
            self._loop.remove_fd(peer.pidfd)
            os.close(peer.pidfd)
        return peer

    def _lost(self, peer: Peer) -> None:
        if self._peers.get(peer.address) is not peer:
            return
        _log.warning('%s %s is lost', peer.role, peer.uid)
        self._forget(peer.address)
        if peer.role == 'client':
            self._orphanage.client_lost()
        elif self._orphanage.orphaned:
            # nobody else is left who could notice that this pilot is gone
            info = codec.pack({'exception': 'the agent died after the application was gone'})
            self._store.update_pilots([(peer.uid, states.FAILED, info)], announce=True)
            self._store.commit()
        if self._orphanage.orphaned:
            self._orphan_check()

    def _check_leases(self) -> None:
        limit = time.monotonic() - LEASE
        for peer in [peer for peer in self._peers.values() if peer.pidfd is None and peer.heard < limit]:
            self._lost(peer)
        self._loop.call_later(LEASE / 4, self._check_leases)

    def _orphan_check_soon(self) -> None:
        """Counting what is left to do costs more than an update: do it at most twice a second."""
        if self._orphan_timer is None:
            self._orphan_timer = self._loop.call_later(0.5, self._orphan_check)

    def _orphan_check(self) -> None:
        if self._orphan_timer is not None:
            self._orphan_timer.cancel()
            self._orphan_timer = None
        pilots = self._store.live_pilots()
        action, again = self._orphanage.next(time.monotonic(), self._store.unfinished(), len(pilots))
        if action == 'cancel':
            _log.warning('nobody attached within %s s: cancelling %s', self._orphanage.timeout, ', '.join(pilots))
            self._cancel(pilots)
        elif action == 'end':
            self._loop.stop()
        if again is not None:
            self._orphan_timer = self._loop.call_at(again, self._orphan_check)

    def _cancel(self, pilots: list[str]) -> None:
        command = codec.pack({'cmd': 'cancel_pilot', 'reason': 'the application is gone'})
        for pilot in pilots:
            self._store.insert_command(pilot, command)
        self._turn()


def serve(config: dict[str, Any]) -> None:
    """Serve a session until it ends."""
    context = zmq.Context()
    loop = Loop()
    runtime_dir = Path(config['runtime_dir'])
    store = Store(config['database'])
    store.set_meta([('session', config['session']), ('protocol', str(PROTOCOL))])
    gate = keys.Gate(context, loop)
    for public in config['peers']:
        gate.allow(public.encode())
    socket: zmq.Socket[bytes] = context.socket(zmq.ROUTER)
    try:
        socket.setsockopt(zmq.ROUTER_HANDOVER, 1)
        socket.setsockopt(zmq.SNDHWM, 0)
        keys.make_server(socket, keys.KeyPair(config['public'].encode(), config['secret'].encode()))
        socket.bind(config['endpoint'])
        Hub(loop, socket, store, config['orphan_timeout'])
        print(json.dumps({'ok': True}), flush=True)
        loop.run()
    finally:
        gate.close()
        socket.close(linger=1000)
        context.term()
        store.close()
        loop.close()
        shutil.rmtree(runtime_dir, ignore_errors=True)


def main() -> int:
    """Run a hub; the exit code."""
    logging.basicConfig(stream=sys.stderr, format='%(asctime)s %(levelname)s %(message)s',
                        level=os.environ.get('RADICAL_PILOT_LOG_LVL', 'INFO').partition('_')[0])
    config = json.loads(sys.stdin.readline())
    try:
        serve(config)
    except (OSError, sqlite3.Error, zmq.ZMQError) as error:
        _log.exception('the hub cannot go on')
        print(json.dumps({'ok': False, 'error': f'{type(error).__name__}: {error}'}), flush=True)
        return 1
    return 0


if __name__ == '__main__':
    sys.exit(main())
