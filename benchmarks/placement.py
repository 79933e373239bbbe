"""Measure how fast tasks are placed on the nodes of a large machine, and print a table of medians.

    python benchmarks/placement.py [--runs N] [fill full churn nodes memory events]

The tasks are a mix of 12,276 heterogeneous ones (CPU, GPU and MPI, 1 to 48 ranks) on 4,097 nodes of 42 cores and 6
GPUs, once such that all of them fit and once such that the machine is full before. `placement.c`, bitmaps that are
scanned from the first node, does the same in the same run. Each run of each figure is a fresh process; the script calls
itself for that (`--figure`). Times are of the processor, which other programs on the machine disturb less.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from rp_agent.scheduler.slotcheck import check
from rp_agent.scheduler.slotmap import Placement, Shape, SlotMap

HERE = Path(__file__).parent
NODES, CORES, GPUS, TASKS = 4097, 42, 6, 12_276
EVENTS = 100_000
FITS, OVERFLOWS = (0.55, 0.90, 0.98), (0.50, 0.80, 0.95)
"""The parts of CPU tasks, GPU tasks and small MPI tasks, added up; the rest are large MPI tasks."""
Figures = dict[str, float]
Task = tuple[int, int, int]


def tasks(parts: tuple[float, float, float], count: int = TASKS) -> list[Task]:
    """Ranks, and cores and GPUs of each rank, of a mix of tasks."""
    generator = random.Random(1)
    return [task(generator, generator.random(), parts) for _ in range(count)]


def task(generator: random.Random, kind: float, parts: tuple[float, float, float]) -> Task:
    """One task of the mix."""
    if kind < parts[0]:
        return 1, generator.choice((1, 2, 4, 7)), 0
    if kind < parts[1]:
        return 1, generator.choice((1, 7)), 1
    return (6, 7, 1) if kind < parts[2] else (generator.choice((12, 24, 48)), 7, 1)


def shapes(mix: list[Task]) -> list[Shape]:
    """The same as shapes; equal ones are one object, as in the wait pool."""
    known = {each: Shape(*each) for each in set(mix)}
    return [known[each] for each in mix]


def machine(count: int = NODES, cores: int = CORES, gpus: int = GPUS) -> SlotMap:
    """An empty machine."""
    have = {kind: [{'index': index, 'occupation': 0.0} for index in range(number)]
            for kind, number in (('cores', cores), ('gpus', gpus))}
    return SlotMap([{'index': index, 'name': f'n{index}', 'lfs': 0, 'mem': 0, **have} for index in range(count)])


def c_program(mix: list[Task], count: int = NODES) -> list[float]:
    """Tasks placed; placements, failed searches, and releases with placements per second, of the C program."""
    with tempfile.TemporaryDirectory(prefix='rp-benchmark.') as work:
        program, file = Path(work) / 'placement', Path(work) / 'tasks'
        file.write_text(''.join(f'{ranks} {cores} {gpus}\n' for ranks, cores, gpus in mix))
        subprocess.run(['cc', '-O2', '-o', program, HERE / 'placement.c'], check=True)
        done = subprocess.run([program, str(count), file, str(EVENTS // 10)], check=True, capture_output=True)
        return [float(each) for each in done.stdout.split()]


def fill() -> Figures:
    """Placements per second on an empty machine, one by one and in bulk."""
    mix = tasks(FITS)
    wanted = shapes(mix)
    slots = machine()
    begin = time.process_time()
    placements = [slots.place(shape) for shape in wanted]
    single = len(wanted) / (time.process_time() - begin)
    begin = time.process_time()
    slots.release_many(cast('list[Placement]', placements))  # all found room
    released = len(wanted) / (time.process_time() - begin)
    runs = [(shape, len(list(same))) for shape, same in itertools.groupby(sorted(wanted, key=hash))]
    begin = time.process_time()
    placements = [each for shape, count in runs for each in slots.place_many(shape, count)]
    bulk = len(wanted) / (time.process_time() - begin)
    assert len(placements) == len(wanted)
    _, c_rate, _, _ = c_program(mix)
    return {'fill, placements/s': single, 'fill in bulk by shape, placements/s': bulk, 'release in bulk, placements/s':
            released, 'fill, C scan, placements/s': c_rate, 'fill, ratio to C scan': single / c_rate}


def full() -> Figures:
    """Searches per second that fail on a full machine, for tasks that found no room."""
    mix = tasks(OVERFLOWS)
    slots = machine()
    held = [(shape, slots.place(shape)) for shape in shapes(mix)]
    refused = [shape for shape, placement in held if placement is None]
    searches = list(itertools.islice(itertools.cycle(refused), EVENTS))
    begin = time.process_time()
    for shape in searches:
        slots.place(shape)
    rate = len(searches) / (time.process_time() - begin)
    _, _, c_rate, _ = c_program(mix)
    return {'full machine, failed searches/s': rate, 'full machine, C scan, failed searches/s': c_rate,
            'full machine, ratio to C scan': rate / c_rate}


def steady(slots: SlotMap, wanted: list[Shape], events: int) -> float:
    """Pairs per second of a release and an attempt to place the next task, on a machine filled with tasks."""
    held = [placement for placement in map(slots.place, wanted) if placement is not None]
    generator = random.Random(2)
    chances = [generator.random() for _ in range(events)]
    following = itertools.islice(itertools.cycle(wanted), events)
    begin = time.process_time()
    for chance, shape in zip(chances, following, strict=True):
        chosen = int(chance * len(held))
        slots.release(held[chosen])
        held[chosen] = held[-1]
        placement = slots.place(shape)
        if placement is None:
            held.pop()
        else:
            held[-1] = placement
    rate = events / (time.process_time() - begin)
    check(slots)
    return rate


def churn() -> Figures:
    """Pairs of a release and a placement per second, when all fit, and on a machine that has been full."""
    found: Figures = {}
    for name, parts in ('all fit', FITS), ('full', OVERFLOWS):
        mix = tasks(parts)
        rate = steady(machine(), shapes(mix), EVENTS)
        _, _, _, c_rate = c_program(mix)
        found |= {f'churn ({name}), release+place/s': rate, f'churn ({name}), C scan, release+place/s': c_rate,
                  f'churn ({name}), ratio to C scan': rate / c_rate}
    return found


def nodes() -> Figures:
    """Nanoseconds of a placement, and of a release with a placement, on 1,000 and on 100,000 nodes."""
    found: Figures = {}
    for count in 1_000, 100_000:
        wanted = shapes(tasks(FITS, 3 * count))
        slots = machine(count)
        begin = time.process_time()
        placements = [slots.place(shape) for shape in wanted]
        found[f'{count:,} nodes, ns for a placement'] = 1e9 * (time.process_time() - begin) / len(wanted)
        slots.release_many(cast('list[Placement]', placements))
        found[f'{count:,} nodes, ns for release+place'] = 1e9 / steady(slots, wanted, EVENTS)
    for what in 'a placement', 'release+place':
        found[f'100,000 nodes against 1,000, {what}'] = \
            found[f'100,000 nodes, ns for {what}'] / found[f'1,000 nodes, ns for {what}']
    return found


def memory() -> Figures:
    """Megabytes of 100,000 nodes with 128 cores and 8 GPUs, and bytes of a placement of one core."""
    have = {kind: [{'index': index, 'occupation': 0.0} for index in range(number)]
            for kind, number in (('cores', 128), ('gpus', 8))}
    records = [{'index': index, 'name': f'n{index}', 'lfs': 0, 'mem': 0, **have} for index in range(100_000)]
    before = resident()
    slots = SlotMap(records)
    size = resident() - before
    count = 1_000_000
    before = resident()
    placements = slots.place_many(Shape(), count)
    return {'100,000 nodes, MB': size / 1e6, 'one placement, bytes': (resident() - before) / len(placements)}


def resident() -> int:
    """Bytes of memory that this process has."""
    return int(Path('/proc/self/statm').read_text().split()[1]) * 4096


def events() -> Figures:
    """A million events with lost nodes and given slots, after which nothing is held and everything is free again."""
    generator, slots, count = random.Random(3), machine(1_000), 1_000_000
    held: list[Placement] = []
    wanted = [*shapes(tasks(OVERFLOWS, 1_000)), Shape(gpus=0.25), Shape(ranks=100, cores=3, ranks_per_node=5)]
    begin = time.process_time()
    for number in range(count):
        if number % 1_000 == 0:
            position = generator.randrange(1_000)
            generator.choice((slots.set_down, slots.set_up, slots.hide, slots.show))(position)
        elif held and generator.random() < 0.5:
            chosen = generator.randrange(len(held))
            held[chosen], held[-1] = held[-1], held[chosen]
            slots.release(held.pop())
        else:
            placement = slots.place(generator.choice(wanted)) or slots.claim([
                {'node_index': generator.randrange(1_000), 'cores': [generator.randrange(CORES)]}])
            if placement is not None:
                held.append(placement)
    rate = count / (time.process_time() - begin)
    check(slots)
    slots.release_many(held)
    check(slots)
    left = [slots.free(position) for position in range(1_000)]
    assert all((each['cores'], each['gpus']) == (CORES, GPUS) for each in left), 'something is lost'
    return {'events/s of a million': rate}


FIGURES: dict[str, Callable[[], Figures]] = {
    function.__name__: function for function in (fill, full, churn, nodes, memory, events)}


def measure(name: str) -> dict[str, Any]:
    """One run of one figure in a fresh process."""
    done = subprocess.run([sys.executable, __file__, '--figure', name], check=True, stdout=subprocess.PIPE)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('figures', nargs='*', choices=[[], *FIGURES], help='default: all')
    parser.add_argument('--runs', type=int, default=5, help='runs of each figure (memory and events: one)')
    parser.add_argument('--figure', help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.figure:
        print(json.dumps(FIGURES[options.figure]()))
        return 0
    print('| figure | median | min | max | runs |\n|---|---|---|---|---|')
    for name in options.figures or FIGURES:
        runs = 1 if name in ('memory', 'events') else options.runs
        measured = [measure(name) for _ in range(runs)]
        for key in measured[0]:
            values = [each[key] for each in measured]
            print(f'| {key} | {statistics.median(values):.4g} | {min(values):.4g} | {max(values):.4g} | {runs} |',
                  flush=True)
    return 0


if __name__ == '__main__':
    sys.exit(main())
