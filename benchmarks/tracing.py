"""Measure what an event in a trace costs the process that records it, and what tracing costs a whole session.

    python benchmarks/tracing.py [--runs N] [--pairs N] [--count N] [--work DIR]

The cases take turns: the calls of the tracer, and the same rows written by Python's csv module and as formatted
strings. Times are of the processor, the writing to a file below `--work` (default: in memory) included.

Sessions with tracing and without it come in pairs, and the first one of a pair is now the one and now the other. Each
runs `--count` tasks at full speed. On a busy machine, CPU time tells more than the rate does: it is that of
application, hub and agent, without the tasks.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from common import MEMORY, fresh, print_table, progress, work_directory
from tasks import system

from rp_profiling.tracer import Tracer

COMP = 'agent_executing.0000'
EVENTS = ('task_start', 'exec_start', 'rank_start', 'launch_pre', 'launch_submit', 'exec_pre', 'rank_stop', 'exec_stop')
UIDS = [f'task.{number:06d}' for number in range(1000)]
ROUNDS = 10


def with_csv(path: Path) -> None:
    with open(path, 'w', newline='') as file:
        write = csv.writer(file, lineterminator='\n').writerow
        for _ in range(ROUNDS):
            for uid in UIDS:
                for event in EVENTS:
                    write((f'{time.time():.7f}', event, COMP, 'MainThread', uid, '', ''))


def with_strings(path: Path) -> None:
    """Neither quotes nor separators in the fields are looked for."""
    with open(path, 'w') as file:
        for _ in range(ROUNDS):
            for uid in UIDS:
                for event in EVENTS:
                    file.write(f'{time.time():.7f},{event},{COMP},MainThread,{uid},,\n')


def with_record(path: Path) -> None:
    tracer = Tracer(path, COMP)
    for _ in range(ROUNDS):
        for uid in UIDS:
            for event in EVENTS:
                tracer.record(event, uid)
    tracer.close()


def with_record_many(path: Path) -> None:
    tracer = Tracer(path, COMP)
    for _ in range(ROUNDS):
        for uid in UIDS:
            tracer.record_many(uid, EVENTS)
    tracer.close()


def with_record_bulk(path: Path) -> None:
    tracer = Tracer(path, COMP)
    for _ in range(ROUNDS):
        for event in EVENTS:
            tracer.record_bulk(event, UIDS)
    tracer.close()


CASES: dict[str, Callable[[Path], None]] = {
    'Python: `csv.writer`': with_csv,
    'Python: formatted string': with_strings,
    '`record`, one event': with_record,
    f'`record_many`, {len(EVENTS)} events of one uid': with_record_many,
    f'`record_bulk`, one event of {len(UIDS):,} uids': with_record_bulk,
}


def nanoseconds(case: Callable[[Path], None], path: Path) -> float:
    """Per event."""
    path.unlink(missing_ok=True)
    before = time.process_time_ns()
    case(path)
    return (time.process_time_ns() - before) / (ROUNDS * len(UIDS) * len(EVENTS))


def pair(first: bool, work: str, count: int) -> dict[bool, tuple[float, float]]:
    """Tasks per second and microseconds of CPU time per task, with tracing and without."""
    found = {}
    for traced in (first, not first):
        os.environ['RADICAL_PILOT_PROFILE'] = 'true' if traced else 'false'
        with work_directory(work) as directory:
            result = fresh(__file__, directory, '--session', '--count', str(count))
        found[traced] = result['rate'], sum(sum(used[:2]) for used in result['cpu'].values())
    return found


def print_pairs(pairs: list[dict[bool, tuple[float, float]]]) -> None:
    rows = []
    for index, name in enumerate(('tasks/s', 'CPU time per task / µs')):
        with_tracing, without = ([each[traced][index] for each in pairs] for traced in (True, False))
        ratios = [one / other for one, other in zip(with_tracing, without, strict=True)]
        rows.append([name, *(f'{statistics.median(values):.1f}' for values in (with_tracing, without)),
                     f'{statistics.median(ratios):.3f}', f'{min(ratios):.3f}', f'{max(ratios):.3f}'])
    print_table(['session', 'with tracing', 'without', 'ratio, median of pairs', 'least', 'most'], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--runs', type=int, default=9, help='of single events')
    parser.add_argument('--pairs', type=int, default=7, help='of sessions')
    parser.add_argument('--count', type=int, default=20_000, help='tasks of a session')
    parser.add_argument('--work', default=MEMORY)
    parser.add_argument('--session', action='store_true', help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.session:
        print(json.dumps(system(arguments.work, arguments.count, 2)))
        return
    print_events(arguments.runs, arguments.work)
    pairs = []
    for number in range(arguments.pairs):
        progress(f'pair {number + 1} of {arguments.pairs}')
        pairs.append(pair(number % 2 == 0, arguments.work, arguments.count))
    if pairs:
        print_pairs(pairs)


def print_events(count: int, base: str) -> None:
    with work_directory(base) as work:
        runs = [[nanoseconds(case, Path(work) / 'trace.prof') for case in CASES.values()] for _ in range(count)]
    rows = []
    for name, times in zip(CASES, zip(*runs, strict=True), strict=True):
        ratio = statistics.median(run[0] / own for run, own in zip(runs, times, strict=True))
        rows.append([name, f'{statistics.median(times):.0f}', f'{min(times):.0f}', f'{ratio:.1f}'])
    print_table(['per event', 'ns, median', 'ns, least', 'times as fast as csv'], rows)


if __name__ == '__main__':
    main()
