"""Which states of pilots and tasks an application was told, as the documents of a session say.

Each pilot and task has, in `reached`, the number of the change that brought it to a state, negative if the client has
made it itself. For each owner (a manager) there is a document with two such numbers: up to `reported` the application
was told what agents have reported, up to `own` what its client has done itself.
"""

from __future__ import annotations

from collections.abc import Iterable

from rp_api import states
from rp_api.coordination.contract import Mark
from rp_api.coordination.mongodb.server import Collection, Document


def acknowledge(collection: Collection, owners: Iterable[str], mark: Mark) -> None:
    """The application was told everything up to this mark."""
    for owner in owners:
        collection.update_one(
            {'_id': f'@acknowledged.{owner}'},
            {'$set': {'type': 'acknowledged', 'owner': owner}, '$max': mark._asdict()}, upsert=True)


class Told:
    """What applications were told, as it stands now."""

    def __init__(self, collection: Collection) -> None:
        self._marks = {found['owner']: Mark(found['reported'], found['own'])
                       for found in collection.find({'type': 'acknowledged'})}

    def last(self, model: states.StateModel, document: Document) -> str:
        """The last state that an application was told of the pilot or task of a document."""
        mark = self._marks.get(document['owner'], Mark())
        told = [state for state, number in document['reached'].items() if -mark.own <= number <= mark.reported]
        if document['state'] in told and model.is_final(document['state']):
            return str(document['state'])
        return max(told, key=model.value, default=states.NEW)


def newest(document: Document) -> int:
    """The largest number of a change of a pilot or task."""
    return max(map(abs, document['reached'].values()), default=0)
