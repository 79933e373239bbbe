"""Deliveries of the hub: tasks, commands and outcomes of followed tasks to agents, changes and pages to the client."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

from rp_api import states
from rp_api.coordination import outcome, wire
from rp_api.coordination.contract import BULK, LEFT_AGENT
from rp_api.coordination.contract import Update as Outcome
from rp_api.coordination.hub.database import INCREMENT_BYTES, Increment
from rp_api.coordination.hub.peers import Peer, Peers
from rp_api.coordination.hub.store import Store
from rp_api.coordination.hub.task_table import Update
from rp_api.wire import codec

MAX_IN_FLIGHT = 8
"""Maximum number of deliveries in flight to one peer."""

MAX_WAITING_BYTES = 2 * INCREMENT_BYTES
"""Approximate maximum size in bytes of the updates that wait for a client in memory."""

_ROW_BYTES = 256   # approximate bytes of a row without info

Delivery = tuple[list[Any], list[Any]]


class News:
    """Updates from agents that are forwarded to an up-to-date client without reading them from the database.

    They wait here while too many messages are in flight. A client that is further behind gets updates from the
    database in its turn (`next_delivery`).
    """

    def __init__(self, rev: int) -> None:
        self._announced = rev   # the last change that a client must receive
        self._client: Peer | None = None
        self._waiting: deque[_Bulk] = deque()   # each begins where the one before ends
        self._size = 0

    def announced(self, rev: int) -> None:
        """Record an update that is not forwarded."""
        self._announced = rev

    def pass_on(self, client: Peer | None, updates: Sequence[Update], rev: int) -> bool:
        """Queue the last updates, all of which had an effect; return False if the client must read the database."""
        if client is not self._client:
            self._forget()
        if client is None or not client.listens:
            return False
        end = self._waiting[-1].rev if self._waiting else client.cursors[0]
        size = sum([_ROW_BYTES + len(info or b'') for _, _, info in updates])
        if end < self._announced or self._size + size > MAX_WAITING_BYTES:
            return False
        if not self._waiting or not self._waiting[-1].has_room(len(updates), size):
            self._waiting.append(_Bulk(end))
        self._waiting[-1].add(updates, size, rev)
        self._size += size
        self._client = client
        self._announced = rev
        return True

    def messages(self) -> list[tuple[bytes, list[Any]]]:
        """Return the messages to send, each with the address of the client."""
        messages: list[tuple[bytes, list[Any]]] = []
        client = self._client
        if client is None:
            return messages
        if not client.listens or (self._waiting and client.cursors[0] != self._waiting[0].since):
            self._forget()
        while self._waiting and client.in_flight < MAX_IN_FLIGHT:
            bulk = self._waiting.popleft()
            self._size -= bulk.size
            client.cursors = bulk.rev, bulk.rev
            messages.append(client.feed(bulk.rows, []))
        return messages

    def _forget(self) -> None:
        """Discard the queue, so that the updates are read from the database."""
        if self._client is not None:
            self._client.has_pending = True
        self._client = None
        self._waiting.clear()
        self._size = 0


class _Bulk:
    """Updates for one message: the changes after the revision `since`, up to `rev`."""

    __slots__ = ('rev', 'rows', 'since', 'size')

    def __init__(self, since: int) -> None:
        self.since = self.rev = since
        self.rows: list[Update] = []
        self.size = 0

    def has_room(self, count: int, size: int) -> bool:
        """Return whether so many more fit in."""
        return len(self.rows) + count <= BULK and self.size + size <= INCREMENT_BYTES

    def add(self, updates: Sequence[Update], size: int, rev: int) -> None:
        """Add updates up to that revision."""
        self.rows += updates
        self.size += size
        self.rev = rev


def deliveries(store: Store, peers: Peers, news: News) -> list[tuple[bytes, list[Any]]]:
    """Return all messages with updates; agents of one pilot take turns."""
    messages = news.messages()
    for peer in peers:
        if peer.asked is not None:
            found = page(store, peer.asked)
            messages.append((peer.address, ['page', *found]))
            if not found[0]:   # later changes are sent as feeds
                peer.sent = peer.cursors = found[2], found[2]
            peer.asked, peer.recovering = None, bool(found[1])
    waiting = [peer for peer in peers if peer.has_pending]
    while waiting:
        waiting = [peer for peer in waiting if peer.in_flight < MAX_IN_FLIGHT and peer.listens]
        for peer in list(waiting):
            batch = next_delivery(store, peer, peers.takers(peer.uid))
            if batch is None:
                peer.has_pending = False
                waiting.remove(peer)
            else:
                messages.append(peer.feed(*batch))
    return messages


def next_delivery(store: Store, peer: Peer, share: int) -> Delivery | None:
    """Return the new data for a peer, or None; its cursors are moved, and its claims written.

    The tasks of a pilot are divided among the `share` agents that want tasks.
    """
    return _for_client(store, peer) if peer.role == 'client' else _for_agent(store, peer, max(1, BULK // share))


def page(store: Store, after: int) -> list[Any]:
    """Return a page of the session's data, as the arguments of a message (see `embedded`)."""
    tasks, upto = store.known_tasks(after, BULK)
    found = {row[0]: store.tasks.shared(row[0]) for row in tasks}
    shared, submitted = ({key: row[place] for key, row in found.items()} for place in (0, 1))
    first = {'notes': store.notes(), 'pilots': store.known_pilots()} if not after else {'notes': {}, 'pilots': []}
    return [after, upto, store.rev, first['notes'], first['pilots'], shared, tasks, submitted]


def _for_client(store: Store, peer: Peer) -> Delivery | None:
    """Return new states of tasks and of pilots."""
    since, _ = peer.cursors
    tasks = store.tasks.since(since, BULK)
    pilots = store.pilots_since(since, BULK)
    upto = min(tasks.upto, pilots.upto)
    peer.cursors = upto, upto
    if not tasks.rows and not pilots.rows:
        return None
    return [row[1:] for row in tasks.rows if row[0] <= upto], [row[1:] for row in pilots.rows if row[0] <= upto]


def _for_agent(store: Store, peer: Peer, limit: int) -> Delivery | None:
    """Return new tasks in bulks (shared part, [uid, rest]), and the commands that precede the next tasks."""
    since, others = peer.cursors
    commands = store.new_commands(peer.uid, others, BULK)
    tasks, rest = ([], commands.upto) if peer.hold else _tasks(store, peer, limit)
    if commands.rows:   # tasks after a command must wait for the next feed
        first = commands.rows[0][0]
        later = [row[0] for row in tasks if row[0] > first]
        rest = min([rest, *(rev - 1 for rev in later[:1])])
        tasks = tasks[:len(tasks) - len(later)]
    orders = [(rev, command) for rev, command in commands.rows if rev <= rest]
    if tasks:
        since = tasks[-1][0]
        store.claims.claim(peer.uid, peer.agent, since)
    if orders:
        peer.ordered = orders[-1][0]
    peer.cursors = since, max(others, peer.ordered)
    if not tasks and not orders:
        return None
    return _bulks(store, tasks), [command for _, command in orders]


def _tasks(store: Store, peer: Peer, limit: int) -> Increment:
    """Return tasks for an agent, claimed ones first, and the revision up to which commands precede further tasks."""
    if not peer.caught_up:
        own = store.claims.own(peer.uid, peer.agent, peer.cursors[0], limit)
        if own.rows:
            return own
        peer.caught_up = True
    return store.claims.free(peer.uid, limit)


def _bulks(store: Store, tasks: list[Any]) -> list[Any]:
    bulks: dict[int, list[tuple[str, bytes]]] = {}
    for _, uid, shared_id, description in tasks:
        bulk = bulks.get(shared_id)
        if bulk is None:
            bulk = bulks[shared_id] = []
        bulk.append((uid, description))
    return [(store.tasks.shared(shared_id)[0], bulk) for shared_id, bulk in bulks.items()]


class Followed:
    """The followed tasks of one session, and the pilots that follow them."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._pilots: dict[str, tuple[str, ...]] = {}   # by uid of the task
        self._due: set[str] = set()        # tasks to look at
        self._written: set[str] = set()    # tasks whose outcomes are to be committed

    def follow(self, pilot: str, uids: Iterable[str]) -> None:
        """Tell that pilot how these tasks have ended, once they have."""
        known = self._pilots
        for uid in uids:
            pilots = known.get(uid, ())
            if pilot not in pilots:
                known[uid] = (*pilots, pilot)
            self._due.add(uid)

    def changed(self, updates: Iterable[tuple[str, str, bytes | None]]) -> None:
        """Look at those of these tasks, and of the sweeps of these chunks, that are followed at the end of the turn."""
        if self._pilots:
            uids = [uid for uid, _, _ in updates]
            self._due.update(uid for uid in uids if uid in self._pilots)
            sweeps = {uid.rpartition('/')[0] for uid in uids if '/' in uid}
            if sweeps:
                self._due.update(uid for uid in self._pilots if uid.rpartition('.')[0] in sweeps)

    def look_at_all(self) -> None:
        """Look at all followed tasks at the end of the turn: those that were not submitted will never be."""
        self._due.update(self._pilots)

    def forget(self, pilot: str) -> None:
        """Forget a pilot whose agent has ended."""
        for uid in [uid for uid, pilots in self._pilots.items() if pilot in pilots]:
            left = tuple(other for other in self._pilots[uid] if other != pilot)
            if left:
                self._pilots[uid] = left
            else:
                del self._pilots[uid]

    def write(self, *, orphaned: bool) -> list[str]:
        """Write commands with the outcomes of tasks that have ended, and return the pilots that get them.

        `orphaned`: no client will submit tasks that are unknown.
        """
        by_pilot: dict[str, list[Outcome]] = {}
        for uid in self._due:
            found = self._outcome(uid, orphaned)
            if found is not None:
                self._written.add(uid)
                for pilot in self._pilots.get(uid, ()):
                    by_pilot.setdefault(pilot, []).append(found)
        self._due.clear()
        for pilot, outcomes in by_pilot.items():
            rest = iter(outcomes)
            while bulk := list(islice(rest, BULK)):
                self._store.insert_command(pilot, codec.pack({'cmd': outcome.FOLLOWED, 'tasks': bulk}))
        return list(by_pilot)

    def committed(self) -> None:
        """Forget the tasks whose outcomes have become durable."""
        for uid in self._written:
            self._pilots.pop(uid, None)
        self._written.clear()

    def rolled_back(self) -> None:
        """Look again at the tasks whose outcomes have not become durable."""
        self._due |= self._written
        self._written.clear()

    def _outcome(self, uid: str, orphaned: bool) -> Outcome | None:
        known = self._store.tasks.end_of(uid)
        if known is None:
            return outcome.lost(uid) if orphaned else None
        state, pilot, info = known
        if states.TASK.value(state) < LEFT_AGENT:
            return None
        return outcome.outcome(uid, state, pilot, wire.unpack_info(info))
