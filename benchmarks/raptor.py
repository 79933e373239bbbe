"""Measure function calls through RAPTOR, beside those of Python's own pool and of mpi4py, and print a table.

    python benchmarks/raptor.py [--runs N] [--scale X] [--work DIR] [FIGURE ...]

| figure | what |
|---|---|
| `master` | no-op calls made in a master, results there; `multiprocessing.Pool.imap_unordered`, `mpi4py.futures` |
| `stream`, `kilobyte` | no-op calls streamed from the application and back, without and with 1 KB each way |
| `large` | arrays and `bytes` of 100 KB and 1 MB streamed in, and in and out; `concurrent.futures`; copies of memory |
| `beside_pool` | lists of 20,000 ints streamed, 100 KB with 16 futures in flight: shares of `concurrent.futures` |
| `executor_memory` | 400 calls of an executor with arrays of 5 MB, one or 400; `concurrent.futures` |
| `tasks` | no-op calls as described tasks, each with another argument, from the description to the value; CPU time |
| `tasks_alike` | the same with one description for all |
| `task_memory` | memory that described tasks leave in the application and in the agent, after their handles are gone |
| `latency` | one call at a time from the application |
| `memory` | 10,000,000 calls streamed: memory of all processes together, after the first million and at the end |
| `long` | calls of 10 ms on 2 ranks: how much of the ranks' time they are |
| `tail` | 8 ranks, a long tail of call times: what they are idle at the end, beyond what a perfect queue leaves |
| `object` | calls with a reference to an array of 500 MB, as argument and in a partial; no-op calls in the same run |
| `start` | from the submission of a worker to its first result |
| `peers` | no-op calls through Ray, Dask and Parsl (see `peers.py`), and as a stream in the same run; only on demand |

All workers have two ranks, `tail` but for its eight. Each run of each figure is a fresh process; the script calls
itself for that (`--figure`). `--scale` multiplies the numbers of calls.
"""

from __future__ import annotations

import argparse
import functools
import heapq
import json
import multiprocessing
import os
import random
import shutil
import statistics
import subprocess
import sys
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import common
from common import (
    HERE,
    Strangers,
    cpu_ticks,
    fresh,
    number,
    others,
    per_task,
    print_table,
    progress,
    session,
    spread,
    work_directory,
)

import radical.pilot as rp
from rp_agent.lineage import become_subreaper

Figures = dict[str, float]
RANKS = 2
SCALE = float(os.environ.get('RP_BENCHMARK_SCALE', '1'))
KILOBYTE = bytes(1024)
FUNCTIONS = {'raptor_file': str(HERE / 'raptor_master.py'), 'raptor_class': 'Functions'}
MODULES = {'rp_api.coordination.hub.main': 'hub', 'rp_agent.cli': 'agent', 'radical-pilot-raptor-master': 'master',
           'radical-pilot-raptor-worker': 'manager', 'rp_raptor.rank': 'ranks'}
"""By which the processes of a session are found."""


def scaled(count: int) -> int:
    """That many calls, or as many fewer or more as was asked for."""
    return max(RANKS, round(count * SCALE))


@contextmanager
def raptor(work: str, ranks: int = RANKS, worker: dict[str, Any] | None = None,
           **master: Any) -> Iterator[tuple[Any, Any]]:
    """A task manager, and a master with a worker of so many ranks, one of which has answered (with none: no worker)."""
    with session(work, cores=(ranks or RANKS) + 1) as (_, pilot, tmgr):
        handle = pilot.submit_raptors(rp.TaskDescription({'mode': rp.RAPTOR_MASTER, **master}))[0]
        if ranks:
            handle.submit_workers(rp.TaskDescription({'mode': rp.RAPTOR_WORKER, 'ranks': ranks, **(worker or {})}))
            with rp.raptor.Executor(handle) as executor:
                executor.submit(nothing, 1).result()
        yield tmgr, handle


def master(work: str) -> Figures:
    """Calls made in a master, and in the peers."""
    count = scaled(500_000)
    with session(work, cores=RANKS + 1) as (_, pilot, tmgr):
        task = pilot.submit_raptors(rp.TaskDescription({
            'mode': rp.RAPTOR_MASTER, 'raptor_file': str(HERE / 'raptor_master.py'), 'raptor_class': 'Calls',
            'environment': {'CALLS': str(count), 'RANKS': str(RANKS)}}))[0]
        tmgr.wait_tasks(task.uid)
        found = list(Path(pilot.pilot_sandbox).rglob('figures.json'))
        assert found, (task.state, task.exception, task.stderr)
        ours = json.loads(found[0].read_text())
    pool, mpi = calls_of_pool(scaled(100_000)), calls_of_mpi(scaled(20_000))
    return {'made in a master, calls/s': ours, 'multiprocessing.Pool, calls/s': pool, 'mpi4py.futures, calls/s': mpi,
            'master : multiprocessing.Pool': ours / pool, 'master : mpi4py.futures': ours / mpi}


def calls_of_pool(count: int) -> float:
    """Calls per second through Python's own pool, one message each."""
    with multiprocessing.Pool(RANKS) as pool:
        assert sum(pool.imap_unordered(nothing, range(1000))) == 499_500
        begin = time.monotonic()
        assert sum(pool.imap_unordered(nothing, range(count))) == count * (count - 1) // 2
        return count / (time.monotonic() - begin)


def calls_of_mpi(count: int) -> float:
    """Calls per second through mpi4py.futures, with one rank more that gives them."""
    launcher = shutil.which('mpiexec', path=f'{Path(sys.executable).parent}{os.pathsep}{os.environ["PATH"]}')
    assert launcher, 'there is no mpiexec: pip install mpich'
    done = subprocess.run([launcher, '-n', str(RANKS + 1), sys.executable, '-m', 'mpi4py.futures',
                           HERE / 'peers/mpi_futures.py', str(count)], check=True, stdout=subprocess.PIPE)
    return float(done.stdout)


def stream(work: str) -> Figures:
    """Calls streamed from the application."""
    with raptor(work) as (_, handle):
        return {'streamed, calls/s': rate_of_stream(handle, nothing, range(scaled(500_000)))}


def kilobyte(work: str) -> Figures:
    """The same with 1 KB there and back."""
    with raptor(work) as (_, handle):
        count = scaled(200_000)
        return {'streamed, 1 KB in and out, calls/s': rate_of_stream(handle, same, (KILOBYTE for _ in range(count)))}


def large(work: str) -> Figures:
    """The same with 100 KB and 1 MB in NumPy arrays and in `bytes`, beside a process pool and the cost of a copy."""
    figures: Figures = {}
    with raptor(work) as (_, handle), ProcessPoolExecutor(RANKS) as pool:
        for name, size, count in (('100 KB', 100_000, scaled(20_000)), ('1 MB', 1_000_000, scaled(2_000))):
            for kind, make in (('', arrays), ('of bytes ', contents)):
                for way, function, share in (('in', length, 1), ('in and out', same, 2)):
                    calls = count // share
                    rate_of_stream(handle, function, make(size, calls // 4))
                    rate = rate_of_stream(handle, function, make(size, calls))
                    theirs = rate_of_futures(pool.submit, function, make(size, max(RANKS, calls // 10)))
                    what = f'{name} {kind}{way}'
                    figures |= {f'{what}, calls/s': rate, f'{what}, concurrent.futures, calls/s': theirs}
            figures[f'{name}, copies of memory/s'] = copies(size)
    return figures


def arrays(size: int, count: int) -> Iterator[Any]:
    """Arrays of so many bytes, each with other numbers."""
    import numpy

    some = [numpy.random.default_rng(seed).random(size // 8) for seed in range(64)]

    def changed(item: int) -> Any:
        array = some[item % 64]
        array[0] = item
        return array
    return map(changed, range(count))


def contents(size: int, count: int) -> Iterator[bytes]:
    """Bytes objects of so many bytes, each a new one."""
    some = [os.urandom(size - 8) for _ in range(64)]
    return (some[item % 64] + item.to_bytes(8, 'little') for item in range(count))


def lists(count: int) -> Iterator[list[int]]:
    """Lists of 20,000 ints, each with other ones."""
    some = [list(range(start, start + 20_000)) for start in range(64)]
    return ([item, *some[item % 64][1:]] for item in range(count))


def beside_pool(work: str) -> Figures:
    """Rates as shares of those of a process pool that has the same items and calls in flight, in turns."""
    figures: Figures = {}
    with raptor(work) as (_, handle), ProcessPoolExecutor(RANKS) as pool, rp.raptor.Executor(handle) as executor:
        streamed = functools.partial(rate_of_stream, handle)
        submitted = functools.partial(rate_of_futures, executor.submit, flight=16)
        for name, make, count, ours, flight in (
                ('lists of 20,000 ints', lists, scaled(1000), streamed, 64),
                ('bytes of 100 KB, 16 in flight', functools.partial(contents, 100_000), scaled(4000), submitted, 16),
                ('arrays of 100 KB, 16 in flight', functools.partial(arrays, 100_000), scaled(4000), submitted, 16)):
            for way, function in (('in', length), ('in and out', same)):
                shares = [ours(function, make(count)) / rate_of_futures(pool.submit, function, make(count), flight)
                          for _ in range(4)]
                figures[f'{name}, {way} : concurrent.futures'] = statistics.median(shares[1:])
    return figures


def length(item: Any) -> int:
    """The call that takes much and gives little."""
    return len(item)


def rate_of_futures(submit: Callable[..., Any], function: Callable[[Any], Any], items: Any, flight: int = 64) -> float:
    """Calls per second through an executor, so many at a time at most."""
    begin, done = time.monotonic(), 0
    futures: deque[Any] = deque()
    for item in items:
        futures.append(submit(function, item))
        if len(futures) == flight:
            futures.popleft().result()
        done += 1
    for future in futures:
        future.result()
    return done / (time.monotonic() - begin)


def copies(size: int) -> float:
    """Copies of so many bytes per second, of memory that is not in a cache."""
    sources = [os.urandom(size) for _ in range(max(1, (64 << 20) // size))]
    target, begin, done = bytearray(size), time.monotonic(), 0
    while time.monotonic() - begin < 0.5:
        for source in sources:
            target[:] = source
        done += len(sources)
    return done / (time.monotonic() - begin)


def shared_memory() -> float:
    """Megabytes of all files in shared memory."""
    status = os.statvfs('/dev/shm')
    return (status.f_blocks - status.f_bfree) * status.f_frsize / (1 << 20)


def executor_memory(work: str) -> Figures:
    """Memory and time of calls with large arguments that are all made at once."""
    import numpy

    array, figures = numpy.ones(5_000_000 // 8), Figures()
    count = scaled(400)
    with raptor(work) as (_, handle), ProcessPoolExecutor(RANKS) as pool, rp.raptor.Executor(handle) as executor:
        for name, make in (('executor', executor.submit), ('concurrent.futures', pool.submit)):
            for what, items in (('one array', (array for _ in range(count))),
                                ('other arrays', (array + item for item in range(count)))):
                begin, before = time.monotonic(), memory_of(os.getpid()) + shared_memory()
                futures = [make(length, item) for item in items]
                after = memory_of(os.getpid()) + shared_memory()
                for future in futures:
                    future.result()
                figures |= {f'{name}, {what}, s': time.monotonic() - begin, f'{name}, {what}, MB': after - before}
    return figures


def rate_of_stream(handle: Any, function: Callable[[Any], Any], items: Any) -> float:
    begin, done = time.monotonic(), 0
    for call in rp.raptor.stream(handle, function, items):
        call.result()
        done += 1
    return done / (time.monotonic() - begin)


def nothing(number: int) -> int:
    """The call that takes no time."""
    return number


def same(item: Any) -> Any:
    """The call that gives back what it gets."""
    return item


def tasks(work: str) -> Figures:
    """Described tasks with other arguments each, in all forms that users write."""
    call = rp.pythontask(nothing)
    return {**described(work, 'pythontask', lambda number: {'function': call(number)}),
            **described(work, 'callable', lambda number: {'function': nothing, 'args': [number]}),
            **described(work, 'by name', lambda number: {'function': 'nothing', 'args': [number]}),
            **described(work, 'expressions', lambda number: {'mode': rp.TASK_EVAL, 'code': f'nothing({number})'})}


def tasks_alike(work: str) -> Figures:
    """Described tasks with the same text each."""
    function = rp.PythonTask(nothing, (1,))
    return described(work, 'all alike', lambda number: {'function': function}, total=lambda count: count)


def described(work: str, form: str, attributes: Callable[[int], dict[str, Any]],
              total: Callable[[int], int] = lambda count: count * (count - 1) // 2) -> Figures:
    """Described tasks with these attributes, from the first description to the last result; the sum of all is known."""
    with raptor(work, worker=FUNCTIONS) as (tmgr, handle):
        count = scaled(50_000)
        run_described(tmgr, handle, attributes, scaled(1000))
        processes = named_processes()
        before, begin = {pid: cpu_ticks(pid) for pid in processes}, time.monotonic()
        descriptions = describe(attributes, count)
        made = time.monotonic()
        submitted = handle.submit_tasks(descriptions)
        tmgr.wait_tasks([task.uid for task in submitted])
        found = sum(task.return_value or 0 for task in submitted)
        elapsed = time.monotonic() - begin
        used: dict[str, float] = defaultdict(float)
        for pid, name in processes.items():
            used[name] += sum(per_task(before[pid], cpu_ticks(pid), count)[:2])
        bad = [task for task in submitted if task.state != rp.DONE]
        assert not bad, (bad[0].state, bad[0].exception, bad[0].exception_detail)
        assert found == total(count), found
        return {f'described, {form}, tasks/s': count / elapsed,
                f'described, {form}, us per description': 1e6 * (made - begin) / count,
                f'described, {form}, us of CPU per call, all processes': sum(used.values()),
                **{f'described, {form}, us of CPU per call, {name}': each for name, each in used.items()}}


def describe(attributes: Callable[[int], dict[str, Any]], count: int) -> list[rp.TaskDescription]:
    """Descriptions of so many tasks."""
    return [rp.TaskDescription({'mode': rp.TASK_FUNCTION, **attributes(number)}) for number in range(count)]


def run_described(tmgr: Any, handle: Any, attributes: Callable[[int], dict[str, Any]], count: int) -> None:
    """Run so many described tasks, and drop their handles."""
    tmgr.wait_tasks([task.uid for task in handle.submit_tasks(describe(attributes, count))])


def task_memory(work: str) -> Figures:
    """Bytes that a described task leaves."""
    call = rp.pythontask(nothing)
    count = scaled(100_000)
    with raptor(work) as (tmgr, handle):
        processes = {pid: name for pid, name in named_processes().items() if name in ('application', 'agent')}
        run_described(tmgr, handle, lambda number: {'function': call(number)}, scaled(1000))
        before = {pid: memory_of(pid) for pid in processes}
        run_described(tmgr, handle, lambda number: {'function': call(number)}, count)
        time.sleep(10)   # what is idle is put away
        used: dict[str, float] = defaultdict(float)
        for pid, name in processes.items():
            used[name] += (memory_of(pid) - before[pid]) * (1 << 20) / count
        return {f'described, bytes kept per call, {name}': each for name, each in used.items()}


def named_processes() -> dict[int, str]:
    """This process and those below it, with the names of their parts; the ranks of workers share one."""
    found = {os.getpid(): 'application'}
    for pid in others():
        command = Path(f'/proc/{pid}/cmdline').read_bytes().decode(errors='replace')
        found[pid] = next((name for module, name in MODULES.items() if module in command), 'others')
    return found


def latency(work: str) -> Figures:
    """One call at a time."""
    with raptor(work) as (_, handle), rp.raptor.Executor(handle) as executor:
        times = []
        for _ in range(scaled(1000)):
            begin = time.monotonic()
            executor.submit(nothing, 1).result()
            times.append(time.monotonic() - begin)
        return {'latency, ms (median)': 1000 * statistics.median(times)}


def memory(work: str) -> Figures:
    """Megabytes of all processes while calls pass."""
    count = scaled(10_000_000)
    marks: list[float] = []
    with raptor(work) as (_, handle):
        begin = time.monotonic()
        for done, call in enumerate(rp.raptor.stream(handle, nothing, range(count)), 1):
            call.result()
            if done in (count // 10, count):
                marks.append(sum(map(memory_of, [os.getpid(), *others()])))
        rate = count / (time.monotonic() - begin)
    return {'memory after a tenth of the calls, MB': marks[0], 'memory after all calls, MB': marks[1],
            f'of {count} calls, calls/s': rate}


def memory_of(pid: int) -> float:
    """Megabytes of a process, what it shares with others being counted once among all of them."""
    try:
        lines = Path(f'/proc/{pid}/smaps_rollup').read_text().splitlines()
    except OSError:   # it has ended meanwhile
        return 0.0
    return next(int(line.split()[1]) for line in lines if line.startswith('Pss:')) / 1024


def timed(seconds: float, busy: bool = False) -> tuple[int, float, float]:
    """The call that takes so long: who made it, from when to when."""
    begin = time.monotonic()
    if busy:
        while time.monotonic() < begin + seconds:
            pass
    else:
        time.sleep(seconds)
    return os.getpid(), begin, time.monotonic()


def busy_10_ms(_: int) -> tuple[int, float, float]:
    return timed(0.01, busy=True)


def long(work: str) -> Figures:
    """The share of calls in the time of ranks."""
    with raptor(work) as (_, handle):
        times = [call.result() for call in rp.raptor.stream(handle, busy_10_ms, range(scaled(2000)))]
    elapsed = max(end for _, _, end in times) - min(begin for _, begin, _ in times)
    return {'calls of 10 ms, % of the ranks\' time': 100 * sum(end - begin for _, begin, end in times)
            / (RANKS * elapsed)}


def tail(work: str) -> Figures:
    """Idle time at the end."""
    ranks, generator = 8, random.Random(20261)
    # a log-normal distribution with mean 34, whose longest of some thousands is about twenty times that
    durations = [min(1.0, 0.001 * generator.lognormvariate(3.03, 1.0)) for _ in range(scaled(4000))]
    with raptor(work, ranks=ranks) as (_, handle):
        times = [call.result() for call in rp.raptor.stream(handle, timed, durations)]
    begun, over = min(begin for _, begin, _ in times), max(end for _, _, end in times)
    last: dict[int, float] = defaultdict(float)
    for pid, _, end in times:
        last[pid] = max(last[pid], end)
    idle = sum(over - end for end in last.values()) + (ranks - len(last)) * (over - begun)
    perfect, ideal = idle_of_perfect_queue([end - begin for _, begin, end in sorted(times, key=lambda time: time[1])],
                                           ranks)
    return {'long tail, idle at the end beyond the unavoidable, %': 100 * (idle - perfect) / (ranks * (over - begun)),
            'long tail, elapsed beyond a perfect queue, %': 100 * ((over - begun) / ideal - 1)}


def idle_of_perfect_queue(durations: list[float], ranks: int) -> tuple[float, float]:
    """What ranks are idle at the end if each takes the next call without any delay, and how long it takes."""
    free = [0.0] * ranks
    for duration in durations:
        heapq.heapreplace(free, free[0] + duration)
    return sum(max(free) - end for end in free), max(free)


def object_(work: str) -> Figures:
    """Calls with a large object: their rate, and the memory and files of all processes."""
    import numpy

    count, size = scaled(100_000), scaled(500_000_000)
    with raptor(work) as (_, handle):
        array = numpy.ones(size // 8)
        before = sum(map(memory_of, [os.getpid(), *others()]))
        begin = time.monotonic()
        with handle.put_object(array) as ref:
            stored = time.monotonic() - begin
            calls = list(rp.raptor.stream(handle, read_all, [ref] * 10))
            assert {call.result() for call in calls} == {size // 8}
            memory = sum(map(memory_of, [os.getpid(), *others()])) - before
            files = {line.split()[-1] for pid in others() for line in maps_of(pid) if '/radical.pilot.' in line}
            with_ref = rate_of_stream(handle, ignore, (ref for _ in range(count)))
            of_partial = rate_of_stream(handle, functools.partial(nothing_with, ref), range(count))
        no_op = rate_of_stream(handle, nothing, range(count))
    return {f'object of {size / 1e6:.0f} MB, s to put it': stored, 'object, files that ranks map': float(len(files)),
            'object, memory of all processes, MB': memory, 'calls with an object, calls/s': with_ref,
            'calls of a partial with an object, calls/s': of_partial, 'no-op calls beside them, calls/s': no_op,
            'calls with an object : no-op': with_ref / no_op, 'calls of a partial : no-op': of_partial / no_op}


def maps_of(pid: int) -> list[str]:
    try:
        return Path(f'/proc/{pid}/maps').read_text().splitlines()
    except OSError:   # it has ended meanwhile
        return []


def read_all(array: Any) -> int:
    """The call that needs all of the object; it takes so long that the other rank has some, too."""
    total = int(array.sum())
    time.sleep(0.05)
    return total


def ignore(_: Any) -> None:
    """The call that takes no time, whatever it gets."""


def nothing_with(_: Any, number: int) -> int:
    return number


def start(work: str) -> Figures:
    """From the submission of a worker to its first result."""
    times = []
    with raptor(work, ranks=0) as (tmgr, handle), rp.raptor.Executor(handle) as executor:
        handle.wait(rp.AGENT_EXECUTING)
        for _ in range(3):
            begin = time.monotonic()
            worker = handle.submit_workers(rp.TaskDescription({
                'mode': rp.RAPTOR_WORKER, 'ranks': RANKS, 'raptor_class': 'MPIWorker'}))[0]
            executor.submit(nothing, 1).result()
            times.append(time.monotonic() - begin)
            tmgr.cancel_tasks(worker.uid)
            worker.wait()
    return {'start of a worker to its first result, s': statistics.median(times)}


def peers(work: str) -> Figures:
    """Calls through others, each with its own result, two processes or workers."""
    import peers as others_scripts

    become_subreaper()
    missing, versions = others_scripts.install(others_scripts.VENV), others_scripts.requirements()
    with raptor(work) as (_, handle):
        ours = rate_of_stream(handle, nothing, range(scaled(100_000)))
    figures = {'streamed, calls/s': ours}
    for package in ('ray', 'distributed', 'parsl'):
        assert package not in missing, missing[package]
        place = Path(work, package)
        place.mkdir()
        rate = others_scripts.run_peer(others_scripts.VENV, package, 'call', scaled(5000), str(place))
        name = versions[package].replace('==', ' ')
        figures |= {f'{name}, calls/s': rate, f'streamed : {name}': ours / rate}
    return figures


FIGURES: dict[str, Callable[[str], Figures]] = {function.__name__: function for function in (
    master, stream, kilobyte, large, beside_pool, executor_memory, tasks, tasks_alike, task_memory, latency, memory,
    long, tail, start)}
FIGURES['object'] = object_
ON_DEMAND = {'peers': peers}
"""Figures that install something first."""


def measure(name: str, options: argparse.Namespace) -> dict[str, list[float]]:
    """Return the values of a figure, one per run."""
    values: dict[str, list[float]] = defaultdict(list)
    for turn in range(1 if name == 'memory' else options.runs):
        progress(f'{name} {turn + 1}/{options.runs}')
        with work_directory(options.work) as work:
            for what, value in fresh(__file__, work, '--figure', name).items():
                values[what].append(value)
    return values


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('figures', nargs='*', metavar='FIGURE', help=', '.join(FIGURES | ON_DEMAND))
    parser.add_argument('--runs', type=int, default=5, help='runs of each figure (memory: one)')
    parser.add_argument('--scale', type=float, default=1.0, help='a factor for the numbers of calls')
    parser.add_argument('--work', default=common.MEMORY, help='directory for sessions and sandboxes')
    parser.add_argument('--figure', choices=FIGURES | ON_DEMAND, help=argparse.SUPPRESS)
    options = parser.parse_args()
    known = FIGURES | ON_DEMAND
    if unknown := set(options.figures) - set(known):
        parser.error(f'no such figure: {", ".join(sorted(unknown))}; there are {", ".join(known)}')
    if options.figure:
        print(json.dumps(known[options.figure](options.work)))
        return
    os.environ['RP_BENCHMARK_SCALE'] = str(options.scale)
    rows = []
    for name in options.figures or FIGURES:
        strangers = Strangers()
        values = measure(name, options)
        share = number(strangers.share())
        rows += [[what, *spread(each), share] for what, each in values.items()]
    print_table(['figure', 'median', 'lowest', 'highest', 'used by others / %'], rows)


if __name__ == '__main__':
    main()
