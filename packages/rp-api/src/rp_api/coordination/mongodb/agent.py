"""An agent's connection to the MongoDB of its session."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from rp_api import states
from rp_api.coordination import outcome
from rp_api.coordination.contract import BULK, LEFT_AGENT, PROTOCOL, AgentConnection, Update
from rp_api.coordination.mongodb import documents, presence, server
from rp_api.coordination.mongodb.connection import MongoConnection, insert_new
from rp_api.coordination.mongodb.presence import Silence
from rp_api.coordination.mongodb.server import Collection, Document
from rp_api.coordination.shutdown_rule import ShutdownRule
from rp_api.loop.event_loop import Loop
from rp_api.task_modes import SERVICE_MODES

MAX_PARCELS_READ = 4
"""Maximum number of parcels that are read together."""

MAX_PARCELS_WAITING = 2
"""Maximum number of parcels that wait for the loop before another one is taken."""

_News = dict[str, list[tuple[str, Update]]]

MAX_TASKS_PER_LOOK = 4096
"""Tasks that are looked for at a time."""


class MongoAgentConnection(MongoConnection, AgentConnection):
    """Receives parcels of tasks and commands, and reports updates of tasks as news.

    `access` is `agent_access` of the session's coordinator.
    """

    def __init__(self, loop: Loop, access: Mapping[str, Any], pilot: str, agent: str) -> None:
        client = server.open_client(access['url'])
        collection = client[access['database']][access['collection']]
        super().__init__(loop, client, collection, access['url'], access['lease'])
        self._session: str = access['session']
        self._pilot = pilot
        self._instance = os.urandom(8).hex()
        self._me: Document = {'_id': f'@agent.{pilot}.{agent}', 'type': 'agent', 'number': 0, 'pilot': pilot,
                              'agent': agent, 'instance': self._instance, 'protocol': PROTOCOL, 'left': '', 'beat': 0,
                              **presence.here()}
        self._silence = Silence(self._interval)
        self._shutdown_rule = ShutdownRule(access['orphan_timeout'])
        self._greeted = False
        self._dismissed = False
        self._ended = False
        self._hold = False
        self._on_way = 0
        self._cursor = -1
        self._claiming: Document | None = None
        self._stuck = False   # whether all tasks wait for what only an application can bring
        self._mine: set[str] = set()
        self._due = 0.0
        self._followed = FollowedTasks(collection)
        self._begin(['parcel', 'command'], pilot)
        # before any report: otherwise the death of this agent would stay unnoticed
        self._writer.ask(lambda: self._beat(time.monotonic()), lambda _: self._watcher.call())

    @property
    def _expects(self) -> bool:
        return bool(self._followed)

    def hold(self, on: bool) -> None:
        self._hold = on
        self._watcher.call()

    def follow_tasks(self, uids: Sequence[str]) -> None:
        self._followed.add(uids)
        self._watcher.call()

    def unsettled(self) -> list[Update]:
        return [update for updates in self._unsettled for update in updates]

    def update_pilots(self, updates: Sequence[Update]) -> None:
        self._ended |= any(states.PILOT.is_final(update.state) for update in updates)
        self._stuck = any((update.info or {}).get('stuck') for update in updates)
        self._report('pilots', updates, ())

    def update_tasks(self, updates: Sequence[Update]) -> None:
        self._mine.difference_update(update.uid for update in updates
                                     if states.TASK.value(update.state) >= LEFT_AGENT)
        for first in range(0, len(updates), BULK):
            part = updates[first:first + BULK]
            self._report('tasks', part, part)

    def _report(self, kind: str, updates: Sequence[Update], tasks: Sequence[Update]) -> None:
        news = [documents.news_document(self._numbers.next(), self._instance, kind, self._pilot, part)
                for part in documents.packed_updates(updates)]
        self._send(partial(insert_new, self._collection, news), tasks)

    def close(self) -> None:
        self._leave(lambda: self._collection.update_one(
            {'_id': self._me['_id'], 'instance': self._instance}, {'$set': {'left': 'closed'}}))

    # tasks and commands

    def _look(self) -> bool:
        if not self._greeted:
            return False
        now = time.monotonic()
        if now >= self._due:
            self._due = now + self._interval
            self._beat(now)
        outcomes = self._followed.look()
        if outcomes:
            self._tell(self._handler.on_followed, outcomes)
        return self._take() or bool(outcomes)

    def _parcels(self) -> list[Document]:
        found = self._collection.find({'type': 'parcel', 'pilot': self._pilot})
        return list(found.sort('number', 1).limit(MAX_PARCELS_READ))

    def _commands(self, **numbers: int) -> list[Document]:
        return list(self._collection.find(
            {'type': 'command', 'pilot': self._pilot,
             'number': {f'${relation}': number for relation, number in numbers.items()}}).sort('number', 1).limit(BULK))

    def _take(self) -> bool:
        """Deliver tasks and commands in the order in which they were sent."""
        if self._claiming is not None:
            self._claim(self._claiming)
        commands = self._commands(gt=self._cursor)
        # read after the commands, so that all parcels sent before them are included
        parcels = [] if self._hold else self._parcels()
        if parcels and len(commands) < BULK:   # add the commands that were sent meanwhile, before the last parcel
            newest = commands[-1]['number'] if commands else self._cursor
            commands += self._commands(gt=newest, lt=parcels[-1]['number'])
        if len(commands) >= BULK:   # there may be more
            parcels = [parcel for parcel in parcels if parcel['number'] < commands[-1]['number']]
        found = False
        for document in sorted([*commands, *parcels], key=lambda document: document['number']):
            if document['type'] == 'command':
                self._cursor = document['number']
                self._tell(self._handler.on_command, documents.command_of(document))
            elif self._hold:
                continue
            elif self._on_way >= MAX_PARCELS_WAITING or self._link.closing.is_set():
                return found
            else:
                self._claim(document)
            found = True
            if len(parcels) == MAX_PARCELS_READ and document is parcels[-1]:   # more may precede the next command
                return found
        return found

    def _claim(self, parcel: Document) -> None:
        """Claim a parcel, unless another agent was faster, and deliver those of its tasks that still belong to it.

        If the connection breaks, the parcel may have been claimed without an answer, and is not found again; therefore
        the claim is repeated.
        """
        self._claiming = parcel
        won = self._collection.update_one({'_id': parcel['_id'], 'agent': {'$in': ['', self._instance]}},
                                          {'$set': {'type': 'claim', 'agent': self._instance}})
        if won.matched_count:
            found = {task['_id']: task for task in self._collection.find(
                {'_id': {'$in': parcel['uids']}, 'parcel': parcel['number'], 'value': {'$lt': LEFT_AGENT}},
                {'description': 1})}
            self._on_way += 1
            self._loop.call_soon(self._on_parcel, [found[uid] for uid in parcel['uids'] if uid in found])
        self._claiming = None

    def _on_parcel(self, tasks: list[Document]) -> None:
        self._on_way -= 1
        new = [documents.new_task(task) for task in tasks]
        self._mine.update(uid for uid, description in new if description.get('mode') not in SERVICE_MODES)
        if new and not self._closed:
            self._handler.on_tasks(new)
        self._watcher.call()

    # presence

    def _beat(self, now: float) -> None:
        """Write a heartbeat, and check the pilot and the client."""
        session = self._collection.find_one({'_id': self._session})
        if session is None:
            self._refuse(f'the session {self._session} has been removed from the database')
        elif session['protocol'] != PROTOCOL:
            self._refuse(f'the agent uses protocol {PROTOCOL}, the session {session["protocol"]}: install the same '
                         'major version of rp-api with the client and the agent (pip install --upgrade rp-api)')
        else:
            self._say_hello()
            pilot = self._collection.find_one({'_id': self._pilot, 'type': 'pilot'})
            if pilot is not None and states.PILOT.is_final(pilot['state']):
                state, why = pilot['state'], (documents.known_info(pilot) or {}).get('exception')
                self._dismiss(f'is {state} already' + (f': {why}' if why else ''), state=state)
            elif session['closed']:
                self._dismiss('the session was closed')
            else:
                self._look_at_client(session, now)

    def _say_hello(self) -> None:
        key = {'_id': self._me['_id'], 'instance': self._instance}
        if self._greeted and not self._lives:
            return
        if not self._greeted or not self._collection.update_one(key, {'$inc': {'beat': 1}}).matched_count:
            fields = {name: value for name, value in self._me.items() if name != '_id'}
            self._collection.update_one({'_id': self._me['_id']}, {'$set': fields}, upsert=True)
            self._greeted = True

    def _look_at_client(self, session: Document, now: float) -> None:
        client = session['client']
        silent = self._silence.observe('client', (client['instance'], client['beat']), now)
        gone = not session['detached'] and (presence.has_died(client) or silent > self._lease)
        self._followed.unattended = gone or session['detached']
        if gone and not self._shutdown_rule.orphaned:
            self._shutdown_rule.client_lost()
        elif self._shutdown_rule.orphaned and not gone:
            self._shutdown_rule.client_attached()
        if self._shutdown_rule.orphaned:
            unfinished = 0 if self._stuck else len(self._mine) + len(self._parcels())
            if self._shutdown_rule.next(now, unfinished, 1)[0] == 'cancel':
                self._dismiss('the application is gone')

    def _dismiss(self, reason: str, **more: str) -> None:
        """End the pilot, because its client cannot, or did so before this agent connected."""
        if not self._dismissed and not self._ended:
            self._dismissed = True
            self._tell(self._handler.on_command, {'cmd': 'cancel_pilot', 'reason': reason, **more})


class FollowedTasks:
    """The followed tasks of one agent."""

    def __init__(self, collection: Collection) -> None:
        self._collection = collection
        self._uids: dict[str, None] = {}   # written in the loop and here; those that were looked for longest ago first
        self._read: set[str] = set()       # news that have nothing on these tasks
        self.unattended = False
        """True if there is no client that applies news and submits tasks."""

    def __bool__(self) -> bool:
        return bool(self._uids)

    def add(self, uids: Iterable[str]) -> None:
        """Look for these tasks, too."""
        self._uids.update(dict.fromkeys(uids))
        self._read = set()

    def look(self) -> list[Update]:
        """Return the outcomes of followed tasks, each once."""
        if not self._uids:
            return []
        news = self._in_news() if self.unattended else {}
        wanted = list(self._uids)[:MAX_TASKS_PER_LOOK]
        known = {task['_id']: task for task in self._collection.find(
            {'_id': {'$in': [*wanted, *news]}, 'type': 'task'}, {'state': 1, 'pilot': 1, 'info': 1, 'value': 1})}
        found = [end for uid in {*wanted, *news} if (end := self._outcome(uid, known.get(uid), news)) is not None]
        for uid in wanted:
            self._uids[uid] = self._uids.pop(uid)   # behind the others
        for update in found:
            self._uids.pop(update.uid, None)
        return found

    def _in_news(self) -> _News:
        """Return the ends of followed tasks that agents have reported, with the pilots of these agents."""
        found: _News = {}
        read = self._read   # `add` replaces it
        for news in self._collection.find({**documents.unread(read), 'kind': 'tasks'}):
            ends = [update for update in documents.unpacked_updates(news['updates'])
                    if update.uid in self._uids and states.TASK.value(update.state) >= LEFT_AGENT]
            for update in ends:
                found.setdefault(update.uid, []).append((news['pilot'], update))
            if not ends:
                read.add(news['_id'])
        return found

    def _outcome(self, uid: str, task: Document | None, news: _News) -> Update | None:
        if task is None:
            return outcome.lost(uid) if self.unattended else None
        if task['value'] >= LEFT_AGENT:
            return outcome.outcome(uid, task['state'], task['pilot'], documents.known_info(task))
        for pilot, update in news.get(uid, ()):
            if pilot == task['pilot']:
                return outcome.outcome(uid, update.state, pilot, update.info)
        return None
