"""The client's connection to the MongoDB of its session."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from rp_api import states
from rp_api.batch import Batch
from rp_api.coordination import contract
from rp_api.coordination.contract import BOUND_STATE, BULK, ClientConnection, Mark, Page, Update
from rp_api.coordination.mongodb import documents
from rp_api.coordination.mongodb.connection import MongoConnection, insert_new, move
from rp_api.coordination.mongodb.news import Outcome, absorb, apply
from rp_api.coordination.mongodb.presence import Silence, has_died
from rp_api.coordination.mongodb.server import Client, Collection, Document
from rp_api.loop.event_loop import Loop
from rp_api.loop.process_handle import ProcessHandle
from rp_api.system.host import host_id
from rp_api.wire import codec

DEATH_GRACE_S = 2.0
"""Seconds between the death of an agent on this host and the end of its pilot: its launcher may report more."""

Refused = Callable[[Sequence[str], str], object]


class MongoClientConnection(MongoConnection, ClientConnection):
    """Writes the client's data, and applies and delivers agents' reports.

    `instance` identifies this client in the session's document; `last` is the largest number in use in the session;
    `on_stale(uids, pilot)` is called for rejected updates. A client that takes a session over reads nothing before
    `recover`.
    """

    def __init__(self, loop: Loop, client: Client, collection: Collection, url: str, session: str, instance: str,
                 lease: float, last: int, on_stale: Refused, *, takes_over: bool) -> None:
        super().__init__(loop, client, collection, url, lease)
        self._session = session
        self._instance = instance
        self._on_stale = on_stale
        self._numbers.above(last)
        self._silence = Silence(self._interval)
        self._watched: dict[str, ProcessHandle | None] = {}
        self._in_hand: dict[str, Document] = {}
        self._held: list[tuple[str, int, Outcome]] = []
        self._recovering = takes_over
        self._mark = Mark()
        self._due = 0.0
        self._begin(['news'], '')

    def insert_pilots(self, pilots: Mapping[str, Mapping[str, Any]], owner: str = '') -> None:
        new = [documents.pilot_document(uid, self._numbers.next(), owner, record) for uid, record in pilots.items()]
        self._send(partial(insert_new, self._collection, new))

    def insert_batch(self, pilot: str, batch: Batch, owner: str = '') -> None:
        tasks = batch.tasks()
        number = self._numbers.next()
        parcel = number if pilot else 0
        new = [documents.task_document(uid, self._numbers.next(), owner, pilot, parcel,
                                       documents.packed(uid, description)) for uid, description in tasks]
        uids = [uid for uid, _ in tasks]
        self._send(partial(self._insert_tasks, new, [documents.parcel_document(number, pilot, uids)] if pilot else []))
        self._changed(self._numbers.next())
        self._watcher.quicken()

    def _insert_tasks(self, new: list[Document], parcels: list[Document]) -> None:
        insert_new(self._collection, new)
        insert_new(self._collection, parcels)

    def bind_tasks(self, pilot: str, uids: Sequence[str]) -> None:
        number = self._numbers.next()
        self._send(partial(self._bind_tasks, number, pilot, list(uids)))
        self._changed(number)

    def _bind_tasks(self, parcel: int, pilot: str, uids: list[str]) -> None:
        wanted: Document = {'_id': {'$in': uids}, 'type': 'task'}
        change = documents.moved(states.TASK, Update('', contract.BOUND_STATE), -parcel)
        change['$set'] |= {'pilot': pilot, 'parcel': parcel}
        bound = self._collection.update_many(
            {**wanted, 'pilot': {'$ne': pilot}, 'value': {'$lt': contract.LEFT_AGENT}},
            {**change, '$inc': {'attempts': 1}})
        insert_new(self._collection, [documents.parcel_document(parcel, pilot, uids)])
        if bound.matched_count < len(uids):   # some were bound to it before, perhaps incompletely by another client
            repair(self._collection, self._numbers, list(self._collection.find(
                {**wanted, 'pilot': pilot, 'state': contract.BOUND_STATE}, {'parcel': 1, 'pilot': 1, 'state': 1})))

    def withdraw(self, uids: Sequence[str]) -> None:
        self._send(partial(self._withdraw, list(uids)))

    def _withdraw(self, uids: list[str]) -> None:
        """Delete the parcels of these tasks, report the tasks as their agent would, and put others into new parcels."""
        bound = {'type': 'task', 'state': contract.BOUND_STATE}
        parcels: dict[tuple[int, str], list[str]] = {}
        for task in self._collection.find({'_id': {'$in': uids}, **bound}):
            parcels.setdefault((task['parcel'], task['pilot']), []).append(task['_id'])
        for (number, pilot), mine in parcels.items():
            parcel = documents.parcel_id(number)
            self._collection.delete_one({'_id': parcel, 'type': 'parcel', 'agent': ''})
            if self._collection.find_one({'_id': parcel}) is None:   # else an agent has claimed it
                updates = [codec.pack(Update(uid, states.AGENT_SCHEDULING, {'returned': pilot})) for uid in mine]
                insert_new(self._collection, [documents.news_document(
                    self._numbers.next(), self._instance, 'tasks', pilot, codec.pack(updates))])
                repair(self._collection, self._numbers, list(self._collection.find(
                    {'parcel': number, '_id': {'$nin': mine}, **bound})))
        self._loop.call_soon(self._watcher.call)

    def forget_tasks(self, uids: Sequence[str]) -> None:
        self._send(partial(self._collection.update_many, documents.final(uids), {'$set': documents.forgotten()}))

    def command(self, pilot: str, command: Mapping[str, Any]) -> None:
        document = documents.command_document(self._numbers.next(), pilot, command)
        self._send(partial(insert_new, self._collection, [document]))

    def note(self, key: str, value: Any) -> None:
        content: Document = {'type': 'note', 'key': key, 'number': self._numbers.next(),
                             'content': documents.packed(key, value)}
        self._send(lambda: self._collection.update_one({'_id': f'@note.{key}'}, {'$set': content}, upsert=True))

    def update_pilots(self, updates: Sequence[Update]) -> None:
        self._move(states.PILOT, 'pilot', updates)

    def update_tasks(self, updates: Sequence[Update]) -> None:
        self._move(states.TASK, 'task', updates)

    def _move(self, model: states.StateModel, kind: str, updates: Sequence[Update]) -> None:
        number = self._numbers.next()
        self._send(partial(move, self._collection, model, kind, list(updates), number))
        self._changed(number)

    # acknowledgement

    @property
    def mark(self) -> Mark:
        return self._mark

    def acknowledge(self, owners: Sequence[str], mark: Mark) -> None:
        self._send(partial(acknowledge, self._collection, list(owners), mark))

    def _changed(self, number: int) -> None:
        """Record that everything sent until now has numbers up to this one."""
        self._mark = self._mark._replace(own=number)
        self._handler.on_mark()

    # takeover

    def recover(self, on_page: Callable[[Page], None]) -> None:
        self._recovering = True
        recovery = Recovery(self._collection, self._numbers, list(self._in_hand))
        self._writer.ask(recovery, partial(self._on_page, recovery, on_page))

    def _on_page(self, recovery: Recovery, on_page: Callable[[Page], None], page: Page) -> None:
        if self._closed:
            return
        on_page(page)
        if page.last:
            self._on_recovered()
        else:
            self._writer.ask(recovery, partial(self._on_page, recovery, on_page))

    def _on_recovered(self) -> None:
        self._recovering = False
        number = self._numbers.next()   # larger than the number of any change on the pages
        self._mark = Mark(number, number)
        held, self._held = self._held, []
        for news in held:
            self._on_applied(*news)
        self._watcher.call()

    # agents' reports

    def _look(self) -> bool:
        now = time.monotonic()
        if now >= self._due:
            self._due = now + self._interval
            if self._lives:
                self._beat()
            self._look_at_agents(now)
        in_hand = list(self._in_hand)
        free = contract.WINDOW - len(in_hand)
        if self._recovering or free <= 0:
            return False
        news = list(self._collection.find(documents.unread(in_hand)).sort('number', 1).limit(free))
        for document in news:
            self._in_hand[document['_id']] = document
            number = self._numbers.next()
            self._writer.ask(partial(apply, self._collection, document, number),
                             partial(self._on_applied, document['_id'], number))
        return bool(news)

    def _on_applied(self, news: str, number: int, outcome: Outcome) -> None:
        if self._recovering:
            self._held.append((news, number, outcome))
            return
        kind, pilot = (self._in_hand[news][key] for key in ('kind', 'pilot'))
        if outcome.refused:
            self._on_stale(outcome.refused, pilot)
        if outcome.valid and not self._closed:
            (self._handler.on_tasks if kind == 'tasks' else self._handler.on_pilots)(outcome.valid)
        if not self._closed:
            self._mark = self._mark._replace(reported=max(self._mark.reported, number))
            self._handler.on_mark()
            self._writer.ask(lambda: self._collection.delete_one({'_id': news}), lambda _: self._on_confirmed(news))

    def _on_confirmed(self, news: str) -> None:
        full = len(self._in_hand) >= contract.WINDOW
        del self._in_hand[news]
        if full:
            self._watcher.call()

    # presence

    def _beat(self) -> None:
        mine = self._collection.update_one({'_id': self._session, 'client.instance': self._instance},
                                           {'$inc': {'client.beat': 1}})
        if not mine.matched_count:
            self._refuse(f'another application has taken over the session {self._session}, or it was purged')

    def _look_at_agents(self, now: float) -> None:
        for agent in list(self._collection.find({'type': 'agent', 'left': ''})):
            beat = agent['instance'], agent['beat']
            if agent['host'] == host_id():   # its process is watched; a slow heartbeat means nothing
                self._loop.call_soon(self._watch, agent)
            elif self._silence.observe(agent['_id'], beat, now) > self._lease:
                reason = f'the agent of {agent["pilot"]} was silent for longer than its lease of {self._lease:g} s'
                self._loop.call_soon(self._declare, agent, reason)

    def _watch(self, agent: Document) -> None:
        """Watch the process of an agent on this host."""
        if self._closed or agent['instance'] in self._watched:
            return
        handle = self._watched[agent['instance']] = ProcessHandle.open(agent['pid'], agent['started'])
        if handle is None:
            self._on_dead(agent)
        else:
            handle.watch(self._loop, partial(self._on_dead, agent))

    def _on_dead(self, agent: Document) -> None:
        self._forget(agent['instance'])
        self._loop.call_later(DEATH_GRACE_S, self._declare, agent, f'the agent of {agent["pilot"]} died')

    def _forget(self, instance: str) -> None:
        handle = self._watched[instance]
        if handle is not None:
            handle.close()
            self._watched[instance] = None

    def _declare(self, agent: Document, reason: str) -> None:
        """Report the end of a lost agent's pilot as news, which are applied after those of the agent."""
        if not self._closed:
            end = codec.pack([codec.pack(Update(agent['pilot'], states.FAILED, {'exception': reason}))])
            news = documents.news_document(self._numbers.next(), self._instance, 'pilots', agent['pilot'], end)
            self._writer.ask(partial(self._end_pilot, agent, news), lambda _: self._watcher.call())

    def _end_pilot(self, agent: Document, news: Document) -> None:
        now = self._collection.find_one({'_id': agent['_id']})
        if now is None or now['left'] or now['instance'] != agent['instance']:
            return
        if now['beat'] != agent['beat'] and not has_died(agent):
            return   # it has returned
        insert_new(self._collection, [news])
        self._collection.update_one({'_id': agent['_id'], 'instance': agent['instance']}, {'$set': {'left': 'lost'}})

    # the end

    def close(self) -> None:
        self._go({'closed': True})

    def detach(self) -> None:
        self._go({'detached': True})

    def _go(self, how: Document) -> None:
        if self._closed:
            return
        for instance in self._watched:
            self._forget(instance)
        self._leave(lambda: self._collection.update_one(
            {'_id': self._session, 'client.instance': self._instance}, {'$set': {'client.left': True, **how}}))


class Recovery:
    """Reads a page of the session with each call, and repairs what the former client left incomplete."""

    def __init__(self, collection: Collection, numbers: documents.Numbers, in_hand: list[str]) -> None:
        self._collection = collection
        self._numbers = numbers
        self._in_hand = in_hand
        self._after = -1

    def __call__(self) -> Page:
        first = self._after < 0
        if first:
            absorb(self._collection, self._numbers, self._in_hand)
        found = list(self._collection.find({'type': 'task', 'number': {'$gt': self._after}})
                     .sort('number', 1).limit(BULK))
        repair(self._collection, self._numbers, found)
        notes = self._find('note') if first else []
        pilots = self._find('pilot') if first else []
        for document in (*pilots, *found):   # the clock of their client may have been ahead
            self._numbers.above(newest(document))
        told = ToldReports(self._collection)
        page = Page({note['key']: codec.unpack(note['content']) for note in notes},
                    [documents.known_pilot(pilot, told.last(states.PILOT, pilot)) for pilot in pilots],
                    [documents.known_task(task, told.last(states.TASK, task)) for task in found], len(found) < BULK)
        self._after = found[-1]['number'] if found else 0
        return page

    def _find(self, kind: str) -> list[Document]:
        return list(self._collection.find({'type': kind}).sort('number', 1))


def repair(collection: Collection, numbers: documents.Numbers, tasks: list[Document]) -> None:
    """Add new parcels for those of the tasks that wait for an agent in a parcel that does not exist.

    That happens if their client died between the two steps of binding them to a pilot.
    """
    waiting: dict[tuple[int, str], list[str]] = {}
    for task in tasks:
        if task['parcel'] and task['state'] == BOUND_STATE:
            waiting.setdefault((task['parcel'], task['pilot']), []).append(task['_id'])
    ids = [documents.parcel_id(parcel) for parcel, _ in waiting]
    known = {found['_id'] for found in collection.find({'_id': {'$in': ids}}, {'_id': 1})} if ids else set()
    for (parcel, pilot), uids in waiting.items():
        if documents.parcel_id(parcel) not in known:
            number = numbers.next()
            collection.update_many({'_id': {'$in': uids}, 'parcel': parcel}, {'$set': {'parcel': number}})
            insert_new(collection, [documents.parcel_document(number, pilot, uids)])


def acknowledge(collection: Collection, owners: Iterable[str], mark: Mark) -> None:
    """Record that the application was notified of everything up to this mark."""
    for owner in owners:
        collection.update_one(
            {'_id': f'@acknowledged.{owner}'},
            {'$set': {'type': 'acknowledged', 'owner': owner}, '$max': mark._asdict()}, upsert=True)


class ToldReports:
    """The notified states at the time of creation."""

    def __init__(self, collection: Collection) -> None:
        self._marks = {found['owner']: Mark(found['reported'], found['own'])
                       for found in collection.find({'type': 'acknowledged'})}

    def last(self, model: states.StateModel, document: Document) -> str:
        """Return the last state of the pilot or task of a document of which an application was notified."""
        mark = self._marks.get(document['owner'], Mark())
        told = [state for state, number in document['reached'].items() if -mark.own <= number <= mark.reported]
        if document['state'] in told and model.is_final(document['state']):
            return str(document['state'])
        return max(told, key=model.value, default=states.NEW)


def newest(document: Document) -> int:
    """Return the largest number of a change of a pilot or task."""
    return max(map(abs, document['reached'].values()), default=0)
