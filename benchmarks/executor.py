"""Measure `rp.Executor` beside what it is made of, in turns on one pilot of two cores, and print a table.

    python benchmarks/executor.py [--runs N] [--calls N] [--programs N]

- calls: empty functions, beside those of an `rp.raptor.Executor` at the same master
- programs: `/bin/true`, each with another argument, beside tasks of the same task manager
- chain: empty functions, each of which gets the value of the one before

Rates are from the first submission to the last result; the table has medians, and the least and greatest rate.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

import radical.pilot as rp

Case = Callable[[int], object]


def nothing(value: int) -> int:
    return value


def calls(executor: Any) -> Case:
    def run(number: int) -> None:
        for future in [executor.submit(nothing, n) for n in range(number)]:
            future.result()
    return run


def programs(executor: rp.Executor) -> Case:
    def run(number: int) -> None:
        for future in [executor.run('/bin/true', n) for n in range(number)]:
            future.result()
    return run


def tasks(tmgr: rp.TaskManager) -> Case:
    def run(number: int) -> None:
        made = tmgr.submit_tasks([
            rp.TaskDescription({'executable': '/bin/true', 'arguments': [str(n)]}) for n in range(number)])
        tmgr.wait_tasks([task.uid for task in made])
    return run


def chain(executor: rp.Executor) -> Case:
    def run(number: int) -> None:
        future = executor.submit(nothing, 0)
        for _ in range(number - 1):
            future = executor.submit(nothing, future)
        future.result()
    return run


def compare(runs: int, number: int, **cases: Case) -> None:
    """Run the cases in turns, and print a row for each."""
    rates: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(runs):
        for name, case in cases.items():
            begin = time.perf_counter()
            case(number)
            rates[name].append(number / (time.perf_counter() - begin))
    for name, found in rates.items():
        print(f'| {name.replace("_", " ")} | {statistics.median(found):,.0f} | {min(found):,.0f} | {max(found):,.0f} |')


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--runs', type=int, default=7)
    parser.add_argument('--calls', type=int, default=20_000)
    parser.add_argument('--programs', type=int, default=4_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix='bench.') as base, rp.Session(cfg={'base': base}) as session:
        pilot = rp.PilotManager(session).submit_pilots(rp.PilotDescription(
            resource='local.exact', cores=2, runtime=60, sandbox=base))
        tmgr = rp.TaskManager(session)
        tmgr.add_pilots(pilot)
        print('| case | per second | least | greatest |\n|---|---|---|---|')
        with rp.Executor(pilot=pilot) as ex:
            master: Any = ex.submit(nothing, 0).task   # type: ignore[attr-defined]
            with rp.raptor.Executor(master) as plain:
                compare(options.runs, options.calls, calls=calls(ex), calls_of_RAPTOR=calls(plain))
            compare(options.runs, options.calls // 10, chain=chain(ex))
            ex.run('/bin/true', cores_per_rank=2).result()   # ends the workers
            compare(options.runs, options.programs, programs=programs(ex), tasks=tasks(tmgr))


if __name__ == '__main__':
    main()
