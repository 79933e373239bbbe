"""The place of copies on a node: a directory of this pilot on the node-local disk, with one entry per copy.

A copy is unpacked beside its place and moved there when it is complete, so that what exists is complete. An agent or
sub-agent holds the directory while it uses it, by a shared lock on a file in it, which ends with the process. A
directory that no process holds is left from a pilot that was killed together with the guards that remove it (see
`rp_agent.nodes.guard`); the next pilot of the same user removes it.
"""

from __future__ import annotations

import fcntl
import os
import time
import zlib
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from rp_api.system import private

_HELD = 'held'
"""The file that is locked."""

_ATTEMPTS, _PAUSE = 20, 0.05   # seconds: unpackers that are being killed may still create a file


def directory(config: Mapping[str, Any], environment: Mapping[str, str]) -> str:
    """Return the directory of a pilot's copies on this node, which does not exist before it is needed.

    It is in the platform's `lfs_path_per_node`, which may contain variables; else in TMPDIR, if the node has that
    directory, or in /tmp.
    """
    uid = config['whole']['pilot'] if 'whole' in config else config['pilot']   # partitions share it
    pilot = os.fsencode(f'{config["session"]} {uid} {config["registry_address"]}')
    return os.path.join(_local_disk(config['platform'].get('lfs_path_per_node') or '', environment),
                        f'{_prefix()}{zlib.crc32(pilot):08x}{zlib.adler32(pilot):08x}')


def hold(path: str) -> int:
    """Create and hold the directory; return the descriptor of the lock.

    Raises OSError, also if the directory belongs to another user, or is just being removed.
    """
    os.stat(os.path.dirname(path))   # a disk that is not there is not replaced by a directory
    private.make_directory(path)
    lock = os.open(os.path.join(path, _HELD), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        if os.stat(os.path.join(path, _HELD)).st_ino != os.fstat(lock).st_ino:
            raise FileNotFoundError(f'{path} was removed')
    except OSError:
        os.close(lock)
        raise
    return lock


def release(path: str, lock: int) -> None:
    """Close this lock of the directory, and remove the directory if no other process holds it."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        remove(path)
    except BlockingIOError:   # such as another sub-agent on this host
        pass
    finally:
        os.close(lock)


def remove_when_released(path: str) -> None:
    """Remove a directory when no process holds it any more; the holders may be about to end, too."""
    with suppress(OSError):
        lock = os.open(os.path.join(path, _HELD), os.O_RDWR | os.O_CLOEXEC)   # else there is nothing
        fcntl.flock(lock, fcntl.LOCK_EX)
        remove(path)


def remove_abandoned(path: str) -> None:
    """Remove the directories beside this one that belong to this user and are not held."""
    above, own = os.path.split(path)
    for name in os.listdir(above):
        if name.startswith(_prefix()) and name != own:
            with suppress(OSError):   # it is another user's
                abandoned = os.path.join(above, name)
                private.check(abandoned, readable=False)
                release(abandoned, os.open(os.path.join(abandoned, _HELD), os.O_RDWR | os.O_CLOEXEC))


def remove(path: str) -> None:
    """Remove a directory of copies, if there is one, while processes that use it are being killed."""
    if not os.path.isdir(path):
        return
    import shutil  # slow to import, and rarely needed

    for _ in range(_ATTEMPTS):
        shutil.rmtree(path, ignore_errors=True)
        if not os.path.lexists(path):
            return
        for each, _, _ in os.walk(path):   # a package may have directories that are not writable
            with suppress(OSError):
                os.chmod(each, 0o700)
        time.sleep(_PAUSE)


def _local_disk(path: str, environment: Mapping[str, str]) -> str:
    named = path
    for name, value in sorted(environment.items(), key=lambda item: -len(item[0])) if '$' in path else ():
        named = named.replace(f'${{{name}}}', value).replace(f'${name}', value)
    if named and '$' not in named:
        return named
    temporary = environment.get('TMPDIR', '')   # perhaps that of the first node, where the job started
    return temporary if os.path.isdir(temporary) else '/tmp'


def _prefix() -> str:
    return f'rp.{os.geteuid()}.'
