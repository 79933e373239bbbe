"""The options that commands share: which session is meant, and the form of the output."""

from __future__ import annotations

import argparse
import json
import re
import sys
from argparse import ArgumentParser
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rp_api.units import option, seconds
from rp_client.cli import stores
from rp_client.cli.tables import print_table, shown_field

if TYPE_CHECKING:
    from rp_api.coordination.records import Records

Columns = Mapping[str, str | Callable[[Any], str]]
"""For each column of a table the item of a row, or a function that makes the text of a row."""

DAY = 86400.0

_UNITS = {'': 1, 'K': 10 ** 3, 'M': 10 ** 6, 'G': 10 ** 9, 'T': 10 ** 12}
_SIZE = re.compile(r'\s*(\d+(?:\.\d+)?)\s*([KMGT]?)B?\s*', re.IGNORECASE)

age = option(partial(seconds, unit=DAY))
"""The type of an age, such as `7d`, `12h` or a number of days, in seconds."""


def actions(parser: ArgumentParser, *shared: ArgumentParser) -> Callable[..., ArgumentParser]:
    """Return a function that adds an action to a command: `add(name, run, text, *parents)`, with `shared` parents."""
    commands = parser.add_subparsers(dest='command', required=True, metavar='ACTION')

    def add(name: str, run: Callable[..., Any], text: str, *parents: ArgumentParser) -> ArgumentParser:
        command = commands.add_parser(name, help=text, description=text, parents=[*parents, *shared])
        command.set_defaults(run=run)
        return command
    return add


def where(*, session: bool = True) -> ArgumentParser:
    """Return a parent for parsers: where sessions are, and which one is meant (`session`)."""
    found = ArgumentParser(add_help=False)
    if session:
        found.add_argument('--session', metavar='UID', help='the session: its uid, a part of it, or its directory '
                           '(default: the one that was created last)')
    found.add_argument('--base', type=Path, metavar='DIR', help='a directory with directories of sessions (default: '
                       'the working directory, $RADICAL_PILOT_BASE, and where else sessions of yours are)')
    found.add_argument('--dburl', metavar='URL', help=f'a MongoDB with sessions (default: ${stores.DBURL})')
    return found


def as_json() -> ArgumentParser:
    """Return a parent for parsers: output for programs."""
    found = ArgumentParser(add_help=False)
    found.add_argument('--json', action='store_true', help='print JSON, for programs')
    return found


def size(text: str) -> int:
    """Return the bytes of a size such as `500MB`."""
    found = _SIZE.fullmatch(text)
    if not found:
        raise argparse.ArgumentTypeError(f'{text!r} is no size: give a number and a unit, such as 500MB or 50GB')
    return round(float(found[1]) * _UNITS[found[2].upper()])


def records(options: argparse.Namespace) -> AbstractContextManager[Records]:
    """Open the records of the session that is meant."""
    return stores.opened(options.base, options.dburl, options.session)


def find_pilot(records: Records, uid: str) -> Mapping[str, Any] | None:
    """Return the pilot of that uid; None if it is unknown."""
    return next((each for each in records.pilots() if each['uid'] == uid), None)


def print_json(value: Any) -> None:
    """Print plain data as JSON."""
    print(json.dumps(value, indent=2, default=str))


def print_rows(options: argparse.Namespace, rows: Iterable[Mapping[str, Any]],
               columns: Columns, shorten: Collection[str] = ()) -> None:
    """Print rows, as JSON each as soon as it is known, or as a table.

    Args:
        options: Those of the command, with `json`.
        rows: Plain data.
        columns: Those of the table.
        shorten: Names of columns that may be cut, see `print_table`.
    """
    if not options.json:
        print_table(tuple(columns), (tuple(shown_field(how, row[how]) if isinstance(how, str) else how(row)
                                           for how in columns.values()) for row in rows), shorten)
        return
    before = '['
    for row in rows:
        sys.stdout.write(f'{before}\n{json.dumps(row, default=str)}')
        before = ','
    print('[]' if before == '[' else '\n]')


def print_fields(options: argparse.Namespace, row: Mapping[str, Any]) -> None:
    """Print one row, as JSON or with a line for each item that is known."""
    if options.json:
        print_json(row)
        return
    for name, value in row.items():
        if value not in (None, '', [], {}):
            print(f'{name:12}{shown_field(name, value)}')
