"""Operations on the sessions of a database: list and remove."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pymongo.database import Database

from rp_api.coordination.mongodb import presence, server
from rp_api.coordination.mongodb.coordinator import find_all
from rp_api.coordination.mongodb.server import Collection, Document
from rp_api.coordination.records import LEFT, known
from rp_api.description.partitions import WHOLE
from rp_api.errors import CoordinationError
from rp_api.task_modes import KIND, OWNER
from rp_api.wire import codec

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


def purge(url: str, session: str) -> None:
    """Remove all data of a session, given its uid or the name of its collection.

    Raises:
        CoordinationError: Its application runs, or there is no such session.
    """
    with _database(url) as database:
        known = list(find_all(database))
        found = [pair for pair in known if session in (pair[1]['_id'], pair[0].name)]
        if not found:
            raise CoordinationError(f'there is no session {session} in the database {database.name}; there are: '
                                    f'{", ".join(sorted({pair[1]["_id"] for pair in known})) or "none"}')
        for collection, document in found:
            former = '' if document['closed'] else presence.living_client(collection, document, 1.0)
            if former:
                raise CoordinationError(f'the session {session} is in use: {former}; end that first')
            collection.drop()


@contextmanager
def _database(url: str) -> Iterator[Database[Document]]:
    with server.open_client(url) as client, server.reasons(url):
        yield client[server.database_name(client)]


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
