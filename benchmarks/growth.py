"""Measure by how many bytes application, hub and agent grow with each task that has ended, and print a table.

    python benchmarks/growth.py [--tasks N] [--bulk N] [--work DIR] [kept dropped forgotten]

Tasks are simulated, and submitted by the bulk, each of which is waited for. Then the application has a handle of each
task (*kept*), of none (*dropped*), or has told the task manager to forget them (*forgotten*). Bytes per task are the
slope of the private memory over the second half of the tasks. Each case is a fresh process; the script calls itself for
that (`--case`).
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import sys
import time
from typing import Any

import common
from tasks import named_children

CASES = ('kept', 'dropped', 'forgotten')
BULK = 2000


def grow(work: str, case: str, count: int, bulk: int) -> dict[str, Any]:
    """Bytes of private memory after each bulk and microseconds of CPU time per task, by process; bytes of files."""
    import radical.pilot as rp

    common.simulate(work)
    kept = []
    with common.session(work, 1000) as (session, pilot, tmgr):
        pilot.wait(rp.PMGR_ACTIVE)
        processes = {'application': os.getpid()} | named_children()
        sizes: dict[str, list[int]] = {name: [] for name in processes}
        begin, before = time.monotonic(), {name: common.cpu_ticks(pid) for name, pid in processes.items()}
        for _ in range(0, count, bulk):
            tasks = tmgr.submit_tasks([
                rp.TaskDescription({'executable': 'simulated', 'arguments': [str(number)]}) for number in range(bulk)])
            uids = [task.uid for task in tasks]
            tmgr.wait_tasks(uids)
            assert all(task.state == rp.DONE for task in tasks)
            if case == 'kept':
                kept += tasks
            if case == 'forgotten':
                tmgr.forget_tasks(uids)
            del tasks
            gc.collect()
            for name, pid in processes.items():
                sizes[name].append(private(pid))
        seconds = time.monotonic() - begin
        return {'sizes': sizes, 'rate': count / seconds,
                'cpu': {name: sum(common.per_task(before[name], common.cpu_ticks(pid), count)[:2])
                        for name, pid in processes.items()},
                'hub.db': os.path.getsize(f'{session.path}/hub.db') / count,
                'log': os.path.getsize(f'{session.path}/hub.db-wal')}


def private(pid: int) -> int:
    """Bytes of memory that only this process has."""
    with open(f'/proc/{pid}/smaps_rollup', encoding='ascii') as file:
        return next(1024 * int(line.split()[1]) for line in file if line.startswith('Anonymous:'))


def slope(sizes: list[int], bulk: int) -> float:
    """Bytes per task, over the second half."""
    half = sizes[len(sizes) // 2:]
    return statistics.linear_regression(range(0, bulk * len(half), bulk), half).slope


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('cases', nargs='*', choices=[[], *CASES], help='default: all')
    parser.add_argument('--tasks', type=int, default=100_000)
    parser.add_argument('--bulk', type=int, default=BULK)
    parser.add_argument('--work', default=common.MEMORY, help='directory for sessions and sandboxes')
    parser.add_argument('--case', choices=CASES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        print(json.dumps(grow(options.work, options.case, options.tasks, options.bulk)))
        return 0
    rows = []
    for case in options.cases or CASES:
        common.progress(case)
        with common.work_directory(options.work) as work:
            found = common.fresh(__file__, work, '--case', case, '--tasks', str(options.tasks), '--bulk',
                                 str(options.bulk))
        rows += [[case, name, f'{slope(sizes, options.bulk):.0f}', common.number(sizes[-1] / 1e6),
                  common.number(found['cpu'][name])] for name, sizes in found['sizes'].items()]
        rows.append([case, 'hub.db', common.number(found['hub.db']), common.number(found['log'] / 1e6) + ' (log)', ''])
    common.print_table(['handles', 'of', 'bytes per task', 'in the end / MB', 'CPU per task / µs'], rows)
    return 0


if __name__ == '__main__':
    sys.exit(main())
