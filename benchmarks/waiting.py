"""Measure the agent's wait pool with a million waiting tasks of a thousand shapes, and print a table of medians.

    python benchmarks/waiting.py [--runs N] [--tasks N] [--shapes N] [--nodes N] [--events N]

Nodes have 64 cores and 8 GPUs, and are full when the measurement begins. What is measured is the wait pool with the
slot map and the reservations, as the scheduler of an agent calls them, one event at a time. Times are CPU time.

- submit: a task enters the pool, and the pool looks whether it can be placed
- finish: a task that runs gives its slots back, and others are placed there
- cancel: a task that waits leaves the pool
- memory: what the process grows by while the tasks enter the pool, the tasks themselves aside

Each run is a fresh process; the script calls itself for that (`--once`).
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from rp_agent.scheduler.reservation import Reservation
from rp_agent.scheduler.slotcheck import check
from rp_agent.scheduler.slotmap import Placement, Shape, SlotMap
from rp_agent.scheduler.waitpool import WaitPool

CORES, GPUS = 64, 8
TIMEOUT = 3600.0


class Task:
    """A task, as far as it matters here."""

    __slots__ = ('placement', 'shape', 'ticket')

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.ticket = -1
        self.placement: Placement | None = None


class Scheduler:
    """A pool, nodes and reservations; a stand-in for the scheduler component."""

    def __init__(self, nodes: int) -> None:
        cores = [{'index': index, 'occupation': 0.0} for index in range(CORES)]
        gpus = [{'index': index, 'occupation': 0.0} for index in range(GPUS)]
        self.slots = SlotMap({'index': index, 'name': f'node{index}', 'cores': cores, 'gpus': gpus, 'lfs': 0, 'mem': 0}
                             for index in range(nodes))
        self.pool: WaitPool[Task] = WaitPool(self.slots)
        self.reservation: Reservation[Task] = Reservation(self.slots, self.pool, self, TIMEOUT)
        self.running: list[Task] = []

    def candidates(self, task: Task) -> Sequence[int]:
        return self.slots.candidates(task.shape)

    def place_on(self, task: Task, positions: Sequence[int]) -> Placement | None:
        return self.slots.place_on(task.shape, positions)

    def submit(self, task: Task) -> None:
        task.ticket = self.pool.add(task, task.shape, 0, time.monotonic())
        self.place()

    def finish(self, task: Task) -> None:
        assert task.placement is not None
        self.slots.release(task.placement)
        self.pool.freed(task.placement)
        self.place()

    def cancel(self, task: Task) -> None:
        self.pool.remove(task.ticket)
        self.reservation.dropped(task)

    def place(self) -> None:
        now = time.monotonic()
        if (offered := self.reservation.offer()) is not None:
            task, placement = offered
            task.placement = placement
            self.pool.remove(task.ticket)
            self.running.append(task)
        placed = self.pool.place(self.fits, now)
        for task in placed:
            self.reservation.dropped(task)
        self.running += placed
        self.reservation.update(now)

    def fits(self, task: Task) -> bool:
        task.placement = self.slots.place(task.shape)
        return task.placement is not None


def some_shapes(count: int) -> list[Shape]:
    """That many different shapes: of one core to several nodes, with GPUs and without."""
    ranks, gpus = 5, 4
    widest = min(CORES, count // (ranks * gpus) + 1)
    found = [Shape(ranks=rank, cores=core, gpus=gpu)
             for core in range(1, widest + 1) for rank in range(1, ranks + 1) for gpu in range(gpus)]
    found += [Shape(ranks=ranks + 1 + extra, cores=1) for extra in range(count - len(found))]
    return found[:count]


def memory() -> int:
    """Bytes of memory that this process has."""
    return int(Path('/proc/self/statm').read_text(encoding='ascii').split()[1]) * resource.getpagesize()


def timed(function: Callable[[Task], None], tasks: Sequence[Task]) -> float:
    """Microseconds per call."""
    begin = time.process_time()
    for task in tasks:
        function(task)
    return 1e6 * (time.process_time() - begin) / len(tasks)


def finish_some(scheduler: Scheduler, count: int, chance: random.Random) -> float:
    """Microseconds per task that ends, which are drawn from those that run."""
    running = scheduler.running
    drawn = [chance.random() for _ in range(count)]
    begin = time.process_time()
    for each in drawn:
        number = int(each * len(running))
        running[number], running[-1] = running[-1], running[number]
        scheduler.finish(running.pop())
    return 1e6 * (time.process_time() - begin) / count


def measure(options: argparse.Namespace) -> dict[str, float]:
    """One run of all figures."""
    chance = random.Random(0)
    shapes = some_shapes(options.shapes)
    scheduler = Scheduler(options.nodes)
    tasks = [Task(chance.choice(shapes)) for _ in range(options.tasks)]
    before = memory()
    submit = timed(scheduler.submit, tasks)
    grown = memory() - before
    finish = finish_some(scheduler, options.events, chance)
    waiting = [task for task in tasks if task.placement is None]
    scheduler.pool.check()
    check(scheduler.slots)
    assert len(waiting) == len(scheduler.pool)
    cancel = timed(scheduler.cancel, chance.sample(waiting, min(options.events, len(waiting))))
    return {'submit / us': submit, 'finish / us': finish, 'cancel / us': cancel,
            'memory / bytes per task': grown / len(scheduler.pool)}


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--runs', type=int, default=3)
    parser.add_argument('--tasks', type=int, default=1_000_000)
    parser.add_argument('--shapes', type=int, default=1000)
    parser.add_argument('--nodes', type=int, default=1000)
    parser.add_argument('--events', type=int, default=50_000, help='tasks that finish, and that are cancelled')
    parser.add_argument('--once', action='store_true', help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.once:
        print(json.dumps(measure(options)))
        return 0
    again = [sys.executable, __file__, *sys.argv[1:], '--once']
    runs = [json.loads(subprocess.run(again, check=True, stdout=subprocess.PIPE).stdout) for _ in range(options.runs)]
    print(f'{options.tasks:,} tasks of {options.shapes:,} shapes on {options.nodes:,} nodes\n')
    print('| figure | median | min | max | runs |\n|---|---|---|---|---|')
    for key in runs[0]:
        values = [run[key] for run in runs]
        print(f'| {key} | {statistics.median(values):.3g} | {min(values):.3g} | {max(values):.3g} | {len(runs)} |')
    return 0


if __name__ == '__main__':
    sys.exit(main())
