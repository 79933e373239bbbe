"""Measure what an event in a trace costs the process that records it, and print a table.

    python benchmarks/tracing.py [--runs N] [--work DIR]

The cases take turns: the calls of the tracer, and the same rows written by Python's csv module and as formatted
strings. Times are of the processor, the writing to a file below `--work` (default: in memory) included.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from common import MEMORY, print_table, work_directory

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--runs', type=int, default=9)
    parser.add_argument('--work', default=MEMORY)
    arguments = parser.parse_args()
    with work_directory(arguments.work) as work:
        runs = [[nanoseconds(case, Path(work) / 'trace.prof') for case in CASES.values()]
                for _ in range(arguments.runs)]
    rows = []
    for name, times in zip(CASES, zip(*runs, strict=True), strict=True):
        ratio = statistics.median(run[0] / own for run, own in zip(runs, times, strict=True))
        rows.append([name, f'{statistics.median(times):.0f}', f'{min(times):.0f}', f'{ratio:.1f}'])
    print_table(['per event', 'ns, median', 'ns, least', 'times as fast as csv'], rows)


if __name__ == '__main__':
    main()
