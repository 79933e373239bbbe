"""The command `rp trace` of rp-profiling, for sessions in any directory, with their tasks."""

from __future__ import annotations

import argparse
import os
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rp_api.coordination import sessions
from rp_api.errors import PilotError
from rp_client.cli import stores
from rp_client.inspect.select import Selection
from rp_profiling import cli

if TYPE_CHECKING:
    from rp_api.coordination.records import Records


def trace(arguments: list[str]) -> int:
    """Analyse and check the traces of a session, draw and export them."""
    return cli.trace(arguments, _tasks, lambda wanted: stores.choose(None, None, wanted).where)


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the arguments."""
    return cli.make_parser()


def _tasks(directory: Path) -> Iterator[dict[str, Any]]:
    """Yield the tasks of a session as rows; without those that cannot be read."""
    try:
        if (records := _records(directory.resolve())) is not None:
            with records:
                yield from Selection().rows(records)
    except (sqlite3.Error, PilotError) as error:
        print(f'rp trace: the tasks of {directory} cannot be read: {error}', file=sys.stderr)


def _records(directory: Path) -> Records | None:
    """Return the records of the session of a directory, there or in the MongoDB of the environment."""
    if sessions.is_session(directory):
        return sessions.records(directory)
    store = stores.Database(os.environ[stores.DBURL]) if os.environ.get(stores.DBURL) else None
    places = store.places() if store else ()
    return next((place.store.records(place.where) for place in places if place.uid == directory.name), None)
