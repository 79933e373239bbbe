"""The hub: the process through which a client and its agents reach each other (`python -m rp_api.coordination.hub`).

It reads its configuration (JSON, with its keys) from standard input, answers one line on standard output when it serves
(or says there why it cannot), and ends when its client says goodbye, or by the rule of `orphan.py`.

Messages are msgpack lists. A peer sends `[number, operation, arguments...]`; those that must not get lost are numbered
from 1, all others have the number 0. They are acknowledged (`['ack', number]`) once they are durable. A peer says
`hello` on each new connection, and is told to (`['who']`) when the hub does not know it, or finds that a number is
missing; it then sends again what was not acknowledged. So a new hub or a broken connection loses nothing.
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
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import zmq

from rp_api import states
from rp_api.coordination import wire
from rp_api.coordination.contract import BULK, PROTOCOL
from rp_api.coordination.orphan import Orphanage
from rp_api.coordination.store import Store, claim, set_aside
from rp_api.errors import CoordinationError
from rp_api.host import host_id, pidfd_open
from rp_api.mesh import codec, keys
from rp_api.mesh.loop import Loop, Timer

WINDOW = 8
"""Feeds that may be on their way to one peer."""

LEASE = 60.0
"""Seconds after which a silent peer on another host counts as lost."""

ARRIVAL = 60.0
"""Seconds that agents have to come after the application has died; then nobody waits for them any more."""

_log = logging.getLogger('radical.pilot.hub')


class Peer:
    """One connected client or agent."""

    __slots__ = ('address', 'cursor', 'heard', 'in_flight', 'instance', 'number', 'pidfd', 'role', 'uid')

    def __init__(self, address: bytes, hello: dict[str, Any]) -> None:
        self.address = address
        self.role: str = hello['role']
        self.uid: str = hello['uid']
        self.instance: str = hello['instance']
        self.cursor: int = hello['since']
        self.number: int = hello['settled']
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
        self._dead_agents: set[str] = set()
        self._turn_pending = False
        self._leaving = False
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
            number, operation, arguments = wire.parse(data)
            if operation == 'hello':
                wire.check(operation, arguments)
                self._on_hello(address, *arguments)
                return
            peer = self._sender(address, number)
            if peer is not None:
                wire.check(operation, arguments)
                getattr(self, f'_on_{operation}')(peer, *arguments)
        except (CoordinationError, ValueError) as error:
            self._reject(str(error))

    def _sender(self, address: bytes, number: int) -> Peer | None:
        """Who has sent a message, if it is to be dealt with: it is new, and nothing before it is missing."""
        peer = self._peers.get(address)
        if peer is None or number > peer.number + 1:
            self._send(address, ['who'])
            return None
        peer.heard = time.monotonic()
        known = 0 < number <= peer.number
        if number:
            # one that cannot be dealt with is acknowledged as well: sending it again would not make it better
            peer.number = max(number, peer.number)
            self._acks[address] = peer.number
        return None if known else peer

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
        if self._leaving:
            self._loop.stop()
        elif self._orphanage.orphaned:
            self._orphan_check_soon()

    def _send(self, address: bytes, message: list[Any]) -> None:
        try:
            self._socket.send_multipart([address, codec.pack(message)], zmq.NOBLOCK)
        except zmq.ZMQError as error:   # the peer has gone, or does not read; it will say hello again if it lives
            _log.debug('cannot send to %r: %s', address, error)

    # what peers say

    def _on_hello(self, address: bytes, hello: dict[str, Any]) -> None:
        if hello.get('protocol') != PROTOCOL:
            self._send(address, ['refused', (
                f'{hello.get("role")} speaks protocol {hello.get("protocol")}, the hub {PROTOCOL}: install the same '
                'major version of rp-api with the client and the agent (pip install --upgrade rp-api)')])
            return
        wire.check_hello(hello)
        known = self._forget(address)
        peer = Peer(address, hello)
        if known is not None and known.instance == peer.instance:
            peer.number = max(peer.number, known.number)   # it may not have got all acknowledgements
        self._peers[address] = peer
        if hello['host'] == host_id():
            self._watch(peer, hello['pid'])
        if peer.role == 'client':
            self._orphanage.client_attached()
        else:
            self._dead_agents.discard(peer.uid)
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

    def _on_ping(self, peer: Peer) -> None:
        self._send(peer.address, ['pong'])

    def _on_seen(self, peer: Peer) -> None:
        peer.in_flight = max(0, peer.in_flight - 1)

    def _on_bye(self, peer: Peer) -> None:
        self._forget(peer.address)
        # at the end of the turn: agents shall get what the client has said last
        self._leaving |= peer.role == 'client' and not self._has_client()

    def _on_pilots(self, _: Peer, pilots: list[tuple[str, bytes]]) -> None:
        self._store.insert_pilots(pilots)

    def _on_tasks(self, _: Peer, pilot: str, shared: bytes, tasks: list[tuple[str, bytes]]) -> None:
        self._store.insert_tasks(pilot, shared, tasks)

    def _on_command(self, _: Peer, pilot: str, command: bytes) -> None:
        self._store.insert_command(pilot, command)

    def _on_update_pilots(self, peer: Peer, updates: list[tuple[str, str, bytes | None]]) -> None:
        self._store.update_pilots(updates, announce=peer.role == 'agent')

    def _on_update_tasks(self, peer: Peer, updates: list[tuple[str, str, bytes | None]]) -> None:
        self._store.update_tasks(updates, announce=peer.role == 'agent')

    # what peers are told

    def _feed(self, peer: Peer) -> None:
        while peer.in_flight < WINDOW and peer.cursor < self._store.rev:
            feed = self._client_feed(peer) if peer.role == 'client' else self._agent_feed(peer)
            if feed is None:
                break
            self._send(peer.address, ['feed', peer.cursor, *feed])
            peer.in_flight += 1

    def _agent_feed(self, peer: Peer) -> tuple[list[Any], list[Any]] | None:
        """New tasks by the bulk (shared part, [uid, rest]), and the commands that came after them."""
        tasks = self._store.new_tasks(peer.uid, peer.cursor, BULK)
        commands = self._store.new_commands(peer.uid, peer.cursor, BULK)
        upto = min(tasks.upto, commands.upto)
        if commands.rows:   # a task that came after a command has to wait for the next feed
            first = commands.rows[0][0]
            upto = min([upto, *(row[0] - 1 for row in tasks.rows if row[0] > first)])
        peer.cursor = upto
        bulks: dict[int, list[tuple[str, bytes]]] = {}
        for rev, uid, shared_id, description in tasks.rows:
            if rev <= upto:
                bulks.setdefault(shared_id, []).append((uid, description))
        orders = [command for rev, command in commands.rows if rev <= upto]
        if not bulks and not orders:
            return None
        return [(self._store.shared(shared_id), bulk) for shared_id, bulk in bulks.items()], orders

    def _client_feed(self, peer: Peer) -> tuple[list[Any], list[Any]] | None:
        """New states of tasks and of pilots."""
        tasks = self._store.tasks_since(peer.cursor, BULK)
        pilots = self._store.pilots_since(peer.cursor, BULK)
        upto = peer.cursor = min(tasks.upto, pilots.upto)
        if not tasks.rows and not pilots.rows:
            return None
        return [row[1:] for row in tasks.rows if row[0] <= upto], [row[1:] for row in pilots.rows if row[0] <= upto]

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
        if peer.role == 'agent':
            self._dead_agents.add(peer.uid)
        elif not self._has_client():
            self._orphanage.client_lost()
            self._loop.call_later(ARRIVAL, self._fail_absent)
        if self._orphanage.orphaned:
            self._fail_dead()
            self._orphan_check()

    def _has_client(self) -> bool:
        return any(peer.role == 'client' for peer in self._peers.values())

    def _fail_dead(self) -> None:
        """Note the end of pilots without agents: nobody else is left who could notice it."""
        info = codec.pack({'exception': 'the agent died, and the application is gone'})
        self._store.update_pilots([(uid, states.FAILED, info) for uid in self._dead_agents], announce=True)
        self._store.commit()
        self._dead_agents.clear()

    def _fail_absent(self) -> None:
        """Note the end of pilots whose agents never came: the application may have died before it had started them."""
        present = {peer.uid for peer in self._peers.values()}
        if self._orphanage.orphaned:
            info = codec.pack({'exception': 'the agent never came, and the application is gone'})
            self._store.update_pilots([(uid, states.FAILED, info) for uid in self._store.live_pilots()
                                       if uid not in present], announce=True)
            self._store.commit()
            self._orphan_check()

    def _check_leases(self) -> None:
        limit = time.monotonic() - LEASE
        for peer in [peer for peer in self._peers.values() if peer.pidfd is None and peer.heard < limit]:
            self._lost(peer)
        self._loop.call_later(LEASE / 4, self._check_leases)

    def _orphan_check_soon(self) -> None:
        """Counting what is left to do costs more than an update: do it at most twice a second."""
        soon = time.monotonic() + 0.5
        if self._orphan_timer is None or self._orphan_timer.deadline > soon:
            self._orphan_check_at(soon)

    def _orphan_check_at(self, deadline: float) -> None:
        if self._orphan_timer is not None:
            self._orphan_timer.cancel()
        self._orphan_timer = self._loop.call_at(deadline, self._orphan_check)

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
            self._orphan_check_at(again)

    def _cancel(self, pilots: list[str]) -> None:
        command = codec.pack({'cmd': 'cancel_pilot', 'reason': 'the application is gone'})
        for pilot in pilots:
            self._store.insert_command(pilot, command)
        self._turn()


def serve(config: dict[str, Any], ready: Callable[[], object]) -> None:
    """Serve a session until it ends; calls `ready()` when peers can come."""
    claimed = claim(os.path.dirname(config['database']))
    if config['fresh']:
        set_aside(config['database'])
    context = zmq.Context()
    loop = Loop()
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
        ready()
        loop.run()
    finally:
        socket.close(linger=1000)
        gate.close()
        context.term()
        store.close()
        loop.close()
        shutil.rmtree(config['runtime_dir'], ignore_errors=True)
        os.close(claimed)


def _answer(answer: dict[str, Any]) -> None:
    """Tell the owner how it went; it listens only until it has heard that the hub serves."""
    with suppress(BrokenPipeError):
        os.write(sys.stdout.fileno(), json.dumps(answer).encode() + b'\n')


def _log_level() -> int:
    """The level that RADICAL_PILOT_LOG_LVL asks for; INFO if it is not a level that exists here."""
    name = os.environ.get('RADICAL_PILOT_LOG_LVL', '').partition('_')[0].upper()
    level = getattr(logging, name, None) if name.isalpha() else None
    return level if isinstance(level, int) else logging.INFO


def main() -> int:
    """Run a hub; the exit code."""
    logging.basicConfig(stream=sys.stderr, format='%(asctime)s %(levelname)s %(message)s', level=_log_level())
    config = json.loads(sys.stdin.readline())
    try:
        serve(config, lambda: _answer({'ok': True}))
    except (OSError, sqlite3.Error, zmq.ZMQError, CoordinationError) as error:
        _log.exception('the hub cannot go on')
        _answer({'ok': False, 'error': f'{type(error).__name__}: {error}'})
        return 1
    return 0


if __name__ == '__main__':
    sys.exit(main())
