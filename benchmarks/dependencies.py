"""Measure what dependencies between tasks cost, compared with the same tasks without them and with other systems.

    python benchmarks/dependencies.py [--links N] [--tasks N] [--programs N] [--runs N] [--work DIR] [--venv DIR]
                                      [chain graph programs memory peers]

- chain: milliseconds per link of a chain of `/bin/true`, submitted at once, and of a loop in the application that
  submits a task, waits for it, and submits the next one
- graph: simulated tasks per second in layers of 1,000, each task after 2 to 10 of the layer before, and without that;
  CPU time per task. Each task has an argument of its own
- programs: the same with `/bin/true` on two cores
- memory: bytes by which application, hub and agent grow while that many tasks wait, after 1 and after 10 others each:
  per task, and per edge from the difference
- peers: milliseconds per link of such a chain in Dask, Parsl and HyperQueue (see `peers.py`), the `chain` beside them

The cases of a part take turns, and each run of each case is a fresh process.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import common
import peers
from growth import private
from tasks import named_children

from rp_agent.lineage import become_subreaper

if TYPE_CHECKING:
    import radical.pilot as rp

PARTS = ('chain', 'graph', 'programs', 'memory')
LAYER = 1000
MOST_EDGES = 10
RESULT = dict[str, Any]


def chain(work: str, count: int) -> RESULT:
    """Seconds per link of a chain that is submitted at once."""
    import radical.pilot as rp

    with common.session(work) as (_, _, tmgr):
        common.run_tasks(tmgr, 10)
        begin = time.monotonic()
        run(tmgr, [rp.TaskDescription({'executable': '/bin/true', 'uid': f'link.{number:06d}',
                                       'after': [f'link.{number - 1:06d}'] if number else []})
                   for number in range(count)])
        return {'seconds': (time.monotonic() - begin) / count}


def loop(work: str, count: int) -> RESULT:
    """Seconds per task of a loop in the application."""
    import radical.pilot as rp

    with common.session(work) as (_, _, tmgr):
        common.run_tasks(tmgr, 10)
        begin = time.monotonic()
        for _ in range(count):
            task = tmgr.submit_tasks(rp.TaskDescription({'executable': '/bin/true'}))
            assert task.wait() == rp.DONE
        return {'seconds': (time.monotonic() - begin) / count}


def run(tmgr: rp.TaskManager, descriptions: Sequence[rp.TaskDescription]) -> None:
    """Run tasks to their ends, and make sure that they are DONE."""
    import radical.pilot as rp

    tasks = tmgr.submit_tasks(list(descriptions))
    tmgr.wait_tasks([task.uid for task in tasks])
    bad = [task for task in tasks if task.state != rp.DONE]
    assert not bad, (len(bad), bad[0].uid, bad[0].state, bad[0].exception)


def layers(count: int, edges: Callable[[random.Random], int]) -> Iterator[tuple[str, list[str]]]:
    """The tasks of a graph, each with those of the layer before that it is after."""
    choose = random.Random(0)
    before: list[str] = []
    for first in range(0, count, LAYER):
        layer = [f't.{number:06d}' for number in range(first, min(first + LAYER, count))]
        for uid in layer:
            yield uid, choose.sample(before, edges(choose)) if before else []
        before = layer


def graph(work: str, count: int) -> RESULT:
    """Simulated tasks per second in a graph."""
    common.simulate(work)
    return rate(work, LAYER, list(layers(count, lambda choose: choose.randint(2, MOST_EDGES))))


def plain(work: str, count: int) -> RESULT:
    """Simulated tasks per second without dependencies."""
    common.simulate(work)
    return rate(work, LAYER, [(uid, []) for uid, _ in layers(count, lambda choose: 0)])


def programs(work: str, count: int) -> RESULT:
    """Programs per second in a graph."""
    return rate(work, 2, list(layers(count, lambda choose: choose.randint(2, MOST_EDGES))))


def plain_programs(work: str, count: int) -> RESULT:
    """Programs per second without dependencies."""
    return rate(work, 2, [(uid, []) for uid, _ in layers(count, lambda choose: 0)])


def rate(work: str, cores: int, tasks: list[tuple[str, list[str]]]) -> RESULT:
    """Tasks per second, and microseconds of CPU time per task of each process."""
    import radical.pilot as rp

    count = len(tasks)
    with common.session(work, cores) as (_, pilot, tmgr):
        pilot.wait(rp.PMGR_ACTIVE)
        processes = {'application': os.getpid()} | named_children()
        descriptions = [rp.TaskDescription({'executable': '/bin/true', 'arguments': [uid], 'uid': uid, 'after': after})
                        for uid, after in tasks]
        before = {name: common.cpu_ticks(pid) for name, pid in processes.items()}
        begin = time.monotonic()
        run(tmgr, descriptions)
        seconds = time.monotonic() - begin
        return {'rate': count / seconds, 'cpu': {
            name: sum(common.per_task(before[name], common.cpu_ticks(pid), count)[:2])
            for name, pid in processes.items()}}


def waiting(work: str, count: int, edges: int) -> RESULT:
    """Bytes by which processes grow while tasks wait, per task, until all of them run."""
    import radical.pilot as rp

    common.simulate(work)
    with common.session(work, LAYER) as (session, pilot, tmgr):
        pilot.wait(rp.PMGR_ACTIVE)
        run(tmgr, [rp.TaskDescription({'executable': 'simulated'}) for _ in range(LAYER)])
        holder = rp.TaskManager(session).submit_tasks(rp.TaskDescription({'executable': 'simulated', 'uid': 'holder'}))
        processes = {'application': os.getpid()} | named_children()
        sizes = {name: private(pid) for name, pid in processes.items()}
        uids = []
        graph = layers(count, lambda choose: edges)
        while part := [rp.TaskDescription({'executable': 'simulated', 'uid': uid,
                                           'after': after or {holder: 'ended'}})
                       for uid, after in islice(graph, 10 * LAYER)]:
            uids += [task.uid for task in tmgr.submit_tasks(part)]
            del part
        run(tmgr, [rp.TaskDescription({'executable': 'simulated'})])   # the agent gets it after the others
        gc.collect()
        grown = {name: (private(pid) - sizes[name]) / count for name, pid in processes.items()}
        holder.cancel()
        assert set(tmgr.wait_tasks(uids)) == {rp.DONE}
        return {'grown': grown}


def one(work: str, count: int) -> RESULT:
    """Memory of tasks that wait for one task each."""
    return waiting(work, count, 1)


def ten(work: str, count: int) -> RESULT:
    """Memory of tasks that wait for ten tasks each."""
    return waiting(work, count, MOST_EDGES)


CASES: dict[str, Callable[[str, int], RESULT]] = {
    'chain': chain, 'loop': loop, 'graph': graph, 'plain': plain, 'programs': programs,
    'plain_programs': plain_programs, 'one': one, 'ten': ten}


def take_turns(names: Sequence[str], count: int, runs: int, work: str) -> dict[str, list[RESULT]]:
    """The results of cases, which take turns, with the percentage of the machine that other processes used."""
    results: dict[str, list[RESULT]] = {name: [] for name in names}
    for turn in range(runs):
        for name in names:
            common.progress(f'run {turn + 1} of {runs}: {name}')
            with common.work_directory(work) as place:
                strangers = common.Strangers()
                found = common.fresh(__file__, place, '--case', name, '--tasks', str(count))
                results[name].append({**found, 'strangers': strangers.share()})
    return results


def busy(results: Sequence[RESULT]) -> str:
    """The median of what other processes used."""
    return f'{statistics.median(run["strangers"] for run in results):.0f} %'


def median_ratio(ones: Sequence[RESULT], others: Sequence[RESULT], key: str) -> str:
    """The median of the ratios of the turns."""
    return f'{statistics.median(one[key] / other[key] for one, other in zip(ones, others, strict=True)):.2f}'


def print_chain(options: argparse.Namespace) -> None:
    """Milliseconds per link."""
    results = take_turns(('loop', 'chain'), options.links, options.runs, options.work)
    common.print_table([f'{options.links} links', 'ms per link', 'min', 'max', 'of the loop', 'used by others'], [
        [name, *common.spread([1000 * run['seconds'] for run in runs]),
         median_ratio(runs, results['loop'], 'seconds'), busy(runs)] for name, runs in results.items()])


def print_graph(options: argparse.Namespace) -> None:
    """Simulated tasks."""
    print_rates(('plain', 'graph'), options.tasks, options)


def print_programs(options: argparse.Namespace) -> None:
    """Real ones."""
    print_rates(('plain_programs', 'programs'), options.programs, options)


def print_rates(cases: tuple[str, str], count: int, options: argparse.Namespace) -> None:
    """Tasks per second, and CPU time."""
    results = take_turns(cases, count, options.runs, options.work)
    plain = results[cases[0]]
    names = list(plain[0]['cpu'])
    rows = [[name, *common.spread([run['rate'] for run in runs]), median_ratio(runs, plain, 'rate'),
             *(f'{statistics.median(run["cpu"][process] for run in runs):.0f}' for process in names), busy(runs)]
            for name, runs in results.items()]
    common.print_table([f'{count} tasks', 'tasks/s', 'min', 'max', 'of plain',
                        *(f'{process} / µs' for process in names), 'used by others'], rows)


def print_memory(options: argparse.Namespace) -> None:
    """Bytes per task and per edge."""
    results = take_turns(('one', 'ten'), options.tasks, options.runs, options.work)
    rows = []
    for process in results['one'][0]['grown']:
        small, large = (statistics.median(run['grown'][process] for run in results[name]) for name in ('one', 'ten'))
        rows.append([process, f'{small:.0f}', f'{large:.0f}', common.number((large - small) / (MOST_EDGES - 1))])
    common.print_table([f'{options.tasks} waiting tasks', 'bytes per task, one edge', 'ten edges',
                        'bytes per edge'], rows)


def print_peers(options: argparse.Namespace) -> None:
    """Milliseconds per link of other systems."""
    become_subreaper()
    missing = peers.install(options.venv.absolute())
    rates: dict[str, list[float]] = {}
    for turn in range(options.runs):
        for name in ('this system', 'distributed', 'parsl', 'hyperqueue'):
            common.progress(f'run {turn + 1} of {options.runs}: {name}')
            with common.work_directory(options.work) as work:
                if name == 'this system':
                    found = common.fresh(__file__, work, '--case', 'chain', '--tasks', str(options.links))
                    rates.setdefault(name, []).append(1000 * found['seconds'])
                elif name not in missing:
                    rates.setdefault(name, []).append(
                        1000 / peers.run_peer(options.venv.absolute(), name, 'chain', options.links, work))
    common.print_table([f'{options.links} links', 'ms per link', 'min', 'max'],
                       [[name, *common.spread(values)] for name, values in rates.items()])
    for name, reason in missing.items():
        print(f'{name}: {reason}')


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('parts', nargs='*', choices=[[], *PARTS, 'peers'], help=f'default: {" ".join(PARTS)}')
    parser.add_argument('--links', type=int, default=5000, help='tasks of a chain')
    parser.add_argument('--tasks', type=int, default=100_000, help='tasks of a graph')
    parser.add_argument('--programs', type=int, default=20_000, help='programs of a graph')
    parser.add_argument('--runs', type=int, default=3)
    parser.add_argument('--work', default=common.MEMORY, help='directory for sessions and sandboxes')
    parser.add_argument('--venv', type=Path, default=peers.VENV, help='the virtualenv of the peers')
    parser.add_argument('--case', choices=CASES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        print(json.dumps(CASES[options.case](options.work, options.tasks)))
        return 0
    printers = {'chain': print_chain, 'graph': print_graph, 'programs': print_programs, 'memory': print_memory,
                'peers': print_peers}
    for part in options.parts or PARTS:
        printers[part](options)
    return 0


if __name__ == '__main__':
    sys.exit(main())
