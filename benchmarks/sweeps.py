"""Measure sweeps: how long a million tasks take to submit and what they cost until they run, and how fast they run.

    python benchmarks/sweeps.py [submit rate peers] [--tasks N] [--count N] [--runs N] [--work DIR] [--venv DIR]

*submit*: `TaskManager.submit_sweep` of `--tasks` rows with two columns, until the hub has all; growth of the
application, of the hub's process and of its file per task, and the time to cancel all. *rate*: `--count` times
`/bin/true` by `submit_sweep` and by `submit_tasks` on two cores, which take turns. *peers*: the same tasks by
HyperQueue, Parsl and Dask in the same turns, as in peers.py. Each runs in a fresh process.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import common
import peers

import radical.pilot as rp
from rp_agent.lineage import become_subreaper

CASES = 'sweep', 'tasks'
PEERS = ('hyperqueue', 'files'), ('parsl', 'captured'), ('distributed', 'captured')
FEWER = 10
"""Peers run so many times fewer tasks."""


def resident(pid: str) -> int:
    """Bytes of memory of a process."""
    return int(Path('/proc', pid, 'statm').read_text().split()[1]) * 4096


def submit(work: str, tasks: int) -> dict[str, Any]:
    """Submit and cancel a sweep without a pilot."""
    with rp.Session(cfg={'base': work}) as session:
        tmgr = rp.TaskManager(session)
        hub = str(session._owner.engine.coordinator.pid)   # type: ignore[attr-defined]
        before = resident('self'), resident(hub)
        began = time.perf_counter()
        sweep = tmgr.submit_sweep(rp.TaskDescription({'executable': './sim', 'arguments': ['{temp}', '{seed}']}),
                                  {'temp': [290.5] * tasks, 'seed': range(tasks)})
        submitted = time.perf_counter()
        application, of_hub = resident('self') - before[0], resident(hub) - before[1]
        size = sum(path.stat().st_size for path in Path(session.path).glob('hub.db*'))
        cancelling = time.perf_counter()
        sweep.cancel()
        assert sweep.wait() == {rp.CANCELED: tasks}
        cancelled = time.perf_counter() - cancelling
    return {'s to submit': submitted - began, 'application': application / tasks, 'hub': of_hub / tasks,
            'file of the hub': size / tasks, 's to cancel': cancelled}


def rate(work: str, case: str, count: int) -> dict[str, Any]:
    """Tasks per second, from their submission to the end of the last one."""
    with common.session(work) as (_, pilot, tmgr):
        pilot.wait(rp.PMGR_ACTIVE)
        common.run_tasks(tmgr, 50)
        began = time.perf_counter()
        if case == 'sweep':
            description = rp.TaskDescription({'executable': '/bin/true', 'arguments': ['{}']})
            sweep = tmgr.submit_sweep(description, range(count))
            assert sweep.wait() == {rp.DONE: count}
        else:
            common.run_tasks(tmgr, count)
        return {'rate': count / (time.perf_counter() - began)}


def show_submission(options: argparse.Namespace) -> None:
    """Print what was measured of submissions."""
    found = []
    for _ in range(options.runs):
        with common.work_directory(options.work) as work:
            found.append(common.fresh(__file__, work, '--case', 'submit', '--tasks', str(options.tasks)))
    rows = [[name if name.startswith('s ') else f'bytes per task, {name}',
             *common.spread([each[name] for each in found])] for name in found[0]]
    common.print_table([f'{options.tasks} tasks', 'median', 'min', 'max'], rows)


def show_rates(options: argparse.Namespace, others: tuple[tuple[str, str], ...]) -> None:
    """Print the rates of all cases, which take turns."""
    missing = peers.install(options.venv.absolute()) if others else {}
    rates: dict[str, list[float]] = {}
    for _ in range(options.runs):
        for case in CASES:
            with common.work_directory(options.work) as work:
                found = common.fresh(__file__, work, '--case', case, '--count', str(options.count))
                rates.setdefault(case, []).append(found['rate'])
        for package, variant in others:
            if package in missing:
                print(f'{package} {missing[package]}', file=sys.stderr)
                continue
            with common.work_directory(options.work) as work:
                rates.setdefault(f'{package}, {variant}', []).append(peers.run_peer(
                    options.venv.absolute(), package, variant, options.count // FEWER, work))
    rows = [[name, *common.spread(each), common.number(statistics.median(
        [mine / its for mine, its in zip(rates['sweep'], each, strict=False)]))] for name, each in rates.items()]
    common.print_table(['tasks per second', 'median', 'min', 'max', 'sweep / it'], rows)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('figures', nargs='*', choices=['submit', 'rate', 'peers', []], default=[])
    parser.add_argument('--tasks', type=int, default=1_000_000)
    parser.add_argument('--count', type=int, default=20_000)
    parser.add_argument('--runs', type=int, default=3)
    parser.add_argument('--work', default=common.MEMORY, help='directory for everything that is written')
    parser.add_argument('--venv', type=Path, default=peers.VENV, help='the virtualenv of the peers')
    parser.add_argument('--case', help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        print(json.dumps(submit(options.work, options.tasks) if options.case == 'submit'
                         else rate(options.work, options.case, options.count)))
        return 0
    figures = options.figures or ['submit', 'rate']
    if 'submit' in figures:
        show_submission(options)
    if 'rate' in figures or 'peers' in figures:
        become_subreaper()
        show_rates(options, PEERS if 'peers' in figures else ())
    return 0


if __name__ == '__main__':
    sys.exit(main())
