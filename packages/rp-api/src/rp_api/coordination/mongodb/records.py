"""The records of a session in a MongoDB."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from typing import Any

from rp_api.coordination.mongodb import server
from rp_api.coordination.mongodb.admin import TASK, count_tasks
from rp_api.coordination.records import LEFT, Numbered, Records, known, task_of
from rp_api.wire import codec


class DatabaseRecords(Records):
    """The records of the session in a collection of a MongoDB, given its URL."""

    def __init__(self, url: str, collection: str) -> None:
        self._client = server.open_client(url)
        database = self._client[server.database_name(self._client)]
        self._found: server.Collection = database[collection]
        session = self._found.find_one({'type': 'session'}) or {}
        super().__init__(str(session.get('_id', collection)), collection, time.time())

    def numbered(self, uid: str) -> Numbered | None:
        found = self._found.find_one({'_id': uid, 'type': 'task'})
        return _of_document(found) if found else None

    def page(self, after: int = 0, limit: int = 1000, wanted: Collection[str] = (), pilot: str | None = None) -> list[
            Numbered]:
        which: dict[str, Any] = {**TASK, 'number': {'$gt': after}}
        if wanted:
            which['state'] = {'$in': [*wanted, *LEFT]}
        if pilot is not None:
            which['pilot'] = pilot
        found: list[Numbered] = []
        while documents := list(self._found.find(which).sort('number', 1).limit(limit)):
            tasks = map(_of_document, documents)
            found += [task for task in tasks if not wanted or task[1]['state'] in wanted]
            which['number'] = {'$gt': documents[-1]['number']}
            if len(found) >= limit or len(documents) < limit:
                break
        return found[:limit]

    def before(self, number: int, limit: int) -> list[Numbered]:
        found = self._found.find({**TASK, 'number': {'$lt': number}}).sort('number', -1).limit(limit)
        return [_of_document(document) for document in found][::-1]

    def count(self) -> int:
        return self._found.count_documents(TASK)

    def count_on(self, pilot: str) -> int:
        return self._found.count_documents({**TASK, 'pilot': pilot})

    def uids(self, start: str, limit: int) -> list[str]:
        found = self._found.find({'type': 'task', '_id': {'$gte': start, '$lt': f'{start}\U0010ffff'}}, {'_id': 1})
        return [each['_id'] for each in found.sort('_id', 1).limit(limit)]

    def counts(self) -> dict[str, int]:
        return count_tasks(self._found)

    def inserted_pilots(self) -> list[dict[str, Any]]:
        return [{'uid': found['_id'], 'state': found['state'], 'record': codec.unpack(found['record']),
                 **known(found['state'], found.get('info'))}
                for found in self._found.find({'type': 'pilot'}).sort('number', 1)]

    def note(self, key: str) -> Any:
        found = self._found.find_one({'_id': f'@note.{key}'})
        return codec.unpack(found['content']) if found else None

    def close(self) -> None:
        self._client.close()


def _of_document(found: Mapping[str, Any]) -> Numbered:
    return found['number'], task_of(
        found['_id'], found['owner'], found['pilot'], found['attempts'], found['number'] / 1e6, found['state'],
        found.get('info'), codec.unpack(found['description']))
