"""Connections of clients and agents to the hub of their session."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, cast

from rp_api.batch import Batch, Chunk, RowDescription
from rp_api.coordination import wire
from rp_api.coordination.connections.hub_connection import HubConnection
from rp_api.coordination.contract import BULK, AgentConnection, ClientConnection, Mark, Page, Update
from rp_api.coordination.outcome import FOLLOWED
from rp_api.loop.event_loop import Loop
from rp_api.transport.access import Access
from rp_api.wire import codec


class HubClientConnection(HubConnection, ClientConnection):
    """The client's connection to its hub; after a takeover, it receives nothing before `recover`.

    `met` takes the hub's process id and host at each welcome.
    """

    def __init__(self, loop: Loop, access: Access, session: str, *, takes_over: bool = False,
                 met: Callable[[dict[str, Any]], object] | None = None) -> None:
        super().__init__(loop, access, 'client', session)
        self._met = met
        self._hello['recover'] = takes_over
        self._on_known: Callable[[Page], None] | None = None
        self._known_upto = 0
        self._own = 0   # the hub's revision at its last acknowledgement
        self._listen: tuple[str, list[Callable[[list[str], str], object]]] | None = None
        self._handlers |= {'page': self._on_page, 'listening': self._on_listening}

    def insert_pilots(self, pilots: Mapping[str, Mapping[str, Any]], owner: str = '') -> None:
        self._send('pilots', owner, [(uid, codec.pack(record)) for uid, record in pilots.items()])

    def insert_batch(self, pilot: str, batch: Batch, owner: str = '') -> None:
        chunk = batch.rows
        if isinstance(chunk, Chunk) and self.keeps_chunks:
            self._send('chunk', pilot, owner, batch.common, chunk.uid, chunk.size, chunk.packed())
            return
        for part in wire.parts(batch.listed()):
            self._send('tasks', pilot, owner, batch.common, part)

    def withdraw(self, uids: Sequence[str]) -> None:
        self._send('withdraw', list(uids))

    def bind_tasks(self, pilot: str, uids: Sequence[str]) -> None:
        self._send('bind', pilot, list(uids))

    def forget_tasks(self, uids: Sequence[str]) -> None:
        self._send('forget', list(uids))

    def command(self, pilot: str, command: Mapping[str, Any]) -> None:
        self._send('command', pilot, codec.pack(command))

    def note(self, key: str, value: Any) -> None:
        self._send('note', key, codec.pack(value))

    def listen(self, address: str, done: Callable[[list[str], str], object]) -> None:
        """Make the hub listen at this address, too; `done` gets all of its endpoints, or none and the error.

        A hub that already listens to other hosts keeps its address.
        """
        if self._listen is not None:
            self._listen[1].append(done)
            return
        self._listen = address, [done]
        if self._welcome:
            self._post([0, 'listen', address])

    def _on_listening(self, endpoints: list[str], error: str) -> None:
        if self._listen is not None:
            waiting, self._listen = self._listen[1], None
            for done in waiting:
                done(endpoints, error)

    @property
    def mark(self) -> Mark:
        return Mark(self._cursors[0], self._own)

    def acknowledge(self, owners: Sequence[str], mark: Mark) -> None:
        self._send('acknowledge', list(owners), *mark)

    def recover(self, on_page: Callable[[Page], None]) -> None:
        self._on_known = on_page
        self._known_upto = 0
        self._hello['recover'] = True   # the hub sends no updates meanwhile
        if self._welcome:
            self._ask_for_page()

    def finish(self, done: Callable[[], object]) -> None:
        self._send('bye')
        self._finishing = True
        self._ping_later()
        self.when_settled(lambda: self._on_finished(done))

    def _on_finished(self, done: Callable[[], object]) -> None:
        self._finished = True
        done()

    def detach(self) -> None:
        self._leave('detach')

    def _on_welcome(self, hub: dict[str, Any]) -> None:
        self.keeps_chunks = bool(hub.get('chunks'))   # earlier versions of the hub do not
        if self._met is not None and not self._welcome:
            self._met(hub)
        super()._on_welcome(hub)
        if self._welcome and self._listen is not None:
            self._post([0, 'listen', self._listen[0]])
        if self._welcome and self._on_known is not None:
            self._ask_for_page()

    def _ask_for_page(self) -> None:
        self._post([0, 'recover', self._known_upto])

    def _on_page(self, after: int, upto: int, rev: int, notes: dict[str, bytes], pilots: list[Any],
                 shared: dict[int, bytes], tasks: list[Any],
                 submitted: Mapping[int, float | None] = MappingProxyType({})) -> None:
        """Handle a page of the session's data; `upto` is 0 in the last one.

        Hubs of earlier versions do not tell when tasks were submitted.
        """
        if self._on_known is None or after != self._known_upto:   # a duplicate after reconnecting
            return
        if not after:   # later changes arrive as updates
            self._cursors = rev, rev
            self._own = rev
        on_page, self._known_upto = self._on_known, upto
        if upto:
            self._ask_for_page()
        else:
            self._on_known = None
            self._hello['recover'] = False
        on_page(Page({key: codec.unpack(value) for key, value in notes.items()},
                     [wire.known_pilot(row) for row in pilots], wire.known_tasks(shared, tasks, submitted),
                     not upto))

    def _on_feed(self, since: int, others_since: int, upto: int, others_upto: int, tasks: list[Any],
                 others: list[Any]) -> None:
        if self._on_known is None:   # otherwise the pages contain the changes
            super()._on_feed(since, others_since, upto, others_upto, tasks, others)
            self._handler.on_mark()

    def _on_ack(self, number: int, rev: int) -> None:
        super()._on_ack(number, rev)
        if rev > self._own:   # messages sent before have lower revisions, or were rejected
            self._own = rev
            self._handler.on_mark()

    def _compare(self, sent: tuple[int, int]) -> None:
        if self._on_known is None:
            super()._compare(sent)
        else:   # the request or the answer may be lost
            self._ask_for_page()

    def _take(self, tasks: list[Any], others: list[Any]) -> None:
        if tasks:   # first: the end of a pilot must not hide results that arrived before it
            self._handler.on_tasks(wire.taken(tasks))
        if others:
            self._handler.on_pilots(wire.unpacked(others))


class HubAgentConnection(HubConnection, AgentConnection):
    """An agent's connection to the hub of its session."""

    def __init__(self, loop: Loop, access: Access, pilot: str, agent: str = 'agent_0') -> None:
        super().__init__(loop, access, 'agent', pilot, agent)
        self._followed: set[str] = set()
        self._shared = b'', dict[str, Any]()   # the last shared part of descriptions, packed and unpacked

    def hold(self, on: bool) -> None:
        self._hello['hold'] = on
        if self._welcome or self._greeting:   # a hello in flight has the previous value
            self._post([0, 'hold', on])

    def follow_tasks(self, uids: Sequence[str]) -> None:
        self._followed.update(uids)
        self._follow(uids)

    def _follow(self, uids: Sequence[str]) -> None:
        for first in range(0, len(uids), BULK):
            self._send('follow', list(uids[first:first + BULK]))

    def _on_welcome(self, hub: dict[str, Any]) -> None:
        repeated = self._welcome
        super()._on_welcome(hub)
        if self._welcome and not repeated:   # it may be a new hub
            self._follow(list(self._followed))

    def unsettled(self) -> list[Update]:
        messages = map(codec.unpack, self._unsettled)
        return [update for _, operation, *arguments in messages if operation == 'update_tasks'
                for update in wire.unpacked(arguments[0])]

    def _take(self, tasks: list[Any], others: list[Any]) -> None:
        for shared, bulk in tasks:
            if shared != self._shared[0]:
                self._shared = shared, codec.unpack_dict(shared)
            common = self._shared[1]
            self._handler.on_tasks([(uid, common if body == codec.NOTHING else RowDescription(common, body))
                           for uid, body in bulk])
        for packed in others:
            command = cast(dict[str, Any], codec.unpack(packed))
            if command.get('cmd') == FOLLOWED:
                outcomes = [Update(*update) for update in command['tasks']]
                self._followed.difference_update([uid for uid, _, _ in outcomes])
                self._handler.on_followed(outcomes)
            else:
                self._handler.on_command(command)


_FIELDS = 'endpoint', 'server', 'public', 'secret'


def agent_access(access: Access) -> dict[str, str]:
    """Return an access to a hub as plain data for `agent_connection`."""
    return {'backend': 'hub', **dict(zip(_FIELDS, access.as_dict().values(), strict=True))}


def agent_connection(loop: Loop, access: Mapping[str, Any], pilot: str, agent: str) -> HubAgentConnection:
    """Return the connection of an agent to the hub that `access` describes."""
    return HubAgentConnection(loop, Access(*(access[name] for name in _FIELDS)), pilot, agent)
