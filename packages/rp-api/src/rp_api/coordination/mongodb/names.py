"""The names of collections: the uid of the session, with a number for later sessions of the same uid."""

from __future__ import annotations

import itertools
import re

from pymongo.database import Database
from pymongo.errors import OperationFailure

from rp_api.coordination.mongodb.documents import INDEXES
from rp_api.coordination.mongodb.server import Collection, Document


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
