"""The results of a session, as its hub has stored them: `python -m rp_api.coordination.results SESSION_DIRECTORY`.

Prints one JSON object per task. Works while the session runs, after it has ended, and after the application has died.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rp_api import states
from rp_api.errors import CoordinationError
from rp_api.mesh import codec


def read_results(directory: str | Path) -> Iterator[dict[str, Any]]:
    """The tasks of a session in the order of their submission: `uid`, `pilot`, `state`, and what is known about each.

    A task that has left its pilot, but that the application has not seen any more, has its `target_state` as state.
    Raises `FileNotFoundError` if that is not the directory of a session.
    """
    path = Path(directory) / 'hub.db'
    if not path.is_file():
        raise FileNotFoundError(f'{directory} is not the directory of a session: it has no hub.db')
    return _read(path)


def _read(path: Path) -> Iterator[dict[str, Any]]:
    database = sqlite3.connect(f'{path.absolute().as_uri()}?mode=ro', uri=True)
    try:
        for uid, pilot, state, info in database.execute('SELECT uid, pilot, state, info FROM tasks ORDER BY rev'):
            known = codec.unpack(info) if info else {}
            target = known.pop('target_state', None)
            known.pop('reached', None)
            yield {'uid': uid, 'pilot': pilot, 'state': target if target and state not in states.FINAL else state,
                   **known}
    finally:
        database.close()


def main() -> int:
    """Print the results of a session; the exit code."""
    if len(sys.argv) != 2:
        print('usage: python -m rp_api.coordination.results SESSION_DIRECTORY', file=sys.stderr)
        return 2
    try:
        for result in read_results(sys.argv[1]):
            print(json.dumps(result))
    except (OSError, sqlite3.Error, CoordinationError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == '__main__':
    sys.exit(main())
