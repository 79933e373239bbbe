"""Measure what the encryption of all connections (CURVE) costs, from end to end.

    python benchmarks/curve.py [--count N] [--runs N] [--work DIR]

The same session runs `/bin/true` tasks with encryption and without it, in turns, each run in fresh processes. The
system itself cannot do without: `plain/sitecustomize.py` replaces the functions that make a socket a CURVE socket.

Two figures are compared: tasks per second, and the CPU time per task of application, hub and agent together. A ratio is
the median of the ratios of each turn; the spread of the ratios tells how much they are worth.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import common
import tasks

PLAIN = str(common.HERE / 'plain')
CASES = ('CURVE', 'plain')

Result = dict[str, Any]


def session(work: str, count: int, cores: int) -> Result:
    """Tasks per second of one session, and the CPU time of its processes per task."""
    with common.session(work, cores) as (_, _, tmgr):
        common.run_tasks(tmgr, 100)
        processes = [os.getpid(), *tasks.named_children().values()]
        before = [sum(common.cpu_ticks(pid)[:2]) for pid in processes]
        begin = time.monotonic()
        common.run_tasks(tmgr, count)
        rate = count / (time.monotonic() - begin)
        used = sum(sum(common.cpu_ticks(pid)[:2]) for pid in processes) - sum(before)
    return {'rate': rate, 'cpu': 1e6 * used / count, 'encrypted': encrypted()}


def encrypted() -> bool:
    """Return whether sockets of this process are CURVE sockets."""
    from rp_api.transport import keys

    return keys.make_client.__module__ == keys.__name__


@contextmanager
def python_path(case: str) -> Iterator[None]:
    """Child processes import what belongs to the case."""
    former = os.environ.get('PYTHONPATH')
    if case == 'plain':
        os.environ['PYTHONPATH'] = os.pathsep.join(filter(None, [PLAIN, former]))
    try:
        yield
    finally:
        if former is None:
            os.environ.pop('PYTHONPATH', None)
        else:
            os.environ['PYTHONPATH'] = former


def take_turns(options: argparse.Namespace) -> dict[str, list[Result]]:
    """The results of both cases, one for each run; who begins changes with each turn."""
    results: dict[str, list[Result]] = {case: [] for case in CASES}
    for turn in range(options.runs):
        for case in CASES if turn % 2 else reversed(CASES):
            common.progress(f'run {turn + 1} of {options.runs}: {case}')
            with common.work_directory(options.work) as work, python_path(case):
                strangers = common.Strangers()
                result = common.fresh(__file__, work, '--case', case, '--count', str(options.count),
                                      '--cores', str(options.cores))
                assert result['encrypted'] == (case == 'CURVE')
                results[case].append(result | {'strangers': strangers.share()})
    return results


def print_results(results: dict[str, list[Result]]) -> None:
    """The figures of each case, and the ratios of the turns."""
    rows = []
    for case, runs in results.items():
        strangers = statistics.median(run['strangers'] for run in runs)
        rows.append([case, *common.spread([run['rate'] for run in runs]), *common.spread([run['cpu'] for run in runs]),
                     f'{strangers:.0f} %'])
    common.print_table(['connections', 'tasks/s', 'min', 'max', 'CPU / µs per task', 'min', 'max', 'used by others'],
                       rows)
    rows = []
    for name, figure in (('tasks/s', 'rate'), ('CPU time per task', 'cpu')):
        ratios = [one[figure] / other[figure] for one, other in zip(results['CURVE'], results['plain'], strict=True)]
        rows.append([name, f'{statistics.median(ratios):.3f}', f'{min(ratios):.3f}', f'{max(ratios):.3f}'])
    common.print_table(['CURVE to plain', 'median', 'min', 'max'], rows)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or '').splitlines()[0])
    parser.add_argument('--count', type=int, default=10_000, help='tasks of each run')
    parser.add_argument('--runs', type=int, default=7)
    parser.add_argument('--cores', type=int, default=2, help='cores of the pilot')
    parser.add_argument('--work', default=common.MEMORY, help='directory for sessions and sandboxes')
    parser.add_argument('--case', choices=CASES, help='run one case once, in this process, and print JSON')
    options = parser.parse_args()
    if options.case:
        print(json.dumps(session(options.work, options.count, options.cores)))
    else:
        print_results(take_turns(options))
    return 0


if __name__ == '__main__':
    sys.exit(main())
