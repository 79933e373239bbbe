"""The states of pilots and tasks of which applications were notified, in the database of a session.

Each owner of pilots or tasks has two revisions in `acknowledged`: `reported`, up to which the application was notified
of agents' reports, and `own`, up to which it was notified of changes by its client. `changed` of a pilot or task is the
revision of its last change, negative if the client made it, and `told` the value of the last state notified before
that change. So an acknowledgement is one row, for any number of tasks.
"""

from __future__ import annotations

from collections.abc import Iterable

from rp_api import states
from rp_api.coordination.hub.database import Database

SCHEMA = """
CREATE TABLE IF NOT EXISTS acknowledged (
    owner TEXT PRIMARY KEY, reported INTEGER NOT NULL, own INTEGER NOT NULL) WITHOUT ROWID;
"""


def keep_told(table: str) -> str:
    """Return the SQL that updates `told` of a table, before `changed` and `value` are replaced."""
    return (f'told = CASE WHEN EXISTS (SELECT 1 FROM acknowledged AS a WHERE a.owner = {table}.owner '
            f'AND {table}.changed BETWEEN -a.own AND a.reported) THEN max({table}.told, {table}.value) '
            f'ELSE {table}.told END')


def acknowledge(database: Database, owners: Iterable[str], reported: int, own: int) -> None:
    """Record that the application was notified of everything up to these revisions."""
    database.write_many(
        'INSERT INTO acknowledged VALUES (?, ?, ?) ON CONFLICT (owner) DO UPDATE SET '
        'reported = max(reported, excluded.reported), own = max(own, excluded.own)',
        [(owner, reported, own) for owner in owners])


class Told:
    """The notified states according to the database at the time of creation."""

    def __init__(self, database: Database) -> None:
        self._marks = {owner: (-own, reported) for owner, reported, own in database.query('SELECT * FROM acknowledged')}

    def last(self, model: states.StateModel, owner: str, state: str, changed: int, told: int) -> str:
        """Return the last state of a pilot or task of which an application was notified."""
        value = model.value(state)
        first, last = self._marks.get(owner, (0, 0))
        if first <= changed <= last:
            told = max(told, value)
            if told == value:
                return state
        names = [row.name for row in model.rows if row.value == told]
        return next(name for name in reversed(names) if name != state or len(names) == 1)
