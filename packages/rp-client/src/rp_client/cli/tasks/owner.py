"""Requests of commands to the owner of a session; where there is none, `rp session serve` becomes it."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rp_api import states
from rp_api.coordination import sessions
from rp_api.errors import PilotError
from rp_client.cli import options as shared
from rp_client.cli import stores
from rp_client.cli.commands import NotPossible
from rp_client.service.handover import ask_owner

if TYPE_CHECKING:
    from rp_api.coordination.records import Records

ANSWER_TIMEOUT = START_TIMEOUT = 60.0
"""Seconds that the owner may take to answer, and a new one to restore the session."""

LOG = 'served.log'
"""The output of a server that a command has started, in the session's directory."""

_POLL_S = 0.1
_UIDS_AT_ONCE = 10_000
_DOES = {'cancel': 'cancelled', 'retry': 'submitted again, as', 'stop': 'stopped'}


def act(options: argparse.Namespace, records: Records, do: str, uids: Sequence[str]) -> int:
    """Ask the owner of a session to act on tasks or pilots, print its answer, and return the exit code."""
    did: list[str] = []
    refused: dict[str, str] = {}
    for first in range(0, len(uids), _UIDS_AT_ONCE):
        answer = _ask(options, records, {'do': do, 'uids': uids[first:first + _UIDS_AT_ONCE]})
        if 'error' in answer:
            raise PilotError(answer['error'])
        did += answer['did']
        refused |= answer['refused']
    if options.json:
        shared.print_json({'did': did, 'refused': refused})
    elif did:
        print(f'{_DOES[do]}: {", ".join(did[:20])}' + (f' and {len(did) - 20} more' if len(did) > 20 else ''))
    elif not refused:
        print('there are no such tasks', file=sys.stderr)
    for uid, why in refused.items():
        print(f'{uid} {why}', file=sys.stderr)
    return 3 if refused else 0


def _ask(options: argparse.Namespace, records: Records, request: dict[str, Any]) -> dict[str, Any]:
    note = records.note('owner') or {}
    directory = str(note.get('directory') or records.place)   # where the owner takes requests
    server, deadline = None, time.monotonic() + START_TIMEOUT
    while server is None or (server.poll() is None and time.monotonic() < deadline):
        try:
            return ask_owner(directory, request, ANSWER_TIMEOUT)
        except (FileNotFoundError, ConnectionError):
            if server is not None:
                time.sleep(_POLL_S)
                continue
        _check_orphaned(options, records, request['do'])
        server = _serve(options, records, Path(directory), note.get('hub'))
    raise PilotError(f'rp session serve {records.uid} does not take requests: see {directory}/{LOG}')


def _check_orphaned(options: argparse.Namespace, records: Records, do: str) -> None:
    """Raise `NotPossible` if no process can become the owner of the session, or it could do nothing."""
    _, found = stores.find(options.base, options.dburl, records.place)
    state, application = found['state'], found.get('application') or {}
    if state == sessions.CLOSED:
        raise NotPossible(f'{records.uid} is closed')
    if state in (sessions.OPEN, sessions.ELSEWHERE):
        where = f'process {application.get("pid")} on {application.get("host")}' if application else 'another host'
        raise NotPossible(f'{records.uid} is {state}, and its application ({where}) takes no requests from this host')
    if do == 'retry' and all(pilot['state'] in states.FINAL for pilot in records.pilots()):
        raise NotPossible(f'{records.uid} has no application, and no pilot is left that could run its tasks: attach to '
                          'it with rp.Session(uid=...), and submit a pilot')


def _serve(options: argparse.Namespace, records: Records, directory: Path, hub: str | None) -> subprocess.Popen[bytes]:
    """Start a process that owns the session until its tasks and pilots have ended, or an application attaches."""
    place = ['--dburl', options.dburl] if options.dburl else []
    if not place and os.path.isdir(records.place):
        place = ['--hub', hub] if hub else ['--base', str(Path(records.place).parent)]
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    with open(directory / LOG, 'wb') as log:
        return subprocess.Popen(
            [sys.executable, '-m', 'rp_client.cli', 'session', 'serve', records.uid, *place], stdin=subprocess.DEVNULL,
            stdout=log, stderr=log, start_new_session=True, cwd=directory.parent,
            env={**os.environ, 'RADICAL_PILOT_BASE': str(directory.parent)})
