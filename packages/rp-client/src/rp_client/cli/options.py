"""The options that commands share: which session is meant, and the form of the output."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rp_client.cli import stores

if TYPE_CHECKING:
    from rp_api.coordination.records import Records

_UNITS = {'': 1, 'K': 10 ** 3, 'M': 10 ** 6, 'G': 10 ** 9, 'T': 10 ** 12}
_SIZE = re.compile(r'(\d+(?:\.\d+)?)\s*([KMGT]?)B?', re.IGNORECASE)

LIMIT = 50
"""Tasks that are listed by default."""


def where(*, session: bool = True) -> argparse.ArgumentParser:
    """Return a parent for parsers: where sessions are, and which one is meant (`session`)."""
    found = argparse.ArgumentParser(add_help=False)
    if session:
        found.add_argument('--session', metavar='UID', help='the session: its uid, a part of it, or its directory '
                           '(default: the one that was created last)')
    found.add_argument('--base', type=Path, metavar='DIR', help='a directory with directories of sessions (default: '
                       'the working directory, $RADICAL_PILOT_BASE, and where else sessions of yours are)')
    found.add_argument('--dburl', metavar='URL', help=f'a MongoDB with sessions (default: ${stores.DBURL})')
    return found


def as_json() -> argparse.ArgumentParser:
    """Return a parent for parsers: output for programs."""
    found = argparse.ArgumentParser(add_help=False)
    found.add_argument('--json', action='store_true', help='print JSON, for programs')
    return found


def size(text: str) -> int:
    """Return the bytes of a size such as `500MB`."""
    found = _SIZE.fullmatch(text.strip())
    if not found:
        raise argparse.ArgumentTypeError(f'{text!r} is no size: give a number and a unit, such as 500MB or 50GB')
    return round(float(found[1]) * _UNITS[found[2].upper()])


def records(options: argparse.Namespace) -> AbstractContextManager[Records]:
    """Open the records of the session that is meant."""
    return stores.opened(options.base, options.dburl, options.session)


def print_json(value: Any) -> None:
    """Print plain data as JSON."""
    print(json.dumps(value, indent=2, default=str))


def print_json_rows(rows: Iterable[Any]) -> None:
    """Print a JSON array with one element in a line, each as soon as it is known."""
    before = '['
    for row in rows:
        sys.stdout.write(f'{before}\n{json.dumps(row, default=str)}')
        before = ','
    print('[]' if before == '[' else '\n]')
