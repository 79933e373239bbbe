"""The states of pilots and tasks of which applications were notified, in the documents of a session.

Each pilot and task has, in `reached`, the number of the change that brought it to a state, negative if its client made
the change. For each owner (a manager) there is a document with two such numbers: the application was notified of
agents' reports up to `reported`, and of changes by its client up to `own`.
"""

from __future__ import annotations

from collections.abc import Iterable

from rp_api import states
from rp_api.coordination.contract import Mark
from rp_api.coordination.mongodb.server import Collection, Document


def acknowledge(collection: Collection, owners: Iterable[str], mark: Mark) -> None:
    """Record that the application was notified of everything up to this mark."""
    for owner in owners:
        collection.update_one(
            {'_id': f'@acknowledged.{owner}'},
            {'$set': {'type': 'acknowledged', 'owner': owner}, '$max': mark._asdict()}, upsert=True)


class Told:
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
