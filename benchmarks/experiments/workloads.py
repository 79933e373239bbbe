"""The workloads of experiments 1 to 4, as descriptions of tasks with durations.

Experiments 1 and 2 run copies of one task: 32 cores on two nodes of Titan, 828 s +- 14 s (Fig. 5). It ends with the
slowest of its 32 ranks, so its durations have the distribution of such: a few tasks last much longer, none much less.

Of experiments 3 and 4 the paper says that tasks differ in size, duration, and kind of parallelism and of compute
support, that they share the cores and GPUs of the nodes among them and leave none idle, that tasks of several nodes use
MPI, and that they last 500 to 900 s. It does not say which tasks there are. A program that was published with earlier
runs of the authors (github.com/radical-experiments/summit_prrte) divides each node among tasks of many sizes, and
submits the same tasks again for each generation, node by node. So it is done here, with as many tasks as in the paper,
three for each node:

- one node in six has a half of an MPI task of two nodes
- each other node is divided among one task or more, at random, its cores and its GPUs
- tasks name the virtual machine that their node belongs to, which the paper calls tagging; those of machines that were
  lost name none
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise
from random import Random
from typing import NamedTuple

from rp_client.simulation import Workload
from rp_client.simulation.workload import Entry, make_entry

MEAN, DEVIATION = 828.0, 14.0
"""Seconds of the emulated simulation of BPTI, Fig. 5."""

DURATION = {'from': 500.0, 'to': 900.0}
NODE_CORES, NODE_GPUS = 42, 6


class Shape(NamedTuple):
    """The requirements of a task."""

    cores_per_rank: int
    gpus_per_rank: int
    ranks: int = 1


MPI = Shape(7, 1, ranks=12)
"""A task that fills two nodes, one for each `MPI_SHARE` nodes."""
MPI_NODES, MPI_SHARE = 2, 12
SEED = 1
"""Of what is divided at random: the tasks are the same in all runs."""


def bpti(count: int) -> Workload:
    """So many emulated simulations of BPTI."""
    return Workload.of({'ranks': 32, 'duration': {'mean': MEAN, 'spread': DEVIATION / MEAN, 'shape': 'gumbel'}}, count)


def heterogeneous(tasks: int, machines: Sequence[int], generations: int = 1, lost: int = 0) -> Workload:
    """So many tasks, in generations that fill virtual machines of so many nodes, of which the last ones are lost."""
    if generations < 1 or tasks % generations:
        raise ValueError(f'{tasks} tasks cannot be {generations} equal generations')
    if tasks // generations < sum(machines):
        raise ValueError(f'a generation has {tasks // generations} tasks on {sum(machines)} nodes, at least one for '
                         'each is needed')
    random = Random(SEED)
    entries: list[Entry] = []
    for number, nodes in enumerate(machines):
        count = _share(tasks // generations, number, len(machines))
        named = {'partition': number} if number < len(machines) - lost else {}
        found = map(_entry, _machine(count, nodes, random))
        entries += [replace(entry, description={**entry.description, **named}) for entry in found]
    return Workload(entries * generations)


def _share(tasks: int, number: int, parts: int) -> int:
    """Of so many tasks, those of one of so many equal parts."""
    return tasks * (number + 1) // parts - tasks * number // parts


@cache
def _entry(shape: Shape) -> Entry:
    """A task of a shape."""
    return make_entry({**shape._asdict(), 'duration': DURATION}, 'a task')


def _machine(count: int, nodes: int, random: Random) -> list[Shape]:
    """So many tasks that fill the nodes of a virtual machine, in the order of the nodes."""
    large = nodes // MPI_SHARE
    tasks = [1] * (nodes - MPI_NODES * large)
    for _ in range(count - large - len(tasks)):
        tasks[random.randrange(len(tasks))] += 1
    return [MPI] * large + [task for each in tasks for task in _node(each, random)]


def _node(count: int, random: Random) -> list[Shape]:
    """So many tasks that share a node: its cores are cut at random, and each GPU is some task's."""
    cuts = [0, *sorted(random.sample(range(1, NODE_CORES), count - 1)), NODE_CORES]
    gpus = [0] * count
    for _ in range(NODE_GPUS):
        gpus[random.randrange(count)] += 1
    return [Shape(end - start, its) for (start, end), its in zip(pairwise(cuts), gpus, strict=True)]
