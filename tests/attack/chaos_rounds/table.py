"""Rounds of all kinds, one line for each, and the table of what came of them."""

from __future__ import annotations

import textwrap
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

from fault_matrix import workload
from fault_matrix.run import Plan as RunPlan
from fault_matrix.run import Run
from fault_matrix.run import Size as RunSize
from slurm_cluster import SlurmCluster, slurm_cluster

from chaos_rounds import verdict
from chaos_rounds.plan import JOBS, Plan, make_plan
from chaos_rounds.verdict import PROMISES, Broken

SECONDS = 0.03
JOB_SECONDS = 0.3
"""Seconds that a task takes at least, so that tasks run for as long as pilots and workers take to start, or jobs."""

_SHOWN = 3
"""Sentences on one promise that are printed."""

_LENGTH = 700
"""Characters of a sentence that are printed: the last ones, where a traceback has its error."""


class Size(NamedTuple):
    """The size of rounds: the number of tasks, and seconds until a round counts as hung."""

    tasks: int
    deadline: float


@contextmanager
def batch_system(kind: str) -> Iterator[SlurmCluster | None]:
    """The batch system that rounds of this kind need; None for most."""
    if kind != JOBS:
        yield None
        return
    with slurm_cluster(nodes=3) as slurm:
        yield slurm


def play(plan: Plan, size: Size, span: float, batch: SlurmCluster | None = None, *,
         keep: bool = False) -> tuple[list[str], Broken]:
    """One round: the events that happened, and what did not hold.

    `keep`: leave the files of a round in which something did not hold.
    """
    wanted = RunPlan(plan.pilots, plan.restartable, kind=plan.tasks, all_states=True, batch=batch,
                     seconds=SECONDS if batch is None else JOB_SECONDS)
    with Run(RunSize(size.tasks, workload.REAL, 0.0, size.deadline), wanted, 'hub', f'{plan.kind} {plan.seed}') as run:
        happened, broken = verdict.play(run, plan, span)
        if keep and any(broken.values()):
            print(f'the files are in {run.directory}')
            run.keep = True
    return list(map(str, happened)), broken


class Table:
    """The counts of all rounds, by kind."""

    def __init__(self) -> None:
        self._counts: dict[str, Counter[str]] = {}

    @property
    def broken(self) -> int:
        """How often something did not hold."""
        return sum(counts[promise] for counts in self._counts.values() for promise in PROMISES)

    def add(self, kind: str, tasks: int, happened: list[str], broken: Broken) -> None:
        """Count one round."""
        counts = self._counts.setdefault(kind, Counter())
        counts['rounds'] += 1
        counts['tasks'] += tasks
        counts['events'] += len(happened)
        for promise, sentences in broken.items():
            counts[promise] += len(sentences)

    def lines(self) -> Iterator[str]:
        """The table."""
        columns = ('rounds', 'events', 'tasks', *PROMISES)
        yield f'| kind | {" | ".join(columns)} |'
        yield '|---' * (len(columns) + 1) + '|'
        for kind, counts in self._counts.items():
            yield f'| {kind} | {" | ".join(str(counts[column]) for column in columns)} |'


def usual_span(kind: str, size: Size, batch: SlurmCluster | None) -> float:
    """Seconds that a round takes in which nothing happens; SystemExit if even then something does not hold."""
    begin = time.monotonic()
    plan = make_plan(kind, 0)
    _, broken = play(replace(plan, events=()), size, 1.0, batch)
    if any(broken.values()):
        raise SystemExit(f'{kind}: although nothing happened, this did not hold: {broken}')
    return time.monotonic() - begin


def play_rounds(kind: str, seeds: range, size: Size, span: float | None, table: Table, *, keep: bool = False) -> None:
    """Play a round for each seed; prints a line for each. Without `span`, what a round usually takes is measured."""
    with batch_system(kind) as batch:
        span = span or usual_span(kind, size, batch)
        for seed in seeds:
            _play_and_tell(make_plan(kind, seed), size, span, batch, table, keep=keep)


def _play_and_tell(plan: Plan, size: Size, span: float, batch: SlurmCluster | None, table: Table, *,
                   keep: bool) -> None:
    begin = time.monotonic()
    happened, broken = play(plan, size, span, batch, keep=keep)
    table.add(plan.kind, size.tasks, happened, broken)
    wrong = {promise: sentences for promise, sentences in broken.items() if sentences}
    result = ', '.join(f'{len(sentences)} {promise}' for promise, sentences in wrong.items()) or 'ok'
    print(f'{plan.kind} {plan.seed}: {plan.tasks} tasks, {plan.pilots} pilots, {time.monotonic() - begin:.1f} s, '
          f'{" ".join(happened) or "nothing happened"}: {result}', flush=True)
    _explain(wrong)
    if wrong:
        print(f'    again: chaos.py --kind {plan.kind} --seed {plan.seed} --rounds 1 --tasks {size.tasks} '
              f'--span {span:.2f}', flush=True)


def _explain(wrong: Broken) -> None:
    for promise, sentences in wrong.items():
        for sentence in sentences[:_SHOWN]:
            print(textwrap.indent(f'{promise}: {sentence[-_LENGTH:].strip()}', '    '))
        if len(sentences) > _SHOWN:
            print(f'    {promise}: and {len(sentences) - _SHOWN} more')
