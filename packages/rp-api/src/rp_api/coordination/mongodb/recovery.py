"""Recovery of a session by a client that takes it over: its data, page by page."""

from __future__ import annotations

from rp_api import states
from rp_api.coordination.contract import BOUND_STATE, BULK, Page
from rp_api.coordination.mongodb import acknowledged, documents
from rp_api.coordination.mongodb.connection import insert_new
from rp_api.coordination.mongodb.news import absorb
from rp_api.coordination.mongodb.server import Collection, Document
from rp_api.wire import codec


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
            self._numbers.above(acknowledged.newest(document))
        told = acknowledged.Told(self._collection)
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
