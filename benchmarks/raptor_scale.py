"""Measure a RAPTOR master with up to 1,000 workers of 56 ranks, and print a table.

    python benchmarks/raptor_scale.py [--workers N,...] [--seconds S] [--runs N] [--work DIR] [rate cpu router]

| figure | what |
|---|---|
| `rate` | 1,000 workers, calls of 2.8 s (20,000/s keep 56,000 ranks busy): rate, memory and CPU time of the master |
| `cpu` | no-op calls at 1 to 1,000 workers: CPU time of the master per call |
| `router` | CPU time of the router alone for a result and the call that follows, with half of the ranks idle |

The master, its connections and the application, which streams the calls, are real. The workers are simulated: two
processes play the managers (`raptor_workers.py`), and no call runs. Each case is a new session.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import threading
import time
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import common
from common import HERE, Strangers, number, print_table, progress, session, work_directory

import radical.pilot as rp
from rp_api.raptor_link import master_file
from rp_raptor.master.router import CallRouter
from rp_raptor.master.worker_pool import PooledWorker

RANKS = 56
PROCESSES = 2
NUMBERS = [1, 4, 16, 64, 256, 1000]
HEAD = ['workers', 'seconds per call', 'calls/s', 'of the ranks / %', 'master, µs of CPU per call', 'its loop',
        'application, µs of CPU per call', 'start of all workers / s', 'memory of the master: before, half, end / MB',
        'used by others / %']


class Simulated:
    """Processes that play workers."""

    def __init__(self, path: str, workers: int, seconds: float) -> None:
        shares = [share for share in (workers // PROCESSES + (process < workers % PROCESSES)
                                      for process in range(PROCESSES)) if share]
        self.processes = [subprocess.Popen(
            [sys.executable, HERE / 'raptor_workers.py', path, str(share), str(RANKS), str(seconds)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) for share in shares]
        up = [json.loads(self._line(process)) for process in self.processes]
        self.master = int(up[0]['master'])
        self.start = max(each['seconds'] for each in up)

    @property
    def results(self) -> int:
        """The number of results that were sent."""
        for process in self.processes:
            assert process.stdin
            process.stdin.write('\n')
            process.stdin.flush()
        return sum(int(self._line(process)) for process in self.processes)

    def end(self) -> None:
        """Let the workers vanish."""
        for process in self.processes:
            process.communicate()

    @staticmethod
    def _line(process: subprocess.Popen[str]) -> str:
        assert process.stdout
        return process.stdout.readline()


@contextmanager
def simulated(work: str, workers: int, seconds: float) -> Iterator[tuple[Any, Simulated]]:
    """A master with so many workers."""
    with session(work, cores=1) as (_, pilot, _):
        handle = pilot.submit_raptors(rp.TaskDescription({'mode': rp.RAPTOR_MASTER}))[0]
        handle.wait(rp.AGENT_EXECUTING)
        path = master_file(str(pilot.pilot_sandbox), handle.uid)
        sites = Simulated(path, workers, seconds)
        try:
            yield handle, sites
        finally:
            sites.end()


def nothing(_: int) -> None:
    """The call, which no rank runs."""


def flow(handle: Any, window: int, over: threading.Event) -> None:
    """Stream calls."""
    for call in rp.raptor.stream(handle, nothing, count(), window=window):
        call.result()
        if over.is_set():
            return


def case(work: str, workers: int, seconds: float, duration: float) -> list[float]:
    """The row of a case, without the use by others."""
    with simulated(work, workers, seconds) as (handle, sites):
        before = memory(sites.master)
        over = threading.Event()
        window = 1 << 17 if seconds else 1 << 16
        thread = threading.Thread(target=flow, args=(handle, window, over))
        thread.start()
        time.sleep(2 + 2 * seconds)   # until the flow is steady
        marks = [mark(sites)]
        time.sleep(duration / 2)
        half = memory(sites.master)
        time.sleep(duration / 2)
        marks.append(mark(sites))
        end = memory(sites.master)
        over.set()
        thread.join()
        results, clock, master, loop, application = (after - begin for begin, after in zip(*marks, strict=True))
        rate = results / clock
        return [rate, 100 * rate * seconds / (workers * RANKS), 1e6 * master / results, 1e6 * loop / results,
                1e6 * application / results, sites.start, before, half, end]


def mark(sites: Simulated) -> tuple[float, ...]:
    """Results, time, CPU seconds of the master, of the busiest of its threads, and of this process, until now."""
    threads = [cpu(Path(path, 'stat')) for path in Path(f'/proc/{sites.master}/task').iterdir()]
    return (sites.results, time.monotonic(), cpu(Path(f'/proc/{sites.master}/stat')), max(threads),
            cpu(Path('/proc/self/stat')))


def cpu(stat: Path) -> float:
    """CPU seconds of a process or thread."""
    fields = stat.read_text().rpartition(')')[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf('SC_CLK_TCK')


def memory(pid: int) -> float:
    """Megabytes of a process."""
    lines = Path(f'/proc/{pid}/status').read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith('VmRSS:')) / 1024


def row(work: str, workers: int, seconds: float, duration: float, runs: int) -> list[str]:
    """The row of the table for a case: medians."""
    strangers = Strangers()
    found = []
    for turn in range(runs):
        progress(f'{workers} workers, calls of {seconds} s, {turn + 1}/{runs}')
        with work_directory(work) as place:
            found.append(case(place, workers, seconds, duration))
    values = [statistics.median(column) for column in zip(*found, strict=True)]
    return [str(workers), f'{seconds:g}', *map(number, values[:6]), ', '.join(map(number, values[6:])),
            number(strangers.share())]


class Owner:
    """The owner of calls in the router."""

    def started(self, ids: array[int]) -> None:
        """Ignore the start of calls."""

    def results(self, ids: array[int], payloads: Sequence[bytes]) -> None:
        """Ignore results."""


def router_time(workers: int, count: int = 5000) -> float:
    """Microseconds of CPU time of the router per call: each worker has half as many calls as ranks."""
    router, chance, made = CallRouter(lambda address, message: None), random.Random(1), workers * RANKS // 2
    source = router.open(Owner())
    present = [PooledWorker(b'%d' % place, str(place), RANKS, False) for place in range(workers)]
    for worker in present:
        router.attach(worker)
        router.credit(worker, 2 * RANKS)
    router.calls(source, array('Q', range(made)), [b'call'] * made, None)
    router.deal()
    begin = time.process_time()
    for new in range(made, made + count):
        worker = chance.choice([worker for worker in chance.choices(present, k=8) if worker.calls])
        router.results(worker, array('Q', [next(iter(worker.calls))]), [b'result'])
        router.credit(worker, 1)
        router.calls(source, array('Q', [new]), [b'call'], None)
        router.deal()
    return 1e6 * (time.process_time() - begin) / count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('figures', nargs='*', choices=[[], 'rate', 'cpu', 'router'])
    parser.add_argument('--workers', default='', help='numbers of workers')
    parser.add_argument('--seconds', type=float, default=2.8, help='length of the calls of `rate`')
    parser.add_argument('--duration', type=float, default=10.0, help='seconds that are measured')
    parser.add_argument('--runs', type=int, default=3, help='runs of each case')
    parser.add_argument('--work', default=common.MEMORY, help='directory for sessions and sandboxes')
    options = parser.parse_args()
    given = [int(each) for each in options.workers.split(',') if each]
    figures, rows = options.figures or ['rate', 'cpu', 'router'], []
    if 'rate' in figures:
        rows += [row(options.work, workers, options.seconds, options.duration, options.runs)
                 for workers in given or [1000]]
    if 'cpu' in figures:
        rows += [row(options.work, workers, 0.0, options.duration, options.runs)
                 for workers in given or NUMBERS]
    if rows:
        print_table(HEAD, rows)
    if 'router' in figures:
        print_table(['workers', 'router, µs of CPU per call'], [
            [str(workers), number(statistics.median(router_time(workers) for _ in range(options.runs)))]
            for workers in given or NUMBERS])


if __name__ == '__main__':
    main()
