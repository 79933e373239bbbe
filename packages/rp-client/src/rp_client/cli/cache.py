"""The command `rp cache`: manages the cached results of a base directory."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rp_api.errors import PilotError
from rp_api.wire import codec
from rp_client.cache.identity import OUTSIDE
from rp_client.cache.notes import DECIDES, NOTES, PARTS, read
from rp_client.cache.store import NAME, CachedResult, ResultStore
from rp_client.cli import options as shared
from rp_client.cli.commands import WrongUsage
from rp_client.cli.tables import shown_size

_COLUMNS: shared.Columns = {
    'RESULT': lambda row: row['result'][:12], 'SIZE': 'size', 'MADE': 'made', 'USED': 'used',
    'FILES': lambda row: str(len(row['files'])), 'OF': lambda row: ascii(row['of'])[1:-1]}


def cache(arguments: list[str]) -> int:
    """Show, explain, limit and remove cached results."""
    options = make_parser().parse_args(arguments)
    with _opened(options.base) as store:
        options.run(store, options)
    return 0


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the arguments."""
    where = argparse.ArgumentParser(add_help=False)
    where.add_argument('--base', type=Path, metavar='DIR', help='a directory with directories of sessions (default: '
                       '$RADICAL_PILOT_BASE or the working directory)')
    parser = argparse.ArgumentParser(prog='rp cache', description=cache.__doc__)
    add = shared.actions(parser, where, shared.as_json())
    add('show', _show, 'Show the number of results, their size and its limit.')
    add('list', _list, 'List the results, those used last first.')
    command = add('explain', _explain, 'Show what the result of a task or call depends on, what does not count, and '
                  'why a task is not cached.')
    command.add_argument('task', metavar='TASK', help='the uid of a task, or the first characters of a result in the '
                         'list')
    command = add('limit', _limit, 'Set the size that all results may have together; those used least recently are '
                  'removed.')
    command.add_argument('size', type=shared.size, metavar='SIZE', help='such as 500MB or 50GB')
    command = add('prune', _prune, 'Remove files that crashes have left, and results that are not used any more.')
    command.add_argument('--unused-for', type=float, metavar='DAYS', default=float('inf'),
                         help='results that were not used for so long')
    command = add('remove', _remove, 'Remove results.')
    command.add_argument('result', nargs='*', metavar='RESULT', help='the first characters of results in the list')
    command.add_argument('--all', action='store_true', help='all results')
    return parser


@contextmanager
def _opened(base: Path | None) -> Iterator[ResultStore]:
    place = (base or Path(os.environ.get('RADICAL_PILOT_BASE') or '.')) / NAME
    if not place.is_dir():
        raise PilotError(f'there is no cache in {place.parent.resolve()}: name its base directory by --base')
    store = ResultStore(place)
    try:
        yield store
    finally:
        store.close()


def _show(store: ResultStore, options: argparse.Namespace) -> None:
    number, size, limit = store.summary()
    if options.json:
        shared.print_json({'directory': str(store.directory.resolve()), 'results': number, 'size': size,
                           'limit': limit})
        return
    print(f'{number} results in {store.directory.resolve()}: {shown_size(size)} of at most {shown_size(limit)}')


def _list(store: ResultStore, options: argparse.Namespace) -> None:
    shared.print_rows(options, ({
        'result': _name(result), 'size': result.size, 'made': result.made, 'used': result.used,
        'files': list(result.files), 'of': result.label} for result in store.results()), _COLUMNS)


def _explain(store: ResultStore, options: argparse.Namespace) -> None:
    sessions = sorted(store.directory.resolve().parent.glob(f'*/{NOTES}'), key=os.path.getmtime)
    found: list[tuple[str, Iterable[str]]] = []
    for session in (path.parent for path in sessions):
        identities, reasons = read(session)
        if options.task in identities:
            known = identities[options.task]
            found.append((f'{options.task} of {session.name}', known.parts if not known.by_key else [_OF_KEY]))
        elif options.task in reasons:
            raise PilotError(f'{options.task} of {session.name} has no identity: {reasons[options.task]} ({DECIDES})')
    found = found[-1:] or [(f'{_name(result)[:12]}, {ascii(result.label)[1:-1]}', codec.unpack(result.info)[PARTS])
                           for result in store.results() if _name(result).startswith(options.task)]
    if not found:
        raise PilotError(f'no task {options.task!r} with cache set is known here, and no such result (rp cache list)')
    if options.json:
        shared.print_json([{'of': title, 'parts': list(parts)} for title, parts in found])
        return
    for title, parts in found:
        print('\n  '.join([f'The result of {title} depends on its description or arguments, and on', *parts]))
    print('\n  '.join(['No identity covers', *OUTSIDE]))


_OF_KEY = 'nothing else: its key decides'


def _limit(store: ResultStore, options: argparse.Namespace) -> None:
    store.set_limit(options.size)
    _show(store, options)


def _prune(store: ResultStore, options: argparse.Namespace) -> None:
    _tell_removed(options, store.prune(options.unused_for * shared.DAY))


def _remove(store: ResultStore, options: argparse.Namespace) -> None:
    if bool(options.result) == options.all:
        raise WrongUsage('name results, or say --all')
    known = store.results()
    wanted = [result.identity for result in known] if options.all else []
    for start in options.result:
        found = [result.identity for result in known if _name(result).startswith(start)]
        if not found:
            raise PilotError(f'there is no result {start!r} (rp cache list)')
        if len(found) > 1:
            raise PilotError(f'{start!r} is the beginning of {len(found)} results: give more characters')
        wanted += found
    store.remove(wanted)
    _tell_removed(options, len(wanted))


def _tell_removed(options: argparse.Namespace, number: int) -> None:
    if options.json:
        shared.print_json({'removed': number})
    else:
        print(f'{number} results removed', file=sys.stderr)


def _name(result: CachedResult) -> str:
    return result.identity.hex()
