"""Fetches the traces and logs of a session from its directory, whether the session still runs or not."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rp_api import states
from rp_api.coordination import sessions
from rp_api.description.partitions import WHOLE
from rp_client.launcher.sandbox import PilotSandboxes
from rp_client.stager.fetch import LOGS, PROFILES, fetch

_ENDINGS = {'prof': PROFILES}
"""File name endings by extension; by default the extension itself."""


@dataclass(frozen=True)
class _Partition:
    """An agent of a partition."""

    agent_sandbox: str


@dataclass(frozen=True, eq=False)
class _Pilot:
    """A pilot of the session, as far as its files are concerned."""

    uid: str
    directories: PilotSandboxes
    launched: bool
    partitions: list[_Partition] = field(default_factory=list)


def fetch_profiles(sid: str, src: str | None = None, tgt: str | None = None, access: str | None = None,
                   skip_existing: bool = False, fetch_client: bool = False, log: Any = None, rep: Any = None,
                   ) -> list[str]:
    """Copy the traces of all agents and tasks of a session; see `fetch_filetype`."""
    return _fetch(PROFILES, 'profile', sid, src, tgt, access, skip_existing, fetch_client, log, rep)


def fetch_logfiles(sid: str, src: str | None = None, tgt: str | None = None, access: str | None = None,
                   skip_existing: bool = False, fetch_client: bool = False, log: Any = None, rep: Any = None,
                   ) -> list[str]:
    """Copy the logs and outputs of all agents of a session; see `fetch_filetype`."""
    return _fetch(LOGS, 'logfile', sid, src, tgt, access, skip_existing, fetch_client, log, rep)


def fetch_filetype(ext: str, name: str, sid: str, src: str | None = None, tgt: str | None = None,
                   access: str | None = None, skip_existing: bool = False, fetch_client: bool = False,
                   log: Any = None, rep: Any = None) -> list[str]:
    """Copy files of all agents of a session to `<tgt>/<session>/<pilot>/`.

    Files of other hosts are copied over ssh, with one connection per host. A host that cannot be reached is reported in
    a warning.

    Args:
        ext: The extension of the files, such as `prof` or `log`; traces of tasks are copied as well.
        name: What the files are called in messages.
        sid: The uid of the session, or its directory.
        src: The directory in which the session's directory is; default: the working directory.
        tgt: The target directory; default: `src`.
        access: The URL of a host by which pilots are reached, such as `sftp://login/`; default: as in the session.
        skip_existing: Keep existing files.
        fetch_client: Copy the files of the client's side as well, to `<tgt>/<session>/`.
        log: A logger; its `info` is called with the number of files.
        rep: A reporter of radical.utils; its `info` is called with the same text.

    Returns:
        The paths of the copies and of the files that were kept.

    Raises:
        FileNotFoundError: There is no such session, or with `fetch_client` no such file on the client's side.
        ValueError: The extension is empty.
    """
    if not ext.strip('.'):
        raise ValueError(f'ext is {ext!r}, it must be the extension of a file name')
    endings = _ENDINGS.get(ext.lstrip('.'), (f'.{ext.lstrip(".")}',))
    return _fetch(endings, name, sid, src, tgt, access, skip_existing, fetch_client, log, rep)


def _fetch(endings: tuple[str, ...], name: str, sid: str, src: str | None, tgt: str | None, access: str | None,
           skip_existing: bool, fetch_client: bool, log: Any, rep: Any) -> list[str]:
    directory = _directory(sid, src)
    target = Path(tgt).absolute() / directory.name if tgt else directory
    found = _client_files(directory, endings, name, target, keep=skip_existing) if fetch_client else []
    found += fetch(_pilots(directory, access), endings, target, keep=skip_existing)
    said = f'{len(found)} {name}s of {directory.name} in {target}'
    for told in (log, rep):
        if told is not None:
            told.info(said)
    return found


def _directory(sid: str, src: str | None) -> Path:
    place = Path(src or os.curdir, sid).absolute()
    if not sessions.is_session(place):
        raise FileNotFoundError(f'there is no session {sid!r} in {place.parent}: it has no {sessions.DATABASE}')
    return place


def _client_files(directory: Path, endings: tuple[str, ...], name: str, target: Path, *, keep: bool) -> list[str]:
    files = sorted(path for path in directory.iterdir() if path.name.endswith(endings) and path.is_file())
    if not files:
        raise FileNotFoundError(f'there is no client {name} in {directory}')
    copies = []
    for path in files:
        copy = target / path.name
        if copy != path and not (keep and copy.exists()):
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(path.read_bytes())
        copies.append(str(copy))
    return copies


def _pilots(directory: Path, access: str | None) -> list[_Pilot]:
    """Return the pilots of a session that can have files."""
    found = {}
    for pilot in sessions.pilots(directory):
        sandboxes = PilotSandboxes(**pilot['record']['sandboxes'])
        if access:
            sandboxes = replace(sandboxes, here=False, endpoint=access)
        launched = states.PILOT.value(pilot['state']) >= states.PILOT.value(states.PMGR_ACTIVE_PENDING)
        found[pilot['uid']] = _Pilot(pilot['uid'], sandboxes, launched)
    for partition in sessions.partitions(directory):
        whole = found[partition['record'][WHOLE]]
        whole.partitions.append(_Partition(os.path.join(whole.directories.pilot, partition['uid'])))
    return list(found.values())
