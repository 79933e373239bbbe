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
    remove: Callable[[], list[str]]


class Search:
    """A search for what is left in directories.

    Args:
        bases: Directories with directories of sessions.
        others: Further directories of sessions.
        resources: Directories with the sandboxes of sessions, besides those of the sessions that are found.
    """

    def __init__(self, bases: Iterable[Path], others: Iterable[Path] = (), resources: Iterable[Path] = ()) -> None:
        self._bases = list(dict.fromkeys(base.resolve() for base in bases))
        found = [path for base in self._bases if base.is_dir() for path in sorted(base.iterdir())
                 if path.is_dir() and not path.is_symlink()]
        with_database = [*filter(sessions.is_session, found), *others]
        self._sessions = list(dict.fromkeys(path.resolve() for path in with_database))
        self._without = [path for path in found if not sessions.is_session(path) and _is_ours(path)
                         and session_files.is_left(path)]
        self._resources = [*(base / RESOURCE for base in self._bases), *resources]

    def all(self) -> Iterator[Leftover]:
        """Yield everything that is found."""
        known: set[str] = set()
        resources = {str(path.resolve()) for path in self._resources}
        live_bases = set()
        for path in self._sessions:
            for item in self._of_session(path):
                known.add(item.path)
                if item.kind == SANDBOX:
                    resources.add(os.path.dirname(item.path))
                if item.in_use:
                    live_bases.add(path.parent)
                yield item
        for path in self._without:
            changed = _changed(path, *path.glob('*.prof'))
            owned = is_owned(str(path)) or (any((path / name).exists() for name in (APPLICATION, NAME))
                                            and time.time() - changed < QUIET_S)   # it may be that of another host
            yield Leftover(SESSION, path.name, str(path), 'no database', changed, size_of(path),
                           'an application has it' if owned else '', partial(_remove, path))
        for resource in sorted(resources):
            yield from self._in_resource(Path(resource), known)
        for base in self._bases:
            yield from _caches(base, in_use=base in live_bases)

    def _of_session(self, path: Path) -> Iterator[Leftover]:
        """Yield a session, and before it its sandboxes on this machine."""
        try:
            state, pilots = sessions.state_of(path), list(sessions.pilots(path))
            meta = sessions.properties(path)
        except Exception:   # of whatever wrote it: what cannot be read is not removed
            return
        if not state:
            return
        used, uid = float(meta.get('closed') or 0) or _changed(path), str(meta.get('session', path.name))
        in_use = state if state in _LIVE else _running(state, pilots)
        for sandbox in sorted({each for pilot in pilots if (each := _sandbox_of(pilot))}):
            if os.path.basename(sandbox) == uid and _is_ours(sandbox):
                agents = in_use or _agents(Path(sandbox))
                yield Leftover(SANDBOX, uid, sandbox, state, used, size_of(sandbox), agents,
                               partial(_remove, Path(sandbox)))
        yield Leftover(SESSION, uid, str(path), state, used, size_of(path), in_use, partial(_purge, path))

    def _in_resource(self, resource: Path, known: set[str]) -> Iterator[Leftover]:
        """Yield the sandboxes of sessions that are not known, and the environments, in a directory of sandboxes."""
        if not resource.is_dir():
            return
        busy = ''
        for path in sorted(resource.iterdir()):
            if path.is_symlink() or not path.is_dir() or not _is_ours(path) or path.name.startswith(('env.', 've.')):
                continue
            if list(path.glob('*/bootstrap_0.*')) or list(path.glob('*/agent_0.*')):
                agents = _agents(path)
                busy = busy or agents
                if str(path) not in known:
                    changed = _changed(path, *path.glob('*/*.prof'), *path.glob('*/*.log'))
                    recent = '' if time.time() - changed > QUIET_S else 'it has changed in the last hour'
                    yield Leftover(SANDBOX, path.name, str(path), 'no session', changed, size_of(path),
                                   agents or recent, partial(_remove, path))
        for path in (*sorted(resource.glob(f'env.{os.getuid()}/*')), *sorted(resource.glob('ve.*'))):
            if path.is_dir() and _is_ours(path) and not path.name.endswith('.lock'):
                locked = 'it is locked' if path.with_name(f'{path.name}.lock').is_dir() else ''
                yield Leftover(ENVIRONMENT, '', str(path), 'environment', _changed(path, path / '.rp.complete'),
                               size_of(path), busy or locked, partial(_remove, path))


def journals() -> Iterator[Leftover]:
    """Yield the journals of `rp run` of this user."""
    with suppress(OSError, RuntimeError):
        for path in sorted((session_index.state_directory() / 'run').glob('*.joblog')):
            held = path.with_name(f'{path.name}.run')
            yield Leftover(JOURNAL, '', str(path), 'journal', _changed(path), path.stat().st_size,
                           'its run is not over' if held.exists() else '', partial(_remove, path))


def size_of(path: str | Path) -> int:
    """Return the bytes of a file, or of all files in a directory."""
    total = 0
    waiting = [os.fspath(path)]
    while waiting:
        with suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                with suppress(OSError):
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    else:
                        total += entry.stat(follow_symlinks=False).st_size
    return total


def _caches(base: Path, *, in_use: bool) -> Iterator[Leftover]:
    path = base / _CACHE
    if path.is_dir() and not path.is_symlink() and _is_ours(path):
        claimed = in_use or any(map(_is_locked, path.glob('claims/*.owner')))
        yield Leftover(CACHE, '', str(path), 'cached results', _changed(*path.glob('*.db*')), size_of(path),
                       'a session or executor uses it' if claimed else '', partial(_remove, path))


def _sandbox_of(pilot: Mapping[str, Any]) -> str | None:
    """Return the directory of a pilot's session on this machine; None if it is on another one."""
    known = pilot['record'].get('sandboxes') or {}
    here = known.get('here') and os.path.isdir(known.get('session', ''))
    return str(Path(known['session']).resolve()) if here and Path(known['session']).parent.name == RESOURCE else None


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
    found = []
    for path in paths:
        with suppress(OSError):
            found.append(path.stat().st_mtime)
    return max(found, default=0.0)


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
