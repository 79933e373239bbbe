"""Screen a library of molecules against a pharmacophore: one RAPTOR master, and a worker with a rank on each core.

Each molecule is one call: it gets a few shapes (conformers), which are minimised, and the best of them counts. The best
molecules are printed; `scores.svg` shows how the scores are distributed, `throughput.svg` how many molecules were done
per second. With `--check` the same is computed in a plain loop, and must be the same. `--resource` names another
platform: if one of its nodes has fewer cores than wanted, the worker spans nodes.

    pip install -r examples/screening/requirements.txt
    python examples/screening/screening.py [--molecules N] [--resource LABEL] [--cores N] [--check]
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import chemistry
import pictures

import radical.pilot as rp

HERE = Path(__file__).parent
BEST = 10
POINTS = 100   # of a curve, at most


def main() -> int:
    """Run the example; the exit code."""
    size = chemistry.library_size()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--molecules', type=int, default=size, help=f'how many to screen (default: all {size})')
    parser.add_argument('--resource', default='local.exact', help='the platform (default: this machine)')
    parser.add_argument('--cores', type=int, default=os.cpu_count(), help='how many cores to use')
    parser.add_argument('--check', action='store_true', help='compare with a plain loop')
    options = parser.parse_args()
    numbers = range(0, size, max(1, size // options.molecules))[:options.molecules]
    hits, times = screen_with_raptor(numbers, options.resource, options.cores)
    show(hits, times)
    if options.check:
        same = sorted(hits) == sorted(map(chemistry.screen, numbers))
        print(f'a plain loop gives {"the same" if same else "something else"}')
        return 0 if same else 1
    return 0


def screen_with_raptor(numbers: Iterable[int], resource: str, cores: int) -> tuple[list[chemistry.Hit], list[float]]:
    """All hits, as they come, and when: in seconds since the first call was made."""
    with rp.Session() as session:
        pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session)
        # one core more, for the master
        pilot = pmgr.submit_pilots(rp.PilotDescription({
            'resource': resource, 'cores': cores + 1, 'runtime': 240}))
        tmgr.add_pilots(pilot)
        master = pilot.submit_raptors(rp.TaskDescription({'mode': rp.RAPTOR_MASTER}))[0]
        # workers import this module, too
        path = os.pathsep.join(filter(None, [str(HERE), os.environ.get('PYTHONPATH')]))
        master.submit_workers(rp.TaskDescription({
            'mode': rp.RAPTOR_WORKER, 'ranks': cores, 'environment': {'PYTHONPATH': path}}))
        hits, times, begin = [], [], time.monotonic()
        for call in rp.raptor.stream(master, chemistry.screen, numbers):
            hits.append(call.result())
            times.append(time.monotonic() - begin)
        session.close(download=True)
        print(f'see the calls of each rank: rp trace {session.uid} plot')
        return hits, times


def show(hits: list[chemistry.Hit], times: list[float]) -> None:
    """Print the ranking, and draw the pictures."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f'the best of {len(hits)} molecules')
    for title in ('score', 'weight', 'logP', 'molecule'):
        table.add_column(title, justify='left' if title == 'molecule' else 'right')
    for hit in sorted(hits, key=lambda hit: (-hit.score, hit.number))[:BEST]:
        table.add_row(f'{hit.score:.3f}', f'{hit.weight:.1f}', f'{hit.lipophilicity:.2f}', hit.smiles)
    Console().print(table)
    pictures.histogram(Path('scores.svg'), [hit.score for hit in hits], 'molecules by score', 'score')
    pictures.curve(Path('throughput.svg'), rates(times), 'molecules per second', 'seconds', times[-1])
    print(f'{len(hits)} molecules in {times[-1]:.1f} s, {len(hits) / times[-1]:.1f} per second; '
          'see scores.svg and throughput.svg')


def rates(times: list[float]) -> list[float]:
    """Molecules per second in each of the equal parts of the run, which are a second or longer."""
    parts = min(POINTS, int(times[-1]) + 1)
    length = times[-1] / parts
    counts = Counter(min(parts - 1, int(each / length)) for each in times)
    return [counts[part] / length for part in range(parts)]


if __name__ == '__main__':
    sys.exit(main())
