"""The results of a session from its hub's database: `python -m rp_api.coordination.results SESSION_DIRECTORY`.

Prints one JSON object per task, at any time: while the session runs, after its end, and after the application died.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rp_api.coordination import sessions
from rp_api.coordination.records import SessionRecords
from rp_api.errors import CoordinationError
from rp_api.values import as_json


def read_results(directory: str | Path) -> Iterator[dict[str, Any]]:
    """Return the tasks of a session in the order of submission: `uid`, `pilot`, `state`, `submitted`, and others.

    A task that has left its pilot, and that the application has not received, has its `target_state` as state.
    Raise `FileNotFoundError` if the directory is not that of a session.
    """
    return _read(sessions.records(directory))


def _read(records: SessionRecords) -> Iterator[dict[str, Any]]:
    with records:
        for _, task in records.tasks():
            yield {name: value for name, value in task.items() if name not in ('tmgr', 'attempts', 'description')}


def main() -> int:
    """Print the results of a session, and return the exit code."""
    if len(sys.argv) != 2:
        print('usage: python -m rp_api.coordination.results SESSION_DIRECTORY', file=sys.stderr)
        return 2
    try:
        for result in read_results(sys.argv[1]):
            print(as_json(result))
    except (OSError, sqlite3.Error, CoordinationError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == '__main__':
    sys.exit(main())
