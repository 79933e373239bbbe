"""Stores of sessions, directories or databases, with one interface for the commands.

A session is described by plain data: `uid`, `where`, `created` and `closed` (seconds since 1970), `state`,
`application` (`pid` and `host`), `pilots` and `tasks` (numbers by state), `size` in bytes (None if unknown).
"""

from __future__ import annotations

import os
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rp_api.coordination import session_index, sessions
from rp_api.errors import PilotError

if TYPE_CHECKING:
    from rp_api.coordination.records import Records

DBURL = 'RADICAL_PILOT_DBURL'

Description = dict[str, Any]


class SessionPlace(NamedTuple):
    """Where a session is.

    Attributes:
        store: The store that has it.
        uid: Uid of the session, or the name of its directory.
        where: Its directory, or collection.
        changed: When it has changed last; in seconds since 1970.
    """

    store: Store
    uid: str
    where: str
    changed: float


class Store(ABC):
    """A store of sessions."""

    @abstractmethod
    def sessions(self) -> list[Description]:
        """Return the sessions in the store."""

    @abstractmethod
    def places(self) -> Iterator[SessionPlace]:
        """Yield where sessions are, without a look into them."""

    def describe(self, place: SessionPlace) -> Description:
        """Return a session; raise `PilotError` if it cannot be read."""
        return next(each for each in self.sessions() if each['where'] == place.where)

    def created(self, place: SessionPlace) -> float:
        """Return when a session was created; 0 if it cannot be read."""
        return place.changed

    @abstractmethod
    def records(self, where: str) -> Records:
        """Return the records of a session, for reading."""

    @abstractmethod
    def options(self, session: Description) -> dict[str, Any]:
        """Return the arguments with which `Session` attaches to a session."""


class Directories(Store):
    """Sessions in sub-directories of base directories, and in other directories."""

    def __init__(self, bases: Iterable[Path], others: Iterable[Path | str] = ()) -> None:
        self._bases, self._others = bases, others

    def sessions(self) -> list[Description]:
        found = []
        for place in self.places():
            with suppress(PilotError):   # it is being made, or removed
                found.append(self.describe(place))
        return found

    def places(self) -> Iterator[SessionPlace]:
        below = (path for base in self._bases for path in sessions.find(base))
        for path in {os.path.realpath(path) for path in (*below, *self._others)}:
            with suppress(OSError):
                changed = max(os.stat(os.path.join(path, name)).st_mtime for name in (sessions.DATABASE, ''))
                yield SessionPlace(self, os.path.basename(path), path, changed)

    def describe(self, place: SessionPlace) -> Description:
        try:
            return sessions.summary(place.where).as_dict()
        except (OSError, sqlite3.Error) as error:
            raise PilotError(f'{place.where} cannot be read: {error}') from error

    def created(self, place: SessionPlace) -> float:
        with suppress(OSError, sqlite3.Error):
            return float(sessions.properties(place.where).get('created') or place.changed)
        return 0.0

    def records(self, where: str) -> Records:
        return sessions.records(where)

    def options(self, session: Description) -> dict[str, Any]:
        return {'cfg': {'base': str(Path(session['where']).parent)}}


class Database(Store):
    """Sessions in a MongoDB; its client takes half a second to import."""

    def __init__(self, url: str) -> None:
        self._url = url

    def sessions(self) -> list[Description]:
        from rp_api.coordination import mongodb

        return [_uniform(found) for found in mongodb.sessions(self._url)]

    def purge(self, session: Description) -> list[str]:
        """Remove a session; nothing of it is left."""
        from rp_api.coordination import mongodb

        mongodb.purge(self._url, session['where'])
        return []

    def places(self) -> Iterator[SessionPlace]:
        from rp_api.coordination import mongodb

        return (SessionPlace(self, *found) for found in mongodb.places(self._url))

    def records(self, where: str) -> Records:
        from rp_api.coordination.mongodb.records import DatabaseRecords

        return DatabaseRecords(self._url, where)

    def options(self, session: Description) -> dict[str, Any]:
        return {'dburl': self._url}


def stores(base: Path | None, dburl: str | None) -> list[Store]:
    """Return the given stores, or those of the working directory, $RADICAL_PILOT_BASE and $RADICAL_PILOT_DBURL.

    If none is given, there are also the sessions of this user in other directories.
    """
    if base is not None and not base.is_dir():
        raise PilotError(f'{base} is not a directory')
    if base is not None or dburl is not None:
        return [*([Directories([base])] if base else []), *([Database(dburl)] if dburl else [])]
    bases = Path.cwd(), Path(os.environ.get('RADICAL_PILOT_BASE') or '.')
    url = os.environ.get(DBURL)
    return [Directories(bases, session_index.directories()), *([Database(url)] if url else [])]


def find(base: Path | None, dburl: str | None, wanted: str | None) -> tuple[Store, Description]:
    """Return a session, and its store, see `choose`; raise `PilotError` if it is unknown."""
    place = choose(base, dburl, wanted)
    return place.store, place.store.describe(place)


def choose(base: Path | None, dburl: str | None, wanted: str | None) -> SessionPlace:
    """Return where a session in the `stores` is; raise `PilotError` if there is none, or there are several.

    It is `wanted` by its uid, a part of that, or its directory; None stands for the one that was created last.
    """
    if wanted and sessions.is_session(wanted):
        path = os.path.realpath(wanted)
        return SessionPlace(Directories([]), os.path.basename(path), path, 0.0)
    places = [place for store in stores(base, dburl) for place in store.places()]
    if wanted is None:
        return _newest(places)
    found = [place for place in places if wanted in (place.uid, place.where)]
    found = found or [place for place in places if wanted in place.uid]
    if not found:
        raise PilotError(f'there is no session {wanted} (rp session list); name its place by --base or --dburl')
    uids = {place.uid for place in found}
    if len(uids) > 1:
        raise PilotError(f'{wanted} is a part of the uids of {len(uids)} sessions: {", ".join(sorted(uids)[:5])}'
                         + (', ...' if len(uids) > 5 else ''))
    return _newest(found)


@contextmanager
def opened(base: Path | None, dburl: str | None, wanted: str | None) -> Iterator[Records]:
    """Open the records of a session for reading, see `choose`; errors of its database are a `PilotError`."""
    place = choose(base, dburl, wanted)
    try:
        with place.store.records(place.where) as records:
            yield records
    except sqlite3.Error as error:
        raise PilotError(f'{place.uid} cannot be read: {error}') from error


def _newest(places: list[SessionPlace]) -> SessionPlace:
    newest, when = None, 0.0
    for place in sorted(places, key=lambda place: place.changed, reverse=True):
        if newest is not None and place.changed < when:   # it was created before it has changed
            break
        created = place.store.created(place)
        if newest is None or created > when:
            newest, when = place, created
    if newest is None:
        raise PilotError('there is no session here, or in the index (rp session list); name its place by --base or '
                         '--dburl')
    return newest


def _uniform(found: dict[str, Any]) -> Description:
    """Return a database's description of a session in the form of this module."""
    application = {'pid': found['pid'], 'host': found['host']} if found.get('pid') else None
    return {'uid': found['uid'], 'where': found.get('collection', found['uid']), 'created': found['created'],
            'closed': found['created'] if found['state'] == 'closed' else 0, 'state': found['state'],
            'application': application, 'pilots': found['pilots'], 'tasks': found['tasks'], 'size': None}
