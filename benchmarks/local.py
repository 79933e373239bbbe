"""Measure a session on the local machine, and print a table of medians.

    python benchmarks/local.py [--runs N] [--work DIR] [start latency throughput processes memory idle close]

Each run of each figure is a fresh process; the script calls itself for that (`--figure`). The memory figure submits
100,000 tasks and takes minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
Figures = dict[str, float]


@contextmanager
def session(work: str, cores: int = 2):
    """A session with an active pilot of `cores` cores: session, pilot, task manager."""
    import radical.pilot as rp

    with rp.Session(cfg={'base': work}) as opened:
        pmgr = rp.PilotManager(session=opened)
        tmgr = rp.TaskManager(session=opened)
        pilot = pmgr.submit_pilots(rp.PilotDescription({
            'resource': 'local.localhost', 'cores': cores, 'runtime': 60, 'sandbox': work}))
        tmgr.add_pilots(pilot)
        yield opened, pilot, tmgr


def run_tasks(tmgr, count: int) -> list[Any]:
    """Run that many tasks to their ends, and make sure that they are DONE."""
    import radical.pilot as rp

    tasks = tmgr.submit_tasks([rp.TaskDescription({'executable': '/bin/true'}) for _ in range(count)])
    tmgr.wait_tasks([task.uid for task in tasks])
    bad = [task for task in tasks if task.state != rp.DONE]
    assert not bad, (bad[0].state, bad[0].exception, bad[0].exception_detail)
    return tasks


def start(work: str) -> Figures:
    """Seconds from the start of the interpreter to the first task that the application sees as DONE."""
    with open('/proc/self/stat', encoding='ascii') as file:
        ticks = int(file.read().rpartition(')')[2].split()[19])
    with session(work) as (_, _, tmgr):
        run_tasks(tmgr, 1)
        return {'start / s': time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf('SC_CLK_TCK')}


def latency(work: str) -> Figures:
    """Milliseconds from submission to DONE, of 200 tasks, one at a time."""
    with session(work) as (_, _, tmgr):
        run_tasks(tmgr, 10)
        times = []
        for _ in range(200):
            begin = time.monotonic()
            run_tasks(tmgr, 1)
            times.append(time.monotonic() - begin)
        return {'latency / ms': 1000 * statistics.median(times)}


def throughput(work: str) -> Figures:
    """Tasks per second, of 10,000, and their ratio to a C loop that does just that."""
    count = 10_000
    with session(work) as (_, _, tmgr):
        run_tasks(tmgr, 10)
        begin = time.monotonic()
        tasks = run_tasks(tmgr, count)
        rate = count / (time.monotonic() - begin)
        for task in tasks[::100]:
            assert os.path.isdir(task.sandbox), task.sandbox
    limit = c_loop(work, count)
    return {'tasks/s': rate, 'C loop, tasks/s': limit, 'ratio to C loop': rate / limit}


def c_loop(work: str, count: int) -> float:
    """Tasks per second of the C program, two in flight."""
    program = Path(work) / 'spawn'
    subprocess.run(['cc', '-O2', '-o', program, HERE / 'spawn.c'], check=True)
    base = Path(work) / 'c'
    base.mkdir()
    return float(subprocess.run([program, base, str(count), '2'], check=True, capture_output=True).stdout)


def processes(work: str) -> Figures:
    """Processes that live besides the application and its tasks."""
    with session(work) as (_, _, tmgr):
        run_tasks(tmgr, 1)
        return {'processes': len(others())}


def others() -> list[int]:
    """All processes that descend from this one."""
    parents: dict[int, int] = {}
    for name in os.listdir('/proc'):
        if name.isdigit():
            try:
                stat = Path('/proc', name, 'stat').read_text(encoding='utf-8', errors='replace')
            except OSError:   # it has ended meanwhile
                continue
            parents[int(name)] = int(stat.rpartition(')')[2].split()[1])
    found = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return sorted(found - {os.getpid()})


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
    work = tempfile.mkdtemp(prefix='rp-benchmark.', dir=base)
    try:
        done = subprocess.run([sys.executable, __file__, '--figure', name, '--work', work], check=True,
                              stdout=subprocess.PIPE, cwd=work)
        result: Figures = json.loads(done.stdout)
        return result
    finally:
        if base == '/dev/shm':   # on a disk, deleting slows down the next run
            shutil.rmtree(work)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('figures', nargs='*', choices=[[], *FIGURES], help='default: all')
    parser.add_argument('--runs', type=int, default=5, help='runs of each figure (memory: one)')
    parser.add_argument('--work', default='/dev/shm', help='directory for sessions and sandboxes')
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
