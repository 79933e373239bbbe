"""The server of the hub: processes the messages of its peers.

Messages are msgpack lists. A peer sends `[number, operation, arguments...]`; messages that must not be lost are
numbered from 1, all others have the number 0. They are acknowledged (`['ack', number, rev]`) once they are durable. A
peer sends `hello` on each new connection, and when the hub requests it (`['who']`), because it does not know the peer
or a number is missing; the peer then resends unacknowledged messages. So a new hub or a broken connection loses
nothing. The hub sends updates to a peer as `['feed', since, upto, ...]` (two revisions each), at most
`delivery.MAX_IN_FLIGHT` of them before the peer confirms (`seen`); the updates for a slow peer wait in the database,
not in memory.
Peers on other hosts request the time (`clock`), and send moments on both clocks for the traces (`moment`).

Any message may be lost. A peer that receives a feed which does not continue its data sends hello. The loss of the last
message is detected with `ping` and `pong`, which contain the progress of their senders.

All messages of one turn of the event loop share a commit; their effects are sent only after it. When the database
cannot be written (the disk is full), these messages and all later numbered ones are dropped, as if they had been lost.
When writing succeeds again, the hub sends `who` to all peers, which resend them.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from reprlib import repr as short  # handles long and deeply nested values
from typing import Any

import zmq

from rp_api import states
from rp_api.coordination import presence, wire
from rp_api.coordination.contract import PROTOCOL
from rp_api.coordination.hub import acknowledged, delivery
from rp_api.coordination.hub.database import is_passing
from rp_api.coordination.hub.followed import Followed
from rp_api.coordination.hub.peers import Peer, Peers
from rp_api.coordination.hub.store import Store
from rp_api.coordination.hub.task_table import Update
from rp_api.coordination.hub.watch import Watch
from rp_api.errors import CoordinationError
from rp_api.loop.event_loop import Loop
from rp_api.system.host import host_id
from rp_api.system.processes import start_time
from rp_api.transport import keys
from rp_api.transport.connection import signed_arrivals
from rp_api.wire import codec
from rp_profiling.write.tracer import Tracer

TURN_S = 0.01
"""Seconds after which a commit takes no further message, so that the senders of the others can continue."""

RETRY_INTERVAL_S = 1.0
"""Seconds between attempts to write while the disk is full."""

_log = logging.getLogger('radical.pilot.hub')


class HubServer:
    """Serves the peers of one session on a ROUTER socket; `roles` maps public keys to roles."""

    def __init__(self, loop: Loop, socket: zmq.Socket[bytes], store: Store, roles: Mapping[str, str], *,
                 lease: float, orphan_timeout: float, tracer: Tracer,
                 listen: Callable[[str], list[str]], attachable: Callable[[], bool]) -> None:
        self._loop = loop
        self._socket = socket
        self._store = store
        self._roles = roles
        self._lease = lease
        self._tracer = tracer
        self._listen = listen
        self._peers = Peers(loop, lambda peer: self._lost(peer, died=True))
        self._watch = Watch(loop, store, self._peers, lease, orphan_timeout, attachable)
        self._followed = Followed(store)
        self._acks: set[Peer] = set()
        self._news = delivery.News(store.rev)
        self._moved: set[Peer] = set()   # peers whose stored progress must be updated
        self._dismissed: set[str] = set()
        self._notes: dict[tuple[str, str], Callable[[], object]] = {}   # writes of the hub itself
        self._durable = store.rev
        self._turn_pending = False
        self._stuck = False
        self._leaving = False
        self._malformed = keys.Tally('malformed message dropped')
        self._refused = 0
        self._handlers: Mapping[str, Callable[..., None]] = {
            'ping': self._on_ping, 'clock': self._on_clock, 'moment': self._on_moment, 'seen': self._on_seen,
            'hold': self._on_hold, 'bye': self._on_bye, 'detach': self._on_detach, 'listen': self._on_listen,
            'recover': self._on_recover, 'pilots': lambda _, owner, pilots: store.insert_pilots(owner, pilots),
            'tasks': self._on_tasks, 'chunk': self._on_chunk, 'withdraw': self._on_withdraw, 'bind': self._on_bind,
            'forget': lambda _, uids: store.tasks.forget(uids),
            'note': lambda _, key, value: store.note(key, value),
            'acknowledge': lambda _, owners, reported, own: acknowledged.acknowledge(store, owners, reported, own),
            'follow': lambda agent, uids: self._followed.follow(agent.uid, uids),
            'command': self._on_command, 'update_pilots': self._on_update_pilots,
            'update_tasks': self._on_update_tasks}
        loop.add_socket(socket, self._receive)
        self._watch.start(self._declare_lost, self._cancel, self._end, lambda peer: self._lost(peer, died=False))

    def close(self) -> None:
        """Remove all peers."""
        self._peers.close()

    def starter_died(self) -> None:
        """Handle the end of the process that started the hub and whose client has not connected yet."""
        self._watch.expect_client()

    # messages

    def _receive(self) -> None:
        """Process waiting messages; their effects are handled together at the end of the turn."""
        self._turn_soon()
        end = time.monotonic() + TURN_S
        for address, data, key in signed_arrivals(self._socket, self._malformed):
            self._handle(address, data, self._roles[key])
            if time.monotonic() > end:
                return

    def _handle(self, address: bytes, data: bytes, role: str) -> None:
        try:
            number, operation, arguments = wire.parse(data)
            if operation == 'hello':
                wire.check(role, operation, arguments)
                self._on_hello(address, role, *arguments)
                return
            peer = self._sender(address, number, role)
            if peer is not None:
                wire.check(role, operation, arguments)
                self._handlers[operation](peer, *arguments)
        except (CoordinationError, ValueError) as error:
            self._malformed.add(error)
        except sqlite3.Error as error:
            self._get_stuck(error)

    def _sender(self, address: bytes, number: int, role: str) -> Peer | None:
        """Return the sender of a message if it must be processed: it is new, and no earlier one is missing."""
        peer = self._peers.at(address)
        if peer is not None and peer.role != role:
            raise CoordinationError(f'a message with the key of a {role} comes from the address of {peer}')
        if peer is not None:
            peer.watch.hear()
        if number and self._stuck:
            return None
        if peer is None or peer.stale or number > peer.number + 1:
            self._send(address, ['who'])
            return None
        if not number:
            return peer
        # invalid messages are acknowledged as well: resending would not help
        self._acks.add(peer)
        if number <= peer.number:
            return None
        peer.number = number
        return peer

    def _send(self, address: bytes, message: Sequence[Any]) -> None:
        try:
            self._socket.send_multipart([address, codec.pack(message)], zmq.NOBLOCK)
        except zmq.ZMQError as error:   # the peer has ended, or does not read; it sends hello again if it lives
            _log.debug('cannot send to %r: %s', address, error)

    # the end of a turn

    def _turn_soon(self) -> None:
        if not self._turn_pending:
            self._turn_pending = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        """Commit the messages of this turn, acknowledge them, and send their effects."""
        self._turn_pending = False
        if self._stuck:
            return
        try:
            if moved := self._acks | self._moved:
                self._store.keep_peers([(*peer.key, peer.instance, peer.number, peer.got) for peer in moved])
            written = list(self._notes)
            for note in written:
                self._notes[note]()
            for pilot in self._followed.write(orphaned=self._watch.orphaned):
                self._news_for(pilot)
            messages = self._deliveries()
            self._store.commit()
        except sqlite3.Error as error:
            self._get_stuck(error)
            return
        self._followed.committed()
        self._durable = self._store.rev
        for note in written:
            del self._notes[note]
        for peer in self._acks:
            peer.kept = peer.number
            self._send(peer.address, ['ack', peer.number, self._durable])
        self._acks.clear()
        self._moved.clear()
        for address, message in messages:
            self._send(address, message)
        self._watch.turn()
        if self._leaving:
            self._loop.stop()

    def _deliveries(self) -> list[tuple[bytes, list[Any]]]:
        """Return all messages with updates; agents of one pilot take turns."""
        messages = self._news.messages()
        for peer in self._peers:
            if peer.asked is not None:
                page = delivery.page(self._store, peer.asked)
                messages.append((peer.address, ['page', *page]))
                if not page[0]:   # later changes are sent as feeds
                    peer.sent = peer.cursors = page[2], page[2]
                peer.asked, peer.recovering = None, bool(page[1])
        waiting = [peer for peer in self._peers if peer.has_pending]
        while waiting:
            waiting = [peer for peer in waiting if peer.in_flight < delivery.MAX_IN_FLIGHT and peer.listens]
            for peer in list(waiting):
                batch = delivery.next_delivery(self._store, peer, self._peers.takers(peer.uid))
                if batch is None:
                    peer.has_pending = False
                    waiting.remove(peer)
                else:
                    peer.in_flight += 1
                    messages.append((peer.address, ['feed', *peer.sent, *peer.cursors, *batch]))
                    peer.sent = peer.cursors
        return messages

    def _write(self, kind: str, uid: str, write: Callable[..., object], *arguments: Any) -> None:
        """Schedule a write of the hub itself for the end of this turn, or of the first one when writing succeeds."""
        self._notes[kind, uid] = lambda: write(*arguments)
        self._turn_soon()

    def _get_stuck(self, error: sqlite3.Error) -> None:
        """Drop what cannot be written now, and retry periodically."""
        if not is_passing(error):
            raise error
        self._store.rollback()
        self._followed.rolled_back()
        self._acks.clear()
        self._moved.clear()
        self._news = delivery.News(self._store.rev)
        for peer in self._peers:
            peer.number = peer.kept
            peer.stale = True
        if not self._stuck:
            self._stuck = True
            _log.error('%s cannot be written: %s; nothing is accepted until it can', self._store.path, error)
            self._loop.call_later(RETRY_INTERVAL_S, self._get_going)

    def _get_going(self) -> None:
        """Resume service if the database can be written."""
        try:
            self._store.probe()
        except sqlite3.Error as error:
            if not is_passing(error):
                raise
            self._store.rollback()
            self._loop.call_later(RETRY_INTERVAL_S, self._get_going)
            return
        self._stuck = False
        _log.warning('%s can be written again', self._store.path)
        for peer in self._peers:
            self._send(peer.address, ['who'])
        self._turn_soon()

    # operations of peers

    def _on_hello(self, address: bytes, role: str, hello: dict[str, Any]) -> None:
        if hello.get('protocol') != PROTOCOL:
            self._send(address, ['refused', (
                f'{role} uses protocol {short(hello.get("protocol"))}, the hub {PROTOCOL}: install the same '
                'major version of rp-api with the client and the agent (pip install --upgrade rp-api)')])
            return
        wire.check_hello(hello)
        if hello['role'] != role:
            raise CoordinationError(f'a hello with the key of a {role} has the role {short(hello["role"])}')
        key = role, hello['uid'], hello['agent']
        peer = Peer(address, hello, self._store.last_number(*key, hello['instance']))
        known = self._peers.client if role == 'client' else self._peers.holder(key)
        if known is not None and not self._replace(known, peer):
            return
        self._peers.attach(peer)
        self._send(address, ['welcome', {'pid': os.getpid(), 'started': start_time(os.getpid()), 'host': host_id(),
                                        'chunks': True}])
        if role == 'client':
            self._client_came(peer)
        else:
            self._agent_came(peer)
        self._moved.add(peer)
        if known is None or known.instance != peer.instance:
            _log.info('%s is attached', peer)

    def _replace(self, known: Peer, peer: Peer) -> bool:
        """Replace a peer by another, or by itself on a new connection; return False if that is not allowed."""
        if known.instance == peer.instance:
            peer.number = peer.kept = max(peer.kept, known.kept)   # acknowledgements may have been lost
            if not known.stale:
                peer.number = max(peer.number, known.number)
        elif peer.role == 'client' and known.lives(self._lease):
            self._send(peer.address, ['refused', (
                f'the session is in use by process {known.pid} on {known.host_name}: '
                'it can be attached when that process has ended or detached')])
            return False
        else:
            self._send(known.address, ['refused', f'another process has taken the place of {known}'])
        self._forget(known)
        return True

    def _forget(self, peer: Peer) -> bool:
        """Remove a peer; return False if it was not present."""
        self._acks.discard(peer)
        self._moved.discard(peer)
        return self._peers.forget(peer)

    def _client_came(self, client: Peer) -> None:
        self._watch.client_attached()
        self._write('client', '', self._store.set_meta,
                    [(presence.CLIENT, presence.note(client.pid, client.host, client.host_name, client.started))])

    def _agent_came(self, agent: Peer) -> None:
        self._watch.agent_attached(agent)
        self._dismiss(agent)

    def _dismiss(self, agent: Peer) -> None:
        """Cancel an agent whose pilot is final: the client has ended it, or it was declared lost."""
        state, info = self._store.pilot(agent.uid) or ('', None)
        if state in states.FINAL and agent.instance not in self._dismissed:
            self._dismissed.add(agent.instance)
            why = (wire.unpack_info(info) or {}).get('exception')
            reason = f'is {state} already' + (f': {why}' if why else '')
            self._order(agent.uid, {'cmd': 'cancel_pilot', 'reason': reason, 'state': state})

    def _on_ping(self, peer: Peer, number: int, tasks: int, others: int, hold: bool) -> None:
        if number > peer.number and not self._stuck:
            self._send(peer.address, ['who'])
            return
        if peer.role == 'client':
            peer.recovering &= hold
        elif peer.hold != hold:
            self._on_hold(peer, hold)
        if peer.in_flight and (tasks, others) == peer.sent:
            self._on_seen(peer, tasks, others)
            peer.in_flight = 0
        self._send(peer.address, ['pong', peer.kept, self._durable, *peer.sent])

    def _on_clock(self, peer: Peer, sent: int) -> None:
        self._send(peer.address, ['time', sent, time.time_ns()])

    def _on_moment(self, peer: Peer, message: str, when: int) -> None:
        self._tracer.relate(message, when, peer.uid)

    def _on_seen(self, peer: Peer, tasks: int, others: int) -> None:
        peer.in_flight = max(0, peer.in_flight - 1)
        peer.has_pending = True
        if peer.role == 'agent' and others >= peer.ordered > peer.got:
            peer.got = peer.ordered
            self._moved.add(peer)
            self._write('commands', peer.uid, self._store.drop_commands, peer.uid)

    def _on_hold(self, peer: Peer, on: bool) -> None:
        peer.hold = on
        peer.has_pending = True

    def _on_bye(self, peer: Peer) -> None:
        waits = peer in self._acks
        self._forget(peer)
        if waits:
            self._acks.add(peer)
        self._write('bye', str(peer), self._store.forget_peer, *peer.key)
        if peer.role == 'agent' and not self._peers.agents(peer.uid):
            self._followed.forget(peer.uid)
        if peer.role == 'client':
            # at the end of the turn, so that agents receive the last messages of the client
            self._leaving = True
            for agent in self._peers.agents():   # most agents have ended by now
                self._order(agent.uid, {'cmd': 'cancel_pilot', 'reason': 'the session was closed'})
            self._write('closed', '', self._store.set_meta, [('closed', str(time.time())), (presence.CLIENT, '')])

    def _on_detach(self, peer: Peer) -> None:
        self._forget(peer)
        self._client_left(detached=True)

    def _on_listen(self, peer: Peer, address: str) -> None:
        try:
            answer = [self._listen(address), '']
        except (zmq.ZMQError, ValueError) as error:
            answer = [[], f'the hub cannot listen at {address}: {error}']
        self._send(peer.address, ['listening', *answer])

    def _on_recover(self, peer: Peer, after: int) -> None:
        if not after:
            peer.in_flight = 0
        peer.recovering = True
        peer.asked = after

    def _on_tasks(self, _: Peer, pilot: str, owner: str, shared: bytes, tasks: list[tuple[str, bytes]]) -> None:
        self._store.tasks.insert(pilot, owner, shared, tasks)
        self._news_for(pilot)

    def _on_chunk(self, _: Peer, pilot: str, owner: str, shared: bytes, uid: str, count: int, rows: bytes) -> None:
        self._store.tasks.insert_chunk(pilot, owner, shared, uid, count, rows)
        self._news_for(pilot)

    def _on_withdraw(self, _: Peer, uids: list[str]) -> None:
        self._store.chunks.withdraw(uids)
        self._store.tasks.withdraw(uids, self._store.claims.end)
        self._news_for_client()

    def _on_bind(self, _: Peer, pilot: str, uids: list[str]) -> None:
        self._store.tasks.bind(pilot, uids)
        self._news_for(pilot)

    def _on_command(self, _: Peer, pilot: str, command: bytes) -> None:
        self._store.insert_command(pilot, command)
        self._news_for(pilot)

    def _on_update_pilots(self, peer: Peer, updates: list[Update]) -> None:
        if peer.role == 'client':
            self._store.update_pilots(updates, announce=False)
            for agent in [agent for uid, *_ in updates for agent in self._peers.agents(uid)]:
                self._dismiss(agent)
            return
        self._store.update_pilots([update for update in updates if update[0] == peer.uid], announce=True)
        self._refuse([update[0] for update in updates if update[0] != peer.uid], peer)
        self._news_for_client()

    def _on_update_tasks(self, peer: Peer, updates: list[Update]) -> None:
        self._followed.changed(updates)
        if peer.role == 'client':
            self._store.tasks.update(updates)
            return
        complete, refused = self._store.tasks.report(updates, peer.uid)
        self._refuse(refused, peer)
        if not (complete and self._news.pass_on(self._peers.client, updates, self._store.rev)):
            self._news_for_client()

    def _refuse(self, uids: list[str], agent: Peer) -> None:
        """Trace updates of an agent for tasks that are not (or no longer) bound to its pilot."""
        if uids:
            self._refused += len(uids)
            self._tracer.record_bulk('update_refused', uids, msg=agent.uid)
            self._tracer.flush()
            _log.warning('%d updates refused so far; the last %d by %s, to whose pilot the tasks are not bound',
                         self._refused, len(uids), agent)

    def _news_for(self, pilot: str) -> None:
        for agent in self._peers.agents(pilot):
            agent.has_pending = True

    def _news_for_client(self) -> None:
        self._news.announced(self._store.rev)
        if self._peers.client is not None:
            self._peers.client.has_pending = True

    # lost peers

    def _lost(self, peer: Peer, *, died: bool) -> None:
        if not self._forget(peer):
            return
        _log.warning('%s is lost: %s', peer, 'it died' if died else 'it does not answer')
        if peer.role == 'agent':
            self._watch.agent_gone(peer, died=died)
        else:
            self._client_left(detached=False)

    def _client_left(self, *, detached: bool) -> None:
        self._write('client', '', self._store.set_meta, [(presence.CLIENT, '')])
        self._watch.client_gone(detached=detached)
        self._followed.look_at_all()

    def _declare_lost(self, pilot: str, reason: str) -> None:
        if self._peers.client is not None and self._store.may_run_again(pilot):
            _log.warning('%s may continue with another agent: %s', pilot, reason)
            return
        _log.warning('%s is lost: %s', pilot, reason)
        info = codec.pack({'exception': reason})
        self._write('lost', pilot, self._fail, pilot, info)

    def _fail(self, pilot: str, info: bytes) -> None:
        self._store.update_pilots([(pilot, states.FAILED, info)], announce=True)
        self._news_for_client()

    def _cancel(self, pilots: list[str]) -> None:
        _log.warning('no client has attached in time: cancelling %s', ', '.join(pilots))
        stuck = self._store.stuck_pilots()
        for pilot in pilots:
            more = f', and {stuck[pilot]}' if pilot in stuck else ''
            self._order(pilot, {'cmd': 'cancel_pilot', 'reason': f'the application is gone{more}'})

    def _order(self, pilot: str, command: dict[str, Any]) -> None:
        """Send a command of the hub itself."""
        self._write('order', pilot, self._command, pilot, codec.pack(command))

    def _command(self, pilot: str, command: bytes) -> None:
        self._store.insert_command(pilot, command)
        self._news_for(pilot)

    def _end(self) -> None:
        self._leaving = True
        self._turn_soon()
