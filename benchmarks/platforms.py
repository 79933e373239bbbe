"""Measure how fast pilots come to life: here, on a Slurm, over ssh; and print a table of medians.

    python benchmarks/platforms.py [--runs N] [local slurm remote many]

Slurm and hosts are those of the tests, started for each run before the clock is. The script needs pytest and the
programs that `nox -s slurm` and `nox -s ssh` install, and root to run it. Each run of each figure is a fresh process;
the script calls itself for that (`--figure`).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import common

TESTS = Path(__file__).parents[1] / 'tests'
sys.path.insert(0, str(TESTS))

from batch_pilots import FINAL, Managers, platform, sandbox  # noqa: E402
from remote_slurm import remote_slurm  # noqa: E402
from slurm_cluster import slurm_cluster  # noqa: E402

import radical.pilot as rp  # noqa: E402

Figures = dict[str, float]


def local(work: Path) -> Figures:
    """Seconds from the call of `submit_pilots` to PMGR_ACTIVE, on this machine."""
    with rp.Session(cfg={'base': str(work)}) as session:
        managers = Managers(session)
        seconds, pilot = to_active(managers, resource='local.exact', cores=2, sandbox=str(work))
        return {'local: to PMGR_ACTIVE / s': seconds, 'local: files in the sandbox': files(pilot)}


def slurm(work: Path) -> Figures:
    """The same on an idle Slurm, and how much of that is not between `sbatch` and the first line of the job."""
    with slurm_cluster() as cluster:
        submitted = work / 'submitted'
        os.environ.update(cluster.environ | platform(work, 'slurm://localhost/', 'SLURM'))
        os.environ['PATH'] = f'{stamping(work, "sbatch", submitted)}:{os.environ["PATH"]}'
        with rp.Session(cfg={'base': str(work)}) as session:
            seconds, pilot = to_active(Managers(session))
            waited = job_began(pilot) - float(submitted.read_text())
            return {'slurm: to PMGR_ACTIVE / s': seconds, 'slurm: from sbatch to the job / s': waited,
                    'slurm: ours / s': seconds - waited, 'slurm: files in the sandbox': files(pilot)}


def stamping(work: Path, program: str, stamp: Path) -> Path:
    """A directory with a program that notes the time, and then becomes the one of that name on PATH."""
    directory = work / 'stamping'
    directory.mkdir()
    script = directory / program
    script.write_text(f'#!/bin/sh\ndate +%s.%N >{stamp}\nexec {shutil.which(program)} "$@"\n')
    script.chmod(0o700)
    return directory


def job_began(pilot: rp.Pilot) -> float:
    """The time at which the first line of a pilot's job was run."""
    rows = (sandbox(pilot) / 'bootstrap_0.prof').read_text().splitlines()
    return next(float(time) for time, event, *_ in (row.split(',') for row in rows) if event == 'bootstrap_0_start')


def remote(work: Path) -> Figures:
    """The same through `slurm+ssh`, from one network namespace to another one."""
    with remote_slurm() as hosts:
        environ = hosts.hosts.environ | platform(work, 'slurm+ssh://h2/', 'SLURM', filesystem_endpoint='sftp://h2/')
        done = subprocess.run([*hosts.prefix, sys.executable, str(TESTS / 'pilot_application.py'), str(work)],
                              env=os.environ | environ, cwd=work, capture_output=True, text=True)
        told = json.loads(done.stdout.splitlines()[-1])
        assert told['state'] == rp.PMGR_ACTIVE, told
        return {'slurm+ssh: to PMGR_ACTIVE / s': told['seconds']}


def many(work: Path) -> Figures:
    """16 pilots at once on four nodes, each a node: until all are active, or in the queue with a reason."""
    with slurm_cluster() as cluster:
        os.environ.update(cluster.environ | platform(work, 'slurm://localhost/', 'SLURM'))
        with rp.Session(cfg={'base': str(work)}) as session, Stalls() as stalls:
            managers = Managers(session)
            description = rp.PilotDescription({'resource': 'test.machine', 'cores': 8, 'runtime': 10})
            started = time.monotonic()
            pilots = managers.pmgr.submit_pilots([description] * 16)
            called = time.monotonic() - started
            while not all(map(settled, pilots)):
                time.sleep(0.02)
            seconds = time.monotonic() - started
            active = [pilot.state for pilot in pilots].count(rp.PMGR_ACTIVE)
            assert active == 4, [(pilot.state, pilot.exception) for pilot in pilots]
            return {'16 pilots: all active or queued / s': seconds, '16 pilots: submit_pilots / ms': 1000 * called,
                    '16 pilots: longest stall of another thread / ms': 1000 * stalls.longest}


def settled(pilot: rp.Pilot) -> bool:
    """Return whether a pilot is active, or its job is queued with a reason."""
    assert pilot.state not in FINAL, pilot.exception
    return pilot.state == rp.PMGR_ACTIVE or any('Reason=' in line for line in pilot.log)


class Stalls:
    """A thread of the application that wants to run every 2 ms; `longest` is by how much it was kept from that."""

    def __init__(self) -> None:
        self.longest = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._tick)

    def __enter__(self) -> Stalls:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _tick(self) -> None:
        before = time.monotonic()
        while not self._over.wait(0.002):
            now = time.monotonic()
            self.longest = max(self.longest, now - before - 0.002)
            before = now


def to_active(managers: Managers, **description: Any) -> tuple[float, rp.Pilot]:
    """Seconds from the call of `submit_pilots` to PMGR_ACTIVE."""
    started = time.monotonic()
    pilot = managers.submitted(**description)
    pilot.wait([rp.PMGR_ACTIVE, *FINAL])
    seconds = time.monotonic() - started
    assert pilot.state == rp.PMGR_ACTIVE, (pilot.exception, pilot.exception_detail)
    return seconds, pilot


def files(pilot: rp.Pilot) -> int:
    """The number of files and directories below a pilot's sandbox."""
    return len(list(sandbox(pilot).rglob('*')))


FIGURES: dict[str, Callable[[Path], Figures]] = {
    function.__name__: function for function in (local, slurm, remote, many)}


def measure(name: str) -> Figures:
    """One run of one figure in a fresh process."""
    with tempfile.TemporaryDirectory(prefix='platforms.') as work:
        return common.fresh(__file__, work, '--figure', name)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('figures', nargs='*', choices=[[], *FIGURES], help='default: all')
    parser.add_argument('--runs', type=int, default=5, help='runs of each figure')
    parser.add_argument('--work', help=argparse.SUPPRESS)
    parser.add_argument('--figure', help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.figure:
        os.environ['RADICAL_BASE'] = options.work
        print(json.dumps(FIGURES[options.figure](Path(options.work))))
        return 0
    print('| figure | median | min | max | runs |\n|---|---|---|---|---|')
    for name in options.figures or FIGURES:
        measured = [measure(name) for _ in range(options.runs)]
        for key in measured[0]:
            values = [each[key] for each in measured]
            print(f'| {key} | {statistics.median(values):.3g} | {min(values):.3g} | {max(values):.3g} | '
                  f'{options.runs} |', flush=True)
    return 0


if __name__ == '__main__':
    sys.exit(main())
