"""Chaos: `chaos.py --rounds 112 --kind plain --seed 1`, or `--kind all`.

A round is a session whose application, hub, agents and RAPTOR processes are killed or stopped at random moments. An
application that was killed is followed by another one, which attaches to the session. In the end no task may be lost,
or have run more often than it may, nothing may hang or be left running, and callbacks must have been told every state.

A round follows from its kind and its seed. Rounds have the seeds from `--seed` on, one after the other: after an
interruption, go on with the next seed. One line per round, a table at the end. The exit code is 1 if something did not
hold in any round; its line says how to have that round again.
"""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

sys.path += map(str, (Path(__file__).parents[1], Path(__file__).parents[1] / 'fault'))   # for conftest and fault_matrix

from chaos_rounds.plan import KINDS
from chaos_rounds.table import Size, Table, play_rounds


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
    parser.add_argument('--kind', choices=['all', *KINDS], default='all')
    parser.add_argument('--rounds', type=int, default=112, help='of each kind (default: 112)')
    parser.add_argument('--seed', type=int, default=1, help='of the first round (default: 1)')
    parser.add_argument('--tasks', type=int, default=300, help='in each round (default: 300)')
    parser.add_argument('--deadline', type=float, default=240.0, help='seconds after which a round counts as hung')
    parser.add_argument('--span', type=float, help='seconds within which things happen; default: those that a round '
                                                   'takes when nothing happens, which is measured first')
    parser.add_argument('--keep', action='store_true', help='leave the files of rounds in which something did not hold')
    return parser.parse_args()


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))   # so that nothing is left running
    chosen = options()
    size, table = Size(chosen.tasks, chosen.deadline), Table()
    try:
        for kind in KINDS if chosen.kind == 'all' else [chosen.kind]:
            seeds = range(chosen.seed, chosen.seed + chosen.rounds)
            play_rounds(kind, seeds, size, chosen.span, table, keep=chosen.keep)
    except KeyboardInterrupt:
        print('interrupted; the table has the rounds so far')
        return 1
    finally:
        print('', *table.lines(), sep='\n')
    return 1 if table.broken else 0


if __name__ == '__main__':
    sys.exit(main())
