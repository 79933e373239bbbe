"""The fault matrix: `matrix.py --fault kill-hub --tasks 20000 --moments 50 --seed 1`, or `--fault all`.

A run is a session of its own to which one fault happens several times, at random moments between the opening of the
session and the end of the last task, the next one when the former one is over. Afterwards every task must have ended
once and as it had to, and nothing may be left. One line per run, a table at the end. The exit code is 1 if something
was lost in any run; its line says how to have that run again.
"""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))   # for conftest

from fault_matrix import database
from fault_matrix.faults import BACKENDS, FAULTS
from fault_matrix.row import Row


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
    parser.add_argument('--fault', choices=['all', *FAULTS], default='all')
    parser.add_argument('--backend', choices=['all', *BACKENDS], default='all')
    parser.add_argument('--tasks', type=int, default=20_000, help='in each run')
    parser.add_argument('--moments', type=int, default=50, help='how often each fault happens, in all runs')
    parser.add_argument('--per-run', type=int, default=5, help='how often it happens in one run')
    parser.add_argument('--seconds', type=float, help='how long a fault lasts; default: 10 for messages and disks, '
                                                      '30 for stopped processes')
    parser.add_argument('--deadline', type=float, default=600.0, help='seconds that a run may take at most')
    parser.add_argument('--seed', type=int, default=1, help='chooses the moments')
    parser.add_argument('--only', type=int, help='number of the only run to make')
    parser.add_argument('--keep', action='store_true', help='leave the files of runs with losses')
    parser.add_argument('--at', type=float, nargs='+', metavar='SECONDS',
                        help='after the beginnings of the parts of a run, instead of random moments')
    chosen = parser.parse_args()
    if chosen.moments % chosen.per_run:
        parser.error(f'--moments {chosen.moments} is not a multiple of --per-run {chosen.per_run}')
    chosen.rows = [(backend, name) for name, fault in FAULTS.items() for backend in fault.backends
                   if chosen.backend in ('all', backend)
                   and (chosen.fault == name or (chosen.fault == 'all' and name != 'none'))]
    if not chosen.rows:
        parser.error(f'{chosen.fault} cannot happen with the backend {chosen.backend}')
    if any(backend == 'mongodb' for backend, _ in chosen.rows) and not database.available():
        parser.error(f'the backend mongodb needs {database.KIND} and pymongo: install them, or use another --backend')
    return chosen


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))   # so that nothing is left running
    chosen = options()
    rows = [Row(backend, name, chosen) for backend, name in chosen.rows]
    for row in rows:
        row.execute()
    print('\n| backend | fault | tasks | moments | runs with losses | duration of a run, median and longest |')
    print('|---|---|---|---|---|---|')
    for row in rows:
        print(row.line())
    return 1 if any(row.lost for row in rows) else 0


if __name__ == '__main__':
    sys.exit(main())
