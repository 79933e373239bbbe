"""Measure what it costs to compose the command line of a task, for each launch method, and print a table of medians.

    python benchmarks/launch_methods.py [--runs N] [METHOD ...]

Microseconds of CPU time for `refuses` and `command` together: of a task of 1 rank, of one of 4 ranks on 2 nodes, and of
one of 64 ranks on 16 nodes. No launcher needs to be installed. A dash stands for a job that the method refuses.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

from rp_agent.launch_method import find
from rp_agent.launch_method.base import Job, LaunchMethod, Program, Rank, Setting
from rp_agent.launch_method.mpirun import FLAVOURS
from rp_api.platforms.systems import LAUNCH_METHODS

CALLS = 2000
NODES = tuple(f'nid{number:05}' for number in range(1, 17))
SETTING = Setting(NODES, cores_per_node=64, gpus_per_node=4, facts={'loadl_bg_block': 'R00-M0'})
DETAILS = {'dvm_uri': 'prte-7@0.0;tcp4://10.0.0.1:4242', 'corner_node': 'R00-M0-N00-J00', 'shape': (1, 1, 1, 4, 4)}
EXECUTABLE = ('/bin/sh', '/pilot/task.000000/task.000000.exec.sh')


def job(ranks: int, each: int) -> Job:
    """A job with so many ranks on each node."""
    places = tuple(Rank(NODES[rank // each], rank // each, tuple(range(rank % each * 4, rank % each * 4 + 4)))
                   for rank in range(ranks))
    return Job('task.000000', '/pilot/task.000000', places, cores_per_rank=4, threading='OpenMP', mpi=ranks > 1,
               variables=('RP_TASK_ID', 'RP_PILOT_ID', 'RP_SESSION_ID'), details=DETAILS)


SMALL, LARGE = job(4, 2), job(64, 4)
ALONE = job(1, 1)


def methods(names: list[str]) -> dict[str, LaunchMethod]:
    """The methods, those that have flavours with each of them."""
    found = {}
    for name in names or LAUNCH_METHODS:
        kind = find.find(name)
        flavours = FLAVOURS if name in ('MPIRUN', 'MPIEXEC', 'MPIRUN_CCMRUN') else ['']
        for flavour in flavours:
            more: dict[str, Any] = {'here': frozenset(NODES[:1])} if name in ('FORK', 'DPLACE') else {}
            found[f'{name} {flavour}'.rstrip()] = kind(Program('/usr/bin/launcher', '23.2', flavour), SETTING, **more)
    return found


def microseconds(method: LaunchMethod, each: Job) -> float | None:
    """For one composition; None if the method refuses the job."""
    if method.refuses(each):
        return None
    begin = time.process_time()
    for _ in range(CALLS):
        method.refuses(each)
        method.command(each, EXECUTABLE)
    return (time.process_time() - begin) / CALLS * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('names', nargs='*', metavar='METHOD', help=f'one or more of {", ".join(LAUNCH_METHODS)}')
    parser.add_argument('--runs', type=int, default=5)
    arguments = parser.parse_args()
    print(f'{"microseconds":32}{"1 rank":>10}{"4 ranks":>10}{"64 ranks":>10}')
    for name, method in methods(arguments.names).items():
        print(f'{name:32}', end='')
        for each in (ALONE, SMALL, LARGE):
            times = [microseconds(method, each) for _ in range(arguments.runs)]
            known = [figure for figure in times if figure is not None]
            print(f'{statistics.median(known):10.1f}' if known else f'{"-":>10}', end='')
        print(flush=True)


if __name__ == '__main__':
    main()
