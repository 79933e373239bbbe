"""Measure a session on the local machine, and print a table of medians.

    python benchmarks/local.py [--runs N] [--work DIR] [start latency throughput processes memory idle close]

Each run of each figure is a fresh process; the script calls itself for that (`--figure`). The memory figure submits
100,000 tasks and takes minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import common
from common import others, run_tasks, session

Figures = dict[str, float]


def start(work: str) -> Figures:
    """Seconds from the start of the interpreter to the first task that the application sees as DONE."""
    with open('/proc/self/stat', encoding='ascii') as file:
        ticks = int(file.read().rpartition(')')[2].split()[19])
    with session(work) as (_, _, tmgr):
        run_tasks(tmgr, 1)
        return {'start / s': time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf('SC_CLK_TCK')}


def latency(work: str) -> Figures:
    """Milliseconds from submission to DONE, of 200 tasks, one at a time."""
    return {'latency / ms': 1000 * statistics.median(common.latency_of_tasks(work))}


def throughput(work: str) -> Figures:
    """Tasks per second, of 10,000, and their ratio to a C loop that does just that."""
    count = 10_000
    with session(work) as (_, _, tmgr):
        run_tasks(tmgr, 10)
        begin = time.monotonic()
        tasks = run_tasks(tmgr, count)
        rate = count / (time.monotonic() - begin)
        for task in tasks[::100]:
            assert os.path.isdir(str(task.sandbox)), task.sandbox
    limit = common.c_loop(common.c_program(work), 'files', count, 2, tempfile.mkdtemp(dir=work))['rate']
    return {'tasks/s': rate, 'C loop, tasks/s': limit, 'ratio to C loop': rate / limit}


def processes(work: str) -> Figures:
    """Processes that live besides the application and its tasks."""
    with session(work) as (_, _, tmgr):
        run_tasks(tmgr, 1)
        return {'processes': len(others())}


def memory(work: str) -> Figures:
    """Kilobytes of peak memory that the application grows by per finished task, of 100,000."""
    import resource

    count = 100_000
    with session(work) as (_, _, tmgr):
        run_tasks(tmgr, 1000)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        begin = time.monotonic()
        tasks = run_tasks(tmgr, count)
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        return {'memory / KB per task': grown / len(tasks), 'tasks/s of 100,000': count / (time.monotonic() - begin)}


def idle(work: str) -> Figures:
    """Percent of a core that application, hub and agent use together while nothing happens."""
    with session(work) as (_, _, tmgr):
        run_tasks(tmgr, 10)
        time.sleep(1)
        before = sum(cpu_time(pid) for pid in [os.getpid(), *others()])
        time.sleep(10)
        used = sum(cpu_time(pid) for pid in [os.getpid(), *others()]) - before
        return {'idle / % of a core': 100 * used / 10}


def cpu_time(pid: int) -> float:
    """Seconds of CPU time that a process has used, in nanoseconds' resolution where the kernel tells."""
    return sum(int(path.read_text().split()[0]) for path in Path(f'/proc/{pid}/task').glob('*/schedstat')) / 1e9


def close(work: str) -> Figures:
    """Seconds that `close()` takes when nothing is running."""
    with session(work) as (opened, _, tmgr):
        run_tasks(tmgr, 10)
        begin = time.monotonic()
        opened.close()
        return {'close / s': time.monotonic() - begin}


FIGURES: dict[str, Callable[[str], Figures]] = {
    function.__name__: function for function in (start, latency, throughput, processes, memory, idle, close)}


def measure(name: str, base: str) -> Figures:
    """One run of one figure in a fresh process."""
    with common.work_directory(base) as work:
        return common.fresh(__file__, work, '--figure', name)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('figures', nargs='*', choices=[[], *FIGURES], help='default: all')
    parser.add_argument('--runs', type=int, default=5, help='runs of each figure (memory: one)')
    parser.add_argument('--work', default=common.MEMORY, help='directory for sessions and sandboxes')
    parser.add_argument('--figure', help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.figure:
        print(json.dumps(FIGURES[options.figure](options.work)))
        return 0
    print('| figure | median | min | max | runs |\n|---|---|---|---|---|')
    for name in options.figures or FIGURES:
        runs = 1 if name == 'memory' else options.runs
        measured = [measure(name, options.work) for _ in range(runs)]
        for key in measured[0]:
            values = [each[key] for each in measured]
            print(f'| {key} | {statistics.median(values):.3g} | {min(values):.3g} | {max(values):.3g} | {runs} |',
                  flush=True)
    return 0


if __name__ == '__main__':
    sys.exit(main())
