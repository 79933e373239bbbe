"""A row of the matrix: one fault at many moments."""

from __future__ import annotations

import random
import statistics
import textwrap
import time
from argparse import Namespace
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import NamedTuple

from fault_matrix.application import LossError
from fault_matrix.disk import small_disk
from fault_matrix.faults import FAULTS, Fault
from fault_matrix.run import Run, Size
from fault_matrix.verdict import contradictions, losses, repeated, untold, wrongly_stored

BYTES_PER_TASK = 4096
"""Room on a small disk, of which a session uses about half, and which is filled otherwise."""

SHOWN = 3
"""Losses that are printed in full."""


class Report(NamedTuple):
    """What came of a run."""

    losses: list[str]
    steps: list[float]
    """How long each part of it took."""
    progress: list[int]
    """How many tasks were final at each moment."""
    whole: float


def trial(fault: Fault, size: Size, backend: str, moments: Sequence[float], seed: str, *, keep: bool = False) -> Report:
    """One run in as many parts as there are moments, with a fault so many seconds after the beginning of each.

    A part begins when nearly all tasks of the former one are final, and what happened in that is over. `keep`: leave
    the files of a run with losses.
    """
    begin = time.monotonic()
    found: list[str] = []
    steps: list[float] = []
    progress: list[int] = []
    with Run(size, fault.plan(size), backend, seed) as run:
        megabytes = 8 + size.tasks * BYTES_PER_TASK // 2**20
        with small_disk(run.sessions, megabytes) if fault.small_disk else nullcontext():
            try:
                run.prepare()
                run.start_application()
                for number, moment in enumerate(moments, 1):
                    began = time.monotonic()
                    run.order(size.tasks * number // len(moments))
                    time.sleep(moment)
                    progress.append(run.progress())
                    fault.inject(run)
                    run.wait_done()
                    steps.append(time.monotonic() - began)
                run.close()
                found = losses(run, agent_dies=fault.agent_dies)
                found += [*wrongly_stored(run), *contradictions(run), *repeated(run)]
                if count := untold(run):
                    found.append(f'no callback was told of the ends of {count} tasks')
                found += run.left()
            except LossError as error:
                found.append(str(error))
            if found and keep:
                found.insert(0, f'the files are in {run.directory}')
                run.keep = True
    return Report(found, steps, progress, time.monotonic() - begin)


class Row:
    """Runs of one fault, with what came of them."""

    def __init__(self, backend: str, name: str, chosen: Namespace) -> None:
        self.backend = backend
        self.name = name
        self.lost = 0
        self._fault = FAULTS[name]
        self._chosen = chosen
        self._size = Size(chosen.tasks, self._fault.spawner, chosen.seconds or self._fault.seconds, chosen.deadline)
        self._moments = 0
        self._durations: list[float] = []

    def execute(self) -> None:
        """Make all runs; prints a line for each."""
        chosen = self._chosen
        usual = [] if chosen.at else self._usual()
        for number in range(chosen.moments // chosen.per_run) if chosen.only is None else [chosen.only]:
            seed = f'{self.name} {chosen.seed} {number}'
            source = random.Random(seed)
            moments = chosen.at or [source.uniform(0, step) for step in usual]
            report = trial(self._fault, self._size, self.backend, moments, seed, keep=chosen.keep)
            self._moments += len(report.progress)
            self._durations.append(report.whole)
            self._print(number, moments, report)

    def _usual(self) -> list[float]:
        """How long each part of a run takes when nothing happens."""
        harmless = replace(self._fault, inject=FAULTS['none'].inject)
        report = trial(harmless, self._size, self.backend, [0.0] * self._chosen.per_run, '')
        if report.losses:
            raise SystemExit(f'{self.backend} {self.name}: losses without any fault: {report.losses[:SHOWN]}')
        return report.steps

    def _print(self, number: int, moments: Sequence[float], report: Report) -> None:
        chosen = self._chosen
        done = ', '.join(map(str, report.progress))
        print(f'{self.backend} {self.name} {number}: when {done} of {chosen.tasks} were final; {report.whole:.1f} s: '
              f'{"LOSS" if report.losses else "ok"}', flush=True)
        if report.losses:
            self.lost += 1
            for loss in report.losses[:SHOWN]:
                print(textwrap.indent(loss[-1500:].strip(), '    '))
            if len(report.losses) > SHOWN:
                print(f'    and {len(report.losses) - SHOWN} more')
            print(f'    again: matrix.py --backend {self.backend} --fault {self.name} --tasks {chosen.tasks} '
                  f'--seconds {self._size.seconds:g} --seed {chosen.seed} --only {number} '
                  f'--at {" ".join(f"{moment:.3f}" for moment in moments)}', flush=True)

    def line(self) -> str:
        """The row of the table."""
        return (f'| {self.backend} | {self.name} | {self._chosen.tasks} | {self._moments} | {self.lost} '
                f'| {statistics.median(self._durations):.1f} s, {max(self._durations):.1f} s |')
