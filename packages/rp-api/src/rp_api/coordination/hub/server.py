"""The server of the hub: processes the operations of its peers, and the loss of peers."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from reprlib import repr as short  # handles long and deeply nested values
from typing import Any

import zmq

from rp_api import states
from rp_api.coordination import presence, wire
from rp_api.coordination.contract import PROTOCOL
from rp_api.coordination.hub.database import acknowledge
from rp_api.coordination.hub.exchange import Exchange
from rp_api.coordination.hub.peers import Peer, Peers, Watch
from rp_api.coordination.hub.store import Store
from rp_api.coordination.hub.task_table import Update
from rp_api.errors import CoordinationError
from rp_api.loop.event_loop import Loop
from rp_api.system.host import host_id
from rp_api.system.processes import start_time
from rp_api.system.shared_directory import sweep
from rp_api.wire import codec
from rp_profiling.write.tracer import Tracer

_log = logging.getLogger('radical.pilot.hub')


class HubServer(Exchange):
    """Serves the peers of one session on a ROUTER socket; `roles` maps public keys to roles."""

    def __init__(self, loop: Loop, socket: zmq.Socket[bytes], store: Store, roles: Mapping[str, str], *,
                 lease: float, orphan_timeout: float, tracer: Tracer,
                 listen: Callable[[str], list[str]], attachable: Callable[[], bool]) -> None:
        peers = Peers(loop, lambda peer: self._lost(peer, died=True))
        watch = Watch(loop, store, peers, lease, orphan_timeout, attachable)
        super().__init__(loop, socket, store, roles, peers, watch)
        self._lease = lease
        self._tracer = tracer
        self._listen = listen
        self._dismissed: set[str] = set()
        self._refused = 0
        self._handlers = {
            'ping': self._on_ping, 'clock': self._on_clock, 'moment': self._on_moment, 'seen': self._on_seen,
            'hold': self._on_hold, 'bye': self._on_bye, 'detach': self._on_detach, 'listen': self._on_listen,
            'recover': self._on_recover, 'pilots': lambda _, owner, pilots: store.insert_pilots(owner, pilots),
            'tasks': partial(self._on_new, store.tasks.insert), 'bind': partial(self._on_new, store.tasks.bind),
            'chunk': partial(self._on_new, store.tasks.insert_chunk), 'withdraw': self._on_withdraw,
            'command': partial(self._on_new, store.insert_command),
            'forget': lambda _, uids: store.tasks.forget(uids),
            'note': lambda _, key, value: store.note(key, value),
            'acknowledge': lambda _, owners, reported, own: acknowledge(store, owners, reported, own),
            'follow': lambda agent, uids: self._followed.follow(agent.uid, uids),
            'update_pilots': self._on_update_pilots, 'update_tasks': self._on_update_tasks}
        self._watch.start(self._declare_lost, self._cancel, self._end, lambda peer: self._lost(peer, died=False))

    def close(self) -> None:
        """Remove all peers."""
        self._peers.close()

    def starter_died(self) -> None:
        """Handle the end of the process that started the hub and whose client has not connected yet."""
        self._watch.expect_client()

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
        if peer.role == 'agent' and peer.has_got(others):
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

    def _on_new(self, write: Callable[..., object], _: Peer | None, pilot: str, *new: Any) -> None:
        write(pilot, *new)
        self._news_for(pilot)

    def _on_withdraw(self, _: Peer, uids: list[str]) -> None:
        self._store.chunks.withdraw(uids)
        self._store.tasks.withdraw(uids, self._store.claims.end)
        self._news_for_client()

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
        if died:   # on this host
            with suppress(OSError):
                sweep()
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
        self._write('order', pilot, self._on_new, self._store.insert_command, None, pilot, codec.pack(command))

    def _end(self) -> None:
        self._leaving = True
        self._turn_soon()
