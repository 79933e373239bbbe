"""What sessions leave behind: their directories, sandboxes, environments, caches and journals, and what is in use.

In use is what a living process has: a session with its hub or application, the sandbox of an agent that runs, the
environments beside it, a cache with claims. Processes are found by their ids and start times, and by locks of the
kernel. What may be in use on another host counts as in use.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from rp_api import states
from rp_api.coordination import session_files, session_index, sessions
from rp_api.description.partitions import WHOLE
from rp_api.errors import OwnershipError
from rp_api.system import agent_process, private
from rp_api.system.processes import lives
from rp_client.service.handover import APPLICATION, NAME, is_owned

SESSION, SANDBOX, ENVIRONMENT, CACHE, JOURNAL = KINDS = 'session', 'sandbox', 'environment', 'cache', 'journal'

RESOURCE = 'radical.pilot.sandbox'
"""Name of the directory with the sandboxes of all sessions on a machine."""

QUIET_S = 3600.0
"""Seconds without a change after which a sandbox without a session, and without a process here, is not in use."""

_CACHE = '.rp.cache'   # as `rp_client.cache.store` has it, which takes time to import
_LIVE = (sessions.OPEN, sessions.ORPHANED, sessions.ELSEWHERE)


class Leftover(NamedTuple):
    """Something that can be removed.

    Attributes:
        kind: One of `KINDS`.
        uid: Uid of the session that it belongs to; empty if it is of none, or of one that is not known.
        path: Its path, or the name of its collection.
        state: The state of the session that it belongs to, or what it is.
        used: When it was used last, in seconds since 1970.
        size: Its size in bytes.
        in_use: Why it is in use; empty if it is not.
        remove: Removes it, and returns the paths that are not ours and are left.
    """

    kind: str
    uid: str
    path: str
    state: str
    used: float
    size: int
    in_use: str
    remove: partial[list[str]]


class Search:
    """A search for what is left in directories.

    Args:
        bases: Directories with directories of sessions.
        others: Further directories of sessions.
        resources: Directories with the sandboxes of sessions, besides those of the sessions that are found.
    """

    def __init__(self, bases: Iterable[Path], others: Iterable[Path] = (), resources: Iterable[Path] = ()) -> None:
        self._bases = list(dict.fromkeys(base.resolve() for base in bases))
        self._others = others
        self._resources = {base / RESOURCE for base in self._bases}.union(path.resolve() for path in resources)
        self._sandboxes: set[str] = set()   # of sessions that were found
        self._in_use: set[Path] = set()   # bases

    def all(self) -> Iterator[Leftover]:
        """Yield everything that is found."""
        found = [path for base in self._bases for path in _directories(base)]
        for path in dict.fromkeys(each.resolve() for each in (*filter(sessions.is_session, found), *self._others)):
            yield from self._of_session(path)
        for path in found:
            if not sessions.is_session(path) and session_files.is_left(path):
                yield _without_database(path)
        for resource in sorted(self._resources):
            yield from self._in_resource(resource)
        for path in (base / _CACHE for base in self._bases):
            if path.is_dir() and not path.is_symlink() and _is_ours(path):
                claimed = path.parent in self._in_use or any(map(_is_locked, path.glob('claims/*.owner')))
                yield _leftover(CACHE, '', path, 'cached results', _changed(*path.glob('*.db*')),
                                'a session or executor uses it' if claimed else '')

    def _of_session(self, path: Path) -> Iterator[Leftover]:
        """Yield a session, and before it its sandboxes on this machine."""
        try:
            state, pilots = sessions.state_of(path), list(sessions.pilots(path))
            meta = sessions.properties(path)
        except Exception:   # of whatever wrote it: what cannot be read is not removed
            return
        used, uid = float(meta.get('closed') or 0) or _changed(path), str(meta.get('session', path.name))
        in_use = state if state in _LIVE else _running(state, pilots)
        for sandbox in sorted({each for pilot in pilots if (each := _sandbox_of(pilot))}):
            if sandbox.name == uid and _is_ours(sandbox):
                self._sandboxes.add(str(sandbox))
                self._resources.add(sandbox.parent)
                yield _leftover(SANDBOX, uid, sandbox, state, used, in_use or _agents(sandbox))
        if in_use:
            self._in_use.add(path.parent)
        if state:
            yield _leftover(SESSION, uid, path, state, used, in_use, _purge)

    def _in_resource(self, resource: Path) -> Iterator[Leftover]:
        """Yield the sandboxes of sessions that are not known, and the environments, in a directory of sandboxes."""
        busy = ''
        for path in _directories(resource):
            if not path.name.startswith(('env.', 've.')) and any(
                    next(path.glob(name), None) for name in ('*/bootstrap_0.*', '*/agent_0.*')):
                agents = _agents(path)
                busy = busy or agents
                if str(path) not in self._sandboxes:
                    changed = _changed(path, *path.glob('*/*.prof'), *path.glob('*/*.log'))
                    recent = '' if time.time() - changed > QUIET_S else 'it has changed in the last hour'
                    yield _leftover(SANDBOX, path.name, path, 'no session', changed, agents or recent)
        for path in (*_directories(resource / f'env.{os.getuid()}'), *_directories(resource, 've.*')):
            if not path.name.endswith('.lock'):
                locked = 'it is locked' if path.with_name(f'{path.name}.lock').is_dir() else ''
                yield _leftover(ENVIRONMENT, '', path, 'environment', _changed(path, path / '.rp.complete'),
                                busy or locked)


def journals() -> Iterator[Leftover]:
    """Yield the journals of `rp run` of this user."""
    with suppress(OSError, RuntimeError):
        for path in sorted((session_index.state_directory() / 'run').glob('*.joblog')):
            held = path.with_name(f'{path.name}.run').exists()
            yield _leftover(JOURNAL, '', path, 'journal', _changed(path), 'its run is not over' if held else '')


def size_of(path: str | Path) -> int:
    """Return the bytes of a file, or of all files in a directory."""
    total = os.path.getsize(path) if os.path.isfile(path) else 0
    for directory, _, names in os.walk(path):
        for name in names:
            with suppress(OSError):
                total += os.lstat(os.path.join(directory, name)).st_size
    return total


def _leftover(kind: str, uid: str, path: Path, state: str, used: float, in_use: str,
              remove: Callable[[Path], list[str]] | None = None) -> Leftover:
    return Leftover(kind, uid, str(path), state, used, size_of(path), in_use, partial(remove or _remove, path))


def _without_database(path: Path) -> Leftover:
    """Return what a session of a MongoDB has left in its directory."""
    changed = _changed(path, *path.glob('*.prof'))
    owned = is_owned(str(path)) or (any((path / name).exists() for name in (APPLICATION, NAME))
                                    and time.time() - changed < QUIET_S)   # it may be that of another host
    return _leftover(SESSION, path.name, path, 'no database', changed, 'an application has it' if owned else '')


def _directories(base: Path, pattern: str = '*') -> list[Path]:
    """Return the directories of ours in a directory."""
    return sorted(path for path in base.glob(pattern) if path.is_dir() and not path.is_symlink() and _is_ours(path))


def _sandbox_of(pilot: Mapping[str, Any]) -> Path | None:
    """Return the directory of a pilot's session on this machine; None if it is on another one."""
    known = pilot['record'].get('sandboxes') or {}
    path = Path(known.get('session', ''))
    return path.resolve() if known.get('here') and path.is_dir() and path.parent.name == RESOURCE else None


def _running(state: str, pilots: Iterable[Mapping[str, Any]]) -> str:
    """Return why pilots of a session without hub may run; empty if they do not."""
    for pilot in pilots:
        description, created = pilot['record'].get('description', {}), pilot['record'].get('sandboxes') or {}
        if state == sessions.CLOSED or pilot['state'] in states.FINAL or WHOLE in pilot['record']:
            continue
        sandbox = Path(created.get('pilot', ''))
        local = str(description.get('resource', '')).startswith('local.')
        if _lives(sandbox) or not local:   # only its batch system knows
            return f'its pilot {pilot["uid"]} may run on {description.get("resource")}'
    return ''


def _agents(session_sandbox: Path) -> str:
    """Return which agent runs in the sandbox of a session; empty if none does."""
    running = [pilot.name for pilot in session_sandbox.iterdir() if _lives(pilot)]
    return f'the agent of {running[0]} runs' if running else ''


def _lives(pilot_sandbox: Path) -> bool:
    try:
        process = agent_process.noted(pilot_sandbox)
    except (OSError, ValueError, TypeError, OwnershipError):
        return False
    return process is not None and lives(process.pid, process.started)


def _is_locked(path: Path) -> bool:
    try:
        with open(path, 'rb') as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _is_ours(path: str | Path) -> bool:
    with suppress(OSError):
        return os.lstat(path).st_uid == os.geteuid()
    return False


def _changed(*paths: Path) -> float:
    """Return when one of these was changed last; 0 if there is none."""
    found = [0.0]
    for path in paths:
        with suppress(OSError):   # files of databases come and go
            found.append(path.stat().st_mtime)
    return max(found)


def _purge(path: Path) -> list[str]:
    left = session_files.purge(path)
    if path.parent.name.startswith('rp-run.'):   # the directory of a run that was killed
        with suppress(OSError):
            path.parent.rmdir()
    return left


def _remove(path: Path) -> list[str]:
    """Remove a file or directory of ours, and what has become empty above it."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
    for above in (path.parent, path.parent.parent):
        if above.name == RESOURCE or above.name == f'env.{os.getuid()}':
            with suppress(OSError):
                private.check_entry(str(above))
                above.rmdir()
    return []
