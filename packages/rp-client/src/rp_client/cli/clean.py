"""The command `rp clean`: removes what sessions have left, after a list of it."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from rp_api.coordination import session_index
from rp_api.errors import PilotError
from rp_client.cli import options as shared
from rp_client.cli.commands import NotPossible
from rp_client.cli.leftovers import KINDS, RESOURCE, SESSION, Leftover, Search, journals
from rp_client.cli.stores import DBURL, Database
from rp_client.cli.tables import print_table, shown_size, shown_span


def clean(arguments: list[str]) -> int:
    """Remove what sessions have left: those that have ended, sandboxes, environments and caches."""
    return run(make_parser().parse_args(arguments))


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the arguments."""
    parser = argparse.ArgumentParser(
        prog='rp clean', description=clean.__doc__, parents=[shared.as_json(), shared.where(session=False)],
        epilog='What is in use is never removed: sessions with a hub or application, agents that run, locked files.')
    parser.add_argument('uid', nargs='*', metavar='SESSION', help='only these sessions, with their sandboxes')
    parser.add_argument('--yes', action='store_true', help='remove what is listed; without it, it is only listed')
    parser.add_argument('--everywhere', action='store_true', help='all sessions of yours in any directory, sandboxes '
                        'without a session in the home directory, and journals of rp run')
    parser.add_argument('--only', action='append', default=[], choices=KINDS, help='only one kind; can be given '
                        'several times')
    parser.add_argument('--older-than', type=shared.age, default=0.0, metavar='AGE', help='only what was not used for '
                        'so long, such as 7d or 12h')
    parser.add_argument('--larger-than', type=shared.size, default=0, metavar='SIZE', help='only what is larger, such '
                        'as 1GB')
    parser.add_argument('--closed', action='store_true', help='only what belongs to sessions that were closed: others '
                        'may have results that no application has received')
    return parser


def run(options: argparse.Namespace) -> int:
    """List what is left, or remove it, and return the exit code."""
    found = list(_of_database(options)) if options.dburl or (options.base is None and os.environ.get(DBURL)) else []
    if not options.dburl:
        found += _in_directories(options)
    _check_known(found, options.uid)
    oldest = time.time() - options.older_than
    wanted = [item for item in found if item.used <= oldest and item.size >= options.larger_than
              and (not options.uid or item.path in options.uid or item.uid in options.uid)
              and (not options.only or item.kind in options.only) and (not options.closed or item.state == 'closed')]
    used, free = [item for item in wanted if item.in_use], [item for item in wanted if not item.in_use]
    if options.uid and used:
        raise NotPossible(f'{used[0].uid} is in use: {used[0].in_use}. End it first, in its application or with rp '
                          f'session attach {used[0].uid} --cancel')
    left = {item.path: item.remove() for item in free} if options.yes else {}
    _tell(options, free, used, left)
    return 0


def _in_directories(options: argparse.Namespace) -> Iterator[Leftover]:
    if options.base is not None and not options.base.is_dir():
        raise PilotError(f'{options.base} is not a directory')
    bases = [options.base] if options.base else [Path(), Path(os.environ.get('RADICAL_PILOT_BASE') or '.')]
    wide = options.everywhere or (bool(options.uid) and options.base is None)
    yield from Search(bases, session_index.directories() if wide else (),
                      [Path.home() / RESOURCE] if options.everywhere else ()).all()
    if options.everywhere:
        yield from journals()


def _of_database(options: argparse.Namespace) -> Iterator[Leftover]:
    database = Database(options.dburl or os.environ[DBURL])
    for each in database.sessions():
        yield Leftover(SESSION, each['uid'], each['where'], each['state'], each['closed'] or each['created'], 0,
                       '' if each['state'] == 'closed' else each['state'], partial(database.purge, each))


def _check_known(found: list[Leftover], uids: list[str]) -> None:
    for uid in uids:
        if not any(uid in (item.path, item.uid) for item in found):
            raise PilotError(f'there is no session {uid} (rp session list); name its place by --base or --dburl')


def _tell(options: argparse.Namespace, free: list[Leftover], used: list[Leftover], left: dict[str, list[str]]) -> None:
    if options.json:
        shared.print_json([{**item._asdict(), 'remove': None, 'removed': item.path in left,
                            'left': left.get(item.path, [])} for item in (*free, *used)])
        return
    if not options.yes and free:
        now = time.time()
        print_table(('KIND', 'PATH', 'STATE', 'UNUSED FOR', 'SIZE'), (
            (item.kind, item.path, item.state, shown_span(max(0.0, now - item.used)), shown_size(item.size))
            for item in free))
    for path, others in left.items():
        print(f'{os.path.basename(path)} is removed' + (f', except foreign files: {", ".join(others)}' if others
                                                        else ''))
    for item in used:
        print(f'{item.path} is in use and stays: {item.in_use}', file=sys.stderr)
    size = shown_size(sum(item.size for item in free))
    if not free:
        print('there is nothing to remove', file=sys.stderr)
    elif options.yes:
        print(f'{len(free)} removed, {size}', file=sys.stderr)
    else:
        print(f'{len(free)} can be removed, {size}: the same command with --yes removes them', file=sys.stderr)
