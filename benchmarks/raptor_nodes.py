"""A RAPTOR worker with 16 ranks on one node against one over four nodes, of a real Slurm whose nodes are this machine.

    python benchmarks/raptor_nodes.py [--seconds 5] [--times 3]

Both workers run in turns in one pilot. It prints the calls per second of each, for calls that sleep 10 ms and for calls
that do nothing, and the ratio of the four nodes to the one. The nodes have no network between them: the difference is
that of four managers to one. Needs Debian's Slurm (CONTRIBUTING.md).
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'tests'))

from batch_pilots import Managers, platform
from slurm_cluster import slurm_cluster

import radical.pilot as rp

RANKS, NODES = 16, 4
CALL = 0.01   # seconds

Rates = dict[tuple[str, int], list[float]]


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--seconds', type=float, default=5.0, help='of each measurement')
    parser.add_argument('--times', type=int, default=3, help='measurements of each kind')
    options = parser.parse_args()
    with slurm_cluster(nodes=NODES, cores=RANKS + 1) as slurm, TemporaryDirectory() as base:
        os.environ.update(slurm.environ | platform(
            Path(base), 'slurm://localhost/', 'SLURM', cores_per_node=RANKS + 1,
            launch_methods={'order': ['SRUN'], 'SRUN': {}}))
        with rp.Session(cfg={'base': base}) as session:
            rates = measured(Managers(session), options.seconds, options.times)
    for kind in ('10 ms', 'no-op'):
        one, several = (statistics.median(rates[kind, nodes]) for nodes in (1, NODES))
        spread = max(max(each) / min(each) - 1 for each in (rates[kind, 1], rates[kind, NODES]))
        print(f'{kind:6} one node {one:9,.0f}/s   {NODES} nodes {several:9,.0f}/s   ratio {several / one:.3f}'
              f'   spread {spread:.1%}')


def measured(managers: Managers, seconds: float, times: int) -> Rates:
    """Return the rates by kind of call and number of nodes."""
    pilot = managers.active(cores=0, nodes=NODES)
    (master,) = pilot.submit_raptors(rp.TaskDescription({'mode': rp.RAPTOR_MASTER}))
    rates: Rates = {}
    for _ in range(times):
        for nodes in (1, NODES):
            (worker,) = master.submit_workers(rp.TaskDescription({
                'mode': rp.RAPTOR_WORKER, 'ranks': RANKS, 'ranks_per_node': RANKS // nodes}))
            _warm_up(master)
            rates.setdefault(('10 ms', nodes), []).append(rate(master, time.sleep, CALL, int(seconds / CALL * RANKS)))
            rates.setdefault(('no-op', nodes), []).append(rate(master, abs, 1, int(seconds * 20_000)))
            managers.tmgr.cancel_tasks([worker.uid])
            worker.wait()
            assert len({slot['node_name'] for slot in worker.slots or ()}) == nodes, worker.slots
    return rates


def rate(master: Any, func: Any, argument: float, count: int) -> float:
    """Return the calls per second of a stream."""
    start = time.perf_counter()
    for call in rp.raptor.stream(master, func, (argument for _ in range(count))):
        call.result()
    return count / (time.perf_counter() - start)


def _warm_up(master: Any) -> None:
    """Wait until all ranks take calls."""
    def process(_: int) -> tuple[int, str]:
        time.sleep(0.02)
        return os.getpid(), os.environ['RP_RAPTOR_RANK']

    while len({call.result() for call in rp.raptor.stream(master, process, range(10 * RANKS))}) < RANKS:
        pass


if __name__ == '__main__':
    main()
