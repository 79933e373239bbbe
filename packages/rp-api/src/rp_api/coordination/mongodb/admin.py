"""Operations on the sessions of a database: list, export, remove."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pymongo.database import Database

from rp_api.coordination.mongodb import documents, presence, server
from rp_api.coordination.mongodb.coordinator import find_all
from rp_api.coordination.mongodb.server import Collection, Document
from rp_api.coordination.records import LEFT, known
from rp_api.description.partitions import WHOLE
from rp_api.errors import CoordinationError
from rp_api.task_modes import KIND, OWNER
from rp_api.wire import codec

PACKED = ('record', 'description', 'content', 'command', 'info')
"""Fields that hold packed data."""

TASK: Document = {'type': 'task', '$nor': [{'owner': OWNER}, {'owner': '', '_id': {'$regex': rf'\.{KIND}\.'}}]}
"""All tasks but calls."""


def sessions(url: str) -> list[dict[str, Any]]:
    """Return the sessions of a database.

    Each has `uid`, `collection`, `state` ('open', 'detached', 'closed'), `created` (seconds since 1970), `host` and
    `pid` of the application, and the number of `pilots` and `tasks` in each state.
    """
    with _database(url) as database:
        return [_summary(collection, session) for collection, session in find_all(database)]


def places(url: str) -> list[tuple[str, str, float]]:
    """Return uid, collection and time of creation of each session of a database, without a look at its tasks."""
    with _database(url) as database:
        return [(session['_id'], collection.name, session['created']) for collection, session in find_all(database)]


def export(url: str, session: str) -> Iterator[dict[str, Any]]:
    """Yield the documents of a session, with packed data unpacked; tasks in the order of submission, after pilots.

    `session` is a uid (of several sessions, the last one), or the name of a collection.
    """
    with _database(url) as database:
        collection, found = _find(database, session)[-1]
        yield _plain(found)
        for kind in ('note', 'pilot', 'agent', 'command', 'parcel', 'claim', 'task', 'news'):
            for document in collection.find(TASK if kind == 'task' else {'type': kind}).sort('number', 1):
                yield _plain(document)


def purge(url: str, session: str) -> None:
    """Remove all data of a session, named as for `export`; raise CoordinationError while its application runs."""
    with _database(url) as database:
        for collection, found in _find(database, session):
            former = '' if found['closed'] else presence.living_client(collection, found, 1.0)
            if former:
                raise CoordinationError(f'the session {session} is in use: {former}; end that first')
            collection.drop()


@contextmanager
def _database(url: str) -> Iterator[Database[Document]]:
    with server.open_client(url) as client, server.reasons(url):
        yield client[server.database_name(client)]


def _find(database: Database[Document], session: str) -> list[tuple[Collection, Document]]:
    known = sorted(find_all(database), key=lambda pair: pair[1]['created'])
    found = [pair for pair in known if session in (pair[1]['_id'], pair[0].name)]
    if not found:
        raise CoordinationError(f'there is no session {session} in the database {database.name}; there are: '
                                f'{", ".join(sorted({pair[1]["_id"] for pair in known})) or "none"}')
    return found


def _summary(collection: Collection, session: Document) -> dict[str, Any]:
    state = 'closed' if session['closed'] else 'detached' if session['detached'] else 'open'
    client = session['client']
    return {'uid': session['_id'], 'collection': collection.name, 'state': state, 'created': session['created'],
            'host': client['name'], 'pid': client['pid'],
            'pilots': _count_pilots(collection), 'tasks': count_tasks(collection)}


def _count(collection: Collection, which: Document) -> Counter[str]:
    groups = collection.aggregate([{'$match': which}, {'$group': {'_id': '$state', 'count': {'$sum': 1}}}])
    return Counter({group['_id']: group['count'] for group in groups})


def _count_pilots(collection: Collection) -> dict[str, int]:
    """Return the number of pilots in each state, without partitions, which are pilots to the database."""
    found = collection.find({'type': 'pilot'}, {'state': 1, 'record': 1})
    return dict(Counter(pilot['state'] for pilot in found if WHOLE not in codec.unpack(pilot['record'])))


def count_tasks(collection: Collection) -> dict[str, int]:
    """Return the number of tasks in each state; those that only wait for the application have their final state."""
    counts = _count(collection, {**TASK, 'state': {'$nin': LEFT}})
    for task in collection.find({**TASK, 'state': {'$in': LEFT}}, {'state': 1, 'info': 1}):
        counts[str(known(task['state'], task['info']).get('state', task['state']))] += 1
    return dict(counts)


def _plain(document: Document) -> dict[str, Any]:
    plain = {key: codec.unpack(value) if key in PACKED and value is not None else value
             for key, value in document.items()}
    if document['type'] == 'news':
        plain['updates'] = [update._asdict() for update in documents.unpacked_updates(document['updates'])]
    elif document['type'] == 'pilot' and WHOLE in plain['record']:
        plain['type'] = 'partition'
    return plain
