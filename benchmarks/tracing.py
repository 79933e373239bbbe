"""Measure what an event in a trace costs the process that records it, and what tracing costs a whole session.

    python benchmarks/tracing.py [--runs N] [--calls N] [--pairs N] [--count N] [--turns N] [--details ONE OTHER]
                                 [--work DIR]

The cases take turns: the calls of the tracer, also with less detail and compression, and the same rows written by
Python's csv module and as formatted strings. Times are of the processor, the writing to a file below `--work`
(default: in memory) included.

Calls of RAPTOR run in a rank of this process, `--calls` turns with traces and without them (`traced_calls`).

Sessions come in pairs, which differ in the `--details` of their traces (default: with tracing and without it). They are
open at the same time and take turns: one runs a part of its `--count` tasks at full speed while the other one waits,
and who goes first changes. A machine that changes its speed from one second to the next, as shared ones do, so slows
down both. CPU time is that of application, hub and agent, without the tasks. The interval holds the true median ratio
with a probability of 95 %, if turns are independent.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from common import MEMORY, cpu_ticks, per_task, print_table, progress, run_tasks, session, work_directory
from tasks import named_children
from traced_calls import print_calls

from rp_profiling.catalogue import LEFT_OUT
from rp_profiling.levels import DEFAULT, OFF, STATES
from rp_profiling.read.files import profiles_below
from rp_profiling.write.detail import USUAL, Detail
from rp_profiling.write.tracer import Tracer

COMP = 'agent_executing.0000'
EVENTS = ('task_start', 'exec_start', 'rank_start', 'launch_pre', 'launch_submit', 'exec_pre', 'rank_stop', 'exec_stop')
UIDS = [f'task.{number:06d}' for number in range(1000)]
ROUNDS = 10
PACKED = Detail(DEFAULT, True)

Figures = tuple[float, float]
"""Tasks per second, microseconds of CPU time per task."""

Pair = tuple[str, str]
"""The details of two sessions that are compared."""


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


def with_record_many(path: Path, detail: Detail = USUAL) -> None:
    tracer = Tracer(path, COMP, detail=detail)
    for _ in range(ROUNDS):
        for uid in UIDS:
            tracer.record_many(uid, EVENTS)
    tracer.close()


def with_record_bulk(path: Path, detail: Detail = USUAL) -> None:
    tracer = Tracer(path, COMP, detail=detail)
    for _ in range(ROUNDS):
        for event in EVENTS:
            tracer.record_bulk(event, UIDS)
    tracer.close()


def with_record_left_out(path: Path) -> None:
    """As many calls as of `record`, all of events that are left out."""
    tracer = Tracer(path, COMP, detail=Detail(STATES))
    events = [event for event in EVENTS if event in LEFT_OUT]
    for index in range(ROUNDS * len(EVENTS)):
        event = events[index % len(events)]
        for uid in UIDS:
            tracer.record(event, uid)
    tracer.close()


CASES: dict[str, Callable[[Path], None]] = {
    'Python: `csv.writer`': with_csv,
    'Python: formatted string': with_strings,
    '`record`, one event': with_record,
    f'`record_many`, {len(EVENTS)} events of one uid': with_record_many,
    f'`record_bulk`, one event of {len(UIDS):,} uids': with_record_bulk,
    '`record`, one event that is left out': with_record_left_out,
    f'`record_many`, {sum(event in LEFT_OUT for event in EVENTS)} of the {len(EVENTS)} left out':
        partial(with_record_many, detail=Detail(STATES)),
    f'`record_many`, {len(EVENTS)} events of one uid, compressed': partial(with_record_many, detail=PACKED),
    f'`record_bulk`, one event of {len(UIDS):,} uids, compressed': partial(with_record_bulk, detail=PACKED),
}


def nanoseconds(case: Callable[[Path], None], path: Path) -> float:
    """Per event."""
    for old in path.parent.iterdir():
        old.unlink()
    before = time.process_time_ns()
    case(path)
    return (time.process_time_ns() - before) / (ROUNDS * len(UIDS) * len(EVENTS))


class Side:
    """A session in a process of its own, which runs tasks when it is told to."""

    def __init__(self, work: str, detail: str) -> None:
        self._work = work
        self._process = subprocess.Popen([sys.executable, __file__, '--session', '--work', work], cwd=work, text=True,
                                         env=os.environ | {'RADICAL_PILOT_PROFILE': detail},
                                         stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def run(self, count: int) -> Figures:
        """Tasks per second, and microseconds of CPU time per task."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f'{count}\n')
        self._process.stdin.flush()
        rate, cpu = json.loads(self._process.stdout.readline())
        return rate, cpu

    def close(self) -> None:
        self._process.communicate()
        assert not self._process.returncode

    @property
    def bytes(self) -> int:
        """Return the size of the profiles in bytes."""
        return sum(path.stat().st_size for path in profiles_below(Path(self._work)))


def serve(work: str) -> None:
    """Be one side: run as many tasks as each line asks for."""
    with session(work) as (_, _, tmgr):
        run_tasks(tmgr, 10)
        processes = [os.getpid(), *named_children().values()]
        for line in sys.stdin:
            count = int(line)
            before = [own_ticks(pid) for pid in processes]
            begin = time.monotonic()
            run_tasks(tmgr, count)
            rate = count / (time.monotonic() - begin)
            used = [per_task(start, own_ticks(pid), count) for pid, start in zip(processes, before, strict=True)]
            print(json.dumps([rate, sum(map(sum, used))]), flush=True)


def own_ticks(pid: int) -> list[float]:
    """CPU seconds of a process without its children: user, system."""
    return cpu_ticks(pid)[:2]


def pair(base: str, details: Pair, count: int, turns: int) -> list[dict[str, Figures]]:
    """The results of both sides in each turn."""
    with work_directory(base) as work:
        sides = {}
        for number, detail in enumerate(details):
            os.mkdir(directory := os.path.join(work, str(number)))
            sides[detail] = Side(directory, detail)
        found = [{detail: sides[detail].run(count // turns) for detail in details[::1 if number % 2 else -1]}
                 for number in range(turns)]
        for detail, side in sides.items():
            side.close()
            progress(f'{detail}: {side.bytes / count:.0f} bytes of profiles per task')
    return found


def interval(values: Sequence[float]) -> str:
    """Order statistics between which the median of what `values` are a sample of is, with a probability of 95 %."""
    ordered = sorted(values)
    away = 0.98 * math.sqrt(len(ordered))
    first = max(0, math.floor(len(ordered) / 2 - away))
    return f'{ordered[first]:.3f} .. {ordered[len(ordered) - 1 - first]:.3f}'


def print_turns(turns: list[dict[str, Figures]], details: Pair) -> None:
    rows = []
    for index, name in enumerate(('tasks/s', 'CPU time per task / µs')):
        ones, others = ([each[detail][index] for each in turns] for detail in details)
        ratios = [one / other for one, other in zip(ones, others, strict=True)]
        rows.append([name, *(f'{statistics.median(values):.1f}' for values in (ones, others)),
                     f'{statistics.median(ratios):.3f}', interval(ratios)])
    print_table(['session', *details, 'ratio, median of turns', 'interval'], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--runs', type=int, default=9, help='of single events')
    parser.add_argument('--calls', type=int, default=15, help='turns of calls of RAPTOR')
    parser.add_argument('--pairs', type=int, default=7, help='of sessions')
    parser.add_argument('--count', type=int, default=20_000, help='tasks of a session')
    parser.add_argument('--turns', type=int, default=20, help='in which a session runs them')
    parser.add_argument('--details', nargs=2, default=(DEFAULT, OFF), metavar=('ONE', 'OTHER'),
                        help='of the traces of the two sessions of a pair, as in RADICAL_PILOT_PROFILE')
    parser.add_argument('--work', default=MEMORY)
    parser.add_argument('--session', action='store_true', help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.session:
        serve(arguments.work)
        return
    if arguments.runs:
        print_events(arguments.runs, arguments.work)
    if arguments.calls:
        print_calls(arguments.calls, arguments.work)
    turns = []
    for number in range(arguments.pairs):
        progress(f'pair {number + 1} of {arguments.pairs}')
        turns += pair(arguments.work, tuple(arguments.details), arguments.count, arguments.turns)
    if turns:
        print_turns(turns, tuple(arguments.details))


def print_events(count: int, base: str) -> None:
    with work_directory(base) as work:
        path = Path(work) / 'traces' / 'trace.prof'
        path.parent.mkdir()
        runs = [[nanoseconds(case, path) for case in CASES.values()] for _ in range(count)]
    rows = []
    for name, times in zip(CASES, zip(*runs, strict=True), strict=True):
        ratio = statistics.median(run[0] / own for run, own in zip(runs, times, strict=True))
        rows.append([name, f'{statistics.median(times):.0f}', f'{min(times):.0f}', f'{ratio:.1f}'])
    print_table(['per event', 'ns, median', 'ns, least', 'times as fast as csv'], rows)


if __name__ == '__main__':
    main()
