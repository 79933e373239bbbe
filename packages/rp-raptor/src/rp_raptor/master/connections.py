"""The workers and applications of a master: connections, heartbeats, and messages to and from the router."""

from __future__ import annotations

import logging
import os
import time
from array import array
from collections.abc import Sequence
from typing import Any

import zmq

from rp_api.errors import CoordinationError
from rp_api.loop.event_loop import Loop, Timer, is_readable
from rp_api.loop.soon import Soon
from rp_api.system.host import host_id
from rp_api.system.processes import start_time
from rp_api.system.shared_directory import place, sweep
from rp_api.transport.access import Access, AccessPoint
from rp_api.transport.connection import send_to, signed_arrivals
from rp_api.transport.keys import Tally
from rp_api.wire import codec
from rp_raptor.master.objects import MasterObjects
from rp_raptor.master.peers import ApplicationPeer, Audience, Peer, PeerProcess, SharingPeer, WorkerPeer
from rp_raptor.master.router import CallRouter
from rp_raptor.master.worker_pool import PooledWorker
from rp_raptor.master.workers import Workers
from rp_raptor.wire import protocol
from rp_raptor.wire.batch import Payloads, pack_message
from rp_raptor.wire.carried_results import with_contents
from rp_raptor.wire.parts import Part
from rp_raptor.wire.protocol import APPLICATION, CALLS, PING, PROTOCOL, SILENCE, WINDOW, WORKER, Handlers, Message
from rp_raptor.wire.store import ValueStore

_log = logging.getLogger('radical.pilot.raptor')


class Peers:
    """Listens for workers and applications and exchanges messages with them; for the loop's thread only."""

    def __init__(self, loop: Loop, uid: str, interface: str | None, base: str | None, audience: Audience,
                 registry: Workers, retries: int) -> None:
        self.router = CallRouter(self._send_to_worker, retries)
        self.deal_soon = Soon(loop, self._deal)
        self._loop = loop
        self._uid = uid
        self._audience = audience
        self._registry = registry
        self._peers: dict[bytes, Peer] = {}
        self._applications: dict[bytes, ApplicationPeer] = {}   # those of the peers
        self._sharing: dict[bytes, SharingPeer] = {}   # those of the applications
        self._workers: dict[str, dict[int, WorkerPeer]] = {}   # the parts of workers among them, by uid and number
        self._ranks_changed = False   # since the applications were told of them
        self._malformed = Tally('malformed message dropped')
        self._roles: dict[str, str] = {}
        self._store = ValueStore()
        self._stopped: set[str] = set()   # workers of which parts may still connect
        self._point = AccessPoint(loop, domain='raptor')
        self.context = self._point.context
        self._listener = self._point.listen(zmq.ROUTER, interface, 0, self._receive, base)
        self.objects = MasterObjects(loop, uid, interface, base)
        self.workers_access = self._admit(WORKER)
        self.applications_access = self._admit(APPLICATION)
        self._handlers: Handlers = {
            'credit': self._on_credit, 'results': self._on_results, 'returned': self._on_returned,
            'died': self._on_died, 'rank_states': self._on_rank_states, 'run': self._on_run, 'tell': self._on_tell,
            'bye': self._on_bye, 'define': self._on_define, 'calls': self._on_calls, 'cancel': self._on_cancel,
            'give_back': self._on_give_back, 'close': self._on_close, 'ping': self._on_ping}
        self._of_objects: Handlers = {
            'want_object': self.objects.want_object, 'hold_object': self.objects.hold_object,
            'put_object': self.objects.put_object, 'object_piece': self.objects.object_piece,
            'drop_object': self.objects.drop}
        self._timer = loop.call_later(PING, self._look)
        self._shortage = ''   # as it was reported
        self._report: Timer | None = None

    def send(self, address: bytes, message: Message) -> None:
        """Send a message to a peer; a peer that is not connected misses it, and says hello again if it lives."""
        try:
            send_to(self._listener.socket, address, pack_message(message))
        except zmq.ZMQError as error:
            _log.debug('%s cannot be sent to %r: %s', message[0], address, error)

    def _send_to_worker(self, address: bytes, message: Message) -> None:
        peer = self._peers.get(address)
        for each in peer.messages(message) if isinstance(peer, WorkerPeer) else [message]:
            self.send(address, each)

    def stop_workers(self, uids: Sequence[str] | None = None) -> None:
        """Stop the workers with these uids, or all."""
        workers = list(self._workers) if uids is None else uids
        for peer in [peer for uid in workers for peer in self._workers.get(uid, {}).values()]:
            self._stop(peer)

    def has_worker(self, uid: str) -> bool:
        """Return whether the worker is connected."""
        return bool(self._workers.get(uid))

    def end(self, reason: str) -> None:
        """Fail all calls without a result, stop the workers and notify the applications.

        Applications that have other masters, too, keep their calls, and send them to one of these.
        """
        for peer in self._sharing.values():
            self.router.close(peer.source)
        self.router.fail_all(reason)
        self.stop_workers()
        self._flush()
        for address in self._applications:
            self.send(address, ['ended', reason])

    def close(self, linger: float) -> None:
        """Close all sockets; pending messages have `linger` seconds to be sent."""
        self._timer.cancel()
        if self._report is not None:
            self._report.cancel()
        for peer in self._peers.values():
            peer.watch.stop()
        self._peers.clear()
        self._workers.clear()
        self.objects.close()
        self._store.close()
        self._listener.close(linger)
        self._point.close()

    def _flush(self) -> None:
        for peer in self._applications.values():
            peer.flush()

    def _deal(self) -> None:
        self._flush()
        self.router.deal()
        if self.router.pool.vain:
            self.router.check(time.monotonic())
        if self._ranks_changed:
            self._ranks_changed = False
            self._audience.has_ranks(self.router.pool.ranks_for(1))
            for peer in self._applications.values():
                peer.tell_ranks(self.router.pool.ranks_for(peer.width))
        if self._report is None and (self._shortage or self.router.waiting):
            self._report = self._loop.call_later(protocol.REPORT_DELAY, self._report_shortage)
        if self._sharing:
            capacity = self.router.pool.capacity
            for peer in self._sharing.values():
                peer.grant(capacity)

    def _report_shortage(self) -> None:
        """Report why calls wait for workers, if that has changed, and look again while calls wait."""
        self._report = None
        shortage = self.router.shortage()
        if shortage != self._shortage:
            self._shortage = shortage
            self._audience.waits(shortage)
        self.deal_soon()

    def _admit(self, role: str) -> Access:
        access = self._point.admit(self._listener.address)
        self._roles[access.public] = role
        return access

    # messages

    def _receive(self) -> None:
        for address, data, key in signed_arrivals(self._listener.socket, self._malformed):
            self._handle(address, data, self._roles[key])
        self.deal_soon()

    def _handle(self, address: bytes, data: bytes, role: str) -> None:
        try:
            operation, arguments = protocol.parse(data, role)
            if operation == 'worker':
                self._on_worker(address, *arguments)
            elif operation == 'open':
                self._on_open(address, *arguments)
            else:
                peer = self._peers.get(address)
                if peer is None:   # its connection was lost, or it was considered dead
                    raise CoordinationError(f'{operation!r} of a peer that has not said hello (key: {role})')
                if peer.role != role:
                    raise CoordinationError(f'a peer with the key of a {role} uses the address of {peer.uid}')
                peer.watch.hear()
                if operation in self._of_objects:
                    self._of_objects[operation](peer.key, *arguments)
                else:
                    self._handlers[operation](peer, *arguments)
        except (CoordinationError, ValueError) as error:
            self._malformed.add(error)

    def _greet(self, peer: Peer, version: Any) -> bool:
        """Welcome a peer, which replaces one with its address or, for a worker, its uid; False if it is refused."""
        if version != PROTOCOL:
            self.send(peer.address, ['refused', (
                f'{peer.uid} uses version {version} of the RAPTOR protocol, {self._uid} version {PROTOCOL}: install '
                'the same release of rp-raptor on both sides')])
            return False
        same = self._workers.get(peer.uid, {}).get(peer.part.number) if isinstance(peer, WorkerPeer) else None
        for known in (self._peers.get(peer.address), same):
            if known is not None:
                again = known.process == peer.process   # its connection was lost
                self._forget(known, '' if again else 'another process has taken its place', died=not again)
        self._peers[peer.address] = peer
        if isinstance(peer, WorkerPeer):
            self._workers.setdefault(peer.uid, {})[peer.part.number] = peer
        self.objects.came(peer.key, lambda message: self.send(peer.address, message))
        self.send(peer.address, ['welcome', {'uid': self._uid, 'host': host_id(), 'pid': os.getpid(),
                                              'started': start_time(os.getpid()), 'place': place(),
                                              'results': self._store.results}])
        host, pid, started = peer.process
        if host == host_id() and not peer.watch.start(self._loop, pid, started, lambda: self._died(peer)):
            self._loop.call_soon(self._died, peer)
        return True

    # workers

    def _on_worker(self, address: bytes, uid: str, host: str, pid: int, ranks: int, info: dict[str, Any]) -> None:
        if not ranks:
            raise CoordinationError('a worker without ranks')
        process, part = PeerProcess.told(host, pid, info.get('started')), Part.told(info, ranks)
        worker = PooledWorker(address, uid, ranks, info.get('mpi') is True, part.widest)
        peer = WorkerPeer(address, uid, process, worker, part, self._store if info.get('place') == place() else None)
        if self._greet(peer, info.get('protocol')):
            self.router.attach(peer.worker)
            self._ranks_changed = True
            self._registry.came(uid, part)
            _log.info('worker %s is up: process %d on %s, %d ranks', peer.name, pid, info.get('host_name', host), ranks)
            if uid in self._stopped:
                self._stop(peer)
            elif peer.worker.mpi and part.count > 1:
                self._complete(uid, part.count)

    def _complete(self, uid: str, count: int) -> None:
        """Connect the parts of an MPI worker with each other if all are connected here."""
        parts = self._workers[uid]
        if len(parts) == count:
            for peer in parts.values():
                self.send(peer.address, ['complete', {number: each.worker.ranks for number, each in parts.items()}])

    def _on_tell(self, peer: WorkerPeer, part: int, data: bytes) -> None:
        other = self._workers[peer.uid].get(part)
        if other is not None:
            self.send(other.address, ['told', peer.part.number, data])

    def _stop(self, peer: WorkerPeer) -> None:
        peer.stopped = True
        if peer.part.count > 1:
            self._stopped.add(peer.uid)
        self.send(peer.address, ['stop'])

    def _on_credit(self, peer: WorkerPeer, count: int) -> None:
        self.router.credit(peer.worker, count)
        self._audience.capacity_changed()

    def _on_results(self, peer: WorkerPeer, ids: array[int], payloads: Payloads) -> None:
        self.router.results(peer.worker, peer.released(ids), with_contents(payloads))

    def _on_returned(self, peer: WorkerPeer, ids: array[int]) -> None:
        self.router.returned(peer.worker, peer.released(ids))

    def _on_died(self, peer: WorkerPeer, ids: array[int], reason: str) -> None:
        self.router.died(peer.worker, peer.released(ids), reason)

    def _on_rank_states(self, peer: WorkerPeer, states: dict[int, str]) -> None:
        self._registry.ranks_changed(peer.uid, states)

    def _on_run(self, peer: WorkerPeer, number: int, description: bytes, result: bytes) -> None:
        self._audience.run(peer.stem, number, codec.unpack(description), result,
                           lambda payload: self.send(peer.address, ['ran', number, payload]))

    def _on_bye(self, peer: WorkerPeer, reason: str) -> None:
        if reason and not peer.stopped:
            self.router.pool.lost(peer.uid, f'worker {peer.name} has ended: {reason}')
        self._forget(peer, reason or 'it was stopped', died=False, failed=bool(reason) and not peer.stopped)

    # applications

    def _on_open(self, address: bytes, stream: str, info: dict[str, Any]) -> None:
        process = PeerProcess.told(info.get('host'), info.get('pid'), info.get('started'))
        width = info.get('share')
        if width is None:
            peer = ApplicationPeer(address, stream, process, self.send, self.router, 1)
        elif type(width) is int and width > 0:
            peer = SharingPeer(address, stream, process, self.send, self.router, width)
        else:
            raise CoordinationError(f'an application with calls over {width!r:.80} ranks')
        if not self._greet(peer, info.get('protocol')):
            self.router.close(peer.source)
            return
        self._applications[address] = peer
        if isinstance(peer, SharingPeer):
            self._sharing[address] = peer
        else:
            self.send(address, ['room', WINDOW])
        peer.tell_ranks(self.router.pool.ranks_for(peer.width))

    def _on_define(self, peer: ApplicationPeer, fid: bytes, blob: bytes) -> None:
        self.router.define(peer.source, fid, blob)

    def _on_calls(self, peer: ApplicationPeer, numbers: array[int], payloads: Payloads,
                  attributes: dict[int, dict[str, Any]] | None) -> None:
        if numbers and max(numbers) >= CALLS:
            raise CoordinationError(f'the number of a call is {max(numbers)}: it must be below {CALLS}')
        if isinstance(peer, SharingPeer):
            peer.granted = max(0, peer.granted - len(numbers))
        self.router.calls(peer.source, numbers, payloads, attributes)

    def _on_cancel(self, peer: ApplicationPeer, ids: array[int]) -> None:
        self.router.cancel(peer.source, ids)

    def _on_give_back(self, peer: ApplicationPeer, count: int) -> None:
        self.router.give_back(peer.source, count, lambda ids: self.send(peer.address, ['returned', ids]))

    def _on_close(self, peer: ApplicationPeer) -> None:
        self._forget(peer, 'it has closed', died=False)

    # loss of peers

    def _on_ping(self, peer: Peer) -> None:
        self.send(peer.address, ['pong'])
        if isinstance(peer, WorkerPeer):
            self._registry.heard(peer.uid, peer.part)

    def _died(self, peer: Peer) -> None:
        self._receive_last()
        sweep()
        reason = f'its process {peer.process.pid} has died'
        if isinstance(peer, WorkerPeer) and not peer.stopped:   # the agent knows more
            self.router.credit(peer.worker, -peer.worker.free)
            self._loop.call_later(protocol.END_REPORT_TIMEOUT_S, self._lose, peer, reason)
        else:
            self._forget(peer, reason, died=not peer.stopped)

    def lose_worker(self, uid: str, reason: str, delay: float) -> None:
        """Remove a worker that has ended, as the agent has reported, when its last messages have arrived."""
        for peer in self._workers.get(uid, {}).values():
            self._loop.call_later(delay, self._lose, peer, reason)
        self.deal_soon()

    def lose_part(self, uid: str, part: Part, reason: str) -> None:
        """Remove a part of a worker whose process has ended, as the agent has reported."""
        peer = self._workers.get(uid, {}).get(part.number)
        if peer is not None:
            self._lose(peer, reason)
        else:
            self._part_ended(uid, part)
            self._end_job(uid, f'{uid} (part {part.number} of {part.count}) has ended: {reason}')

    def _lose(self, peer: WorkerPeer, reason: str) -> None:
        self._receive_last()
        self._forget(peer, reason, died=not peer.stopped)

    def _part_ended(self, uid: str, part: Part) -> bool:
        """Handle the end of a part of a worker; return whether it was the last one."""
        self._audience.capacity_changed()
        return self._registry.part_ended(uid, part)

    def _end_job(self, uid: str, reason: str) -> None:
        """End the parts that are left of an MPI worker that has lost one."""
        for peer in self._workers.get(uid, {}).values():
            if peer.worker.mpi and not peer.stopped:
                self.send(peer.address, ['lost', reason])

    def _receive_last(self) -> None:
        """Handle all messages that have arrived: they may hold the last results, or the `bye`, of a dead peer."""
        while is_readable(self._listener.socket):
            self._receive()

    def _look(self) -> None:
        """Remove peers without a heartbeat, and check for calls that no worker can run."""
        now = time.monotonic()
        for peer in list(self._peers.values()):
            if peer.watch.silent(SILENCE):
                self._forget(peer, f'it has sent nothing for {SILENCE:.0f} s', died=True)
        self.router.check(now)
        self._flush()
        self._timer = self._loop.call_later(PING, self._look)

    def _forget(self, peer: Peer, reason: str, *, died: bool, failed: bool | None = None) -> None:
        """Remove a peer; without a reason it has reconnected."""
        if self._peers.get(peer.address) is not peer:
            return
        del self._peers[peer.address]
        self._applications.pop(peer.address, None)
        self._sharing.pop(peer.address, None)
        peer.watch.stop()
        if reason:
            self.objects.left(peer.key)
        if isinstance(peer, WorkerPeer):
            self._workers[peer.uid].pop(peer.part.number)
            self.router.detach(peer.worker, f'worker {peer.name} is lost: {reason}', died=died)
            self._ranks_changed = True
            if reason:
                _log.info('worker %s is lost: %s', peer.name, reason)
            if reason and not peer.stopped and peer.worker.mpi:
                self._end_job(peer.uid, f'worker {peer.name} is lost: {reason}')
            if reason and (peer.part.count == 1 or self._part_ended(peer.uid, peer.part)):
                self._audience.ended(peer.uid, reason, failed=died if failed is None else failed)
        elif isinstance(peer, ApplicationPeer):
            self.router.close(peer.source)
        self.deal_soon()
