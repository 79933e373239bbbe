"""The files that sessions write to their directories, and their removal."""

from __future__ import annotations

import os
import re
import shutil
from contextlib import closing, suppress
from pathlib import Path

from rp_api.coordination import sessions
from rp_api.coordination.hub.store import claim, release
from rp_api.errors import CoordinationError, OwnershipError
from rp_api.system import private

_OWN = re.compile(r'hub\..*|.+\.(prof|prof\.gz|calls|log|out|err)|(rp\.session|pmgr|tmgr)\..*json|gtod|prof|ctrl|'
                  r'cache\.identities|(owner|served)(\.\d+)?|tmgr\.\d+\.\d+\.tasks')
"""Names of the files that sessions, their managers and agents write to the directory of a session."""


def purge(directory: str | Path) -> list[str]:
    """Remove the session's files, and its directory if nothing else is in it; return the remaining paths.

    Raise `CoordinationError` if the session is in use.
    """
    path = Path(directory)
    fetched = _fetched(path)
    claimed = claim(str(path))
    try:
        state = sessions.state_of(path)
        if state in (sessions.OPEN, sessions.ORPHANED, sessions.ELSEWHERE):
            raise CoordinationError(f'{path.name} is {state}')
        _remove_runtime_directory(path)
        for own in (*fetched, path):
            for found in _own_files(own):
                found.unlink()
            with suppress(OSError):   # it has files of other origin
                own.rmdir()
    finally:
        release(claimed)
    return sorted(map(str, path.rglob('*')))


def _fetched(directory: Path) -> list[Path]:
    """Return the directories of fetched files: for each pilot those of its tasks and partitions, then its own."""
    with closing(sessions.database(directory)) as db:
        pilots = [directory / uid for uid, in db.execute('SELECT uid FROM pilots') if '/' not in uid]
    return [found for pilot in pilots if pilot.is_dir() for found in (*(
        path for path in pilot.iterdir() if path.is_dir() and not path.is_symlink()), pilot)]


def is_left(directory: Path) -> bool:
    """Return whether a directory without a database has nothing but files of a session, such as one in a MongoDB."""
    names = {path.name for path in _own_files(directory)}
    return f'{directory.name}.prof' in names and names == set(os.listdir(directory))


def _remove_runtime_directory(directory: Path) -> None:
    """Remove the directory for the socket of a hub that was killed."""
    with suppress(OSError, OwnershipError):
        path = private.read_file(directory / 'hub.dir').decode()
        private.check(path)
        shutil.rmtree(path)


def _own_files(directory: Path) -> list[Path]:
    """Return the files that sessions and their managers write."""
    dumps = re.compile(rf'{re.escape(directory.name)}(\..*)?\.json')   # of a session whose uid the user has chosen
    return [path for path in directory.iterdir() if (path.is_file() or path.is_socket())
            and (_OWN.fullmatch(path.name) or dumps.fullmatch(path.name))]
