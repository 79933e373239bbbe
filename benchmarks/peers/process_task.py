"""One task of the peers that run Python functions: a process, and both of its outputs kept; or nothing but a call."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

WARM_UP = 50


def captured(directory: str, number: int) -> tuple[int, bytes, bytes]:
    """Exit code, standard output and standard error."""
    done = subprocess.run(['/bin/true'], stdin=subprocess.DEVNULL, capture_output=True)
    return done.returncode, done.stdout, done.stderr


def files(directory: str, number: int) -> tuple[int, bytes, bytes]:
    """The exit code; the outputs are in `directory`."""
    with open(f'{directory}/{number}.out', 'wb') as out, open(f'{directory}/{number}.err', 'wb') as err:
        return subprocess.run(['/bin/true'], stdin=subprocess.DEVNULL, stdout=out, stderr=err).returncode, b'', b''


def call(directory: str, number: int) -> tuple[int, bytes, bytes]:
    """Return the result of the others without starting a process: a call that takes no time."""
    return 0, b'', b''


def chain(directory: str, number: int, before: object = None) -> tuple[int, bytes, bytes]:
    """The same as `files`, after another task, whose result is an argument."""
    return files(directory, number)


FUNCTIONS = {'captured': captured, 'files': files, 'call': call, 'chain': chain}


def measure(run: Callable[[str, int], list[tuple[int, bytes, bytes]]]) -> None:
    """Time `run(directory, count)`, which runs that many tasks, and write `{"rate": tasks per second}`.

    The arguments of the script are variant, number of tasks, and the file for the result.
    """
    variant, count, target = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    places = [Path('warm-up'), Path('tasks')]
    for place in places:
        place.mkdir()
    run(str(places[0].absolute()), WARM_UP)
    begin = time.monotonic()
    results = run(str(places[1].absolute()), count)
    rate = count / (time.monotonic() - begin)
    kept = sum(1 for path in places[1].rglob('*') if path.is_file())
    assert results == [(0, b'', b'')] * count, 'tasks failed'
    assert kept == (0 if variant in ('captured', 'call') else 2 * count), f'{kept} files'
    target.write_text(json.dumps({'rate': rate}))
