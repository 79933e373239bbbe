"""Application of agents' news to the documents of tasks and pilots, which only the client writes.

Each document stores the number of the news that changed it last. So it is known which of many updates had an effect,
even if the database became unreachable during the application.
"""

from __future__ import annotations

from collections.abc import Collection as Some
from collections.abc import Iterable
from typing import NamedTuple

from pymongo import UpdateOne

from rp_api import states
from rp_api.coordination.contract import Update
from rp_api.coordination.mongodb import documents
from rp_api.coordination.mongodb.server import Collection, Document

MODELS = {'tasks': ('task', states.TASK), 'pilots': ('pilot', states.PILOT)}


class Outcome(NamedTuple):
    """The updates that had an effect, and the uids of tasks that are bound to other pilots."""

    valid: list[Update]
    refused: list[str]


def apply(collection: Collection, news: Document, number: int) -> Outcome:
    """Apply a news document; repeating it after a failure has the same outcome.

    `number` is that of the change, which shows later whether the application was notified (`acknowledged`).
    """
    kind, model = MODELS[news['kind']]
    folded = fold(model, documents.unpacked_updates(news['updates']))
    if kind == 'pilot':   # an agent may report only its own pilot
        folded = {uid: update for uid, update in folded.items() if uid == news['pilot']}
    if not folded:
        return Outcome([], [])
    mine: Document = {'type': kind} if kind == 'pilot' else {'pilot': news['pilot']}
    changes = {uid: documents.moved(model, update, number) for uid, update in folded.items()}
    for change in changes.values():
        change['$set']['news'] = news['_id']
    result = collection.bulk_write([
        UpdateOne({'_id': uid, **mine, **documents.forward(model, update)}, changes[uid])
        for uid, update in folded.items()], ordered=False)
    if result.matched_count == len(folded):
        return Outcome(list(folded.values()), [])
    changed = changed_by(collection, news, list(folded))
    left = [uid for uid in folded if uid not in changed]
    refused = collection.find({'_id': {'$in': left}, 'type': 'task', 'pilot': {'$ne': news['pilot']}}, {'_id': 1})
    return Outcome([update for uid, update in folded.items() if uid in changed],
                   [task['_id'] for task in refused] if kind == 'task' else [])


def changed_by(collection: Collection, news: Document, uids: list[str]) -> set[str]:
    """Return those of these tasks or pilots that the news changed last."""
    return {found['_id'] for found in collection.find({'_id': {'$in': uids}, 'news': news['_id']}, {'_id': 1})}


def absorb(collection: Collection, numbers: documents.Numbers, but: Some[str]) -> None:
    """Apply all news, except those with an `_id` in `but`, for a client that takes over.

    The former client may have applied some of them already.
    """
    while news := collection.find_one(documents.unread(but), sort=[('number', 1)]):
        apply(collection, news, numbers.next())
        collection.delete_one({'_id': news['_id']})


def fold(model: states.StateModel, updates: Iterable[Update]) -> dict[str, Update]:
    """Return one update for each uid."""
    folded: dict[str, Update] = {}
    for update in updates:
        known = folded.get(update.uid)
        if known is None:
            folded[update.uid] = update
        elif counts(model, known.state, update.state) or _says_again(model, known, update):
            # earlier information is kept if the later update has none
            folded[update.uid] = update if update.info else update._replace(info=known.info)
    return folded


def counts(model: states.StateModel, current: str, target: str) -> bool:
    """Return whether a transition changes the state of an entity."""
    if model.is_final(current):
        return (current, target) in model.corrections
    return model.value(target) > model.value(current)


def _says_again(model: states.StateModel, known: Update, update: Update) -> bool:
    """Return whether an update repeats a state with new information."""
    return known.state == update.state and update.state in model.repeated and bool(update.info)
