"""Measure how long the simulator takes for the two largest runs of the paper, and how much memory; print a table.

    python benchmarks/simulation.py [tasks] [calls]

`tasks` is experiment 4 (24,552 tasks on 4,097 nodes of Summit), with the traces of its session written to `--work`, by
the model of the paper and by ours; `calls` is experiment 5 (126,471,524 function calls on 70 masters, each with 99
workers of 56 ranks). Each runs in a process of its own.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time
from pathlib import Path

from common import MEMORY, work_directory

CALLS = 126_471_524
MASTERS, WORKERS, RANKS = 70, 99, 56


def tasks(model: str, directory: Path) -> str:
    """Simulate the largest run of experiment 4."""
    from experiments.runs import heterogeneous

    from rp_client.simulation import load_model, simulate

    run = heterogeneous()[-1]
    chosen = run.model if model != 'ours' else load_model('ours')
    return str(simulate(run.platform, run.workload, chosen, directory=directory / 'session'))


def calls(model: str, directory: Path) -> str:
    """Simulate experiment 5."""
    from rp_client.simulation import Cost, Platform
    from rp_client.simulation.calls import Calls, simulate_calls

    wanted = Calls(CALLS, Cost(10.5, spread=0.5), MASTERS, WORKERS, RANKS, master={'cores_per_rank': RANKS})
    platform = Platform.of(MASTERS * (1 + WORKERS), RANKS)
    return str(simulate_calls(platform, wanted, model, directory=directory / 'session'))


CASES = {'tasks': (tasks, ('paper-summit-prrte', 'ours')), 'calls': (calls, ('ours',))}


def main() -> None:
    """Run the cases, each in a process of its own, or the one that a process is for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('cases', nargs='*', metavar='CASE', help=f'which of {", ".join(CASES)} (default: all)')
    parser.add_argument('--work', default=MEMORY, metavar='DIR', help='where traces are written')
    parser.add_argument('--model', help=argparse.SUPPRESS)
    options = parser.parse_args()
    unknown = set(options.cases) - CASES.keys()
    if unknown:
        parser.error(f'there is no case {", ".join(sorted(unknown))}')
    if options.model:
        measure(options.cases[0], options.model, Path(options.work))
        return
    print(f'{"case":6} {"model":20} {"elapsed":>9} {"CPU time":>9} {"memory":>8}  result')
    for case in options.cases or CASES:
        for model in CASES[case][1]:
            with work_directory(options.work) as work:
                subprocess.run([sys.executable, __file__, case, '--model', model, '--work', str(work)], check=True)


def measure(case: str, model: str, work: Path) -> None:
    """Run one case, and print its line of the table; imports count."""
    start = time.monotonic()
    found = CASES[case][0](model, work)
    used = resource.getrusage(resource.RUSAGE_SELF)
    print(f'{case:6} {model:20} {time.monotonic() - start:7.1f} s {used.ru_utime + used.ru_stime:7.1f} s '
          f'{used.ru_maxrss / 1024:5.0f} MB  {found}', flush=True)


if __name__ == '__main__':
    main()
