"""A row of the matrix: one fault at many moments."""

from __future__ import annotations

import random
import statistics
import textwrap
import time
from argparse import Namespace
from contextlib import nullcontext
from dataclasses import replace
from typing import NamedTuple

from fault_matrix.application import LossError
from fault_matrix.disk import small_disk
from fault_matrix.faults import FAULTS, Fault
from fault_matrix.run import Run, Size
from fault_matrix.verdict import losses, untold

BYTES_PER_TASK = 4096
"""Room on a small disk, of which a session uses about half, and which is filled otherwise."""

SHOWN = 3
"""Losses that are printed in full."""


class Report(NamedTuple):
    """What came of a run."""

    losses: list[str]
    until_final: float
    whole: float
    progress: int
    untold: int


def trial(fault: Fault, size: Size, backend: str, moment: float, seed: str) -> Report:
    """One run with a fault `moment` seconds after the opening of the session."""
    begin = time.monotonic()
    found: list[str] = []
    final = progress = heard = 0
    with Run(size, fault.plan(size), backend, seed) as run:
        megabytes = 16 + size.tasks * BYTES_PER_TASK // 2**20
        with small_disk(run.sessions, megabytes) if fault.small_disk else nullcontext():
            try:
                run.start_application()
                opened = time.monotonic()
                time.sleep(moment)
                progress = run.progress()
                fault.inject(run)
                run.wait_final()
                final = time.monotonic() - opened
                run.close()
                found = losses(run, agent_dies=fault.agent_dies)
                heard = untold(run)
                found += run.left()
            except LossError as error:
                found.append(str(error))
    return Report(found, final, time.monotonic() - begin, progress, heard)


class Row:
    """Runs of one fault, with their results."""

    def __init__(self, backend: str, name: str, chosen: Namespace) -> None:
        self.backend = backend
        self.name = name
        self.lost = 0
        self._fault = FAULTS[name]
        self._chosen = chosen
        self._size = Size(chosen.tasks, self._fault.spawner, chosen.seconds or self._fault.seconds, chosen.deadline)
        self._durations: list[float] = []

    def execute(self) -> None:
        """Make all runs; prints a line for each."""
        chosen = self._chosen
        harmless = replace(self._fault, inject=FAULTS['none'].inject)
        usual = 0.0
        if chosen.moment is None:
            report = trial(harmless, self._size, self.backend, 0.0, '')
            usual = report.until_final
            if report.losses:
                raise SystemExit(f'{self.backend} {self.name}: losses without any fault: {report.losses[:SHOWN]}')
        for number in range(chosen.moments) if chosen.only is None else [chosen.only]:
            seed = f'{self.name} {chosen.seed} {number}'
            moment = random.Random(seed).uniform(0, usual) if chosen.moment is None else chosen.moment
            report = trial(self._fault, self._size, self.backend, moment, seed)
            self._durations.append(report.whole)
            self._print(number, moment, report)

    def _print(self, number: int, moment: float, report: Report) -> None:
        chosen = self._chosen
        print(f'{self.backend} {self.name} {number}: after {moment:.3f} s, {report.progress} of {chosen.tasks} final; '
              f'{report.whole:.1f} s; {report.untold} without callback: {"LOSS" if report.losses else "ok"}',
              flush=True)
        if report.losses:
            self.lost += 1
            for loss in report.losses[:SHOWN]:
                print(textwrap.indent(loss[-1500:].strip(), '    '))
            if len(report.losses) > SHOWN:
                print(f'    and {len(report.losses) - SHOWN} more')
            print(f'    again: matrix.py --backend {self.backend} --fault {self.name} --tasks {chosen.tasks} '
                  f'--seed {chosen.seed} --only {number} --moment {moment:.3f}', flush=True)

    def line(self) -> str:
        """The row of the table."""
        return (f'| {self.backend} | {self.name} | {self._chosen.tasks} | {len(self._durations)} | {self.lost} '
                f'| {statistics.median(self._durations):.1f} s, {max(self._durations):.1f} s |')
