"""The coordinator of a session in a MongoDB, new or taken over."""

from __future__ import annotations

import itertools
import os
import re
import time
from collections.abc import Sequence
from pathlib import Path

from pymongo.database import Database
from pymongo.errors import DuplicateKeyError, OperationFailure

from rp_api.coordination.contract import PROTOCOL
from rp_api.coordination.coordinator import Coordinator, Settings
from rp_api.coordination.mongodb import presence, server
from rp_api.coordination.mongodb.client import MongoClientConnection
from rp_api.coordination.mongodb.documents import INDEXES
from rp_api.coordination.mongodb.server import Client, Collection, Document
from rp_api.errors import CoordinationError
from rp_api.loop.event_loop import Loop
from rp_profiling.write.detail import chosen
from rp_profiling.write.tracer import Tracer

CHECK_INTERVAL_S = 1.0
"""Seconds between checks of a client on another host that may have died."""


class MongoCoordinator(Coordinator):
    """Opens or finds a session in the database at `settings.dburl`; its traces are written to `directory`."""

    def __init__(self, session: str, directory: Path, settings: Settings) -> None:
        self._session = session
        self._url = settings.dburl
        self._lease = settings.lease
        self._instance = os.urandom(8).hex()
        self._client: Client | None = None
        self._collection: Collection | None = None
        self._last = 0
        self._tracer = Tracer(directory / 'mongodb.prof', 'mongodb', detail=chosen())
        self.attached = False
        self.endpoint = server.address(self._url)
        self.agent_access = {'backend': 'mongodb', 'endpoint': self.endpoint, 'url': self._url, 'session': session,
                             'lease': settings.lease, 'orphan_timeout': settings.orphan_timeout}

    def start(self) -> None:
        client = self._client = server.open_client(self._url)
        try:
            with server.reasons(self._url):
                client.admin.command('ping')
                self._enter(client)
        except BaseException:
            client.close()
            self._client = None
            raise

    def _enter(self, client: Client) -> None:
        """Register this client as that of the session."""
        database = client[server.database_name(client)]
        open_session = find_session(database, self._session)
        self.attached = open_session is not None
        if open_session is None:
            self._collection = self._begin(database)
        else:
            self._collection = self._take_over(*open_session)
        self.agent_access |= {'database': database.name, 'collection': self._collection.name}

    def _begin(self, database: Database[Document]) -> Collection:
        collection = make_collection(database, self._session)
        try:
            collection.insert_one(self._new_session())
        except DuplicateKeyError:
            raise CoordinationError(f'another application has just opened the session {self._session}') from None
        return collection

    def _newest(self, collection: Collection) -> int:
        """Return the largest number in a session."""
        newest = (collection.find_one({'type': kind}, {'number': 1}, sort=[('number', -1)])
                  for kind in ('task', 'command', 'parcel', 'claim', 'note'))
        return max((document['number'] for document in newest if document), default=0)

    def _new_session(self) -> Document:
        return {'_id': self._session, 'type': 'session', 'number': 0, 'protocol': PROTOCOL, 'created': time.time(),
                'lease': self._lease, 'closed': False, 'detached': False, 'client': self._me()}

    def _me(self) -> Document:
        return {'instance': self._instance, 'beat': 0, 'left': False, **presence.here()}

    def _take_over(self, collection: Collection, found: Document) -> Collection:
        if found['protocol'] != PROTOCOL:
            raise CoordinationError(f'the session {self._session} uses protocol {found["protocol"]}, this client '
                                    f'{PROTOCOL}: take it over with the version of rp-api that opened it')
        former = presence.living_client(collection, found, CHECK_INTERVAL_S)
        mine = {'client': self._me(), 'detached': False, 'lease': self._lease}
        if former or not collection.update_one({'_id': self._session,
                                                'client.instance': found['client']['instance']},
                                               {'$set': mine}).matched_count:
            raise CoordinationError(f'the session {self._session} has an application: '
                                    f'{former or "another one that has just taken it over"}; end that first')
        self._last = self._newest(collection)
        return collection

    def connect(self, loop: Loop) -> MongoClientConnection:
        client, self._client = self._client, None   # now owned by the connection
        assert client is not None
        assert self._collection is not None
        return MongoClientConnection(loop, client, self._collection, self._url, self._session, self._instance,
                                     self._lease, self._last, self._on_stale, takes_over=self.attached)

    def _on_stale(self, uids: Sequence[str], pilot: str) -> None:
        self._tracer.record_bulk('update_refused', uids, msg=pilot)

    def watch(self, loop: Loop) -> None:
        """Do nothing: the database is managed by others, and the connection waits until it returns."""

    def stop(self, patience: float, *, leave: bool = False) -> None:
        self._tracer.close()
        if self._client is not None:
            self._client.close()
            self._client = None


def find_session(database: Database[Document], uid: str) -> tuple[Collection, Document] | None:
    """Return collection and document of the open session of that uid, or None."""
    last = _last(database, uid)
    return None if last is None or last[2]['closed'] else (last[1], last[2])


def make_collection(database: Database[Document], uid: str) -> Collection:
    """Create the collection for a new session of that uid, with its indexes."""
    last = _last(database, uid)
    for name in _spellings(uid, 0 if last is None else last[0] + 1):
        collection = database[name]
        try:
            for index in INDEXES:
                collection.create_index(index)
        except OperationFailure as error:
            if 'identifier' not in str(error):
                raise
        else:
            break
    return collection


def find_all(database: Database[Document]) -> list[tuple[Collection, Document]]:
    """Return collection and document of all sessions."""
    found = []
    for name in sorted(database.list_collection_names()):
        collection = database[name]
        session = collection.find_one({'type': 'session', 'number': 0})
        if session is not None and 'protocol' in session:
            found.append((collection, session))
    return found


def _last(database: Database[Document], uid: str) -> tuple[int, Collection, Document] | None:
    """Return number, collection and document of the last session of that uid, or None."""
    last = None
    for number in itertools.count():
        found = _look(database, uid, number)
        if found is None:
            break
        last = number, *found
    return last


def _look(database: Database[Document], uid: str, number: int) -> tuple[Collection, Document] | None:
    for name in _spellings(uid, number):
        session = database[name].find_one({'_id': uid, 'type': 'session'})
        if session is not None:
            return database[name], session
    return None


def _spellings(uid: str, number: int) -> list[str]:
    """Return the name of a collection, and an alternative for servers that require identifiers."""
    name = f'{uid}.{number}' if number else uid
    return [name, 's_' + re.sub(r'[^A-Za-z0-9]', lambda found: f'_{ord(found.group()):x}_', name)]
