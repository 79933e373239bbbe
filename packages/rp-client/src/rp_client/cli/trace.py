"""The command `rp trace` of rp-profiling, for sessions in any directory, with the tasks in their databases."""

from __future__ import annotations

import argparse
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rp_client.cli import stores
from rp_client.inspect.stored import stored_rows
from rp_profiling import cli


def trace(arguments: list[str]) -> int:
    """Analyse and check the traces of a session, draw and export them."""
    return cli.trace(arguments, _tasks, lambda wanted: stores.choose(None, None, wanted).where)


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the arguments."""
    return cli.make_parser()


def _tasks(directory: Path) -> Iterator[dict[str, Any]]:
    """Yield the tasks of a session as rows; without those that cannot be read."""
    try:
        yield from stored_rows(directory)
    except sqlite3.Error as error:
        print(f'rp trace: the tasks in the database of {directory} cannot be read: {error}', file=sys.stderr)
