"""The command `rp clean`: removes what sessions have left, after a list of it."""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rp_api.errors import PilotError
from rp_client.cli import options as shared
from rp_client.cli.commands import NotPossible
from rp_client.cli.stores import DBURL
from rp_client.cli.tables import print_table, shown_size, shown_span

if TYPE_CHECKING:
    from rp_client.cli.leftovers import Leftover

DAY = 86400.0

_KINDS = ('session', 'sandbox', 'environment', 'cache', 'journal')
_AGES = {'m': 60.0, 'h': 3600.0, 'd': DAY, 'w': 7 * DAY, '': DAY}
_AGE = re.compile(r'(\d+(?:\.\d+)?)\s*([mhdw]?)')


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
    parser.add_argument('--only', action='append', default=[], choices=_KINDS, help='only one kind; can be given '
                        'several times')
    parser.add_argument('--older-than', type=age, default=0.0, metavar='AGE', help='only what was not used for so '
                        'long, such as 7d or 12h')
    parser.add_argument('--larger-than', type=shared.size, default=0, metavar='SIZE', help='only what is larger, such '
                        'as 1GB')
    parser.add_argument('--closed', action='store_true', help='only what belongs to sessions that were closed: others '
                        'may have results that no application has received')
    return parser


def age(text: str) -> float:
    """Return the seconds of an age, such as `7d`, `12h` or a number of days."""
    found = _AGE.fullmatch(text.strip())
    if not found:
        raise argparse.ArgumentTypeError(f'{text!r} is no age: give a number and a unit, such as 7d or 12h')
    return float(found[1]) * _AGES[found[2]]


def run(options: argparse.Namespace) -> int:
    """List what is left, or remove it, and return the exit code."""
    found = list(_of_database(options)) if options.dburl or (options.base is None and os.environ.get(DBURL)) else []
    if not options.dburl:
        found += _in_directories(options)
    if options.uid:
        found = list(_named(found, options.uid))
    oldest = time.time() - options.older_than
    wanted = [item for item in found if item.used <= oldest and item.size >= options.larger_than
              and (not options.only or item.kind in options.only) and (not options.closed or item.state == 'closed')]
    used, free = [item for item in wanted if item.in_use], [item for item in wanted if not item.in_use]
    if options.uid and used:
        raise NotPossible(f'{used[0].uid} is in use: {used[0].in_use}. End it first, in its application or with rp '
                          f'session attach {used[0].uid} --cancel')
    left = {item.path: item.remove() for item in free} if options.yes else {}
    _tell(options, free, used, left)
    return 0


def _in_directories(options: argparse.Namespace) -> Iterator[Leftover]:
    from rp_api.coordination import session_index
    from rp_client.cli.leftovers import RESOURCE, Search, journals

    if options.base is not None and not options.base.is_dir():
        raise PilotError(f'{options.base} is not a directory')
    bases = [options.base] if options.base else [Path(), Path(os.environ.get('RADICAL_PILOT_BASE') or '.')]
    wide = options.everywhere or (bool(options.uid) and options.base is None)
    others = session_index.directories() if wide else []
    resources = [Path.home() / RESOURCE] if options.everywhere else []
    yield from Search(bases, others, resources).all()
    if options.everywhere:
        yield from journals()


def _of_database(options: argparse.Namespace) -> Iterator[Leftover]:
    from rp_client.cli import stores
    from rp_client.cli.leftovers import SESSION, Leftover

    database = stores.Database(options.dburl or os.environ[DBURL])
    for each in database.sessions():
        yield Leftover(SESSION, each['uid'], each['where'], each['state'], each['closed'] or each['created'], 0,
                       '' if each['state'] == 'closed' else each['state'], partial(database.purge, each))


def _named(found: Iterable[Leftover], uids: list[str]) -> Iterator[Leftover]:
    """Yield what belongs to these sessions; raise `PilotError` if one is unknown."""
    found = list(found)
    for uid in uids:
        mine = [item for item in found if uid in (item.path, item.uid)]
        if not mine:
            raise PilotError(f'there is no session {uid} (rp session list); name its place by --base or --dburl')
        yield from mine


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
