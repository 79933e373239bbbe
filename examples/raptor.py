"""Estimate pi with function calls: a hundred thousand of them, on the cores of this machine, through one RAPTOR master.

Each call throws some darts at a square and counts those that hit the circle in it. Only a window of the calls exists at
any moment, so there could be any number of them. The results are checked against the same calls made here.

    python examples/raptor.py [--calls N] [--cores N]
"""

from __future__ import annotations

import argparse
import random
import sys
import time

import radical.pilot as rp

DARTS = 20


def hits(seed: int) -> int:
    """Return the number of darts that hit."""
    darts = random.Random(seed)
    return sum(darts.random() ** 2 + darts.random() ** 2 < 1 for _ in range(DARTS))


def main() -> int:
    """Run the example; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--calls', type=int, default=100_000, help='number of calls')
    parser.add_argument('--cores', type=int, default=2, help='number of cores that work')
    options = parser.parse_args()
    with rp.Session() as session:
        pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session)
        # one core more than work: the master's
        pilot = pmgr.submit_pilots(rp.PilotDescription({
            'resource': 'local.exact', 'cores': options.cores + 1, 'runtime': 30}))
        tmgr.add_pilots(pilot)
        master = pilot.submit_raptors(rp.TaskDescription({'mode': rp.RAPTOR_MASTER}))[0]
        master.submit_workers(rp.TaskDescription({'mode': rp.RAPTOR_WORKER, 'ranks': options.cores}))

        begin = time.monotonic()
        with rp.raptor.Executor(master) as executor:
            first = executor.submit(hits, 0).result()
        print(f'the first call has hit {first} times; everything was up after {time.monotonic() - begin:.1f} s')

        begin, found = time.monotonic(), {}
        for call in rp.raptor.stream(master, hits, range(options.calls)):
            found[call.item] = call.result()
        elapsed = time.monotonic() - begin
    print(f'{len(found)} calls in {elapsed:.1f} s, {len(found) / elapsed:.0f} per second')
    print(f'pi is about {4 * sum(found.values()) / DARTS / len(found):.3f}')
    same = all(found[seed] == hits(seed) for seed in range(0, options.calls, 97))
    print('the results are right' if same else 'the results are wrong')
    return 0 if same and len(found) == options.calls else 1


if __name__ == '__main__':
    sys.exit(main())
